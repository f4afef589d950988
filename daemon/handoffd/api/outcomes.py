"""The answers about what was done: beside the engine (work by hand, trials, landings, a reload), and by runs.

Reports of usage show the protocol's expected tokens beside steps and stories. They compare tokens that were
new to the model (input, output, cache writes): an agent reads the same context again with every call, and a
cache makes that cheap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Final

from msgspec import UNSET, Struct, to_builtins

from handoffd.api.answers import (
    AddedMany,
    AppliedAnswer,
    CheckedAnswer,
    DiscardedAnswer,
    LandedAnswer,
    NotAdded,
    TriedTests,
    TriedWorkspace,
)
from handoffd.engine.run import PostCheck, all_passed
from handoffd.engine.views import Applied, LandedView, Tried, WorkspaceTrial
from handoffd.engine.wording import addressed as for_project
from handoffd.engine.wording import checks_in_words, command_for, counted, first_few
from handoffd.errors import HandoffdError, Problem
from handoffd.protocol.rules import Commands
from handoffd.protocol.state import render_state
from handoffd.settings.loading import HeldSetting, Renewed

APPLY_S: Final = 40.0
"""How long a daemon lets a caller wait for checks; after that the caller asks again."""

TRIAL_S: Final = 2.0
"""How long it lets one wait that wants to hear what goes on in a trial."""

_THEN: Final = {
    "applied": "the attempt is judged",
    "taken": "a hand-off counts once, so nothing changed now",
    "stale": "nothing changed; do not hand the same file in again",
    "pending": "the step is not done yet: wait for .ai/HANDOFF.md",
    "missing": "nothing changed; dispatch the step, then have its hand-off written",
    "error": "nothing changed; fix .ai/HANDOFF.md first",
}


def applied(outcome: Applied, root: str, called: str | None) -> AppliedAnswer:
    """Return the outcome of a hand-off: its type, the current STATE, and what to do next."""
    then = "its claims are being checked; ask again for the outcome" if outcome.checking else None
    following = for_project(outcome.next_command, root) if outcome.next_command else None
    failed = outcome.type == "error"
    return AppliedAnswer(
        type=outcome.type,
        message=outcome.message,
        state=json.loads(render_state(outcome.state)),
        checking=outcome.checking,
        caller_instruction=f"{outcome.message}; {then or _THEN[outcome.type]}; next: {following}",
        project=root,
        called=called,
        next_command=following,
        code=outcome.code if failed else UNSET,
        recoverable=True if failed else UNSET,
    )


def post_checked(commands: Commands | None, ended: tuple[PostCheck, ...], root: str) -> CheckedAnswer:
    """Return the outcome of a post_check."""
    told = _post_check_in_words(ended)
    return CheckedAnswer(
        project=root,
        passed=all(one.passed for one in ended) if ended else None,
        command=None if commands is None else to_builtins(commands),
        tail="\n".join(_printed(one) for one in ended if one.name is None or not one.passed),
        checks=ended,
        message=told,
        caller_instruction=f"{told}; nothing else follows from it",
    )


def _post_check_in_words(ended: tuple[PostCheck, ...]) -> str:
    if not ended:
        return "the step has no post_check"
    if ended[0].name is not None:
        return f"post_check: {checks_in_words(ended)}"
    failed = all_passed(ended) is False and not ended[0].timed_out
    return f"post_check {'failed' if failed else ended[0].how}"


def _printed(check: PostCheck) -> str:
    return check.tail if check.name is None else f"{check.name}: {check.how}\n{check.tail}"


def landed(outcome: LandedView, root: str, called: str | None, following: str | None) -> LandedAnswer:
    """Return the outcome of a landing."""
    told = "; ".join((_landing_in_words(outcome), *outcome.left))
    again = command_for(root, "land", "--story", outcome.story) if outcome.going_on else following
    return LandedAnswer(
        project=root, called=called, story=outcome.story, onto=outcome.onto, commit=outcome.commit,
        files=outcome.files, tests=outcome.tests,
        already=outcome.already, to=outcome.to, how=outcome.how, told=outcome.told,
        checking=outcome.going_on, message=told, next_command=again,
        caller_instruction=f"{told}; {f'next: {again}' if again else 'nothing else follows'}",
    )  # fmt: skip


def discarded(story: str, kept: str, root: str, called: str | None) -> DiscardedAnswer:
    """Return the outcome of throwing away what a story has done."""
    told = f"{story} is discarded; {kept} keeps what it did"
    back = f"git -C {quote(root)} branch NAME {kept}"
    return DiscardedAnswer(
        project=root, called=called, story=story, kept=kept, message=told,
        caller_instruction=f"{told}; to have it back: {back}",
    )  # fmt: skip


def begun_anew(story: str, kept: str, root: str) -> str:
    """Return where the work of an aborted start is, in words."""
    look = f"git -C {quote(root)} log {kept}"
    return f"{story} begins anew; {kept} keeps what its aborted start did; to look at that: {look}"


def begins_without(paths: Sequence[str], root: str) -> str:
    """Return which files of a person a story in a clone does not have, in words."""
    are, them = ("is", "it") if len(paths) == 1 else ("are", "them")
    look = f"git -C {quote(root)} status --short"
    return f"{first_few(paths)} {are} not committed, so the story begins without {them}; to look: {look}"


def _landing_in_words(landed: LandedView) -> str:
    if landed.going_on:
        return f"{landed.story} is being merged and tested"
    if landed.already:
        return f"{landed.story} is on {landed.onto} already"
    tests = landed.tests
    passed = (
        counted(tests.passed, "test passes", "tests pass") if tests and tests.passed else "its tests pass"
    )
    ran = f"; {passed} there" if tests is not None else ""
    if landed.how == "command":
        said = f": {landed.told}" if landed.told else ""
        return f"stories.land_command has taken {landed.story}, for {landed.onto}{said}{ran}"
    part = f" up to {landed.to}" if landed.to is not None else ""
    files = counted(landed.files, "file")
    return f"{landed.story} is on {landed.onto} now{part}: {files} changed{ran or '; untested'}"


def tried(outcome: Tried, root: str, called: str | None) -> TriedTests:
    """Return the outcome of a project's tests."""
    evidence = outcome.evidence
    if outcome.command is None or evidence is None:
        return TriedTests(project=root, called=called, held=outcome.held, path=outcome.path)
    ended = evidence.fault is None and not evidence.timed_out
    return TriedTests(
        project=root,
        called=called,
        path=outcome.path,
        command=outcome.command,
        passed=not evidence.failing if ended else None,
        verified=evidence.verified,
        timed_out=evidence.timed_out,
        fault=evidence.fault,
        tests=evidence.counts if ended and evidence.verified else None,
        failing=evidence.failing,
        line=evidence.line,
        tail=evidence.tail,
        seconds=round(evidence.seconds, 1),
    )


def tried_workspace(outcome: WorkspaceTrial, root: str, called: str | None) -> TriedWorkspace:
    """Return the outcome of trying a project in a clone."""
    return TriedWorkspace(
        project=root, called=called, kind=outcome.kind, fits=outcome.fits, link=outcome.link,
        why=outcome.why, remedy=outcome.remedy, command=outcome.command,
        tests=tried(outcome.tried, root, called) if outcome.tried is not None else None,
        checking=outcome.doing is not None, doing=outcome.doing,
    )  # fmt: skip


class SettingsRead(Struct, frozen=True, kw_only=True):
    """The daemon's settings: the keys that took effect, that need a restart or your trust, and problems."""

    file: str | None
    taken: bool
    changed: tuple[str, ...]
    restart: tuple[str, ...]
    problems: tuple[Problem, ...]
    held: tuple[HeldSetting, ...] = ()


class Reloaded(Struct, frozen=True, kw_only=True, tag_field="type", tag="reloaded"):
    """The outcome of reading settings, folders of projects and projects' files again."""

    settings: SettingsRead
    brought: int
    let_go: int
    problems: tuple[str, ...]
    """The problems of the settings and of projects' files, in words."""
    warnings: tuple[str, ...]


class TrustedSettings(Struct, frozen=True, kw_only=True, tag_field="type", tag="trusted_settings"):
    """The edits of the daemon's settings that wait for a person, or that a person has trusted now."""

    file: str | None
    held: tuple[HeldSetting, ...]
    sign: str
    """Of the file's text; a person trusts an edit by it."""
    trusted: bool


def reloaded(renewed: Renewed, warnings: tuple[str, ...]) -> Reloaded:
    """Return the outcome of a reload."""
    view = renewed.settings
    return Reloaded(
        settings=SettingsRead(
            file=view.file,
            taken=not view.problems and not view.held,
            changed=view.changed,
            restart=view.restart,
            problems=view.problems,
            held=view.held,
        ),
        brought=renewed.brought,
        let_go=renewed.let_go,
        problems=(*map(str, view.problems), *renewed.problems),
        warnings=warnings,
    )


def added_many(outcome: Mapping[str, str | HandoffdError]) -> AddedMany:
    """Return the added projects, and why others were refused."""
    refused = {asked: error for asked, error in outcome.items() if isinstance(error, HandoffdError)}
    return AddedMany(
        added=[root for root in outcome.values() if isinstance(root, str)],
        refused=[
            NotAdded(project=asked, code=error.code, message=error.message, hint=error.hint)
            for asked, error in refused.items()
        ],
    )
