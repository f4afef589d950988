"""The service of an installation by pip, pipx and uv, from a wheel that is built here."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.installing import AS_PERSON, FOR_A_PERSON, PYTHON, TOOLS, Home, by_pip

from handoffd.cli.service.unit_files import MARK

pytestmark = pytest.mark.slow


def _by_pipx(home: Home, wheel: Path) -> Path:
    home.run(TOOLS / "pipx", "install", wheel)
    home.lend_dependencies(home.folder / ".local/share/pipx/venvs/handoffd")
    return home.folder / ".local/bin/handoffd"


def _by_uv(home: Home, wheel: Path) -> Path:
    home.run(TOOLS / "uv", "tool", "install", wheel)
    home.lend_dependencies(home.folder / ".local/share/uv/tools/handoffd")
    return home.folder / ".local/bin/handoffd"


@FOR_A_PERSON
@pytest.mark.parametrize("install", [by_pip, _by_pipx, _by_uv])
def test_the_service_of_an_installation(
    home: Home, wheel: Path, install: Callable[[Home, Path], Path]
) -> None:
    """Its units name programs that are there and start, systemd takes them, and the end leaves nothing."""
    program = install(home, wheel)
    before = home.tree()
    units = home.folder / ".config/systemd/user"

    said = home.run(*AS_PERSON, program, "service", "install", "--no-start")

    assert "systemctl --user daemon-reload && systemctl --user enable --now" in said
    files = sorted(units.iterdir())
    assert ["handoffd-launcher.service", "handoffd.service"] == [path.name for path in files]
    launcher, daemon = (_command(path) for path in files)
    assert Path(daemon[0]) == program.resolve()
    assert "handoffd " in home.run(daemon[0], "--version")
    assert PYTHON == Path(launcher[0]).resolve()
    assert "usage: launcher.py" in home.run(*launcher[: launcher.index(_socket(launcher))], code=2)
    _require_verified(home, files)

    home.run(*AS_PERSON, program, "service", "uninstall")
    assert before == home.tree()


def _command(unit: Path) -> list[str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    assert MARK == lines[0]
    (command,) = [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")]
    return shlex.split(command)


def _socket(launcher: list[str]) -> str:
    return next(word for word in launcher if word.endswith("launcher.sock"))


def _require_verified(home: Home, files: list[Path]) -> None:
    if shutil.which("systemd-analyze") is None:
        return  # test_units.py shows that
    runtime = {**os.environ, "XDG_RUNTIME_DIR": str(home.folder.parent), "LC_ALL": "C"}
    verify = ["systemd-analyze", "--user", "verify", "--man=no", *map(str, files)]
    done = subprocess.run(verify, env=runtime, capture_output=True, text=True, timeout=60, check=False)
    assert ("", 0) == (done.stderr, done.returncode)


@FOR_A_PERSON
@pytest.mark.parametrize("cache", [".cache/uv", "elsewhere"])
def test_a_run_without_an_installation_is_no_service(home: Home, wheel: Path, cache: str) -> None:
    """What is in uv's cache, wherever that is, will be swept away."""
    program = by_pip(home, wheel, f"{cache}/archive-v0/0123")
    (home.folder / cache / "CACHEDIR.TAG").write_text(
        "Signature: 8a477f597d28d172789f06886806bc55\n", "utf-8"
    )

    said = home.run(*AS_PERSON, program, "service", "install", "--no-start", code=1)

    assert "is in a cache and will be swept away" in said
    assert not (home.folder / ".config").exists()
