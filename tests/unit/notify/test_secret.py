"""Secrets, given in the settings or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from handoffd.notify.secret import MOST_BYTES, secret_text
from handoffd.notify.sink import Undelivered


def test_it_is_read_whenever_it_is_needed(tmp_path: Path) -> None:
    """A key that was changed is the new one at once; the line's end is none of it."""
    file = tmp_path / "key"
    for text in ("one", "two"):
        file.write_text(f"{text}\n")
        assert text == secret_text(None, file)
    assert "x" == secret_text(SecretStr(" x "), None)
    assert secret_text(None, None) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"", "nothing"), (b"\xff", "no text"), (b"x" * (MOST_BYTES + 1), "too long")],
)
def test_a_file_without_one_is_a_delivery_that_failed(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """It names the file, and is tried again."""
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(Undelivered, match=why) as caught:
        secret_text(None, file)
    assert str(file) in caught.value.why
    assert caught.value.worth_retrying
