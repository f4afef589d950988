"""Where the daemon is, according to the flags and the environment, and how to name projects there.

`status` and its reports come this way, so what takes time is imported by what needs it.
"""

from __future__ import annotations

import os

from handoffd.settings.paths import socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from handoffd.api.client import Client
    from handoffd.settings.model import Settings


class Place:
    """The given settings file, if any, and the environment: where the command line looks for the daemon."""

    def __init__(self, *, config: str | None, environ: Mapping[str, str]) -> None:
        self.config = config
        self.environ = environ

    def client(self, answer_s: float | None = None) -> Client:
        """Return a client for the daemon's socket. Raises InvalidFile like `settings`."""
        from handoffd.api.client import ANSWER_S, Client

        return Client(self.socket(), ANSWER_S if answer_s is None else answer_s, self.holder)

    def socket(self) -> Path:
        """Return where the daemon would answer.

        The settings are read only when nothing quicker tells: that takes a quarter of a second.
        """
        from pathlib import Path

        found = socket_path(self.config, self.environ)
        return self.settings().control_socket if found is None else Path(found)

    def settings(self) -> Settings:
        """Return the daemon's settings. Raises InvalidFile."""
        from shlex import join

        from handoffd.errors import InvalidFile
        from handoffd.settings.loading import load

        try:
            return load({"config": self.config}, self.environ).settings
        except InvalidFile as invalid:
            named = () if self.config is None else ("--config", self.config)
            hint = join(("handoffd", *named, "config", "check"))
            raise InvalidFile(invalid.problems, hint=hint) from None

    def holder(self) -> int | None:
        """Return the pid of the process that holds the state directory, if its lock names one."""
        from handoffd.files.locks import daemon_lock_path, holder_of

        found = holder_of(daemon_lock_path(self.settings().state_dir))
        return None if found is None else found.pid

    def project(self, word: str | None) -> str:
        """Return what to call a project by: an absolute path, or a name. None is the current folder.

        Raises Refused (BAD_ARGUMENT) for what is not UTF-8, because no request can hold it.
        """
        return in_utf8(os.getcwd() if word is None else called(word))


# --- what a project is called ------------------------------------------------------------------------
def called(word: str) -> str:
    """Return what to ask the daemon for: an absolute path where `word` is one, else the name it is."""
    is_path = "/" in word or word in {".", ".."} or os.path.isdir(word)
    return os.path.abspath(os.path.expanduser(word)) if is_path else word


def in_utf8(path: str) -> str:
    """Return a path or a name. Raises Refused (BAD_ARGUMENT) unless it is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        from handoffd.errors import Refused

        message = f"{os.fsencode(path)!r} is not UTF-8, so it cannot be a project"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd projects") from None
    return path


def by_name(text: str, answer: Mapping[str, object]) -> str:
    """Return a text in which handoffd's commands for the project of an answer call it by its name.

    A path may be longer than a line. It stays where it has a blank, where the name needs quotes, and where
    that would be an option, or a folder here. Imports nothing, as `status` must not.
    """
    root, name = answer.get("project"), answer.get("called")  # a daemon of an older release tells no name
    if not isinstance(root, str) or not isinstance(name, str) or not _is_plain(name):
        return text
    if called(name) not in {name, root}:
        return text
    words = text.split(" ")
    quoted = f"'{root}'"  # as a shell needs it, if it has letters beyond ASCII
    for number, word in enumerate(words):
        bare = word.rstrip("`,;:.)")
        if bare in {root, quoted} and _follows_verbs(words[:number]):
            words[number] = name + word[len(bare) :]
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
