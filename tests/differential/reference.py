"""The reference CLI: installed from npm in one version, checked, and driven."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.differential.outcomes import Spoken

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache" / "reference"
PACKAGE = "@agentic-coding-framework/orchestrator-core"
VERSION = "0.8.3"
INTEGRITY = "sha512-U6aGo+qOyYsUv+qo7JeRXcClF2m4BSXirNgp21/oINo1p7UHkgzTOjUHXyv9T3TiOv77J+h+Uj8uRMpSRyRNOw=="

_DRIVER = Path(__file__).with_name("drive.cjs")
_LIMIT_S = 600


class NotInstalled(Exception):
    """The reference could not be installed; says why and what to do."""


class Reference:
    """A running driver of the reference."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, words: Sequence[str], ahead_s: float = 0) -> Spoken:
        """Return what the reference says to some words, by a clock that is `ahead_s` ahead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"words": list(words), "ahead_s": ahead_s}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Spoken(code=answer["code"], out=answer["out"], err=answer["err"])


@contextmanager
def driven(cli: Path) -> Iterator[Reference]:
    """Lend a driver of the reference whose program is `cli`."""
    process = subprocess.Popen(
        ["node", str(_DRIVER), str(cli)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Reference(process)
    finally:
        process.communicate()  # the end of its input is the end of it


def installed() -> Path:
    """Return the reference's program, after installing it if it is missing. Raises NotInstalled."""
    cli = CACHE / "node_modules" / PACKAGE / "dist" / "cli.js"
    if not cli.exists():
        _install()
    return cli


def _install() -> None:
    if shutil.which("npm") is None:
        raise NotInstalled("there is no npm, which the reference comes from: apt-get install npm")
    CACHE.mkdir(parents=True, exist_ok=True)
    packed = json.loads(_npm("pack", f"{PACKAGE}@{VERSION}", "--json"))[0]["filename"]
    archive = CACHE / packed
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != INTEGRITY:
        raise NotInstalled(f"{archive} is not what was published as {VERSION}: it has {digest}")
    (CACHE / "package.json").write_text('{"private": true}')
    _npm("install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", str(archive))


def _npm(*words: str) -> str:
    sys.stderr.write(f"$ npm {' '.join(words)}\n")
    ended = subprocess.run(
        ["npm", *words], cwd=CACHE, check=False, timeout=_LIMIT_S, stdout=subprocess.PIPE, text=True
    )
    if ended.returncode != 0:
        raise NotInstalled(f"`npm {' '.join(words)}` ended with {ended.returncode}; once it works, try again")
    return ended.stdout
