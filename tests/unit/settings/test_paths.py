"""Where the daemon keeps its files: by default, and found without the settings' reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.entrance.place import Place
from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir, folders, shared

HOME = {"HOME": "/home/ann"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/home/ann/.local/state/handoffd"),
        ({"XDG_STATE_HOME": "/data/state"}, "/data/state/handoffd"),
        ({"XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/handoffd"),
        ({"XDG_STATE_HOME": "/data", "STATE_DIRECTORY": "/var/lib/handoffd"}, "/var/lib/handoffd"),
        ({"STATE_DIRECTORY": "/var/lib/one:/var/lib/two"}, "/var/lib/one"),
    ],
)
def test_the_state_directory(environ: dict[str, str], expected: str) -> None:
    """systemd's choice comes before XDG's, and XDG's before the home folder."""
    assert expected == default_state_dir(HOME | environ)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/state/run"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/handoffd"),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "RUNTIME_DIRECTORY": "/run/handoffd"}, "/run/handoffd"),
    ],
)
def test_the_runtime_directory(environ: dict[str, str], expected: str) -> None:
    """Its fallback is in the state directory."""
    assert expected == default_runtime_dir(HOME | environ, "/state")


def test_the_candidates_for_the_settings_file() -> None:
    """A person's own file comes before the machine's."""
    own = "/home/ann/.config/handoffd/handoffd.yaml"
    system = "/etc/handoffd/handoffd.yaml"

    assert (own, system) == default_files(HOME)
    assert "/cfg/handoffd/handoffd.yaml" == default_files({**HOME, "XDG_CONFIG_HOME": "/cfg"})[0]


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
def test_the_quick_way_agrees_with_the_settings(
    tmp_path: Path, environ: dict[str, str], text: str | None
) -> None:
    """By environment, by file, by default, in that order."""
    whole = {"HOME": str(tmp_path), **environ}
    if text is not None:
        file = tmp_path / ".config/handoffd/handoffd.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")

    settings = Place(config=None, environ=whole).settings()
    assert (str(settings.state_dir), str(settings.runtime_dir)) == folders(None, whole)


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
def test_a_file_that_is_not_plain_is_left_to_the_settings(tmp_path: Path, text: str) -> None:
    """The quick way never guesses."""
    file = tmp_path / "named.yaml"
    file.write_text(text, encoding="utf-8")

    assert folders(str(file), {"HOME": str(tmp_path)}) is None


def test_a_relative_variable_and_a_missing_file_are_left_to_the_settings_too(tmp_path: Path) -> None:
    """Their reader resolves the one and reports the other."""
    assert folders(None, {"HOME": str(tmp_path), "HANDOFFD_STATE_DIR": "here"}) is None
    assert folders(str(tmp_path / "none.yaml"), {"HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    "parts",
    [
        ("config", "step-rules.yaml"),
        ("config", "executors.yaml"),
        ("config", "handoffd.example.yaml"),
        ("config", "prompts", "en", "prompt.j2"),
        ("systemd", "handoffd.service"),
    ],
)
def test_shipped_files_are_found(parts: tuple[str, ...]) -> None:
    """Their paths are absolute."""
    assert shared(*parts).is_file()
    assert shared(*parts).is_absolute()
