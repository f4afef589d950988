"""The screen of an open gate as text, and the few lines of it that `status PROJECT` has.

The screen has 80 columns, commands stay whole, and what an agent wrote is escaped. `status` loads this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from handoffd.cli.wording import plain, shorten, table
from handoffd.engine.wording import command_for, counted, time_in_words, usage_in_words
from handoffd.entrance.place import by_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.errors import Json

WIDTH = 80
_LABEL = 10
_PATH = 36
_LINES_OF_TEXT = 12
_FILES = 8
_POINTS = 5
_WHOLE = 10_000
_CLAIM = 300
_WORDS = {"fail": "failed", "skip": "skipped"}


def screen(gate: Json, *, whole: bool = False) -> list[str]:
    """Return the lines for an answer of `GET /v1/gate`; `whole`: lists without an end."""
    files, points = (_WHOLE, _WHOLE) if whole else (_FILES, _POINTS)
    asked = [("Asked", gate["asked"]), ("Why", gate["why"]), ("Steps", _steps(gate))]
    claim = f"{gate['claim']} (the agent's own words)" if gate["claim"] else "the agent says nothing"
    parts = [
        _head(gate),
        _text(gate, _WHOLE if whole else _LINES_OF_TEXT),
        *(_field(label, [text]) for label, text in asked),
        _files(gate, files),
        _field("Tests", _tests(gate["tests"], points)),
        _field("Attempts", _each_attempt(gate) if whole else _failures(gate)),
        _points("Unclear", gate["unclear"], points),
        _points("Unticked", gate["unticked"], points),
        _field("Cost", [_cost_of(gate)]),
        _field("Claim", [claim]),
        _field("Note", [gate["note"]] if gate["note"] else []),
        _field("Unknown", gate["unknown"]),
    ]
    return [*(line for part in parts for line in part), "", *_answers(gate)]


# --- the story ----------------------------------------------------------------------------------------
def _head(gate: Json) -> list[str]:
    head = f"{plain(gate['name'])} {plain(gate['story'])} waits at {plain(gate['step'])}"
    return [_bold(head), *(_wrapped(gate["title"], WIDTH) if gate["title"] else [])]


def _text(gate: Json, most: int) -> list[str]:
    """Return the story's text between empty lines, without its title again."""
    lines = plain(gate["text"] or "", lines=True).strip().split("\n")
    if lines[0].lstrip("# ") == plain(gate["title"] or ""):
        lines = "\n".join(lines[1:]).strip("\n").split("\n")
    shown = [part for line in lines[:most] for part in _wrapped(line, WIDTH - 2) or [""]]
    if len(lines) > most:
        shown.append(f"… {counted(len(lines) - most, 'more line')}: {_command(gate, 'story', gate['story'])}")
    return ["", *(f"  {line}".rstrip() for line in shown), ""] if any(shown) else [""]


def _steps(gate: Json) -> str:
    return " → ".join([*gate["done"], f"[{gate['step']}]", *gate["ahead"]])


# --- what was done ------------------------------------------------------------------------------------
def _files(gate: Json, most: int) -> list[str]:
    changes = gate["changes"]
    if changes is None:
        return []
    last = f"since this gate was decided last ({changes['since']})" if changes["again"] else None
    told = f"{counted(changes['count'], 'file')} changed {last or 'since ' + changes['since']}"
    verdict = [_scope(changes)] if changes["count"] else []
    lines = _field("Files", [f"{told}: {_lines_of(changes)} lines", *verdict])
    shown = changes["files"][:most]
    lines += [f"{'':{_LABEL}}{line}" for line in table(("", "", ""), [_file(one) for one in shown])[1:]]
    left = changes["count"] - len(shown)
    return lines + _field("", [f"… and {counted(left, 'more file')}"] if left else [])


def _scope(changes: Json) -> str:
    if not changes["outside"]:
        return "all of them where their steps may write, by the step table"
    are = "is" if changes["outside"] == 1 else "are"
    return f"{changes['outside']} of them {are} outside of what the step may write"


def _file(one: Json) -> list[str]:
    outside = f"outside of {', '.join(map(plain, one['outside']))}" if one["outside"] else ""
    told = "" if one["status"] == "changed" else one["status"]
    marked = f"\x1b[33m{outside}\x1b[0m" if outside else ""
    return [_end_of(plain(one["path"])), _lines_of(one), "  ".join(filter(None, (told, marked)))]


def _end_of(path: str) -> str:
    """Return the end of a long path, in which two of them differ."""
    return path if len(path) <= _PATH else f"…{path[1 - _PATH :]}"


def _tests(tests: Json, most: int) -> Iterator[str]:
    yield from _tests_of(tests)
    if tests["new_collected"]:
        yield f"{counted(tests['new_collected'], 'test is', 'tests are')} new in this story"
    known = {*tests["regressed"], *tests["new"]}
    for words, names in (
        ("fail now, passed before", tests["regressed"]),
        ("fail, and are new", tests["new"]),
        ("fail", [one for one in tests["failing"] if one not in known]),
        ("test files changed", tests["files"]),
    ):
        if names:
            yield f"{words}: {_few(names, most)}"


def _few(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _failures(gate: Json) -> Iterator[str]:
    """Yield how often each step was tried, and why all attempts but the last one failed."""
    for step, found in groupby(gate["attempts"], key=lambda one: one["step"]):
        tried = list(found)
        failed = [one for place, one in enumerate(tried, start=1) if one["why"] or place < len(tried)]
        yield f"{step}: {counted(len(tried), 'attempt')}" + ("" if failed else ", none failed")
        yield from (f"  {_attempt(one)}" for one in failed)


def _each_attempt(gate: Json) -> Iterator[str]:
    for one in gate["attempts"]:
        yield f"{_attempt(one)} (sandbox: {one['sandbox'] or 'unknown'})"
        yield f"  handoffd log --run {one['run']}"


def _attempt(one: Json) -> str:
    took = f" after {time_in_words(one['seconds'] / 60)}" if one["seconds"] is not None else ""
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['step']} {one['attempt']} by {one['executor']} {one['result'] or 'running'}{took}{why}"


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


# --- in short, for `status` ----------------------------------------------------------------------------
def brief(gate: Json, project: Mapping[str, object]) -> Iterator[str]:
    """Yield what `status PROJECT` says of an open gate; its `next:` line is the approval."""
    changes = gate["changes"]
    if changes is not None:
        files = f"{counted(changes['count'], 'file')}, {_lines_of(changes)} lines"
        outside = f", {changes['outside']} outside of what the step may write" if changes["outside"] else ""
        yield f"changed since {changes['since']}: {files}{outside}"
    yield f"tests: {'; '.join(_tests_of(gate['tests']))}"
    unclear, unticked = len(gate["unclear"]), len(gate["unticked"])
    if unclear or unticked:
        boxes = counted(unticked, "unticked box", "unticked boxes")
        yield f"open: {counted(unclear, 'unclear point')}, {boxes}"
    yield f"cost: {_cost_of(gate)}"
    if gate["claim"]:
        yield f"the agent says: {shorten(gate['claim'], _CLAIM)}"
    yield from (f"unknown: {plain(one)}" for one in gate["unknown"])
    reject = command_for(gate["project"], "reject", "REASON", "--story", gate["story"])
    yield f"to send it back: {plain(by_name(reject, project))}"
    yield f"all of it: {plain(by_name(gate['command'], project))}"


# --- phrases of both ----------------------------------------------------------------------------------
def _lines_of(changed: Json) -> str:
    """Return how many lines came and went, in one file or in all."""
    return "binary" if changed["added"] is None else f"+{changed['added']} -{changed['removed']}"


def _tests_of(tests: Json) -> Iterator[str]:
    """Yield the counts of tests before, claimed and measured, and what is wrong with them."""
    known = [(word, tests[word]) for word in ("before", "claimed", "measured") if tests[word] is not None]
    told = [f"{word}: {_counts(counts)}" for word, counts in known]
    if tests["verified"] is False:
        ended = "failed" if tests["failing"] else "succeeded"
        told.append(f"measured: the test command {ended}, and only its exit code is known")
    yield "; ".join(told) or "none were run so far"
    if tests["claimed"] and tests["measured"] and tests["claimed"] != tests["measured"]:
        yield "what the agent claims is not what was measured"


def _counts(counts: Json) -> str:
    others = [f"{counts[key]} {word}" for key, word in _WORDS.items() if counts.get(key)]
    return ", ".join([f"{counts.get('pass', 0)} passed", *others])


def _cost_of(gate: Json) -> str:
    """Return tokens, cost and time of a story, and the sandbox that held its agents."""
    used = usage_in_words(gate["tokens"], gate["cost_usd"]) or "tokens and cost are not known"
    ran = f"agents ran {time_in_words(gate['seconds'] / 60)}" if gate["seconds"] else "no agent ran"
    return f"{used}; {ran}; sandbox: {gate['sandbox'] or 'unknown'}"


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
