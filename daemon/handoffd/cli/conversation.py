"""The questions of `handoffd init` at a terminal; each answer can be given as an option, too.

A question is one entry of `QUESTIONS`: its option, what it shows, the answer that Enter gives, and the values
that it takes. Nothing is written before the last answer. The answers become the text of `.ai/handoffd.yaml`;
only notices are the daemon's own, so that answer goes into the daemon's settings, once the project is there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import join, split
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from handoffd.cli.asking import print_lines
from handoffd.cli.wording import plain
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError, Refused

if TYPE_CHECKING:
    from handoffd.execute.registry import Installation
    from handoffd.inspection.suites import Suites
    from handoffd.settings.loading import Loaded

NONE: Final = "none"
FILE: Final = ".ai/handoffd.yaml"


class Wrong(ValueError):
    """An answer that does not fit. Its text says which ones do."""


class Facts(Struct, frozen=True, kw_only=True):
    """What is known before the first question."""

    place: Place
    root: str
    loaded: Loaded
    suites: Suites
    agents: Mapping[str, Installation]

    @property
    def default_executor(self) -> str:
        """What the daemon's settings choose."""
        from handoffd.execute.registry import names_in

        return ",".join(names_in(self.loaded.settings.executor))


class Question(Struct, frozen=True, kw_only=True):
    """One question. `read` returns the value of the settings' `key`, or None to leave that out."""

    option: str
    help: str
    metavar: str
    text: str
    key: tuple[str, ...]
    read: Callable[[str, Facts], Any]
    """Raises Wrong."""
    enter: Callable[[Facts], str]
    """What Enter answers."""
    shows: Callable[[Facts], Iterator[str]] = lambda _: iter(())
    """Lines before the question."""
    wanted: Callable[[Facts], bool] = lambda _: True
    of_verb: bool = False
    """Whether the verb takes the option, too: in a project that has settings, it changes them."""

    @property
    def name(self) -> str:
        """What click calls its option."""
        return self.option.removeprefix("--").replace("-", "_")


# --- tests ----------------------------------------------------------------------------------------------
def _found_tests(facts: Facts) -> Iterator[str]:
    chosen, others = facts.suites.chosen, facts.suites.others
    if chosen is not None:
        yield f"Tests were found: {plain(join(chosen.typed))}"
    for one in others[:3]:
        where = "" if one.folder == "." else f" in {plain(one.folder)}"
        yield f"Found{where}, too: {plain(join(one.typed))}"
    if chosen is None:
        yield "No tests were found in this folder: without a command an agent's own word counts."


def _typed_tests(facts: Facts) -> str:
    return NONE if facts.suites.chosen is None else join(facts.suites.chosen.typed)


def _tests(answer: str, facts: Facts) -> Suites:
    """Return the tests that the settings will name."""
    from handoffd.inspection.suites import Suite, Suites
    from handoffd.settings.model import TestSettings

    found = facts.suites
    if answer == NONE:
        return Suites(others=found.others if found.chosen is None else ())
    try:
        words = tuple(split(answer))
    except ValueError as error:
        raise Wrong(f"{answer!r} cannot be read ({error}); type a command, or none") from error
    known = next(
        (one for one in (found.chosen, *found.others) if one and one.folder == "." and one.typed == words),
        None,
    )
    if known is not None:
        return Suites(chosen=known)
    if not words or not (shutil.which(words[0]) or Path(facts.root, words[0]).is_file()):
        raise Wrong(f"there is no program {(words or ('',))[0]!r} here; type a command, or none")
    settings = TestSettings(command=words, report="exit")
    return Suites(chosen=Suite(folder=".", typed=words, settings=settings))


# --- the executor ---------------------------------------------------------------------------------------
def _found_agents(facts: Facts) -> Iterator[str]:
    yield "Agents:"
    for name, one in facts.agents.items():
        yield f"  {name:<10} {plain(_state(one))}"


def _state(one: Installation) -> str:
    if one.found is None:
        return "not installed"
    login = {True: "logged in", False: "not logged in", None: "login unknown"}[one.logged_in]
    return f"{one.version or one.version_error or 'installed'}, {login}"


def _usable(facts: Facts) -> list[str]:
    return [
        name for name, one in facts.agents.items() if one.found is not None and one.logged_in is not False
    ]


def _best_agent(facts: Facts) -> str:
    """Return the daemon's choice if it can be used, or else the first agent that can.

    Where none can: the daemon's choice if it only lacks a login, or else `auto`, never one that is missing.
    """
    default, usable = facts.default_executor, _usable(facts)
    first = facts.agents.get(default.split(",")[0])
    if first is None or default.split(",")[0] in usable:
        return default
    return usable[0] if usable else default if first.found is not None else "auto"


def _executor(answer: str, facts: Facts) -> str | list[str] | None:
    from handoffd.cli.doctor import book_of

    names, known = [word.strip() for word in answer.split(",")], ("auto", *book_of(facts.place)[1].names)
    if unknown := [name for name in names if name not in known]:
        raise Wrong(
            f"there is no executor {unknown[0]!r}; allowed: {', '.join(known)}, or several with commas"
        )
    if ",".join(names) == facts.default_executor:
        return None
    return names[0] if len(names) == 1 else names


def _unusable(chosen: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    """Yield what keeps the chosen agents from working, as far as that was looked up."""
    from handoffd.execute.registry import names_in

    for name in names_in(chosen.get("executor", facts.loaded.settings.executor)):
        if name in facts.agents and name not in _usable(facts):
            yield f"  {name}: {_state(facts.agents[name])}; see: handoffd executors check {name}"


# --- preset, decisions, notices, budget -----------------------------------------------------------------
def _presets() -> tuple[str, ...]:
    from handoffd.settings.paths import shared

    return tuple(sorted(path.stem for path in shared("config", "presets").glob("*.yaml")))


def _preset(answer: str, _: Facts) -> str | list[str] | None:
    names = [name.strip() for name in answer.split(",")]
    for name in names:
        if name not in _presets():
            raise Wrong(f"there is no preset {name!r}; allowed: {', '.join(_presets())}")
    names = [name for name in names if name != "default"]
    return names if len(names) > 1 else next(iter(names), None)


def _gates(answer: str, _: Facts) -> str | None:
    from handoffd.protocol.rules import OPENED_BY

    if answer not in OPENED_BY:
        raise Wrong(f"{answer!r} is not a time to decide; allowed: {', '.join(OPENED_BY)}")
    return None if answer == "before" else answer


def _without_notices(facts: Facts) -> bool:
    """Return whether no notice would reach a person."""
    return not facts.loaded.settings.notify.named()


def _channel(answer: str, facts: Facts) -> dict[str, Any] | None:
    """Return `notify` of the daemon's settings. The form of the address tells the channel."""
    from pydantic import ValidationError

    from handoffd.settings.notify import NotifySettings

    if answer == NONE:
        return None
    if not _without_notices(facts):
        raise Wrong("notices have a channel already; see: handoffd config show")
    kind, _, rest = answer.partition(":")
    found = {
        "ntfy": {"ntfy": {"topic": rest}},
        "http": {"webhook": {"url": answer}},
        "https": {"webhook": {"url": answer}},
    }
    try:
        value = found[kind]
        NotifySettings.model_validate(value)
    except (KeyError, ValidationError):
        message = f"{answer!r} is not a channel; allowed: ntfy:TOPIC, https://… (a webhook), none"
        raise Wrong(message) from None
    return value


def _budget(answer: str, _: Facts) -> float | None:
    from pydantic import ValidationError

    from handoffd.settings.model import ProjectCaps

    if answer == NONE:
        return None
    try:
        return ProjectCaps.model_validate({"story_usd": float(answer.removeprefix("$"))}).story_usd
    except (ValueError, ValidationError):
        raise Wrong(f"{answer!r} is not a number of dollars above 0; allowed: a number, none") from None


TESTS: Final = "test_command"
NOTIFY: Final = "notify"

QUESTIONS: Final = (
    Question(
        option="--test-command", metavar="COMMAND", key=(), text="Command that runs the tests, or none",
        help="What runs the project's tests, instead of the command that is found; none: nothing.",
        shows=_found_tests, enter=_typed_tests, read=_tests,
    ),
    Question(
        option="--executor", metavar="NAME", key=("executor",), text="Agent",
        help="The agent: NAME, NAME,NAME in order of preference, or auto.",
        shows=_found_agents, enter=_best_agent, read=_executor,
    ),
    Question(
        option="--preset", metavar="NAME", key=("preset",), text="Step table",
        help="The step table: default, go, web, with-commit, proven, or NAME,NAME, the last one on top.",
        shows=lambda _: iter([f"Step tables: {', '.join(_presets())}"]),
        enter=lambda _: "default", read=_preset,
    ),
    Question(
        option="--gates", metavar="WHEN", key=("gates",), text="When you decide", of_verb=True,
        help="When you decide about each story: before its code, after it, both, or none.",
        shows=lambda _: iter(["You decide before the code of a story, after it (for a night), both, none."]),
        enter=lambda _: "before", read=_gates,
    ),
    Question(
        option="--notify", metavar="CHANNEL", key=(), text="Notices go to (ntfy:TOPIC, https://…, none)",
        help="Where notices go, in the daemon's settings: ntfy:TOPIC, the address of a webhook, or none.",
        enter=lambda _: NONE, read=_channel, wanted=_without_notices,
    ),
    Question(
        option="--story-usd", metavar="DOLLARS", key=("caps", "story_usd"),
        text="Most dollars that a story may cost, or none",
        help="Most dollars that a story may cost before it waits for you; none: no limit.",
        enter=lambda _: NONE, read=_budget,
    ),
)  # fmt: skip
"""In the order in which they are asked."""


def options() -> list[click.Option]:
    """Return the options that answer questions, and the one that asks none."""
    yes = click.Option(
        ["--yes", "-y"], is_flag=True, help="Ask nothing: take what is found, and the options."
    )
    own = [one for one in QUESTIONS if not one.of_verb]
    return [*(click.Option([one.option], metavar=one.metavar, help=one.help) for one in own), yes]


# --- the conversation -----------------------------------------------------------------------------------
class Chosen(Struct, frozen=True, kw_only=True):
    """What came of it. `text` None: as without any answer; `asked`: whether a person was asked."""

    text: str | None = None
    notify: Mapping[str, Any] | None = None
    asked: bool = False
    notes: tuple[str, ...] = ()
    """What is wrong with the answers, in words."""

    def conclude(self, place: Place, project: str, *, silent: bool) -> None:
        """Show the file as it is now, and enter the channel of notices into the daemon's settings.

        A trial of clones has written into the file what came of it.
        """
        told = [*self.notes, *(_entered(place, self.notify) if self.notify is not None else [])]
        if silent:
            return
        if told:
            print_lines(told)
        for line in _written(project) if self.text is not None and self.asked else ():
            click.echo(line)


def _written(project: str) -> Iterator[str]:
    """Yield the project's settings file as it is on the disk."""
    from handoffd.inspection.own_files import read_texts

    text = read_texts(Path(project))[FILE]
    yield from ("", f"{FILE}:", *(f"  {line}" for line in plain(text or "", lines=True).splitlines()))


def converse(place: Place, project: str, given: dict[str, Any], *, may_ask: bool) -> Chosen:
    """Take the answers out of the options `given`, ask for the others if a person is there, and return both.

    A project that has settings is not asked for any. Raises Refused for an option that does not fit, and
    click.Abort when the person ends it: nothing is written then.
    """
    own = {one.name: given.pop(one.name, None) for one in QUESTIONS if not one.of_verb}
    yes, is_given = given.pop("yes", False), any(value is not None for value in own.values())
    here = os.path.isabs(project) and os.path.isdir(project)
    ask = may_ask and not yes and here and not os.path.lexists(os.path.join(project, FILE))
    if not here or not (ask or is_given):
        return Chosen()
    from handoffd.api.folders import check_project

    options = own | {one.name: given.pop(one.name, None) for one in QUESTIONS if one.of_verb}
    facts = _facts(place, os.path.realpath(project), show=ask)
    check_project(facts.root, facts.loaded.settings.state_dir, given.get("name"))
    try:
        return _composed(
            {one.name: _answer(one, facts, options[one.name], ask=ask) for one in QUESTIONS}, facts, asked=ask
        )
    except click.Abort:
        click.echo("\nNothing was written.", err=True)
        raise


def _facts(place: Place, root: str, *, show: bool) -> Facts:
    from handoffd.cli.doctor import book_of, looks
    from handoffd.execute.registry import is_own
    from handoffd.inspection.suites import find_suites
    from handoffd.settings.loading import load

    if show:
        how = "Enter takes the answer in brackets, Ctrl-C writes nothing."
        print_lines([f"A few questions about {plain(root)}; {how}"])
    place.settings()  # which names the command for invalid ones
    loaded = load({"config": place.config}, place.environ)
    settings, book = book_of(place)
    agents = [book.get(name) for name in book.names if not is_own(book.get(name))]
    found = looks(place, settings, agents) if show else {}
    return Facts(
        place=place, root=root, loaded=loaded, suites=find_suites(Path(root)),
        agents={one.name: found[one.name] for one in agents if one.name in found},
    )  # fmt: skip


def _answer(question: Question, facts: Facts, given: str | None, *, ask: bool) -> Any:
    """Return the value of an answer: of the option, of the person, or what Enter would give."""
    if given is not None:
        try:
            return question.read(given, facts)
        except Wrong as wrong:
            hint = "handoffd init --help"
            raise Refused(f"{question.option}: {wrong}", code="BAD_ARGUMENT", hint=hint) from wrong
    if not ask or not question.wanted(facts):
        return question.read(question.enter(facts), facts) if question.name == TESTS else None
    print_lines(["", *question.shows(facts)])

    def read(answer: str) -> Any:
        try:
            return question.read(answer.strip(), facts)
        except Wrong as wrong:
            raise click.UsageError(plain(str(wrong))) from wrong

    return click.prompt(question.text, default=question.enter(facts), value_proc=read)


def _composed(answers: Mapping[str, Any], facts: Facts, *, asked: bool) -> Chosen:
    from handoffd.api.folders import settings_text

    chosen: dict[str, Any] = {}
    for question in QUESTIONS:
        value, place = answers[question.name], chosen
        if not question.key or value is None:
            continue
        for part in question.key[:-1]:
            place = place.setdefault(part, {})
        place[question.key[-1]] = value
    text = settings_text(answers[TESTS], chosen)
    return Chosen(text=text, notify=answers[NOTIFY], asked=asked, notes=tuple(_unusable(chosen, facts)))


# --- what follows it ------------------------------------------------------------------------------------
def _entered(place: Place, notify: Mapping[str, Any]) -> list[str]:
    """Add `notify` at the end of the daemon's settings, or say what to add: a file may have any form."""
    from handoffd.files.atomic import replace_text
    from handoffd.settings.loading import Given

    files = Given(flags={"config": place.config}, environ=place.environ).files()
    path = next((file for file in files if os.path.lexists(file)), files[0])
    added = f"notify: {json.dumps(notify)}"
    try:
        whole = _with(path, notify, added)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not os.path.lexists(path)
        replace_text(path, whole)
        if new:
            path.chmod(0o600)  # the channel is a secret
    except (OSError, UnicodeError, HandoffdError) as error:
        why = plain(str(error).splitlines()[0])
        return [f"  notices: {plain(str(path))} was not changed ({why}); add to it:", f"    {added}"]
    return [f"  notices: added to {plain(str(path))}; to try them: handoffd notify test"]


def _with(path: Path, notify: Mapping[str, Any], added: str) -> str:
    """Return the text of a settings file with a line more. Raises InvalidFile if it has notices already."""
    from handoffd.errors import InvalidFile, Problem
    from handoffd.protocol.yamltext import load

    before = path.read_text("utf-8") if os.path.lexists(path) else ""
    whole = f"{before.rstrip()}\n{added}\n".lstrip()
    if load(whole, str(path)).data != {**(load(before, str(path)).data or {}), "notify": notify}:
        raise InvalidFile((Problem(file=str(path), message="it says something of notify already"),))
    return whole


def at_terminal() -> bool:
    """Return whether a person types this and reads the answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
