"""How handoffd was set up here: its settings and their secrets, sinks of notices, and the account of agents.

doctor sends nothing. What the sandbox lets an agent reach, the rights of its account limit further.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote

import anyio
from msgspec import Struct

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.errors import InvalidFile
from handoffd.notify.apprise import AppriseSink
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import NotifySettings, SinkSettings

# --- the settings, also the ones about executors -------------------------------------------------
SETTINGS = "settings"


_AGAIN, _TRUST = "handoffd reload", "handoffd trust --daemon"


def check_settings(
    file: Path | None,
    invalid: Sequence[InvalidFile],
    warnings: Sequence[str] = (),
    open_files: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Return each problem of the settings, or which file they are from (None: there is none).

    `warnings` are the running daemon's about its settings; `open_files` are files with secrets that other
    accounts can read.
    """
    found = [
        fault(SETTINGS, str(problem), "the daemon does not start with it", error.hint)
        for error in invalid
        for problem in error.problems
    ]
    told = [str(problem) for error in invalid for problem in error.problems]
    found += [
        warning(SETTINGS, one, "the running daemon reports it", _AGAIN if _TRUST not in one else _TRUST)
        for one in warnings
        if not any(problem in one for problem in told)
    ]
    found += [too_open(SETTINGS, one) for one in open_files]
    good = f"{file} can be used" if file is not None else "there is no settings file; the defaults hold"
    return tuple(found) or (fine(SETTINGS, good),)


# --- files with secrets that more people may read than should -----------------------------------------
def open_to_others(files: Iterable[Path]) -> tuple[str, ...]:
    """Return the files that other accounts can read. Blocks on the disk."""
    return tuple(str(file) for file in files if _is_open(file))


def too_open(check: str, file: str) -> Finding:
    """Return the finding for a file with a secret that other accounts can read."""
    why = "it holds a secret, and other accounts may read it"
    return warning(check, f"{file} is open to others", why, f"chmod 600 {quote(file)}")


def _is_open(file: Path) -> bool:
    try:
        return bool(stat.S_IMODE(file.stat().st_mode) & 0o044)
    except OSError:
        return False


# --- whether notifications would arrive: every sink of the settings ----------------------------------
NOTICES = "notices"
APPRISE_S = 30.0
"""apprise reads a hundred plug-ins before it can say whether it knows an address."""

_TRY = "handoffd notify test"


class SinkFacts(Struct, frozen=True, kw_only=True):
    """The problems of one sink, and of the file with its addresses."""

    name: str
    problems: tuple[str, ...] = ()
    open_files: tuple[str, ...] = ()
    """The files that others may read."""


def sink_facts(name: str, settings: SinkSettings, environ: Mapping[str, str]) -> SinkFacts:
    """Return how one sink is. Blocks on the disk, and on the worker of apprise."""
    file = None if settings.apprise is None else settings.apprise.config_file
    problems = [f"{file} cannot be read"] if file is not None and not os.access(file, os.R_OK) else []
    if settings.switched_off is not None:
        problems.append(f"it is switched off: {settings.switched_off}")
    if settings.command is not None and shutil.which(settings.command[0], path=environ.get("PATH")) is None:
        problems.append(f"{settings.command[0]} is not found")
    if settings.apprise is not None and not problems:
        problems += anyio.run(_apprise, settings, environ)
    return SinkFacts(name=name, problems=tuple(problems), open_files=open_to_others([file] if file else []))


def silent_sink(name: str) -> SinkFacts:
    """Return the facts of a sink whose check timed out."""
    return SinkFacts(name=name, problems=("the check timed out",))


def check_notices(settings: NotifySettings, facts: tuple[SinkFacts, ...]) -> tuple[Finding, ...]:
    """Return the findings about notifications."""
    if not facts:
        why = "what needs you is shown only by `handoffd status`"
        action = "handoffd config show  # then set `notify` in the file it names"
        return (warning(NOTICES, "no notices are sent", why, action),)
    found = [finding for one in facts for finding in _of(one)]
    if not settings.events:
        why = "`notify.events` names no kind of notice"
        found.append(warning(NOTICES, "no notices are sent", why, "handoffd config show"))
    names = ", ".join(one.name for one in facts)
    return tuple(found) or (
        fine(NOTICES, f"notifications go to {names} (nothing was sent; to test: {_TRY})"),
    )


def _of(facts: SinkFacts) -> list[Finding]:
    found = []
    if facts.problems:
        why = "; ".join(facts.problems)
        found.append(fault(NOTICES, f"the sink {facts.name} cannot deliver", why, f"{_TRY} {facts.name}"))
    return [*found, *(too_open(NOTICES, file) for file in facts.open_files)]


async def _apprise(settings: SinkSettings, environ: Mapping[str, str]) -> list[str]:
    assert settings.apprise is not None
    sink = AppriseSink(settings.apprise, environ)
    try:
        with anyio.fail_after(APPRISE_S):
            return await sink.check()
    except Undelivered as failure:
        return [failure.why]
    except TimeoutError:
        return [f"apprise did not answer within {APPRISE_S:g} s"]
    finally:
        sink.close()


# --- with whose rights agents work: their account is their limit --------------------------------------
ACCOUNT = "account"


class AccountFacts(Struct, frozen=True, kw_only=True):
    """The account that the daemon runs as, or would; `own`: it is a unit's, made for that."""

    name: str
    is_root: bool
    own: bool


def account_facts(pid: int | None, service: Service) -> AccountFacts:
    """Return the rights of the daemon with this pid; without a daemon, of the current account."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid if pid is not None else os.geteuid()
    except OSError:
        uid = os.geteuid()
    return AccountFacts(name=_name_of(uid), is_root=uid == 0, own=service.account is not None)


def check_account(facts: AccountFacts) -> tuple[Finding, ...]:
    """Return what agents could reach that they should not."""
    if facts.is_root:
        why = "only the sandbox keeps them from what root may do; some agents refuse to work as root"
        action = "sudo handoffd service install --system --user ACCOUNT"
        return (warning(ACCOUNT, "agents work as root", why, action),)
    if facts.own:
        return (fine(ACCOUNT, f"agents work as {facts.name}, an account of their own"),)
    return (fine(ACCOUNT, f"agents work as {facts.name}, as far as the sandbox lets them"),)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"account {uid}"
