"""Where commands look for the daemon, and the name of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.entrance.place import Place, by_name
from handoffd.errors import InvalidFile, Refused


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
    """Finding the socket without the settings has the same result."""
    place = _place(tmp_path, **environ)

    assert place.settings().control_socket == place.socket()


@pytest.mark.parametrize(
    "text", ["runtime_dir: /run/mine\n", "state_dir: /var/mine\n", "log:\n  level: debug\n"]
)
def test_a_settings_file_counts(tmp_path: Path, text: str) -> None:
    """The usual one, or the named one, which must exist."""
    with pytest.raises(InvalidFile):
        _place(tmp_path, config=str(tmp_path / "none.yaml")).socket()
    usual = tmp_path / ".config/handoffd/handoffd.yaml"
    usual.parent.mkdir(parents=True)
    usual.write_text(text, encoding="utf-8")
    named = tmp_path / "named.yaml"
    named.write_text("runtime_dir: ./here\n", encoding="utf-8")

    assert _place(tmp_path).settings().control_socket == _place(tmp_path).socket()
    assert tmp_path / "here/control.sock" == _place(tmp_path, config=str(named)).socket()


def test_a_settings_file_without_directories_is_not_parsed(tmp_path: Path) -> None:
    """`config check` and `run` report its mistakes, not every `status`."""
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


def test_a_project_is_a_name_or_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon runs elsewhere: every path here becomes an absolute one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/eve")
    (tmp_path / "shop").mkdir()
    expected = {
        None: tmp_path, ".": tmp_path, "..": tmp_path.parent, "shop": tmp_path / "shop",
        "./shop": tmp_path / "shop", "x/../x/y": tmp_path / "x/y", "~/code": "/home/eve/code",
        "api": "api", "shop-2": "shop-2",
    }  # fmt: skip

    assert {word: str(path) for word, path in expected.items()} == {
        word: _place(tmp_path).project(word) for word in expected
    }


def test_finding_the_socket_needs_no_settings_library(tmp_path: Path) -> None:
    """Also with a settings file that has no directories."""
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


SHOP = {"project": "/srv/a/long/way/to/shop", "called": "shop"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("handoffd approve {0} --story US-001", "handoffd approve shop --story US-001"),
        ("handoffd rules check {0}", "handoffd rules check shop"),
        ("edits wait for `handoffd trust {0}`: schedule", "edits wait for `handoffd trust shop`: schedule"),
        ("handoffd abort {0} && handoffd start {0} US-0", "handoffd abort shop && handoffd start shop US-0"),
        ("ls -ld {0}; or: handoffd remove {0}", "ls -ld {0}; or: handoffd remove shop"),
        ("git -C {0} status", "git -C {0} status"),
        ("handoffd log --follow {0}", "handoffd log --follow {0}"),
        ("handoffd add {0}/below", "handoffd add {0}/below"),
    ],
)
def test_a_command_calls_its_project_by_name(text: str, shown: str) -> None:
    """Only where handoffd takes a name; other programs need the path."""
    root = SHOP["project"]

    assert shown.format(root) == by_name(text.format(root), SHOP)


def test_a_path_in_quotes_is_called_by_its_name() -> None:
    """As a shell needs them about Chinese letters, which it takes as they are in a name."""
    shop = {"project": "/srv/網路商店", "called": "網路商店"}

    assert "handoffd gate 網路商店" == by_name("handoffd gate '/srv/網路商店'", shop)


@pytest.mark.parametrize("name", [None, "/srv/a/long/way/to/shop", "-v", "two words", "a;b", "here"])
def test_a_name_that_would_mean_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """Several projects share it, it is an option, a shell would split it, or a folder here has it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    text = f"handoffd approve {SHOP['project']}"

    assert text == by_name(text, SHOP | {"called": name})
    assert text == by_name(text, {"project": SHOP["project"]})  # of an older daemon


def test_the_name_of_a_folder_that_is_the_project_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path and name lead to the same one."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    root = str(tmp_path / "shop")

    assert "handoffd approve shop" == by_name(f"handoffd approve {root}", {"project": root, "called": "shop"})


def test_a_path_that_is_not_utf_8_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, or as the current folder; no request can hold it."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/shop\xff")
    with pytest.raises(Refused, match=r"shop.xff' is not UTF-8, so it cannot be a project"):
        _place(tmp_path).project(odd)
    os.mkdir(odd)
    monkeypatch.chdir(odd)
    with pytest.raises(Refused):
        _place(tmp_path).project(None)
