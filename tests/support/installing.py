"""Installations of the package by pip and others, from a wheel that is built here.

No package index is asked: the wheel's list of what it depends on is left out, and a .pth file in the new
environment leads to what these tests run with.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PYTHON = Path(sys.executable).resolve()
TOOLS = Path(sysconfig.get_path("scripts"))
AS_PERSON = ("unshare", "-U", "--map-user=1000", "--map-group=1000") if os.geteuid() == 0 else ()
"""What a command begins with that is not for root, and works with root's files."""
FOR_A_PERSON = pytest.mark.skipif(
    bool(AS_PERSON)
    and subprocess.run((*AS_PERSON, "true"), capture_output=True, check=False).returncode != 0,
    reason="root cannot be another account here: there are no user namespaces",
)


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


def built_wheel(folder: Path) -> Path:
    """Return the package as it is published, but for what it depends on, made in a folder."""
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


def by_pip(home: Home, wheel: Path, name: str = "handoffd-venv") -> Path:
    """Install a wheel in an environment of that name; return the program.

    It is this environment's pip that installs: giving each its own takes four seconds.
    """
    environment = home.folder / name
    home.run(PYTHON, "-m", "venv", "--without-pip", environment)
    home.run(TOOLS / "pip", "--python", environment / "bin/python", "install", "--quiet", wheel)
    home.lend_dependencies(environment)
    return environment / "bin/handoffd"
