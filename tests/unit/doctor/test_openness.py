"""Files with secrets that more people may read than should."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.doctor.installation import open_to_others, too_open


@pytest.mark.parametrize(("mode", "found"), [(0o600, False), (0o640, True), (0o604, True), (0o622, False)])
def test_what_others_may_read_is_found(tmp_path: Path, mode: int, found: bool) -> None:
    """What is not there, nobody may read."""
    file = tmp_path / "a key"
    file.write_text("x")
    file.chmod(mode)

    assert ((str(file),) if found else ()) == open_to_others([file, tmp_path / "missing"])


def test_the_remedy_can_be_typed() -> None:
    """Whatever the file is called."""
    finding = too_open("settings", "/etc/a key")

    assert ("/etc/a key is open to others", "chmod 600 '/etc/a key'") == (finding.what, finding.action)
