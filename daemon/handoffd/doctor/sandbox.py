"""Whether agents and checks can be held to their project on this machine, and what holds them.

The sandbox is tried, not guessed: a program that does nothing is started in one, as the launcher would start
an agent. So a rule of the kernel, of a container or of AppArmor is found that no setting shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.execute.sandbox import entry
from handoffd.execute.sandbox.landlock import SCOPES_SINCE
from handoffd.execute.sandbox.obstacles import SETTING
from handoffd.execute.sandbox.plan import LANDLOCK, OFF, STRICT
from handoffd.settings.model import SandboxSettings

SANDBOX = "sandbox"
TRY_S = 5.0
_ISOLATED = ("-I", "-S", "-E", "-X", "utf8")


class SandboxFacts(Struct, frozen=True, kw_only=True):
    """`holds` is the level that a run would have here; None: it would not start, and `why` has the reason."""

    settings: SandboxSettings
    holds: str | None = None
    why: str | None = None
    is_root: bool = False


def sandbox_facts(settings: SandboxSettings) -> SandboxFacts:
    """Try the sandbox of the settings."""
    is_root = os.geteuid() == 0
    if settings.level == OFF:
        return SandboxFacts(settings=settings, is_root=is_root)
    command = [os.path.realpath(sys.executable), *_ISOLATED, str(Path(entry.__file__)), settings.level]
    try:
        tried = subprocess.run(
            [*command, settings.network], capture_output=True, check=False, text=True, timeout=TRY_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxFacts(settings=settings, why=str(error), is_root=is_root)
    holds, why = tried.stdout.strip() or None, tried.stderr.strip() or None
    return SandboxFacts(settings=settings, holds=holds, why=why, is_root=is_root)


def check_sandbox(facts: SandboxFacts) -> tuple[Finding, ...]:
    """Return what holds agents, or why they are not started."""
    return tuple(_findings(facts))


def _findings(facts: SandboxFacts) -> Iterator[Finding]:
    level = facts.settings.level
    if level == OFF:
        why = "the settings say `sandbox: {level: off}`: agents may do all that their account may"
        yield warning(SANDBOX, "there is no sandbox around agents", why, "handoffd config show")
    elif facts.holds is None:
        what, _, action = (facts.why or "it could not be tried").partition("; next: ")
        yield fault(SANDBOX, "no agent can be started in its sandbox", what, action or f"write {SETTING}")
    elif facts.holds == LANDLOCK:
        why = "processes stay visible, and a project's .git/config can be changed"
        yield warning(SANDBOX, "agents are held by Landlock alone", why, "handoffd config show")
    else:
        yield fine(SANDBOX, f"{_held(facts)}; network: {facts.settings.network}")


def _held(facts: SandboxFacts) -> str:
    if facts.holds == STRICT:
        by = "namespaces and Landlock (strict)"
    else:
        by = f"namespaces; Landlock's scopes, which shut abstract sockets, need version {SCOPES_SINCE} of it"
    whom = "agents of root, which see folders of programs only," if facts.is_root else "agents"
    return f"{whom} are held to their project by {by}"
