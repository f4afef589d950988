"""The token of the loopback port."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from handoffd.api.http.auth import Token, ensured, read, rotated
from handoffd.errors import Refused, StoreError


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    """Mode 0600, whatever the umask; the folder is made when need be."""
    path = tmp_path / "state" / "control.token"
    before = os.umask(0)
    try:
        token = ensured(path)
    finally:
        os.umask(before)

    assert token == ensured(path) == read(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(path.parent.iterdir())
    assert len(token) >= 43


def test_a_new_one_replaces_it(tmp_path: Path) -> None:
    """Also for a server that read the old one."""
    path = tmp_path / "control.token"
    token, first = Token(path), ensured(path)
    assert token.opens(first.encode())

    second = rotated(path)

    assert first != second
    assert (False, True) == (token.opens(first.encode()), token.opens(second.encode()))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """It opens nothing, and the error has the command for a new one."""
    path = tmp_path / "control.token"
    text = ensured(path)
    path.chmod(mode)

    assert not Token(path).opens(text.encode())
    with pytest.raises(Refused) as caught:
        ensured(path)
    assert "UNSAFE_TOKEN" == caught.value.code
    assert "handoffd token" in (caught.value.hint or "")


def test_another_kind_of_file_is_not_used(tmp_path: Path) -> None:
    """A link, a folder, a pipe, an empty or a short text."""
    path = tmp_path / "control.token"

    def link() -> None:
        (tmp_path / "other").write_text("x" * 43)
        path.symlink_to(tmp_path / "other")

    def text(content: str) -> None:
        path.write_text(content)
        path.chmod(0o600)

    for make in (link, path.mkdir, lambda: os.mkfifo(path, 0o600), lambda: text(""), lambda: text("short")):
        make()
        with pytest.raises(Refused):
            read(path)
        assert not Token(path).opens(b"")
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_missing_one_opens_nothing(tmp_path: Path) -> None:
    """Not even the empty one."""
    assert not Token(tmp_path / "none").opens(b"")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StoreError, match="state"):
        ensured(tmp_path / "state" / "control.token")


def test_one_that_is_given_needs_no_file(tmp_path: Path) -> None:
    """Nor looks at one that is there."""
    path = tmp_path / "control.token"
    text, token = ensured(path), Token(path, "given-by-the-settings")

    assert (True, False) == (token.opens(b"given-by-the-settings"), token.opens(text.encode()))
