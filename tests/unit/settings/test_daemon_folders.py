"""Where the daemon keeps its things, found the quick way."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.entrance.place import Place
from handoffd.settings.paths import folders


def _by_settings(config: str | None, environ: dict[str, str]) -> tuple[str, str]:
    settings = Place(config=config, environ=environ).settings()
    return str(settings.state_dir), str(settings.runtime_dir)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HANDOFFD_STATE_DIR": "/var/tmp/s"},
        {"HANDOFFD_RUNTIME_DIR": "/run/h"},
        {"HANDOFFD_RUNTIME_DIR": ""},
        {"handoffd_runtime_dir": "/run/lower"},
        {"HANDOFFD_STATE_DIR": "/s", "HANDOFFD_RUNTIME_DIR": "/r"},
        {"XDG_RUNTIME_DIR": "/run/user/1"},
        {"XDG_STATE_HOME": "/x/state", "XDG_CONFIG_HOME": "relative"},
        {"RUNTIME_DIRECTORY": "/run/handoffd", "STATE_DIRECTORY": "/var/lib/handoffd:/other"},
        {"RUNTIME_DIRECTORY": "/run/handoffd", "HANDOFFD_STATE_DIR": "/s"},
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        None,
        "executor: claude\n",
        "state_dir: /var/mine\n",
        "runtime_dir: /run/mine   # here\nexecutor: codex\n",
        "state_dir: /var/mine\nruntime_dir: /run/mine\n",
        '{"state_dir": "/var/json", "runtime_dir": "/run/json", "executor": "claude"}',
    ],
)
def test_it_is_where_the_settings_say(tmp_path: Path, environ: dict[str, str], text: str | None) -> None:
    """By environment, by file, by default, in that order."""
    whole = {"HOME": str(tmp_path), **environ}
    if text is not None:
        file = tmp_path / ".config/handoffd/handoffd.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")

    assert _by_settings(None, whole) == folders(None, whole)


@pytest.mark.parametrize(
    "text",
    [
        'state_dir: "/var/mine"\n',
        "state_dir: ./mine\n",
        "state_dir: ~/mine\n",
        "# state_dir: /old\nstate_dir: /var/mine\n",
        "log:\n  state_dir: /odd\n",
        "state_dir: /a b\n",
        "{state_dir: /var/mine}",
        '{"state_dir": 5}',
        "runtime_dir: &a /run/mine\n",
        "executor: claude\n" + "#" * 70_000 + "\nstate_dir: /far\n",
    ],
)
def test_what_is_not_plain_is_for_the_settings_reader(tmp_path: Path, text: str) -> None:
    """Never a guess."""
    file = tmp_path / "named.yaml"
    file.write_text(text, encoding="utf-8")

    assert folders(str(file), {"HOME": str(tmp_path)}) is None


def test_a_relative_variable_and_a_missing_file_are_for_the_reader_too(tmp_path: Path) -> None:
    """It knows what they are relative to, and says what is missing."""
    assert folders(None, {"HOME": str(tmp_path), "HANDOFFD_STATE_DIR": "here"}) is None
    assert folders(str(tmp_path / "none.yaml"), {"HOME": str(tmp_path)}) is None
