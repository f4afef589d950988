"""What a project is called on the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping


def called(word: str) -> str:
    """Return what to ask the daemon for: an absolute path where `word` is one, else the name it is."""
    is_path = "/" in word or word in {".", ".."} or os.path.isdir(word)
    return os.path.abspath(os.path.expanduser(word)) if is_path else word


def by_name(text: str, answer: Mapping[str, object]) -> str:
    """Return a text in which handoffd's commands for the project of an answer call it by its name.

    A path may be longer than a line. It stays where it or the name needs quotes, and where the name would be
    an option, or a folder here. Imports nothing, as `status` must not.
    """
    root, name = answer.get("project"), answer.get("called")  # a daemon of an older release tells no name
    if not isinstance(root, str) or not isinstance(name, str) or not _is_plain(name):
        return text
    if called(name) not in {name, root}:
        return text
    words = text.split(" ")
    for number, word in enumerate(words):
        if word == root and _follows_verbs(words[:number]):
            words[number] = name
    return " ".join(words)


def _is_plain(name: str) -> bool:
    return not name.startswith("-") and name.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _follows_verbs(words: list[str]) -> bool:
    """Return whether these words end with `handoffd` and one or two verbs."""
    return any(
        words[-count - 1].endswith("handoffd") and all(word.isalpha() for word in words[-count:])
        for count in (1, 2)
        if len(words) > count
    )
