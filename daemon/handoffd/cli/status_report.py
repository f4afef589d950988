"""`status` as text: one line per track, and below it what it waits for and the next command.

Users and scripts run `status` often, so this imports nothing slow; `glance` answers the plain question
even without click.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from handoffd.api.unix_socket import BadAnswerError, NoAnswerError, Silent, read
from handoffd.cli.wording import UNMEASURED, minutes, moment, no_daemon, plain, shorten, styled, table, waits
from handoffd.entrance.place import by_name, called
from handoffd.settings.paths import SOCKET, folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.errors import Json

_HEAD = ("PROJECT", "STORY", "STEP", "ATTEMPT", "STATUS", "MINUTES")
_WIDTH = 100
"""Most characters of a note below a line; `status PROJECT` shows all of it."""
_ACTIVITY_WIDTH = 60
_SHOWN_TESTS = 10
_DONE = "done"


def report(status: Json, *, whole: bool) -> list[str]:
    """Return the lines for an answer of `GET /v1/status`. `whole`: with all details."""
    head, blocks, foot = parts(status, whole=whole)
    return [*head, *(line for block in blocks for line in block), *foot]


def parts(status: Json, *, whole: bool) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the report in parts: the head, the lines of each track, and the lines below all of them."""
    head: list[str] = []
    rows, below = [], []
    names = Counter(project["name"] for project in status["projects"])
    for project in status["projects"]:
        ambiguous = names[project["name"]] > 1
        name = project["project"] if ambiguous else project["name"]
        tracks = project["tracks"] or [None]
        for track in tracks:
            rows.append([_name(name, track), *_row(project, track, daemon=status["daemon"])])
            notes = [*_work(track, status.get("at"), whole=whole), *_notes(project, track, whole=whole)]
            below.append(notes)
    blocks: list[list[str]] = []
    if not rows:
        head.append("No project is supervised: handoffd add PROJECT")
    else:
        first, *aligned = table(_HEAD, rows)
        head.append(first)
        for line, notes in zip(aligned, below, strict=True):
            blocks.append([line, *(f"    {note}" for note in notes)])
    return head, blocks, _foot(status)


def _foot(status: Json) -> list[str]:
    """Return the lines that concern no single project."""
    lines: list[str] = []
    if untold := [
        line for one in status.get("notices", []) for line in _untold(one, daemon=status["daemon"])
    ]:
        lines += ["", *untold]
    if warnings := [f"warning: {plain(one)}" for one in status.get("warnings", [])]:
        lines += ["", *warnings]
    if not status["daemon"]:
        lines += ["", no_daemon()]
    return lines


def _untold(notices: Json, *, daemon: bool) -> Iterator[str]:
    """Yield warnings about notices that one sink has not delivered; not about first tries under way."""
    from handoffd.engine.wording import counted

    sink, count = plain(notices["sink"]), notices["undelivered"]
    error = f": {shorten(notices['last_error'], _WIDTH)}" if notices["last_error"] else ""
    if count and (notices["failed_tries"] or not daemon):
        oldest = f"the oldest of {notices['oldest']}{error}"
        line = f"warning: {counted(count, 'notice')} not delivered by {sink}, {oldest}"
        rest_s = notices["next_try_s"]
        yield line if rest_s is None else f"{line}; next try in {rest_s:.0f} s"
    if notices["given_up"]:
        yield f"warning: {counted(notices['given_up'], 'notice')} lately given up by {sink}{error}"


def condition_of(project: Json, track: Json | None, *, daemon: bool) -> str:
    """Return the status of a track in one or two words."""
    if project["condition"] not in {"ok", "invalid_rules"}:
        return str(project["condition"])
    if track is None:
        return "not_initialized"
    if track["dispatch"] is not None and not daemon:
        if track["pid"] is None:
            return "ended; the next daemon will judge it"
        return "running (process alive, no daemon)"
    if track["step"] == _DONE:
        return "done"
    if track["story"] is None:
        return "no story"
    # An older daemon says that of the project alone.
    if track.get("paused_by", project["paused_by"]) and track["status"] != "running":
        return "paused"
    phase = track["phase"]
    return f"{track['status']} {phase}" if phase and phase != "executing" else str(track["status"])


def _row(project: Json, track: Json | None, *, daemon: bool) -> list[str]:
    status = styled(condition_of(project, track, daemon=daemon))
    if track is None:
        return ["–", "–", "–", status, "–"]
    started = track["story"] is not None
    return [
        shorten(track["story"] or "–", 24),
        _step(track) if started else "–",
        f"{track['attempt']} of {track['max_attempts']}" if started and track["step"] != _DONE else "–",
        status,
        _time(track),
    ]


def _name(project: str, track: Json | None) -> str:
    name = shorten(project, 60)
    return name if track is None or track["track"] == "main" else f"{name} ({plain(track['track'])})"


def _step(track: Json) -> str:
    step, steps = track["step"], track["steps"]
    if step not in steps:
        return plain(step)
    return f"{plain(step)} {steps.index(step) + 1}/{len(steps)}"


def _time(track: Json) -> str:
    elapsed, limit = track["elapsed_min"], track["timeout_min"]
    if elapsed is None:
        return "–"
    return f"{minutes(elapsed)} of {minutes(limit)}" if limit else minutes(elapsed)


def _work(track: Json | None, at: str | None, *, whole: bool) -> Iterator[str]:
    """Yield what a running agent does, what it has used, and when it last printed something."""
    if track is None or track["dispatch"] is None:
        return
    from handoffd.engine.wording import usage_in_words

    activity, heard_at = track.get("activity"), track.get("last_output_at")  # older daemons have neither
    used = usage_in_words(track.get("tokens"), track.get("cost_usd"))
    ago = f"{_age(heard_at, at)} ago" if heard_at and at else None
    if activity or used:
        words = shorten(activity, 10_000 if whole else _ACTIVITY_WIDTH) if activity else None
        yield " · ".join(part for part in (words, used.replace(", ", " · "), ago) if part)


def _age(then: str, now: str) -> str:
    """Return the time between two moments of the API in its largest fitting unit."""
    from datetime import datetime

    seconds = max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds())
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _notes(project: Json, track: Json | None, *, whole: bool) -> Iterator[str]:
    width = 10_000 if whole else _WIDTH
    if track is None or track["track"] == "main":
        if project["detail"]:
            yield shorten(project["detail"], width)
        if project.get("since"):
            yield f"since {moment(project['since'])}"
        told = (warning for warning in project["warnings"] if warning != project["detail"])
        yield from (f"warning: {shorten(warning, width)}" for warning in told)
        # Older daemons do not send the command.
        if whole and project["condition"] == "ok" and project.get("test_command", ()) is None:
            yield f"warning: handoffd runs no tests: {UNMEASURED}"
    if track is None:
        from handoffd.engine.wording import repair_command

        if (following := repair_command(project["project"], project["condition"])) is not None:
            yield f"next: {plain(by_name(following, project))}"
        return
    if track.get("title"):  # older daemons send none
        yield f"title: {shorten(track['title'], width)}"
    if track["waits_for"] and track["waits_for"] != project["detail"]:
        yield waits(shorten(track["waits_for"], width))
    if track["last_error"] and track["last_error"] != track["waits_for"]:
        whose = "last attempt" if track["status"] == "running" else "last error"
        yield f"{whose}: {shorten(track['last_error'], width)}"
    if track["backlog"]:
        yield f"backlog: {_backlog(track, width)}"
    if track.get("review_suggested"):
        from handoffd.engine.wording import command_for

        review = plain(by_name(command_for(project["project"], "review"), project))
        yield f"a review of the project is suggested: {review}"
    if whole:
        yield from _details(project, track)
    if whole and track.get("review"):  # older daemons send none
        yield from brief(track["review"], project)
    if track["next_command"]:
        yield f"next: {plain(by_name(track['next_command'], project))}"


def _details(project: Json, track: Json) -> Iterator[str]:
    yield f"root: {plain(project['project'])} (level {project['level']})"
    if track["dispatch"]:
        pid = f", process {track['pid']}" if track["pid"] else ""
        # Older daemons send none of these.
        ask = ", asked only for its hand-off" if track.get("ask") == "handoff" else ""
        session = f", in its session {plain(track['session'])}" if track.get("session") else ""
        yield f"executor: {plain(track['executor'] or '?')}, dispatch {track['dispatch']}{pid}{ask}{session}"
    if track.get("workspace"):
        yield f"works in: {plain(track['workspace'])}"
    if track.get("branch"):
        where = track.get("whereabouts")  # older daemons send none
        yield f"branch: {plain(track['branch'])}{f', {whereabouts(where)}' if where else ''}"
    if track.get("model"):
        yield f"model: {plain(track['model'])}"
    if took := track.get("footprint"):
        from handoffd.engine.run import footprint_in_words

        if most := footprint_in_words(took["memory_peak"], took["tasks_peak"]):
            yield f"the last attempt took at most: {most}"
    if track["reason"]:
        yield f"reason: {track['reason']}"
    if track["tests"]:
        claimed = "" if track.get("tests_measured", True) else " (claimed by the agent, not measured)"
        yield f"tests: {_counts(track['tests'])}{claimed}"
    failing = track["failing_tests"]
    if failing:
        more = f" and {len(failing) - _SHOWN_TESTS} more" if len(failing) > _SHOWN_TESTS else ""
        yield f"failing: {', '.join(map(plain, failing[:_SHOWN_TESTS]))}{more}"
    if track["lint_pass"] is not None:
        yield f"post check: {'passed' if track['lint_pass'] else 'failed'}"
    if track["human_note"]:
        yield f"note: {plain(track['human_note'])}"
    for key, word in (("blocked_by", "blocked by"), ("parked", "set aside")):
        if track[key]:
            yield f"{word}: {', '.join(map(plain, track[key]))}"


def whereabouts(where: Json) -> str:
    """Return what landing the branch of a finished story would do."""
    from handoffd.engine.wording import counted, first_few

    commits, onto = counted(where["commits"], "commit"), plain(where["onto"] or "")
    files = counted(where["files"], "file")
    match where["would"]:
        case "landed":
            return f"and all of it is on {onto}"
        case "forward":
            return f"{commits}; landing brings {files} to {onto}"
        case "merge":
            return f"{commits}; landing merges {files} into {onto}, which has moved on"
        case "conflict":
            return f"{commits}; landing on {onto} would conflict in {first_few(where['conflicts'])}"
    return "and what is checked out is not a branch to land on"


def _backlog(track: Json, width: int) -> str:
    """Return the queued stories, and which of them starts next."""
    from handoffd.engine.wording import counted

    stories, upcoming = track["backlog"], track.get("next_story")
    count = counted(len(stories), "story", "stories")
    by_itself = ", which starts by itself" if track.get("next_by_itself") else ""
    if upcoming is None:
        first = "none of them can start" if len(stories) > 1 else f"{plain(stories[0])} cannot start"
    else:
        first = f"next {plain(upcoming)}{by_itself}"
    others = ", ".join(plain(story) for story in stories if story != upcoming)
    return shorten(f"{count}, {first}" + (f"; {others}" if others and len(stories) > 1 else ""), width)


def _counts(tests: Json) -> str:
    return ", ".join(f"{count} {word}" for word, count in tests.items() if isinstance(count, int))


# --- an open gate --------------------------------------------------------------------------------------
# Its whole screen (`handoffd gate`) has the same phrases.
_CLAIM = 300
_TEST_WORDS = {"fail": "failed", "skip": "skipped"}


def brief(gate: Json, project: Mapping[str, object]) -> Iterator[str]:
    """Yield what `status PROJECT` says of an open gate; its `next:` line is the approval."""
    from handoffd.engine.wording import command_for, counted

    changes = gate["changes"]
    if changes is not None:
        files = f"{counted(changes['count'], 'file')}, {lines_of(changes)} lines"
        outside = f", {changes['outside']} outside of what the step may write" if changes["outside"] else ""
        yield f"changed since {changes['since']}: {files}{outside}"
    yield f"tests: {'; '.join(tests_of(gate['tests']))}"
    unclear, unticked = len(gate["unclear"]), len(gate["unticked"])
    if unclear or unticked:
        boxes = counted(unticked, "unticked box", "unticked boxes")
        yield f"open: {counted(unclear, 'unclear point')}, {boxes}"
    yield f"cost: {cost_of(gate)}"
    if gate["claim"]:
        yield f"the agent says: {shorten(gate['claim'], _CLAIM)}"
    yield from (f"unknown: {plain(one)}" for one in gate["unknown"])
    reject = command_for(gate["project"], "reject", "REASON", "--story", gate["story"])
    yield f"to send it back: {plain(by_name(reject, project))}"
    yield f"all of it: {plain(by_name(gate['command'], project))}"


def lines_of(changed: Json) -> str:
    """Return how many lines came and went, in one file or in all."""
    return "binary" if changed["added"] is None else f"+{changed['added']} -{changed['removed']}"


def tests_of(tests: Json) -> Iterator[str]:
    """Yield the counts of tests before, claimed and measured, and what is wrong with them."""
    known = [(word, tests[word]) for word in ("before", "claimed", "measured") if tests[word] is not None]
    told = [f"{word}: {_counted(counts)}" for word, counts in known]
    if tests["verified"] is False:
        ended = "failed" if tests["failing"] else "succeeded"
        told.append(f"measured: the test command {ended}, and only its exit code is known")
    yield "; ".join(told) or "none were run so far"
    if tests["claimed"] and tests["measured"] and tests["claimed"] != tests["measured"]:
        yield "what the agent claims is not what was measured"


def _counted(counts: Json) -> str:
    others = [f"{counts[key]} {word}" for key, word in _TEST_WORDS.items() if counts.get(key)]
    return ", ".join([f"{counts.get('pass', 0)} passed", *others])


def cost_of(gate: Json) -> str:
    """Return tokens, cost and time of a story, and the sandbox that held its agents."""
    from handoffd.engine.wording import time_in_words, usage_in_words

    used = usage_in_words(gate["tokens"], gate["cost_usd"]) or "tokens and cost are not known"
    ran = f"agents ran {time_in_words(gate['seconds'] / 60)}" if gate["seconds"] else "no agent ran"
    return f"{used}; {ran}; sandbox: {gate['sandbox'] or 'unknown'}"


# --- without click -------------------------------------------------------------------------------------
# `handoffd status` while a daemon runs is the most frequent call, and most of the time of a short command
# goes into imports. So this path uses only quick modules of the standard library. For anything else (other
# options, no daemon, a refusal, settings to read) the whole command line prints the same text, more slowly.
LIMIT_S = 60.0
MAX_BYTES = 64 * 1024 * 1024
_JSON = "--json"
_UNQUOTED = frozenset(b"/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def glance(
    words: Sequence[str], config: str | None, environ: Mapping[str, str], limit_s: float = LIMIT_S
) -> str | None:
    """Return the output of `handoffd status WORDS`, with colours; None if the whole command line must answer.

    `config` is the settings file, if the user named one. Raises NoAnswerError if the daemon does not answer.
    """
    projects = [word for word in words if word != _JSON]
    if len(projects) > 1 or any(word.startswith("-") for word in projects):
        return None
    found = folders(config, environ)
    if found is None:
        return None
    project = called(projects[0]) if projects else None
    try:
        answer = _asked(os.path.join(found[1], SOCKET), project, limit_s)
    except NoAnswerError as error:
        raise error if error.pid else _of_lock(found[0]) from None
    if answer is None:
        return None
    return _as_json(answer) if _JSON in words else _as_text(answer, whole=project is not None)


def show(text: str) -> int:
    """Print what `glance` returned; return the exit code."""
    from handoffd.cli.wording import unstyled

    try:
        sys.stdout.write((text if sys.stdout.isatty() else unstyled(text)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def tell(error: NoAnswerError, *, as_json: bool) -> int:
    """Report that the daemon does not answer, as the whole command line does; return the exit code."""
    from handoffd.errors import NoAnswer

    if as_json:
        import json

        told = {"type": "error", "code": NoAnswer.default_code, "message": error.message, "hint": error.hint}
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"handoffd: {error.message}\n  next: {error.hint}\n")
    return NoAnswer.exit_code


def _of_lock(state_dir: str) -> NoAnswerError:
    """Return the error for a daemon that accepts no connections; its lock file has its pid."""
    from pathlib import Path

    from handoffd.files.locks import daemon_lock_path, holder_of

    holder = holder_of(daemon_lock_path(Path(state_dir)))
    return NoAnswerError(Silent(holder.pid if holder is not None else 0))


def _asked(path: str, project: str | None, limit_s: float) -> dict[str, object] | None:
    target = "/v1/status"
    if project is not None:
        target += f"?project={_quoted(project)}"
    try:
        return read(path, target, limit_s, MAX_BYTES)
    except NoAnswerError:
        raise  # asking again would not help
    except BadAnswerError:
        return None


def _quoted(text: str) -> str:
    """Return `text` as a value of a query, like `urllib.parse.quote`, which is slow to import."""
    return "".join(chr(byte) if byte in _UNQUOTED else f"%{byte:02X}" for byte in os.fsencode(text))


def _as_json(answer: dict[str, object]) -> str:
    import json

    return json.dumps(answer, indent=2, ensure_ascii=False)


def _as_text(answer: dict[str, object], *, whole: bool) -> str:

    return "\n".join(report(answer, whole=whole))
