"""What a project is called on the command line."""

from __future__ import annotations

import os


def called(word: str) -> str:
    """Return what to ask the daemon for: an absolute path where `word` is one, else the name it is."""
    is_path = "/" in word or word in {".", ".."} or os.path.isdir(word)
    return os.path.abspath(os.path.expanduser(word)) if is_path else word
