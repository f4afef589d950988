"""Whether people would be told: every sink of the settings, looked at without sending anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.openness import open_to_others, too_open
from handoffd.notify.apprise import AppriseSink
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import NotifySettings, SinkSettings

CHECK = "notices"
APPRISE_S = 30.0
"""apprise reads a hundred plug-ins before it can say whether it knows an address."""

_TRY = "handoffd notify test"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """What is wrong with one sink, and with the file that holds its addresses."""

    name: str
    problems: tuple[str, ...] = ()
    open_files: tuple[str, ...] = ()
    """Those that others may read."""


def gather(name: str, settings: SinkSettings, environ: Mapping[str, str]) -> SinkFacts:
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


def silent(name: str) -> SinkFacts:
    """Return the facts of a sink that could not be looked at in time."""
    return SinkFacts(name=name, problems=("it could not be looked at in time",))


def check(settings: NotifySettings, facts: tuple[SinkFacts, ...]) -> tuple[Finding, ...]:
    """Return whether people would be told."""
    if not facts:
        why = "what waits for a person is in `handoffd status`, and nowhere else"
        action = "handoffd config show  # then set `notify` in the file it names"
        return (warning(CHECK, "no notices are sent", why, action),)
    found = [finding for one in facts for finding in _of(one)]
    if not settings.events:
        why = "`notify.events` names no kind of notice"
        found.append(warning(CHECK, "no notices are sent", why, "handoffd config show"))
    names = ", ".join(one.name for one in facts)
    return tuple(found) or (fine(CHECK, f"people are told by {names} (nothing was sent: {_TRY})"),)


def _of(facts: SinkFacts) -> list[Finding]:
    found = []
    if facts.problems:
        why = "; ".join(facts.problems)
        found.append(fault(CHECK, f"nobody is told by {facts.name}", why, f"{_TRY} {facts.name}"))
    return [*found, *(too_open(CHECK, file) for file in facts.open_files)]


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
