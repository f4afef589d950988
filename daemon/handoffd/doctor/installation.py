"""What keeps one executor from working on this machine, and what to type about it."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.execute.executor import Executor
from handoffd.execute.registry import Installation


def check(executor: Executor, installation: Installation) -> tuple[Finding, ...]:
    """Return what was found about one executor, under its name; one finding when all is well."""
    found = tuple(_findings(executor, installation))
    version = f" {installation.version}" if installation.version else ""
    return found or (fine(executor.name, f"{installation.found}{version}"),)


def _findings(executor: Executor, installation: Installation) -> Iterator[Finding]:
    name, program = executor.name, installation.program
    if installation.found is None:
        why = f"no folder of the PATH that it gets has it: {installation.path}"
        yield fault(name, f"{program} is not found", why, executor.install or f"command -v {quote(program)}")
        return
    if installation.version_error is not None:
        call = " ".join(map(quote, executor.version or ()))
        yield fault(name, f"`{call}` fails", installation.version_error, executor.install or call)
    if installation.logged_in is False and executor.login is not None:
        login = executor.login
        why = f"none of these is there: {', '.join((*login.env, *login.files))}"
        yield warning(name, "nobody seems to be logged in", why, login.command or f"{quote(program)} --help")
    for path in installation.unwritable:
        why = "it keeps its sessions and settings there"
        yield fault(name, f"{path} cannot be written", why, f"ls -ld {_shown(path)}")
    for variable in installation.empty:
        why = "an agent may take that for a key, or for an address"
        yield warning(name, f"{variable} is set, but empty", why, f"unset {variable}")


def _shown(path: str) -> str:
    """Return the folder that is written for a shell, which fills in its variables."""
    folder = path.rpartition("/")[0] if path.endswith("*") else path
    # Between quotes a shell takes ~ for itself.
    return folder if folder.startswith("~") else '"' + folder.replace(":-~", ":-$HOME") + '"'
