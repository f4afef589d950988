"""Where the daemon is looked for, and what a project is called by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile


def _place(home: Path, config: str | None = None, **environ: str) -> Place:
    return Place(config=config, environ={"HOME": str(home), **environ})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HANDOFFD_STATE_DIR": "/var/tmp/s"},
        {"HANDOFFD_RUNTIME_DIR": "/run/h"},
        {"HANDOFFD_RUNTIME_DIR": ""},
        {"HANDOFFD_RUNTIME_DIR": "relative/run"},
        {"HANDOFFD_STATE_DIR": "~/s"},
        {"handoffd_runtime_dir": "/run/lower"},
        {"XDG_RUNTIME_DIR": "/run/user/1"},
        {"XDG_STATE_HOME": "/x/state"},
        {"RUNTIME_DIRECTORY": "/run/handoffd", "STATE_DIRECTORY": "/var/lib/handoffd:/other"},
        {"RUNTIME_DIRECTORY": "/run/handoffd", "HANDOFFD_STATE_DIR": "/s"},
    ],
)
def test_the_short_way_leads_where_the_settings_say(tmp_path: Path, environ: dict[str, str]) -> None:
    """Finding the socket without the settings gives what the settings would."""
    place = _place(tmp_path, **environ)

    assert place.settings().control_socket == place.socket()


@pytest.mark.parametrize(
    "text", ["runtime_dir: /run/mine\n", "state_dir: /var/mine\n", "log:\n  level: debug\n"]
)
def test_a_settings_file_is_heard(tmp_path: Path, text: str) -> None:
    """The usual one, or the one that is named."""
    usual = tmp_path / ".config/handoffd/handoffd.yaml"
    usual.parent.mkdir(parents=True)
    usual.write_text(text, encoding="utf-8")
    named = tmp_path / "named.yaml"
    named.write_text("runtime_dir: ./here\n", encoding="utf-8")

    assert _place(tmp_path).settings().control_socket == _place(tmp_path).socket()
    assert tmp_path / "here/control.sock" == _place(tmp_path, config=str(named)).socket()


def test_a_settings_file_that_says_nothing_of_it_is_not_parsed(tmp_path: Path) -> None:
    """Its mistakes are for `config check` and `run`, not for every `status`."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("nonsense: [", encoding="utf-8")

    assert "control.sock" == _place(tmp_path, config=str(broken)).socket().name
    with pytest.raises(InvalidFile) as invalid:
        _place(tmp_path, config=str(broken)).settings()
    assert f"handoffd --config {broken} config check" == invalid.value.hint
    (tmp_path / "handoffd.yaml").write_text("", encoding="utf-8")
    with pytest.raises(InvalidFile) as invalid:
        _place(tmp_path, HANDOFFD_LOG__LEVEL="loud").settings()
    assert "handoffd config check" == invalid.value.hint


def test_a_settings_file_that_is_missing_is_said(tmp_path: Path) -> None:
    """Whoever names a file means that one."""
    with pytest.raises(InvalidFile):
        _place(tmp_path, config=str(tmp_path / "none.yaml")).socket()


def test_a_project_is_a_name_or_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon runs elsewhere: whatever is a path here leaves as an absolute one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/eve")
    (tmp_path / "shop").mkdir()
    place = _place(tmp_path)

    assert [str(tmp_path), str(tmp_path / "shop"), str(tmp_path / "x/y"), str(tmp_path.parent), "api"] == [
        place.project(word) for word in (None, "shop", "x/../x/y", "..", "api")
    ]
    assert "/home/eve/code" == place.project("~/code")


def test_finding_the_socket_needs_no_settings_library(tmp_path: Path) -> None:
    """Also with a settings file that is beside the point."""
    (tmp_path / "c.yaml").write_text("executor: claude\n", encoding="utf-8")
    code = (
        "import sys; from handoffd.entrance.place import Place; "
        "Place(config=sys.argv[1], environ={'HOME': '/x'}).socket(); print(*sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c.yaml")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert not {"pydantic", "yaml"} & set(said.stdout.split())
