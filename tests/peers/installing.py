"""The peers, installed from their registries into a folder of their own each.

Versions are pinned in `versions.json`, with everything that they need. What is there already in these
versions is left alone, so only the first run needs a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.engine import NotMeasured

VERSIONS = Path(__file__).with_name("versions.json")
LIMIT_S = 600
"""So long one installation may take."""
_NPM = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix")
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:")


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a peer is."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that can import the peer's SDK."""
        return self.folder / "bin" / "python"

    @property
    def modules(self) -> Path:
        """The folder of its npm packages."""
        return self.folder / "node_modules"


def pinned() -> dict[str, Any]:
    """Return the packages of each peer: registry, name, version."""
    found: dict[str, Any] = json.loads(VERSIONS.read_text())
    return found


def usual_cache() -> Path:
    """Return the folder that the peers are installed into unless another one is named."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "handoffd-peers"


def installed(cache: Path, peer: str) -> Installed:
    """Return a peer, after installing it if it is missing. Raises NotMeasured."""
    packages, folder = pinned()[peer], cache.absolute() / peer
    stamp = folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != packages:
        if "npm" in packages and shutil.which("npm") is None:
            raise NotMeasured("there is no npm, which its server comes from: apt-get install npm")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), *_PIP, *_named(packages["pypi"], "==")])
        if "npm" in packages:
            _npm(folder, packages["npm"])
        stamp.write_text(json.dumps(packages))
    return Installed(folder)


def _npm(folder: Path, packages: Mapping[str, str]) -> None:
    (folder / "package.json").write_text('{"private": true}')
    _run([*_NPM, str(folder), *_named(packages, "@")])


def _named(packages: Mapping[str, str], sign: str) -> list[str]:
    return [f"{name}{sign}{version}" for name, version in packages.items()]


def _run(argv: list[str]) -> None:
    sys.stderr.write(f"$ {' '.join(argv)}\n")
    try:
        ended = subprocess.run(argv, check=False, timeout=LIMIT_S, capture_output=True, text=True)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise NotMeasured(f"not installed: {why}") from why
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip() or "no output").splitlines()[-1]
        raise NotMeasured(f"not installed: `{argv[0]}` ended with {ended.returncode}: {last}")
