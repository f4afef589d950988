"""The service of an installation by pip, pipx and uv, from a wheel that is built here.

No package index is asked: the wheel's list of what it depends on is left out, and a .pth file in the new
environment leads to what these tests run with.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from handoffd.cli.unitfiles import MARK

REPOSITORY = Path(__file__).parents[2]
PYTHON = Path(sys.executable).resolve()
TOOLS = Path(sysconfig.get_path("scripts"))

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A person's home, empty at first."""

    folder: Path

    def run(self, *words: str | Path, code: int = 0) -> str:
        """Return what a program says that must end with `code`."""
        done = subprocess.run(
            [str(word) for word in words], env=self._environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert code == done.returncode, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "UV_PYTHON_DOWNLOADS": "never"}
        return {
            "HOME": str(self.folder), "PATH": f"{TOOLS}:/usr/bin:/bin", "UV_PYTHON": str(PYTHON),
            "PIPX_DEFAULT_PYTHON": str(PYTHON), "UV_NO_CONFIG": "1", **offline,
        }  # fmt: skip

    def lend_dependencies(self, environment: Path) -> None:
        """Let an environment find what these tests run with, but for the package itself."""
        (site,) = environment.glob("lib/python3*/site-packages")
        (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")

    def tree(self) -> dict[str, int]:
        """Return every path below, with when it was changed; what is only for speed is left out."""
        found = (path for path in self.folder.rglob("*") if not {"__pycache__", ".cache"} & {*path.parts})
        return {
            str(path.relative_to(self.folder)): 0 if path.is_dir() else path.lstat().st_mtime_ns
            for path in found
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is published, but for what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "-w", str(folder), str(REPOSITORY)], check=True, capture_output=True, timeout=240)
    (built,) = folder.glob("handoffd-*.whl")
    alone = folder / "alone" / built.name
    alone.parent.mkdir()
    with zipfile.ZipFile(built) as source, zipfile.ZipFile(alone, "w", zipfile.ZIP_DEFLATED) as copy:
        for entry in source.infolist():
            text = source.read(entry)
            if entry.filename.endswith("dist-info/METADATA"):
                text = b"".join(
                    line for line in text.splitlines(True) if not line.startswith(b"Requires-Dist")
                )
            if entry.filename.endswith("dist-info/RECORD"):
                text = re.sub(rb"(?m)(/METADATA),.*$", rb"\1,,", text)
            copy.writestr(entry, text)
    return alone


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new person."""
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder=folder)


def _by_pip(home: Home, wheel: Path) -> Path:
    environment = home.folder / "handoffd-venv"
    home.run(PYTHON, "-m", "venv", environment)
    home.run(environment / "bin/pip", "install", "--quiet", wheel)
    home.lend_dependencies(environment)
    return environment / "bin/handoffd"


def _by_pipx(home: Home, wheel: Path) -> Path:
    home.run(TOOLS / "pipx", "install", wheel)
    home.lend_dependencies(home.folder / ".local/share/pipx/venvs/handoffd")
    return home.folder / ".local/bin/handoffd"


def _by_uv(home: Home, wheel: Path) -> Path:
    home.run(TOOLS / "uv", "tool", "install", wheel)
    home.lend_dependencies(home.folder / ".local/share/uv/tools/handoffd")
    return home.folder / ".local/bin/handoffd"


@pytest.mark.parametrize("install", [_by_pip, _by_pipx, _by_uv])
def test_the_service_of_an_installation(
    home: Home, wheel: Path, install: Callable[[Home, Path], Path]
) -> None:
    """Its units name programs that are there and start, systemd takes them, and the end leaves nothing."""
    program = install(home, wheel)
    before = home.tree()
    units = home.folder / ".config/systemd/user"

    said = home.run(program, "service", "install", "--no-start")

    assert "systemctl --user daemon-reload && systemctl --user enable --now" in said
    files = sorted(units.iterdir())
    assert ["handoffd-launcher.service", "handoffd.service"] == [path.name for path in files]
    launcher, daemon = (_command(path) for path in files)
    assert Path(daemon[0]) == program.resolve()
    assert "handoffd " in home.run(daemon[0], "--version")
    assert PYTHON == Path(launcher[0]).resolve()
    assert "usage: launcher.py" in home.run(*launcher[: launcher.index(_socket(launcher))], code=2)
    _require_verified(home, files)

    home.run(program, "service", "uninstall")
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
        return  # test_units.py says so
    runtime = {**os.environ, "XDG_RUNTIME_DIR": str(home.folder.parent), "LC_ALL": "C"}
    verify = ["systemd-analyze", "--user", "verify", "--man=no", *map(str, files)]
    done = subprocess.run(verify, env=runtime, capture_output=True, text=True, timeout=60, check=False)
    assert ("", 0) == (done.stderr, done.returncode)


@pytest.mark.parametrize("cache", [".cache/uv", "elsewhere"])
def test_a_run_without_an_installation_is_no_service(home: Home, wheel: Path, cache: str) -> None:
    """What is in uv's cache, wherever that is, will be swept away."""
    environment = home.folder / cache / "archive-v0/0123"
    home.run(PYTHON, "-m", "venv", environment)
    (home.folder / cache / "CACHEDIR.TAG").write_text(
        "Signature: 8a477f597d28d172789f06886806bc55\n", "utf-8"
    )
    home.run(environment / "bin/pip", "install", "--quiet", wheel)
    home.lend_dependencies(environment)

    said = home.run(environment / "bin/handoffd", "service", "install", "--no-start", code=1)

    assert "is in a cache and will be swept away" in said
    assert not (home.folder / ".config").exists()
