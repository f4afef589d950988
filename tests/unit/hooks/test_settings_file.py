"""Claude Code's settings files on the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, Refused, StoreError
from handoffd.hooks.claude_settings import MAX_BYTES, SHARED, SettingsFile
from handoffd.hooks.event import EVENTS

OURS = "/opt/bin/handoffd hook"


def _file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path / "shop", SHARED, tmp_path / "state/hooks")


@pytest.mark.parametrize(
    "text",
    ["{}", "", "\n", '{"hooks": {}}', '{"hooks": {"Stop": []}}', '{\n  "hooks": {\n  }\n}\n', '{"a": 1}\n'],
)
def test_there_and_back_is_where_it_was(tmp_path: Path, text: str) -> None:
    """To the byte, also what was empty; with its mode, and nothing of it is kept anywhere."""
    file = _file(tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text, encoding="utf-8")
    file.path.chmod(0o640)

    assert file.install("/old/bin/handoffd hook", EVENTS)
    assert file.install(OURS, EVENTS)
    assert not file.install(OURS, EVENTS)
    assert set(EVENTS) == {one.event for one in file.hooks()}
    assert 0o640 == stat.S_IMODE(file.path.stat().st_mode)
    assert file.uninstall()
    assert text == file.path.read_text(encoding="utf-8")
    assert 0o640 == stat.S_IMODE(file.path.stat().st_mode)
    assert not file.uninstall()


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    """A project shall not get a file from having had hooks once."""
    file = _file(tmp_path)
    (tmp_path / "shop").mkdir()

    assert () == file.hooks()
    assert not file.uninstall()
    assert file.install(OURS, EVENTS)
    assert file.uninstall()
    assert not file.path.exists()


def test_what_a_person_wrote_meanwhile_stays(tmp_path: Path) -> None:
    """Then only ours is taken out."""
    file = _file(tmp_path)
    (tmp_path / "shop").mkdir()
    file.install(OURS, ("Stop",))
    text = file.path.read_text(encoding="utf-8")
    file.path.write_text(text.replace("{", '{\n  "model": "opus",', 1), encoding="utf-8")

    assert file.uninstall()
    assert '{\n  "model": "opus"\n}\n' == file.path.read_text(encoding="utf-8")


def test_a_link_out_is_not_followed(tmp_path: Path) -> None:
    """Neither a file nor a folder; what it leads to stays as it is."""
    file, outside = _file(tmp_path), tmp_path / "outside"
    (outside / "claude").mkdir(parents=True)
    (outside / "settings.json").write_text("{}", encoding="utf-8")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/.claude").symlink_to(outside / "claude")
    with pytest.raises(StoreError):
        file.install(OURS, EVENTS)
    (tmp_path / "shop/.claude").unlink()
    file.path.parent.mkdir()
    file.path.symlink_to(outside / "settings.json")
    with pytest.raises(StoreError):
        file.install(OURS, EVENTS)

    assert "{}" == (outside / "settings.json").read_text(encoding="utf-8")
    assert [] == list((outside / "claude").iterdir())


@pytest.mark.parametrize("raw", [b'{"a": 1,}', b"\xff", b'{"hooks": 5}'])
def test_what_is_invalid_is_left_alone(tmp_path: Path, raw: bytes) -> None:
    """The error names the file, and how to open it."""
    file = _file(tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(raw)

    for attempt in (lambda: file.install(OURS, EVENTS), file.uninstall, file.hooks):
        with pytest.raises(InvalidFile) as invalid:
            attempt()
        assert str(file.path) in str(invalid.value)
        assert "EDITOR" in str(invalid.value.hint)
    assert raw == file.path.read_bytes()
    assert ["settings.json"] == os.listdir(file.path.parent)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    """It is no settings file."""
    file = _file(tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b" " * (MAX_BYTES + 1))

    with pytest.raises(Refused):
        file.install(OURS, EVENTS)
