"""Verbs and reads while no daemon runs: the daemon's own parts, in this process, for one question.

Imports all of the daemon; the modules that need it import it when they do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from handoffd.api.answers import CleanedAnswer
from handoffd.api.events import peeked
from handoffd.api.outcomes import TrustedSettings
from handoffd.api.reads import is_bootstrapped, tried_sinks
from handoffd.api.service import Caller, Service
from handoffd.app.logs import configure_logging
from handoffd.app.wiring import Offline, offline, reading
from handoffd.clock import SystemClock
from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Dispatched
from handoffd.engine.events import Advanced, Event, PromptTaken, StateEdited
from handoffd.engine.routing import MAX_ATTEMPTS
from handoffd.engine.track import EXTERNAL, Track, TrackKey
from handoffd.errors import HandoffdError, Json, NotFound
from handoffd.execute.witness import inside_executor, kept_out
from handoffd.fleet.reloading import TRUST, Trusted
from handoffd.inspection.framework import finished_before
from handoffd.inspection.own_files import settings_of, table_of, templates_for
from handoffd.inspection.project_status import state_of
from handoffd.journal.database import is_begun
from handoffd.notify.sinks import try_sinks
from handoffd.project.status import peek_at
from handoffd.protocol.prompt import render_prompt
from handoffd.protocol.rules import Language, RuleBook
from handoffd.protocol.state import Status, plain
from handoffd.settings.loading import Given
from handoffd.settings.model import LogSettings, Settings
from handoffd.track.ai_folder import reopenings
from handoffd.track.prompts import prompt_context

_T = TypeVar("_T")

Work = Callable[[Service], Awaitable[_T]]


def give(
    settings: Settings,
    verb: str,
    project: str,
    arguments: dict[str, Any],
    by: str,
    adds: Callable[[str], bool] | None = None,
) -> Json:
    """Give a verb, as `requests.give` does, and return its answer. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)

    async def work(service: Service) -> Json:
        try:
            return await service.call(verb, project, arguments, caller)
        except NotFound:
            if adds is None or not adds(project):
                raise
        await service.call("add", project, {}, caller)
        return await service.call(verb, project, arguments, caller)

    return alone(settings, work)


def add_many(settings: Settings, roots: tuple[str, ...], by: str, *, take: bool) -> Json:
    """Add projects and return the answer. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)
    return plain(alone(settings, lambda service: service.add_many(roots, caller, take=take)))


def lift_limit(settings: Settings, account: str, by: str) -> Json:
    """Lift an account's limit and return the answer. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)
    return plain(alone(settings, lambda service: service.lift_limit(account, caller)))


def test_notices(settings: Settings, sink: str | None) -> Json:
    """Return how a sample went through one sink, or through all; it takes no journal, and no lock."""
    place, clock = str(settings.state_dir), SystemClock()

    async def run() -> Json:
        trials = await try_sinks(settings.notify, os.environ, clock, only=sink, place=place)
        return plain(tried_sinks((one.sink, one.form, one.why, one.seconds) for one in trials))

    return _run(run)


def trust_settings(settings: Settings, given: Given, sign: str | None) -> Json:
    """Return which edits of the settings wait for you, or trust them. Raises Locked while a daemon runs."""
    if sign is not None and inside_executor(os.getpid()):
        raise kept_out("trusting settings is for people", f"{TRUST}  # in a terminal of your own")

    async def work(service: Service) -> Json:
        trusted = Trusted(given, service.journal, settings.state_dir, SystemClock())
        await trusted.recall()
        edit = (await to_thread.run_sync(trusted.edit))[0] if sign is None else await trusted.accept(sign)
        held = TrustedSettings(file=edit.file, held=edit.held, sign=edit.sign, trusted=sign is not None)
        return plain(held)

    return alone(settings, work)


def gc(settings: Settings, *, dry_run: bool, by: str) -> Json:
    """Return what was removed, or would be. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)

    def work(service: Service) -> Awaitable[CleanedAnswer]:
        return service.gc(caller, dry_run=dry_run)

    return plain(look(settings, work) if dry_run else alone(settings, work))


def try_tests(settings: Settings, project: str, by: str, path: str | None) -> Json:
    """Return how a project's tests go, with the PATH that a daemon would have; None: with this process's own.

    Raises Locked while a daemon runs.
    """
    caller = Caller(pid=os.getpid(), by=by)
    return plain(alone(settings, lambda service: service.try_tests(project, caller), path))


def try_workspace(
    settings: Settings, project: str, wanted: str, tell: Callable[[str], None], by: str, path: str | None
) -> Json:
    """Return where stories of a project work from now on, as `try_tests` does; `tell` hears what goes on."""
    caller = Caller(pid=os.getpid(), by=by)
    return plain(
        alone(settings, lambda service: service.try_workspace(project, wanted, caller, tell=tell), path)
    )


def alone(settings: Settings, work: Work[_T], path: str | None = None) -> _T:
    """Return what `work` returns, with the daemon's lock held. Raises Locked while a daemon runs."""

    async def run() -> _T:
        async with offline(settings, path) as parts:
            return await _named(_service(settings, parts), work)

    return _run(run)


def look(settings: Settings, work: Work[_T], silent: Container[str] = ()) -> _T:
    """Return what `work` finds out, without a lock; it cannot change anything.

    The folders of `silent` roots are not looked into.
    """

    async def run() -> _T:
        async with reading(settings, silent) as parts:
            return await _named(_service(settings, parts), work)

    if is_begun(settings.journal):
        return _run(run)
    # No journal exists yet: a question must not create folders in the user's home.
    # Once, on a busy machine, a file came into the folder during its removal; the answer was right.
    with tempfile.TemporaryDirectory(prefix="handoffd-", ignore_cleanup_errors=True) as empty:
        nowhere = {"state_dir": Path(empty), "runtime_dir": Path(empty), "projects": ()}
        return alone(settings.model_copy(update=nowhere), work)


async def _named(service: Service, work: Work[_T]) -> _T:
    try:
        return await work(service)
    except HandoffdError as error:
        service.name(error)
        raise


def _service(settings: Settings, parts: Offline) -> Service:
    return Service(
        parts.supervision,
        parts.journal,
        SystemClock(),
        runs_dir=settings.runs_dir,
        language=settings.language,
        cleaner=parts.housekeeping,
        schedules=parts.timetable.told,
    )


def _run(work: Callable[[], Awaitable[_T]]) -> _T:
    # Warnings of the daemon's parts are for its log; a verb tells what matters in its answer.
    configure_logging(LogSettings(format="text", level="error"), stream=sys.stderr, environment={})
    return anyio.run(work)


# --- the next turn of a folder that is not supervised ------------------------------------------------
# A look changes nothing, so the folder is neither supervised for it nor is its STATE.json written as handoffd
# would write it: what it says is decided on in memory, as it would be if a verb took the folder in.
def peek(root: str, language: Language) -> Json:
    """Return what the next turn of the project at `root` would do, and the prompt that it would give.

    `language` is that of the prompt where the project's settings name none. Raises Refused (NOT_INITIALIZED),
    InvalidFile, StoreError.
    """
    rules = table_of(root)
    decision = _turn(root, rules)
    prompt, warnings = _prompt(root, decision, rules, settings_of(root).language or language)
    done = decision.track.ledger.stories_done
    found = peek_at(root, decision, rules, done, bootstrapped=is_bootstrapped(root))
    return plain(peeked(replace(found, prompt=prompt, warnings=warnings)))


def _turn(root: str, rules: RuleBook) -> Decision:
    state, now = state_of(root), SystemClock().now()
    found = StateEdited(state=state, policy="adopt", done=finished_before(root, state))
    track = decide(Track(), found, rules, now).track
    done = {*track.ledger.stories_done, MAX_ATTEMPTS}
    unmet = tuple(story for story in state.blocked_by if story not in done)
    turn: Event = PromptTaken(
        dispatch="", unmet=unmet, by="peek", keeps_gate=True, reopenings=reopenings(root)
    )
    if state.story is None:  # taken, it would be the bootstrap's prompt; a story may begin elsewhere
        turn = Advanced(dispatch="", executor=EXTERNAL, unmet=unmet, keeps_gate=True)
    return decide(track, turn, rules, now)


def _prompt(
    root: str, decision: Decision, rules: RuleBook, language: Language
) -> tuple[str | None, tuple[str, ...]]:
    state = decision.track.state
    assert state is not None
    if not isinstance(decision.result, Dispatched) and state.status is not Status.RUNNING:
        return None, ()
    context = prompt_context(TrackKey(root), decision.track, None, rules, language)
    return render_prompt(context, templates_for(root)), tuple(
        f"{path} is missing" for path in context.missing
    )
