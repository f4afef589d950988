"""Words for people: commands to type, counts, amounts and times.

The engine knows which command comes next and no paths; what shows it knows the path. So both ends meet
here: `command` makes every command that a user sees, a template in which `{project}` means
the project, and `addressed` completes it. Words in capitals (`STORY`, `STEP`, `TEXT`) are for the user to
fill in. Which command is advised is decided in `decision.py`.

`handoffd status` loads this file and must be quick: it imports `shlex` and nothing else, not even `typing`.
"""

from __future__ import annotations

from shlex import quote

TYPE_CHECKING = False  # as type checkers know it, without the import
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from handoffd.engine.run import PostCheck, Wrote
    from handoffd.errors import Json

# --- commands -----------------------------------------------------------------------------------------
PROJECT = "{project}"
"""Where the path goes; quoted for a shell, also one that holds blanks or quotes."""


def command(verb: str, *words: str) -> str:
    """Return the template of `handoffd VERB PROJECT WORDS…`; each word is one word for a shell, too."""
    return " ".join(("handoffd", verb, PROJECT, *map(quote, words)))


def addressed(text: str, root: str, story: str | None = None) -> str:
    """Return a template, or a sentence that holds some, for the project at `root`.

    `story` is one with a track of its own: the verbs that are for one story then name it.
    """
    if story is not None:
        for verb in _OF_ONE_STORY:
            text = text.replace(f"handoffd {verb} {PROJECT}", f"handoffd {verb} {PROJECT} --story {story}")
    return text.replace(PROJECT, quote(root))


_OF_ONE_STORY = (
    "abort", "apply", "check", "confirm", "dispatch", "note", "pause", "peek", "reopen", "resume", "retry",
    "rollback", "skip", "use",
)  # fmt: skip
"""Verbs that are for the story in flight; the others are for the project, or always name a story."""


def command_for(root: str, verb: str, *words: str) -> str:
    """Return a command for the project at `root`, ready to be typed."""
    return addressed(command(verb, *words), root)


def flow_command(verb: str, *words: str) -> str:
    """Return `handoffd flow VERB WORDS…`. The id of a flow tells which project it is in."""
    return " ".join(("handoffd flow", verb, *map(quote, words)))


def approving(story: str | None) -> str:
    """Return what opens the gate a story waits at, and no other's: it may be typed hours later."""
    return command("approve", *(() if story is None else ("--story", story)))


def rejecting(story: str | None, reason: str) -> str:
    """Return what sends a story back from the gate it waits at, and no other story."""
    return command("reject", reason, *(() if story is None else ("--story", story)))


def throwing_away(story: str) -> str:
    """Return what throws away what a finished story has done; a ref keeps it."""
    return command("discard", story)


def bringing_back(root: str, kept: str) -> str:
    """Return what makes the branch of a discarded story again, from the ref that keeps it."""
    branch = kept.removeprefix("refs/").rpartition("/")[0]
    return f"git -C {quote(root)} branch {quote(branch)} {quote(kept)}"


def showing_gate(own: str | None) -> str:
    """Return what shows the gate a story waits at; `own` is one with a track of its own."""
    return command("gate", *(() if own is None else ("--story", own)))


def showing_failures(own: str | None) -> str:
    """Return what shows how an attempt failed; `own`: the story, where the latest output may be another's."""
    return command("log", *(() if own is None else ("--story", own)))


def repair_command(root: str, condition: str) -> str | None:
    """Return the first command for a project in this condition; None if nothing is wrong."""
    match condition:
        case "not_initialized":
            return command_for(root, "init")
        case "invalid_rules":
            return command_for(root, "rules check")
        case "invalid_journal":
            return command_for(root, "journal verify")
        case "unfinished_git":
            return f"git -C {quote(root)} status  # says how to finish it or take it back"
        case "missing":
            return f"ls -ld {quote(root)}  # mount it or move it back; or: {command_for(root, 'remove')}"
        case "io_error":
            return f"ls -ld {quote(root)} {quote(root + '/.ai')}; df -h {quote(root)}"
        case "invalid_state":
            return f"${{EDITOR:-vi}} {quote(root + '/.ai/STATE.json')}"
        case "locked":
            leaving, taking = command_for(root, "remove"), command_for(root, "add", "--take")
            return f"{leaving}  # leaves it to the other one; or end that one, and have it here: {taking}"
    return None


# --- counts and amounts -------------------------------------------------------------------------------
def counted(count: float, one: str, many: str | None = None) -> str:
    """Return a count with its noun and what agrees with that: `1 project`, `0.5 days`, `3 stories wait`.

    `many` is the plural, where it is not `one` with an s.
    """
    number = str(count) if isinstance(count, int) else f"{count:g}"
    return f"{number} {one if count == 1 else many or f'{one}s'}"


def first_few(names: Sequence[str], most: int = 5, *, count: int | None = None) -> str:
    """Return names in one line, and how many more there are: `a, b, c, d, e and 3 more`.

    `count` is how many there are in all, where not all are in `names`. A file may have any name: what cannot
    be printed becomes `?`.
    """
    left = (len(names) if count is None else count) - len(names[:most])
    more = f" and {left} more" if left > 0 else ""
    return _printable(", ".join(names[:most])) + more


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def strays_of(step: str, wrote: Wrote | None) -> str | None:
    """Return that a step has changed what it may not write, in words; None where it has not, or may have.

    Where others could write there, too, nothing tells their edits from an agent's.
    """
    if wrote is None or wrote.unknown is not None or not wrote.strays:
        return None
    whose = ", by its agent or by others meanwhile" if wrote.shared else ""
    named = first_few(wrote.outside, count=wrote.strays)
    return f"{counted(wrote.strays, 'file')} changed that {step} may not write{whose}: {named}"


def checks_in_words(checks: Sequence[PostCheck]) -> str:
    """Return how each of several named checks ended, and what one that did not pass has printed last."""
    said = (f" ({shortened(one.line, 100)})" if one.line and not one.passed else "" for one in checks)
    return ", ".join(f"{one.name} {one.how}{line}" for one, line in zip(checks, said, strict=True))


def shortened(text: str, most: int) -> str:
    """Return `text` in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def why_in_words(why: str | None, reason: str | None, said: str | None) -> str | None:
    """Return why an attempt has not passed: the agent's reason and words, where it has not claimed a pass."""
    told = ", ".join(part for part in (reason, _printable(shortened(said or "", _MOST_SAID))) if part)
    return f"the agent: {told}" if told and why in _BY_ITSELF else why


_MOST_SAID = 200
_BY_ITSELF = "failing claimed", "needs_human claimed"
"""The causes that the journal has where an attempt was judged as its agent claims."""


# --- the width of a terminal --------------------------------------------------------------------------
def columns(text: str) -> int:
    """Return how many columns of a terminal `text` takes: a Chinese character takes two, an accent none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(sign: str) -> int:
    from unicodedata import category, east_asian_width  # noqa: PLC0415  (as most texts are ASCII)

    if category(sign) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(sign) in {"W", "F"} else 1


def beginning(line: str, width: int) -> str:
    """Return as much of a line as fits into `width` columns."""
    taken = 0
    for place, sign in enumerate(line):
        taken += columns(sign)
        if taken > width:
            return line[:place]
    return line


def fitted(text: str, width: int) -> str:
    """Return `text` in one line of at most `width` columns."""
    line = " ".join(text.split())
    return line if columns(line) <= width else f"{beginning(line, width - 1)}…"


def wrapped(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` columns, broken at blanks and beside Chinese characters."""
    from textwrap import wrap  # noqa: PLC0415  (only a report needs it)

    if columns(text) == len(text):
        return wrap(text, width)
    lines, line = list[str](), ""
    for piece in _pieces(text):
        if columns(line + piece.rstrip()) > width and line:
            lines, line = [*lines, line.rstrip()], ""
        line += piece if line else piece.lstrip()
        while columns(line.rstrip()) > width:  # a word that is longer than a line
            begin = beginning(line, width)
            lines, line = [*lines, begin], line[len(begin) :]
    return [*lines, line.rstrip()] if line.strip() else lines


def _pieces(text: str) -> Iterator[str]:
    """Yield what stays on one line: a word with the blank behind it, or one wide character."""
    word = ""
    for sign in " ".join(text.split()):
        if columns(sign) == 2 and word:
            yield word
            word = ""
        word += sign
        if sign == " " or columns(sign) == 2:
            yield word
            word = ""
    if word:
        yield word


# --- amounts ------------------------------------------------------------------------------------------
def usage_in_words(tokens: int | None, cost_usd: float | None) -> str:
    """Return both for people, as far as they are known: `12.4k tokens, $0.21`; nothing for nothing."""
    told = None if not tokens else f"{_short(tokens)} token{'' if tokens == 1 else 's'}"
    return ", ".join(part for part in (told, None if cost_usd is None else f"${cost_usd:.2f}") if part)


def _short(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def left_in_folder(*, git: bool, more: bool) -> str:
    """Return where the work of a story is that has no branch: the same words on every screen.

    `more`: the next story works there, too.
    """
    where = "the project's folder" if git else "the project's folder, which is in no git repository"
    return f"in {where}, not committed by handoffd{'; the next story adds to it' if more else ''}"


def conflicts_in_words(paths: Sequence[str]) -> str:
    """Return where two branches conflict, and apart from it the papers in which only a merge by hand does."""
    papers = [path for path in paths if f"/{path}".endswith(_PAPERS)]
    others = [path for path in paths if path not in papers]
    if not others or not papers:
        return first_few(paths)
    return f"{first_few(others)}; by hand also in {first_few(papers)}: keep both sides"


_PAPERS = "/PROJECT_MEMORY.md", "/.ai/history.md"
"""The ends of paths of `protocol.rules.PAPERS`, which this file does not import."""


# --- an open gate -------------------------------------------------------------------------------------
# A gate is an answer of `GET /v1/gate`. Status, notices and the gate's own screen have the same phrases.
def gate_in_words(gate: Json) -> Iterator[str]:
    """Yield what a person needs to decide: what was asked for, the change, tests, open points, the cost."""
    if gate["text"]:
        yield f"asked for: {_printable(shortened(gate['text'], _MOST_SAID))}"
    changes = gate["changes"]
    if changes is not None:
        files = counted(changes["count"], "file")
        yield f"changed since {changes['since']}: {files}, {lines_of(changes)} lines"
        if changes["count"]:
            yield f"scope: {scope_of(changes)}"
    yield from (f"tests: {told}" for told in tests_of(gate["tests"]))
    yield from (f"tests: {shortened(told, _MOST_NAMED)}" for told in changed_tests_of(gate["tests"], 1))
    unclear, unticked = len(gate["unclear"]), len(gate["unticked"])
    if unclear or unticked:
        boxes = counted(unticked, "unticked box", "unticked boxes")
        yield f"open: {counted(unclear, 'unclear point')}, {boxes}"
    if gate["attempts"]:
        failed = sum(map(has_failed, gate["attempts"]))
        back = counted(len(gate["rejections"]), "time")
        again = f"; sent back {back}" if gate["rejections"] else ""
        yield f"attempts: {len(gate['attempts'])}, {failed or 'none'} failed{again}"
    yield f"cost: {cost_of(gate)}"


_MOST_NAMED = 70


def has_failed(attempt: Json) -> bool:
    """Return whether an attempt of a gate counts as failed. Older daemons do not say it."""
    return bool(attempt.get("failed", attempt["why"] is not None))


def lines_of(changed: Json) -> str:
    """Return how many lines came and went, in one file or in all."""
    return "binary" if changed["added"] is None else f"+{changed['added']} -{changed['removed']}"


def scope_of(changes: Json) -> str:
    """Return whether all files are ones that their steps may write."""
    if not changes["outside"]:
        return "all of them where their steps may write, by the step table"
    are = "is" if changes["outside"] == 1 else "are"
    return f"{changes['outside']} of them {are} outside of what the step may write"


def tests_of(tests: Json) -> Iterator[str]:
    """Yield the counts of tests before, claimed and measured, and what is wrong with them."""
    known = [(word, tests[word]) for word in ("before", "claimed", "measured") if tests[word] is not None]
    told = [f"{word}: {counts_in_words(counts)}" for word, counts in known]
    if tests["verified"] is False:
        ended = "failed" if tests["failing"] else "succeeded"
        told.append(f"measured: the test command {ended}, and only its exit code is known")
    yield "; ".join(told) or "none were run so far"
    claimed, measured = tests["claimed"], tests["measured"]
    if (
        claimed
        and measured
        and flatters(claimed["pass"] - measured["pass"], claimed["fail"] - measured["fail"])
    ):
        yield "what the agent claims is not what was measured"


def changed_tests_of(tests: Json, most: int) -> Iterator[str]:
    """Yield the tests that the story has added, repaired and taken away, by a few of their names."""
    for words, key, count in (
        ("new in this story", "new", "new_collected"),
        ("pass now, failed before", "fixed", "fixed_count"),
        ("gone, passed before", "gone", "gone_count"),
    ):
        names, number = tests.get(key) or (), tests.get(count)  # older daemons send neither
        if names or number:
            few = first_few(names, most, count=number) if names else number
            yield _printable(f"{words}: {few}")


def flatters(passed: int, failed: int) -> bool:
    """Return whether a claim does, by how many more tests it has passing, and failing, than were measured.

    One about fewer tests does not: an agent may run some of them only.
    """
    return passed > 0 or failed < 0


_TEST_WORDS = {"fail": "failed", "skip": "skipped"}


def counts_in_words(counts: Json) -> str:
    """Return the counts of a test run: `3 passed, 1 failed`."""
    others = [f"{counts[key]} {word}" for key, word in _TEST_WORDS.items() if counts.get(key)]
    return ", ".join([f"{counts.get('pass', 0)} passed", *others])


def cost_of(gate: Json) -> str:
    """Return tokens, cost and time of a story, and the sandbox that held its agents."""
    used = usage_in_words(gate["tokens"], gate["cost_usd"]) or "tokens and cost are not known"
    ran = f"agents ran {time_in_words(gate['seconds'] / 60)}" if gate["seconds"] else "no agent ran"
    return f"{used}; {ran}; sandbox: {gate['sandbox'] or 'unknown'}"


# --- times --------------------------------------------------------------------------------------------
def time_in_words(minutes: float) -> str:
    """Return a time in whole minutes, and one below a minute in seconds."""
    return f"{round(minutes)} min" if minutes >= 1 else f"{max(round(minutes * 60), 1)} s"


def limit_in_words(minutes: float) -> str:
    """Return a limit as the step table has it, and one below a minute in seconds."""
    return f"{minutes:g} min" if minutes >= 1 else f"{minutes * 60:g} s"


def until_words(until: datetime, now: datetime) -> str:
    """Return `until 15:00 UTC (in 2 h 10 min)`, by the clock of the zone that `until` is in."""
    local = now.astimezone(until.tzinfo)
    day = "" if local.date() == until.date() else f"{until:%a %d %b} "
    return f"until {day}{until:%H:%M} {until:%Z} (in {span(until - now)})"


def span(length: timedelta) -> str:
    """Return a span of time in the two units that matter: `3 d 4 h`, `2 h 10 min`, `12 min`, `45 s`."""
    seconds = max(round(length.total_seconds()), 0)
    if seconds < 100:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
