"""Whether the installation that a service is to run will be there tomorrow, and be the same.

pip, pipx and uv put a program into a place of its own. A run without an installation (`uvx`, `pipx run`)
has it in a cache that is swept, which is refused; what may change or vanish for another reason is said.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from handoffd.cli.unitfiles import Installation
from handoffd.errors import Refused

_SWEPT = (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/dev/shm"))  # noqa: S108  (they are looked at)
_CACHE_TAG = "CACHEDIR.TAG"


def require_permanent(installation: Installation) -> None:
    """Refuse an installation in a cache."""
    program = installation.program
    # uv tags each environment that it makes as something that backups need not have, lasting ones, too.
    above = program.parents[2:]
    if ".cache" in program.parts or any((folder / _CACHE_TAG).is_file() for folder in above):
        raise Refused(
            f"{program} is in a cache and will be swept away",
            hint="pipx install .  # in a checkout; or: uv tool install .",
        )


def cautions(installation: Installation) -> list[str]:
    """Return what a person should know of the place a service will run from."""
    program = installation.program
    found = [
        f"{program} is in {folder}, which is emptied: the service ends with it"
        for folder in _SWEPT
        if program.is_relative_to(folder)
    ]
    source = editable_source(installation.package)
    if source is not None:
        found.append(f"an editable installation: the service runs whatever {source} holds when it starts")
    return found


def editable_source(package: Path) -> str | None:
    """Return which checkout the distribution of `package` runs from; None when it has files of its own."""
    try:
        recorded = Distribution.from_name("handoffd").read_text("direct_url.json")
        origin = json.loads(recorded or "{}")
        editable = bool(origin.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, AttributeError):
        return None
    url = str(origin.get("url", "")).removeprefix("file://")
    return url if editable and url and package.is_relative_to(url) else None
