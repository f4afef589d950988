"""`handoffd gate`: the review that a project waits at, with keys to look closer and to decide; or all.

Keys are read at a terminal only. A decision is given by its whole word, for the gate that is on the screen:
if another one is open by then, that is shown first. Diffs and files are an agent's work: they are escaped,
and git runs nothing that a repository names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from handoffd.chat.commands import reason_meant
from handoffd.cli.asking import json_option, print_json, print_lines, project_argument
from handoffd.cli.flows.telling import asked
from handoffd.cli.log import last_lines
from handoffd.cli.verbs import report, way_back
from handoffd.cli.wording import (
    fitting,
    moment,
    no_daemon,
    plain,
    shorten,
    table,
    terminal_text,
    wants_colour,
)
from handoffd.engine.wording import (
    changed_tests_of,
    command_for,
    cost_of,
    counted,
    first_few,
    has_failed,
    lines_of,
    scope_of,
    shortened,
    tests_of,
    time_in_words,
)
from handoffd.entrance.place import Place, by_name
from handoffd.entrance.requests import ask, give
from handoffd.errors import HandoffdError, Json


@click.command()
@project_argument
@click.option("--story", metavar="STORY", help="The one that is meant, where several wait at a gate.")
@click.option("--since-last", is_flag=True, help="Show the files changed since this gate was decided last.")
@click.option("--no-keys", is_flag=True, help="Print the screen and end, also at a terminal.")
@json_option
@click.pass_obj
def gate(
    place: Place, project: str | None, story: str | None, since_last: bool, no_keys: bool, as_json: bool
) -> None:
    """Show the review that PROJECT waits at: the question, and all facts for the decision.

    At a terminal, keys show the diff, the scenarios, the tests and the log, and approve or reject. Without
    PROJECT: the open reviews of all projects, the oldest first.
    """
    if project is None:
        if since_last or story:
            raise click.UsageError("--story and --since-last need a project: handoffd gate PROJECT")
        answer = ask(place, "gates")
    else:
        named = place.project(project)
        answer = ask(place, "gate", project=named, story=story, since_last=int(since_last))
    if as_json:
        print_json(answer.json)
        return
    lines = listed(answer.json) if project is None else screen(answer.json)
    print_lines([*lines, *([] if answer.daemon else ["", no_daemon()])])
    if project is not None and not no_keys and sys.stdin.isatty() and sys.stdout.isatty():
        Keys(place, answer.json).run()


def listed(answer: Json) -> list[str]:
    """Return the lines for an answer of `GET /v1/gates`; the commands name the projects."""
    questions = [line for flow in answer.get("flows", ()) for line in asked(flow)]  # older daemons send none
    if not answer["gates"]:
        return questions[1:] or ["No project waits at a gate."]
    rows = [_row(one) for one in answer["gates"]]
    head = ("STORY", "GATE", "SINCE", "LOOK AT IT")
    return [*fitting(head, rows, (), WIDTH, text=("STORY",)), *questions]


_TITLE, _STEP = 28, 12


def _row(one: Json) -> list[str]:
    named = " ".join(filter(None, (one["story"], one["title"])))
    return [
        shorten(named, _TITLE),
        shorten(one["step"], _STEP),
        moment(one["since"])[5:16] or "–",
        plain(by_name(one["command"], {"project": one["project"], "called": one["name"]})),
    ]


# --- the screen ----------------------------------------------------------------------------------------
WIDTH = 80
_LABEL = 10
_PATH = 36
_LINES_OF_TEXT = 12
_FILES = 8
_POINTS = 5
_CLAIM = 300
_WHOLE = 10_000


def screen(gate: Json, *, whole: bool = False) -> list[str]:
    """Return the lines for an answer of `GET /v1/gate`; `whole`: lists without an end."""
    files, points = (_WHOLE, _WHOLE) if whole else (_FILES, _POINTS)
    asked = [("Asked", gate["asked"]), ("Why", gate["why"]), ("Steps", _steps(gate))]
    parts = [
        _head(gate),
        _text(gate, _WHOLE if whole else _LINES_OF_TEXT),
        *(_field(label, [text]) for label, text in asked),
        _files(gate, files),
        _field("Tests", _tests(gate["tests"], points)),
        _field("Attempts", _each_attempt(gate) if whole else _failures(gate)),
        _field("Rejected", map(_rejection, gate["rejections"] if whole else gate["rejections"][-points:])),
        _points("Unclear", gate["unclear"], points),
        _points("Unticked", gate["unticked"], points),
        _field("Cost", [cost_of(gate)]),
        _field("Claim", [_claim(gate["claim"] or "", _WHOLE if whole else _CLAIM)]),
        _field("Note", [gate["note"]] if gate["note"] else []),
        _field("Unknown", gate["unknown"]),
    ]
    return [*(line for part in parts for line in part), "", *_answers(gate)]


# --- the story ----------------------------------------------------------------------------------------
def _head(gate: Json) -> list[str]:
    head = f"{plain(gate['name'])} {plain(gate['story'])} waits at {plain(gate['step'])}"
    source = f" ({gate['source']})" if gate.get("source") else ""  # older daemons send none
    return [_bold(head), *(_wrapped(gate["title"] + source, WIDTH) if gate["title"] else [])]


def _text(gate: Json, most: int) -> list[str]:
    """Return the story's text between empty lines, without its title again."""
    lines = plain(gate["text"] or "", lines=True).strip().split("\n")
    if lines[0].lstrip("# ") == plain(gate["title"] or ""):
        lines = "\n".join(lines[1:]).strip("\n").split("\n")
    shown = [part for line in lines[:most] for part in _wrapped(line, WIDTH - 2) or [""]]
    if len(lines) > most:
        shown.append(f"… {counted(len(lines) - most, 'more line')}: {_command(gate, 'story', gate['story'])}")
    return ["", *(f"  {line}".rstrip() for line in shown), ""] if any(shown) else [""]


def _claim(text: str, most: int) -> str:
    beginning = ", their beginning" if len(text) > most else ""
    return f"{shortened(text, most)} (the agent's own words{beginning})" if text else "the agent says nothing"


def _steps(gate: Json) -> str:
    return " → ".join([*gate["done"], f"[{gate['step']}]", *gate["ahead"]])


# --- what was done ------------------------------------------------------------------------------------
def _files(gate: Json, most: int) -> list[str]:
    changes = gate["changes"]
    if changes is None:
        return []
    last = f"since this gate was decided last ({changes['since']})" if changes["again"] else None
    told = f"{counted(changes['count'], 'file')} changed {last or 'since ' + changes['since']}"
    verdict = [scope_of(changes)] if changes["count"] else []
    lines = _field("Files", [f"{told}: {lines_of(changes)} lines", *verdict])
    shown = changes["files"][:most]
    lines += [f"{'':{_LABEL}}{line}" for line in table(("", "", ""), [_file(one) for one in shown])[1:]]
    left = changes["count"] - len(shown)
    return lines + _field("", [f"… and {counted(left, 'more file')}"] if left else [])


def _file(one: Json) -> list[str]:
    outside = f"outside of {', '.join(map(plain, one['outside']))}" if one["outside"] else ""
    told = "" if one["status"] == "changed" else one["status"]
    marked = f"\x1b[33m{outside}\x1b[0m" if outside else ""
    return [_end_of(plain(one["path"])), lines_of(one), "  ".join(filter(None, (told, marked)))]


def _end_of(path: str) -> str:
    """Return the end of a long path, in which two of them differ."""
    return path if len(path) <= _PATH else f"…{path[1 - _PATH :]}"


def _tests(tests: Json, most: int) -> Iterator[str]:
    yield from tests_of(tests)
    known = {*tests["regressed"], *tests["new"]}
    for words, names in (
        ("fail now, passed before", tests["regressed"]),
        ("fail, and are new", [one for one in tests["failing"] if one in tests["new"]]),
        ("fail", [one for one in tests["failing"] if one not in known]),
    ):
        if names:
            yield f"{words}: {first_few(names, most)}"
    yield from changed_tests_of(tests, most)
    if tests["files"]:
        yield f"test files changed: {first_few(tests['files'], most)}"


def _failures(gate: Json) -> Iterator[str]:
    """Yield how often each step was tried, and why all attempts but the last one failed."""
    for step, found in groupby(gate["attempts"], key=lambda one: one["step"]):
        tried = list(found)
        told = [one for place, one in enumerate(tried, start=1) if one["why"] or place < len(tried)]
        yield f"{step}: {counted(len(tried), 'attempt')}, {sum(map(has_failed, tried)) or 'none'} failed"
        yield from (f"  {_attempt(one)}" for one in told)


def _each_attempt(gate: Json) -> Iterator[str]:
    for one in gate["attempts"]:
        yield f"{_attempt(one)} (sandbox: {one['sandbox'] or 'unknown'})"
        yield f"  handoffd log --run {one['run']}"


def _attempt(one: Json) -> str:
    took = f" after {time_in_words(one['seconds'] / 60)}" if one["seconds"] is not None else ""
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['step']} {one['attempt']} by {one['executor']} {one['result'] or 'running'}{took}{why}"


def _rejection(one: Json) -> str:
    reason, note = one["reason"] or "no reason", f": {one['note']}" if one["note"] else ""
    return f"{one['step']} by {one['by']}, {moment(one['at'])[5:16]}, {reason}{note}"


def _points(label: str, points: Sequence[Json], most: int) -> list[str]:
    lines = [f"{one['file']}:{one['line']}  {one['text']}" for one in points[:most]]
    rest = [f"… and {len(points) - most} more"] if len(points) > most else []
    return _field(label, [*lines, *rest])


# --- the answers --------------------------------------------------------------------------------------
def _answers(gate: Json) -> list[str]:
    approval, leads = gate["answers"][0], dict[str, list[str]]()
    for one in gate["answers"][1:]:
        leads.setdefault(one["leads_to"] or "you are asked again", []).append(one["reason"])
    lines = [f"approve → {approval['leads_to']}"]
    lines += [f"reject: {', '.join(reasons)} → {step}" for step, reasons in leads.items()]
    reject = _command(gate, "reject", "REASON", "--story", gate["story"])
    commands = (_typed(gate, approval["command"]), f'{reject} --note "..."')
    return [*(part for line in lines for part in _wrapped(line, WIDTH)), *(f"  {one}" for one in commands)]


def _command(gate: Json, verb: str, *words: str) -> str:
    return _typed(gate, command_for(gate["project"], verb, *words))


def _typed(gate: Json, command: str) -> str:
    """Return a command as it is shown: whole, with the project's name where that is enough."""
    return plain(by_name(command, {"project": gate["project"], "called": gate["name"]}))


# --- lines ----------------------------------------------------------------------------------------------
def _field(label: str, lines: Iterable[str]) -> list[str]:
    """Return lines beside a label, wrapped."""
    wrapped = [part for line in lines for part in _hanging(line)]
    first = _bold(f"{label:{_LABEL}}") if label else " " * _LABEL
    return [f"{first if place == 0 else ' ' * _LABEL}{line}" for place, line in enumerate(wrapped)]


def _bold(text: str) -> str:
    """Return a text in bold; click removes that outside a terminal."""
    return f"\x1b[1m{text}\x1b[0m"


def _hanging(line: str) -> list[str]:
    """Return a line wrapped to the room beside a label; what is indented stays so."""
    indent = " " * (len(line) - len(line.lstrip(" ")))
    first, *more = _wrapped(line, WIDTH - _LABEL - len(indent)) or [""]
    rest = _wrapped(" ".join(more), WIDTH - _LABEL - len(indent) - 2)
    return [f"{indent}{first}", *(f"{indent}  {part}" for part in rest)]


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` columns; a Chinese sign takes two."""
    from rich.cells import cell_len, chop_cells

    lines: list[str] = []
    words = plain(text).split()
    for word in (part for whole in words for part in chop_cells(whole, width)):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


# --- keys ---------------------------------------------------------------------------------------------
_HELP: Final = "d diff  s scenarios  t tests  l log  e all  n note  a approve  r reject  q quit"
_MOST_LINES: Final = 500
_MOST_FILE: Final = 1024 * 1024


class Keys:
    """Looks closer at a gate and decides it, key by key."""

    def __init__(self, place: Place, gate: Json) -> None:
        self._place = place
        self._gate = gate
        self._actions: Mapping[str, Callable[[], bool]] = {
            "d": self._paged(self._diff), "s": self._paged(self._scenarios), "t": self._paged(self._tests),
            "l": self._paged(self._log), "e": self._paged(lambda: "\n".join(screen(self._gate, whole=True))),
            "n": self._note, "a": self._approve, "r": self._reject, "q": lambda: True,
        }  # fmt: skip

    def run(self) -> None:
        """Carry out keys until the gate is decided, or the person quits."""
        over = False
        while not over:
            key = _key(f"\n{click.style(_HELP, bold=True)}\n")
            try:
                over = self._actions.get(key, lambda: False)()
            except HandoffdError as error:
                hint = f"\n  next: {plain(error.hint)}" if error.hint else ""
                click.echo(f"handoffd: {plain(error.message)}{hint}")
            except EOFError:
                return

    # --- looking -----------------------------------------------------------------------------------
    def _paged(self, text: Callable[[], str]) -> Callable[[], bool]:
        def shown() -> bool:
            # None: colours as far as the pager can show them; told that it can, `less` would print raw codes.
            click.echo_via_pager(text() + "\n", color=None if wants_colour(self._place.environ) else False)
            return False

        return shown

    def _diff(self) -> str:
        changes = self._gate["changes"]
        if changes is None:
            return "; ".join(map(plain, self._gate["unknown"]))
        state_dir = self._place.settings().state_dir
        text = diff(self._gate["folder"], state_dir, changes["base"], changes["end"], self._place.environ)
        return "\n".join(coloured(text, colours(self._place.environ))) or "nothing has changed"

    def _scenarios(self) -> str:
        from handoffd.files.rooted import read_project_file

        told = []
        for name in self._gate["scenarios"]:
            seen = read_project_file(Path(self._gate["folder"]), name, _MOST_FILE)
            text = "(is not there)" if seen is None else terminal_text(seen.content)
            told += [click.style(plain(name), bold=True), text]
        return "\n".join(told) or "the step table names no file of scenarios"

    def _tests(self) -> str:
        run = self._gate["tests"]["run"]
        if run is None:
            return "no tests were measured in this story"
        return "\n".join(last_lines(self._place, None, f"{run}.tests", _MOST_LINES).json["lines"])

    def _log(self) -> str:
        if not self._gate["attempts"]:
            return "no attempt of this story has run"
        run = self._gate["attempts"][-1]["run"]  # the project's latest may be another story's
        lines = last_lines(self._place, None, run, _MOST_LINES).json["lines"]
        return "\n".join([f"{run}:", *(lines or ["(it printed nothing)"])])

    # --- deciding ----------------------------------------------------------------------------------
    def _note(self) -> bool:
        text = _line("Note for the next prompt: ")
        if text:
            given = {"text": text, "story": self._gate["story"]}
            self._say(give(self._place, "note", self._gate["project"], given).json)
        return False

    def _approve(self) -> bool:
        if _line("To approve it, type the word approve: ") != "approve":
            click.echo("Nothing is decided.")
            return False
        note = _line("What is the answer to the unclear points? ") if self._gate["unclear"] else ""
        return self._decided("approve", {"note": note} if note else {})

    def _reject(self) -> bool:
        leads = {one["reason"]: one["leads_to"] for one in self._gate["answers"] if one["reason"]}
        for reason, step in leads.items():
            click.echo(f"  {reason} → {plain(step or 'you are asked again')}")
        while word := _line("Why? Type a reason, or nothing to go back: "):
            if (reason := reason_meant(word)) is not None:
                note = _line("What should change? ")
                return self._decided("reject", {"reason": str(reason), **({"note": note} if note else {})})
            click.echo(f"unknown reason {word[:80]!r}; reasons: {', '.join(leads)}")
        click.echo("Nothing is decided.")
        return False

    def _decided(self, verb: str, arguments: Json) -> bool:
        """Give the decision, if the gate is still the one on the screen; return whether it was taken."""
        now = ask(self._place, "gate", project=self._gate["project"], story=self._gate["story"]).json
        if _signature(now) != _signature(self._gate):
            self._gate = now
            print_lines(["It has changed meanwhile. Nothing is decided.", "", *screen(now)])
            return False
        answer = give(
            self._place, verb, self._gate["project"], {"story": self._gate["story"], **arguments}
        ).json
        self._say(answer, way_back(answer, self._gate["story"]) if verb == "approve" else [])
        return bool(answer["type"] != "error")

    def _say(self, answer: Json, more: Sequence[str] = ()) -> None:
        print_lines([*report(answer), *more])


def _key(question: str) -> str:
    """Return the key that a person hits; `q` where the input ends.

    The terminal passes keys on before the question is there, so that none is lost.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        click.echo(question, nl=False)
        key = os.read(terminal, 16)  # an arrow is three signs, and none of them is a key of ours
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
    return "q" if key in {b"", b"\x04"} else key.decode("utf-8", "replace").lower()


def _line(question: str) -> str:
    """Return the line that a person types. Raises EOFError where the input ends."""
    click.echo(question, nl=False)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def _signature(gate: Json) -> tuple[object, ...]:
    """Return what tells one gate from another, and from the same with other work."""
    end = gate["changes"]["end"] if gate["changes"] is not None else None
    return (gate["story"], gate["step"], len(gate["attempts"]), end)


# --- the diff -----------------------------------------------------------------------------------------
_DIFF_S: Final = 60.0
_MOST_DIFF: Final = 4 * 1024 * 1024
_USUAL: Final[Mapping[str, str]] = {"meta": "bold", "frag": "cyan", "old": "red", "new": "green"}
_BEGINS: Final = {
    "diff ": "meta", "index ": "meta", "--- ": "meta", "+++ ": "meta", "new file": "meta", "deleted": "meta",
    "@@": "frag", "-": "old", "+": "new",
}  # fmt: skip


def diff(folder: str, state_dir: Path, base: str, end: str, environ: Mapping[str, str]) -> str:
    """Return how the files of a project differ between two commits, escaped, in the form of `git diff`.

    Of the repository only the objects are used: none of its settings, hooks, filters and programs. Raises
    StoreError.
    """
    from handoffd.git.command import Git
    from handoffd.git.worktree import Worktree

    worktree = Worktree(folder, state_dir, environ)
    repository = worktree.repository()
    with tempfile.TemporaryDirectory() as beside:
        git = Git(worktree.program(), repository, Path(beside, "git"), environ, _DIFF_S)
        git.make_shadow("sha256" if len(base) == 64 else "sha1")
        within = ("--", f":(top,literal){repository.within}") if repository.within else ()
        words = ("-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options", base, end)
        told = git.run("diff-tree", *words, *within)
    cut = [f"... and {len(told) - _MOST_DIFF:,} bytes more"] if len(told) > _MOST_DIFF else []
    return "\n".join([terminal_text(told[:_MOST_DIFF]).rstrip("\n"), *cut])


def colours(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the person's own colours for a diff, as they have set them for git; none if they want none."""
    asked = ("git", "config", "--global")
    if _said(*asked, "--get-colorbool", "color.diff", "true", environ=environ) == "false":
        return {}
    return {
        part: _said(*asked, "--get-color", f"color.diff.{part}", usual, environ=environ)
        for part, usual in _USUAL.items()
    }


_TAKEN: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "TERM")


def _said(program: str, *words: str, environ: Mapping[str, str]) -> str:
    known = {name: environ[name] for name in _TAKEN if name in environ}
    with suppress(OSError, subprocess.TimeoutExpired):
        path = shutil.which(program, path=known.get("PATH")) or program
        done = subprocess.run([path, *words], env=known, cwd="/", capture_output=True, timeout=5, check=False)
        return done.stdout.decode("ascii", "replace").strip("\n")
    return ""


def coloured(text: str, chosen: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a diff in colours."""
    inside = False
    for line in text.split("\n"):
        inside = line.startswith("@@") or (inside and line[:1] in {"+", "-", " ", "\\"})
        begins = _BEGINS if not inside else {key: _BEGINS[key] for key in ("@@", "-", "+")}
        part = next((part for begin, part in begins.items() if line.startswith(begin)), "")
        colour = chosen.get(part, "")
        yield f"{colour}{line}\x1b[m" if colour else line
