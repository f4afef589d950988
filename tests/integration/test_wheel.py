"""The wheel is whole: what runs from a checkout runs from it, with the shipped files inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import handoffd

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files, as an installer lays them out."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    command = [*build, "-w", str(folder), str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    (wheel,) = folder.glob("handoffd-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def python(unpacked: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the wheel's package in front of the checkout's."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        cwd=unpacked,
        timeout=60,
        check=False,
    )


def files_below(folder: Path) -> set[str]:
    """Return the files below a folder, relative to it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_shipped_file_is_inside(unpacked: Path) -> None:
    """config/ and systemd/ are below the package."""
    for name in ("config", "systemd"):
        assert files_below(REPOSITORY / name) == files_below(unpacked / "handoffd/share" / name)


def test_the_package_of_the_wheel_runs(unpacked: Path) -> None:
    """`--version`, the step table and the executors come from the wheel's own files."""
    version = python(unpacked, "-m", "handoffd", "--version")
    where = python(unpacked, "-c", "import handoffd.settings.paths as r; print(r.shared('config'))")
    rules = python(unpacked, "-m", "handoffd", "rules", "show", str(unpacked), "--json")

    assert handoffd.__version__ in version.stdout, version.stderr
    assert str(unpacked / "handoffd/share/config") == where.stdout.strip()
    assert "update-memory" in rules.stdout, rules.stderr


def test_both_console_scripts_are_declared(unpacked: Path) -> None:
    """`handoffd`, and `orchestrator` for who comes from the reference."""
    (entry_points,) = unpacked.glob("handoffd-*.dist-info/entry_points.txt")

    text = entry_points.read_text()

    assert "handoffd = handoffd.cli.start:main" in text
    assert "orchestrator = handoffd.orchestrator.main:main" in text
