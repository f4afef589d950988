"""The verbs of the vocabulary as commands: `handoffd VERB [PROJECT] WHAT [--options]`.

They are made from the table of verbs, so the command line and the socket offer the same. Required
parameters are words, the others are options; the project comes first and can be left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from shlex import join, quote
from typing import TYPE_CHECKING, Any, Final

import click

from handoffd.api.verbs import Parameter, VerbSpec
from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.wording import UNMEASURED, minutes, no_daemon, plain, waits
from handoffd.engine.wording import command_for, first_few
from handoffd.entrance.place import Place, by_name
from handoffd.entrance.requests import Answer, ask, give
from handoffd.errors import HandoffdError, Json, NotFound, Refused

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from handoffd.cli.conversation import Chosen


# --- answers, for people -------------------------------------------------------------------------------

_TOLD = 3
"""Most tests without a command that one line lists."""


def report(answer: Json) -> list[str]:
    """Return the lines for an answer of `POST /v1/verbs/…`."""
    lines = _REPORTS[answer["type"]](answer)
    if answer.get("waits_for") and answer["type"] != "error":
        lines.append(f"  {waits(plain(answer['waits_for']))}")
    if answer.get("next_command"):
        lines.append(f"  next: {plain(by_name(answer['next_command'], answer))}")
    return lines


def way_back(answer: Json, story: str | None) -> list[str]:
    """Return how an approval is taken back, while something keeps the next attempt from beginning.

    Where nothing does, it would be too late by the time that the command is typed.
    """
    if answer["type"] == "error" or not answer.get("waits_for"):
        return []
    undo = command_for(answer["project"], "undo", *(("--story", story) if story else ()))
    return [f"  to take it back until the next attempt begins: {plain(by_name(undo, answer))}"]


def _accepted(answer: Json) -> list[str]:
    message = plain(by_name(answer["message"], answer))
    if answer["status"] in {"pass", "failing"}:  # the message names the step that follows
        return [message]
    held = [f"  sandbox: {plain(answer['sandbox'])}"] if answer.get("sandbox") else []
    warnings = (f"  warning: {plain(by_name(one, answer))}" for one in answer.get("warnings", ()))
    return [f"{message} ({plain(answer['step'])}, {answer['status']})", *held, *warnings]


def _dispatched(answer: Json) -> list[str]:
    if answer.get("prompt") is not None:
        return [f"{plain(answer['step'])}, attempt {answer['attempt']}, is yours: its prompt is on stdout"]
    where = f"{plain(answer['step'])}, attempt {answer['attempt']}"
    return [f"{plain(answer['story'] or 'no story')}: {where}, is dispatched as {answer['dispatch']}"]


def _done(answer: Json) -> list[str]:
    lines = [plain(answer["summary"])]
    if answer.get("review_suggested"):
        review = plain(by_name(command_for(answer["project"], "review"), answer))
        lines.append(f"  a review of the project is suggested: {review}")
    return lines


def _needs_human(answer: Json) -> list[str]:
    return [plain(answer["message"]), *(f"  review: {plain(file)}" for file in answer["review"])]


def _blocked(answer: Json) -> list[str]:
    return [f"{plain(answer['step'])} is blocked: {plain(answer['reason'])}"]


def _already_running(answer: Json) -> list[str]:
    return [f"{plain(answer['step'])} has been running for {minutes(answer['elapsed_min'])} min"]


def _timeout(answer: Json) -> list[str]:
    return [plain(answer["message"])]


def _error(answer: Json) -> list[str]:
    return [f"handoffd: {plain(by_name(answer['message'], answer))} [{answer['code']}]"]


def _initialised(answer: Json) -> list[str]:
    lines = [f"{plain(answer['name'])} is initialised: {plain(answer['project'])}"]
    lines += [f"  wrote {plain(name)}" for name in answer["created"]]
    if answer.get("gates") is not None:  # older daemons send none
        lines.append(f"  wrote gates: {plain(answer['gates'])} into .ai/handoffd.yaml")
    lines += [*_tests_of(answer), *_found_text("tried", answer.get("tried"))]
    lines += [line for one in answer.get("post_checks", ()) for line in _found_text("post_check", one)]
    lines += _place_of(answer)
    lines += [line for key in _OF_GIT for line in _found_text("git", answer.get(key))]
    lines += _found_text("sandbox", answer.get("sandbox"))
    if answer["missing"]:
        missing = " and ".join(map(plain, answer["missing"]))
        lines.append(f"  missing: {missing}; the first story's bootstrap step writes them")
    lines += [f"  {plain(by_name(warning, answer))}" for warning in answer["warnings"]]
    lines.append(f"  Claude Code by hand: {plain(_hooks_of(answer['project']))}   (applies its hand-offs)")
    return lines


_OF_GIT = ("kept_by_git", "skipped_by_git")


def _tests_of(answer: Json) -> Iterator[str]:
    """Yield the project's test command, and the tests found that it does not run."""
    command, written = answer["test_command"], ".ai/handoffd.yaml" in answer["created"]
    others = [_told_tests(one) for one in answer.get("other_tests", ())]
    if command is not None and written:
        yield f"  tests: {plain(join(command))}   (change it in .ai/handoffd.yaml)"
    elif command is None:
        yield f"  tests: none {'chosen' if others else 'found'}; {UNMEASURED}"
    if others:
        found = first_few(others, _TOLD)
        ready = "; .ai/handoffd.yaml has a commented line for them" if written and not command else ""
        yield f"  found, but not run: {plain(found)}{ready}"


def _found_text(name: str, found: Json | None) -> Iterator[str]:
    """Yield the result of a trial, and the fix if it failed."""
    if found is not None:
        yield f"  {name}: {plain(found['what'])}"
        told = {"why": found["why"], "next": found["action"]}
        yield from (f"    {key}: {plain(text)}" for key, text in told.items() if text is not None)


def _place_of(answer: Json) -> Iterator[str]:
    """Yield where stories work, why not elsewhere, and what would change that."""
    found = answer.get("workspace")
    if found is None:
        return
    again = command_for(answer["project"], "init", "--workspace")
    if found["kind"] == "clone":
        links = f" with links to {', '.join(map(plain, found['link']))}" if found["link"] else ""
        land = by_name(command_for(answer["project"], "land"), answer)
        yield f"  workspace: clone; each story works in a clone of its own{links}; to merge it: {plain(land)}"
        told = {"but": found["why"], "in the project's folder instead": f"{again} root"}
    else:
        yield "  workspace: root; stories work in the project's own folder"
        told = {"why": found["why"], "so that clones fit": found["remedy"], "next": found["command"]}
    yield from (
        f"    {key}: {plain(by_name(text, answer))}" for key, text in told.items() if text is not None
    )


def _told_tests(one: Json) -> str:
    typed = join(one["command"])
    return typed if one["folder"] == "." else f"{one['folder']} ({typed})"


def _hooks_of(project: str) -> str:
    return f"handoffd hooks install --project {quote(project)}"


def _added(answer: Json) -> list[str]:
    lines = [
        f"{plain(answer['name'])} is now supervised: {plain(answer['project'])} (level {answer['level']})"
    ]
    if answer["condition"] not in {"ok", "not_initialized"}:
        lines.append(f"  {answer['condition']}: {plain(answer['detail'] or '')}")
    track = answer["tracks"][0] if answer["tracks"] else None
    following = track["next_command"] if track else command_for(answer["project"], "init")
    return [*lines, f"  next: {plain(by_name(following, answer))}"] if following else lines


def _removed(answer: Json) -> list[str]:
    return [f"{plain(answer['name'])} is no longer supervised; its files and its history stay"]


def _trusted(answer: Json) -> list[str]:
    broken, dropped = answer.get("broken", ()), answer.get("dropped", ())
    if not answer["trusted"]:
        return [] if dropped else ["no edit was pending; the project's current files are trusted"]
    applies = [plain(one) for one in answer["trusted"] if one not in broken]
    return [f"now in effect: {', '.join(applies)}"] if applies else []


def _heard(answer: Json) -> list[str]:
    return [f"{answer['type']}: {plain(answer['message'], lines=True)}"]


def _checked(answer: Json) -> list[str]:
    named = [one for one in answer.get("checks", ()) if one["name"]]
    if named:
        return [line for one in named for line in _named_check(one)]
    tail = [plain(answer["tail"], lines=True)] if answer["tail"] and not answer["passed"] else []
    return [plain(answer["message"]), *tail]


def _named_check(check: Json) -> list[str]:
    """Return how one of several checks ended, and what it printed last if it did not pass."""
    from msgspec import convert

    from handoffd.engine.run import PostCheck

    how = convert(check, PostCheck).how
    printed = plain(check["tail"], lines=True).splitlines() if not check["passed"] else []
    return [f"{plain(check['name'])} {plain(how)}", *(f"  {line}".rstrip() for line in printed)]


_REPORTS: Mapping[str, Callable[[Json], list[str]]] = {
    "accepted": _accepted,
    "dispatched": _dispatched,
    "done": _done,
    "needs_human": _needs_human,
    "blocked": _blocked,
    "already_running": _already_running,
    "timeout": _timeout,
    "error": _error,
    "initialised": _initialised,
    "added": _added,
    "removed": _removed,
    "trusted": _trusted,
    "applied": _heard,
    "taken": lambda answer: [plain(answer["message"], lines=True)],
    "stale": _heard,
    "pending": _heard,
    "missing": _heard,
    "checked": _checked,
    "discarded": lambda answer: [plain(answer["message"])],
    "landed": lambda answer: [plain(answer["message"])],
}


# --- commands ------------------------------------------------------------------------------------------
def verb_command(spec: VerbSpec) -> click.Command:
    """Return the command of a verb."""
    needed, trailing = _words_needed(spec)
    words = " ".join(["[PROJECT]", *(one.name.upper() for one in needed), *_trailing_words(trailing)])
    command = click.Command(
        spec.typed.split()[-1],
        callback=partial(_CALLBACKS.get(spec.name, _run), spec),
        help=spec.help + "".join(f"\n\n{one.name.upper()}: {one.help}." for one in _words_of(spec)),
        params=[
            click.Argument(["words"], nargs=-1, metavar=words, shell_complete=complete_words),
            *(
                option_of(one)
                for one in spec.parameters
                if not one.required and not one.trailing and one.name != _COMPOSED
            ),
            *(_of_init() if spec.name == "init" else ()),
            *(_OF_TRUST if spec.name == "trust" else ()),
        ],
    )
    return json_option(command)


def _run(spec: VerbSpec, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Give a verb, and print the answer."""
    place, root, given, alone = _understood(spec, words, options)
    answer = give_verb(place, spec, root, given, alone)
    say(answer, as_json, way_back(answer.json, given.get("story")) if spec.name == "approve" else [])


def _trust(
    spec: VerbSpec, words: tuple[str, ...], as_json: bool, *, daemon: bool, yes: bool, **options: Any
) -> None:
    """Trust the edits of a project, or of the daemon's own settings."""
    if not daemon:
        _trust_project(spec, words, as_json, options)
        return
    if words:
        raise click.UsageError("--daemon is about the daemon's settings: it takes no project")
    from handoffd.cli.conversation import at_terminal
    from handoffd.cli.daemon import trust_settings

    place = click.get_current_context().find_object(Place)
    assert place is not None
    trust_settings(place, yes=yes, may_ask=at_terminal(), as_json=as_json)


def _trust_project(spec: VerbSpec, words: tuple[str, ...], as_json: bool, options: Json) -> None:
    """Trust the edits of a project, and show what changed in its pipelines."""
    from handoffd.cli.pipelines import lookup

    place, root, given, alone = _understood(spec, words, options)
    before = lookup.trusted_texts(place, root)
    answer = give_verb(place, spec, root, given, alone)
    change = lookup.Change()
    if answer.json["type"] == "trusted":
        change = lookup.change_since(place, answer.json["project"], before)
        answer.json.update(lookup.as_data(change))
    say(answer, as_json, lookup.told(change, differences=True))


def _add(spec: VerbSpec, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Supervise a project, and name the pipelines that are trusted with it."""
    from handoffd.cli.pipelines import lookup

    place, root, given, alone = _understood(spec, words, options)
    before = lookup.trusted_texts(place, root)
    answer = give_verb(place, spec, root, given, alone)
    change = lookup.Change()
    if answer.json["type"] == "added":
        change = lookup.change_since(place, answer.json["project"], before)
    say(answer, as_json, [*lookup.named(change), *lookup.told(change, differences=False)])


def _init(
    spec: VerbSpec,
    words: tuple[str, ...],
    as_json: bool,
    *,
    no_tests: bool,
    workspace: str | None,
    **options: Any,
) -> None:
    """Initialise a project: ask a person first, and look into it afterwards."""
    if no_tests and workspace in {"auto", "clone"}:
        raise click.UsageError(f"--workspace {workspace} runs the tests, and --no-tests forbids that")
    place, root, given, alone = _understood(spec, words, options)
    chosen = _conversation(place, root, given, as_json)
    answer = give_verb(place, spec, root, given, alone)
    if answer.json["type"] == "initialised":
        from handoffd.cli.projects import look_into

        look_into(place, answer.json, workspace, tests=not no_tests, as_json=as_json)
    say(answer, as_json)
    chosen.conclude(place, answer.json.get("project", root), silent=as_json)
    if workspace == "clone" and answer.json.get("workspace", {}).get("kind") == "root":
        click.get_current_context().exit(1)


_CALLBACKS: Final[Mapping[str, Callable[..., None]]] = {"add": _add, "init": _init, "trust": _trust}
"""What more than giving the verb some commands do."""


def _words_needed(spec: VerbSpec) -> tuple[list[Parameter], Parameter | None]:
    """Return the parameters that are words, and the one that takes all further words."""
    needed = [one for one in spec.parameters if one.required and not one.trailing]
    return needed, next((one for one in spec.parameters if one.trailing), None)


def _understood(
    spec: VerbSpec, words: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Place, str, dict[str, Any], str | None]:
    """Return where to ask, the project, the arguments, and the only word, which may name another project."""
    place = click.get_current_context().find_object(Place)
    assert place is not None
    needed, trailing = _words_needed(spec)
    project, given = sorted_out(needed, words, trailing)
    given |= {name: _as_json_value(value) for name, value in options.items() if _is_given(value)}
    alone = words[0] if words and project is None else None
    return place, place.project(project), given, alone


_COMPOSED: Final = "settings"
"""The parameter of `init` that is made of the answers to its questions."""


def _of_init() -> list[click.Option]:
    from handoffd.cli.conversation import options

    return [*_OF_INIT, *options()]


def _conversation(place: Place, project: str, given: dict[str, Any], as_json: bool) -> Chosen:
    """Ask what `init` asks of a person, and have the answers in what is `given`."""
    from handoffd.cli.conversation import at_terminal, converse

    chosen = converse(place, project, given, may_ask=at_terminal() and not as_json)
    if chosen.text is not None:
        given[_COMPOSED] = chosen.text
    return chosen


BY_HAND: Final = frozenset({"applied", "taken", "stale", "pending", "missing", "checked"})
"""Verbs for users who do steps themselves: they work without a daemon and do not mention it."""

_OF_INIT: Final = (
    click.Option(
        ["--no-tests"],
        is_flag=True,
        help="Do not try the tests, for example if you have not read the code yet.",
    ),
    click.Option(
        ["--workspace"],
        type=click.Choice(("auto", "clone", "root")),
        help="Where stories work: each in a clone of its own, or in the project's folder. auto: in clones if "
        "the tests pass in one (the default of a new project).",
    ),
)
_OF_TRUST: Final = (
    click.Option(["--daemon"], is_flag=True, help="Instead of a project: the daemon's own settings."),
    click.Option(["--yes"], is_flag=True, help="With --daemon: trust it without a question."),
)
_METAVARS: Final = {"story": "STORY", "amount": "DOLLARS", "count": "NUMBER", "priority": "NUMBER"}


def complete_words(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return candidates for the next word of a verb."""
    from handoffd.cli.asking import words_of_verb

    return words_of_verb(context, parameter, incomplete)


def option_of(parameter: Parameter) -> click.Option:
    """Return the option of a command for a parameter."""
    name, help_ = (
        f"--{parameter.name.replace('_', '-')}",
        f"{parameter.help[:1].upper()}{parameter.help[1:]}.",
    )
    if parameter.type == "flag":
        return click.Option([name], is_flag=True, help=help_)
    if parameter.type == "stories":
        return click.Option([name], multiple=True, metavar="STORY", help=f"{help_} Can be repeated.")
    if parameter.type == "executors":
        help_ = f"{help_} Can be repeated."
        return click.Option([name], multiple=True, metavar="NAME", help=help_, callback=_in_order)
    shown = "|".join(parameter.choices) or _METAVARS.get(parameter.type, "TEXT")
    return click.Option([name], metavar=shown, help=help_)


def _in_order(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return executors as one list, in the order typed, with repetitions."""
    return ",".join(given) if given else None


def _words_of(spec: VerbSpec) -> list[Parameter]:
    return [one for one in spec.parameters if one.required or one.trailing]


def _trailing_words(trailing: Parameter | None) -> list[str]:
    if trailing is None:
        return []
    return ["STORY..."] if trailing.required else [f"[{trailing.name.upper()}...]"]


def sorted_out(
    needed: list[Parameter], words: tuple[str, ...], trailing: Parameter | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Return the project, if the user named one, and the parameters that are words.

    `trailing` takes all remaining words; the first word is the project if there is one word to spare.
    """
    if trailing is not None:
        least = len(needed) + trailing.required
        first = len(needed) + (len(words) > least)
        if len(words) < least and not words[first:] and len(words) >= len(needed):
            raise click.UsageError(f"{trailing.name.upper()} is missing: {trailing.help}")
        project, given = sorted_out(needed, words[:first])
        return project, given | ({trailing.name: list(words[first:])} if words[first:] else {})
    if len(words) < len(needed):
        missing = needed[len(words)]
        raise click.UsageError(f"{missing.name.upper()} is missing: {missing.help}")
    if len(words) > 1 and not needed:
        raise click.UsageError(f"too many words: {words[1]!r}; it takes a project, and options (see --help)")
    if len(words) > len(needed) + 1:
        raise click.UsageError(f"too many words; put a text of several words into quotes: {words[-1]!r}")
    project = words[0] if len(words) > len(needed) else None
    values = words[len(words) - len(needed) :]
    return project, {parameter.name: value for parameter, value in zip(needed, values, strict=True)}


# --- a word that is taken for another ------------------------------------------------------------------
# Alone, the word of a verb that needs one is that word, whatever it says. Who types the name of a project
# there has left the other word out: taken as it is, it would become a story, or a note, of the folder here.
_TAKE_ANY: Final = frozenset({"start", "custom", "note"})
"""Verbs that take every word; the others refuse the name of a project for what they need, or know it."""

_UNFIT: Final = frozenset(
    {"BAD_ARGUMENT", "INVALID_STORY", "INVALID_TARGET", "NOT_FOUND", "NOT_IN_BACKLOG", "UNKNOWN_EXECUTOR"}
)
"""How a word that does not fit is refused, or the folder in which it was typed."""

_NAME_CHARACTERS: Final = 255
"""Longer words are texts, not names."""


def give_verb(place: Place, spec: VerbSpec, project: str, given: dict[str, Any], alone: str | None) -> Answer:
    """Give the verb. Raises Refused if `alone`, its only word, is the name of a project."""
    if alone is not None and spec.name in _TAKE_ANY:
        mistaken = _mistaken(place, spec, alone)
        if mistaken is not None and not (spec.name == "start" and _is_known(place, project, alone)):
            raise mistaken
    try:
        answer = give(place, spec.name, project, given)
    except HandoffdError as error:
        if alone is not None and error.code in _UNFIT and (mistaken := _mistaken(place, spec, alone)):
            raise mistaken from error
        raise
    if (
        alone is not None
        and answer.json.get("code") in _UNFIT
        and (mistaken := _mistaken(place, spec, alone))
    ):
        raise mistaken
    return answer


def _mistaken(place: Place, spec: VerbSpec, word: str) -> Refused | None:
    """Return the refusal of a word that names a project, with the command to type; None if it names none."""
    found = _project_called(place, word)
    if found is None:
        return None
    from handoffd.api.arguments import BAD_ARGUMENT, usage

    missing = next(one for one in spec.parameters if one.required)
    name = missing.name.upper()
    message = f"{word!r} names a project, and {name} is missing"
    if missing.type != "reason":  # the next command lists the reasons
        message += f": {missing.help}"
    if spec.name in _TAKE_ANY:
        message += f" (if it is the {name}: `{command_for('.', spec.typed, word)}`)"
    hint = by_name(usage(spec, found["project"]), found | {"called": found["name"]})
    return Refused(message, code=BAD_ARGUMENT, hint=hint)


def _project_called(place: Place, word: str) -> Json | None:
    """Return the backlog of the project with this name, or with its root there; None if there is none."""
    if not word.isprintable() or len(word) > _NAME_CHARACTERS:
        return None
    for asked in dict.fromkeys((word, place.project(word))):  # a folder here may have the name, too
        found = _backlog_of(place, asked)
        if found is not None and (asked[:1] != "/" or found["project"] == os.path.realpath(asked)):
            return found
    return None


def names_project(place: Place, word: str) -> bool:
    """Return whether a word is the name of a supervised project."""
    return _project_called(place, word) is not None


def _is_known(place: Place, project: str, story: str) -> bool:
    """Return whether a project has a story of this name: then that is meant."""
    here = _backlog_of(place, project)
    return here is not None and story in {here["story"], *(one["story"] for one in here["stories"])}


def _backlog_of(place: Place, project: str) -> Json | None:
    try:
        return ask(place, "backlog", project=project).json
    except NotFound:
        return None


def _is_given(value: object) -> bool:
    """Return whether the user typed an option; an empty text counts, so that it can be refused."""
    return value is not None and value is not False and value != ()


def _as_json_value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def say(answer: Any, as_json: bool, more: Sequence[str] = ()) -> None:
    """Print an answer, for people with `more` lines; the exit code is 1 after a refusal."""
    failed = answer.json["type"] == "error" or answer.json.get("passed") is False
    prompt = answer.json.get("prompt")
    if as_json:
        print_json(answer.json)
    else:
        by_hand = answer.json["type"] in BY_HAND or prompt is not None
        closing = [] if answer.daemon or failed or by_hand else [no_daemon()]
        print_lines([*report(answer.json), *more, *closing], err=failed or prompt is not None)
        if prompt is not None:
            click.echo(prompt)
    if failed:
        click.get_current_context().exit(1)
