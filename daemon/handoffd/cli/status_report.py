"""`status` as text: for a terminal a screen whose first entries need the user; for a pipe a line per track,
and below it what it waits for and the next command.

Users and scripts run `status` often, so this imports nothing slow, not even click.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from handoffd.cli.flows.standing import as_track, flow_notes
from handoffd.cli.stories.standing import brief, landing, left_to_land, located, ways
from handoffd.cli.wording import (
    UNMEASURED,
    fitting,
    folded,
    minutes,
    moment,
    no_daemon,
    padded,
    painted,
    plain,
    screen_size,
    shorten,
    shorten_path,
    styled,
    unstyled,
    waits,
)
from handoffd.engine.wording import columns
from handoffd.entrance.place import by_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.errors import Json

    _Entry = tuple[Json, Json | None]

NO_PROJECT = "No project is supervised. In a project's folder: handoffd init"
_HEAD = ("PROJECT", "STORY", "STEP", "ATTEMPT", "STATUS", "MINUTES")
_WIDTH = 100
"""Most characters of a note below a line; `status PROJECT` shows all of it."""
_ACTIVITY_WIDTH, _SHOWN_TESTS, _DONE = 60, 10, "done"


def told(status: Json, *, whole: bool, every: bool = False) -> list[str]:
    """Return the lines to print for an answer of `GET /v1/status`: on a terminal a screen, else a report.

    `whole`: of one project, with all details. `every`: fold nothing on a terminal.
    """
    size = screen_size()
    if size is None:
        return report(status, whole=whole)
    width, height = size
    rest = None if every else height - 1  # the prompt takes a line
    return report(status, whole=True, width=width) if whole else screen(status, width=width, height=rest)


def report(status: Json, *, whole: bool, width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/status`, at most `width` columns wide (None: any).

    `whole`: with all details.
    """
    head, blocks, foot = parts(status, whole=whole, width=width)
    return [*head, *(line for block in blocks for line in block), *foot]


def parts(
    status: Json, *, whole: bool, width: int | None = None
) -> tuple[list[str], list[list[str]], list[str]]:
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
        head.append(NO_PROJECT)
    else:
        first, *aligned = fitting(_HEAD, rows, (), width, text=("PROJECT", "STORY"))
        head.append(first)
        for line, notes in zip(aligned, below, strict=True):
            blocks.append([line, *folded([f"    {note}" for note in notes], width)])
    return head, blocks, folded(_foot(status), width)


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
    if track.get("discarded"):  # older daemons do not say it
        return "discarded"
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
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def _notes(project: Json, track: Json | None, *, whole: bool) -> Iterator[str]:
    width = 10_000 if whole else _WIDTH
    if track is None or track["track"] == "main":
        yield from _of_project(project, width, whole=whole)
    if track is None:
        from handoffd.engine.wording import repair_command

        if (following := repair_command(project["project"], project["condition"])) is not None:
            yield f"next: {plain(by_name(following, project))}"
        return
    yield from _of_story(project, track, width)
    if whole:
        yield f"root: {plain(project['project'])} (level {project['level']})"
        yield from _work_in_detail(track)
        yield from _result_in_detail(track)
        yield from brief(track["review"], project) if track.get("review") else ()  # older daemons send none
    for story in track.get("unlanded", ()):  # older daemons send none
        yield f"not merged yet: {plain(story)}: {plain(by_name(landing(project, story), project))}"
    yield from (f"set aside: {plain(story)}" for story in track["parked"])
    if track.get("to_land") and track.get("whereabouts"):
        yield from ways(track["whereabouts"], project, track["story"])
        return
    look = track.get("look_command")
    if look and not (whole and (track.get("review") or " status " in look)):  # it is on this screen
        yield f"to look: {plain(by_name(look, project))}"
    if track["next_command"]:
        yield f"next: {plain(by_name(track['next_command'], project))}"


def _of_project(project: Json, width: int, *, whole: bool) -> Iterator[str]:
    """Yield what is wrong with a project itself."""
    if project["detail"]:
        yield shorten(project["detail"], width)
    if project.get("since"):
        yield f"since {moment(project['since'])}"
    told = (warning for warning in project["warnings"] if warning != project["detail"])
    yield from (f"warning: {shorten(warning, width)}" for warning in told)
    # Older daemons do not send the command.
    if whole and project["condition"] == "ok" and project.get("test_command", ()) is None:
        yield f"warning: no tests are run: {UNMEASURED}"
    if whole and project.get("sandbox"):
        yield f"sandbox: {shorten(project['sandbox'], width)}"
    yield from flow_notes(project, width)


def _of_story(project: Json, track: Json, width: int) -> Iterator[str]:
    """Yield what a story is, and what it waits for. Older daemons send no title and no whereabouts."""
    if track.get("title"):
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
    if track.get("discarded"):
        yield f"discarded; kept as {shorten(track['discarded'], width)}"
    if track.get("whereabouts"):
        where = track["whereabouts"]
        yield shorten(located(where), width)
        yield from ways(where, project, track["story"]) if where.get("aborted") or not where["branch"] else ()


def _work_in_detail(track: Json) -> Iterator[str]:
    """Yield who works on a story, and where. Older daemons send little of it."""
    if track["dispatch"]:
        pid = f", process {track['pid']}" if track["pid"] else ""
        ask = ", asked only for its hand-off" if track.get("ask") == "handoff" else ""
        session = f", in its session {plain(track['session'])}" if track.get("session") else ""
        yield f"executor: {plain(track['executor'] or '?')}, dispatch {track['dispatch']}{pid}{ask}{session}"
    if track.get("workspace"):
        yield f"works in: {plain(track['workspace'])}"
    if track.get("branch") and not track.get("whereabouts"):
        yield f"branch: {plain(track['branch'])}"
    if track.get("model"):
        yield f"model: {plain(track['model'])}"
    if took := track.get("footprint"):
        from handoffd.engine.run import footprint_in_words

        if most := footprint_in_words(took["memory_peak"], took["tasks_peak"]):
            yield f"the last attempt took at most: {most}"


def _result_in_detail(track: Json) -> Iterator[str]:
    """Yield what came of the last attempt, and what a person or the backlog has to do with the next."""
    if track["reason"]:
        yield f"reason: {track['reason']}"
    if track["tests"]:
        claimed = "" if track.get("tests_measured", True) else " (claimed by the agent, not measured)"
        counts = [f"{count} {word}" for word, count in track["tests"].items() if isinstance(count, int)]
        yield f"tests: {', '.join(counts)}{claimed}"
    if track["failing_tests"]:
        from handoffd.engine.wording import first_few

        yield f"failing: {first_few(track['failing_tests'], _SHOWN_TESTS)}"
    if track["lint_pass"] is not None:
        yield f"post check: {'passed' if track['lint_pass'] else 'failed'}"
    if track["human_note"]:
        yield f"note: {plain(track['human_note'])}"
    if track["blocked_by"]:
        yield f"blocked by: {', '.join(map(plain, track['blocked_by']))}"


def _backlog(track: Json, width: int) -> str:
    """Return the queued stories, and which of them starts next."""
    from handoffd.engine.wording import counted

    stories, upcoming = track["backlog"], track.get("next_story")
    by_itself = ", which starts by itself" if track.get("next_by_itself") else ""
    if track.get("next_waits"):  # older daemons send none
        by_itself = f", but {plain(track['next_waits'])}"
    elif by_itself and track.get("needs_you") and not track.get("workspace"):
        by_itself += f" once {plain(track['story'])} is over"
    if upcoming is None:
        first = "none of them can start" if len(stories) > 1 else f"{plain(stories[0])} cannot start"
    else:
        first = f"next {plain(upcoming)}{by_itself}"
    others = ", ".join(plain(story) for story in stories if story != upcoming)
    first = f"{counted(len(stories), 'story', 'stories')}, {first}"
    return shorten(first + (f"; {others}" if others and len(stories) > 1 else ""), width)


# --- a screen ------------------------------------------------------------------------------------------
# On a terminal, entries that need the user come first, each with its one command to type, then running and
# waiting ones; the number of the others is below. Entries that do not fit are counted, and only the lines
# that are shown are made: ten thousand projects take little longer than ten.
_NEEDS, _WORKS, _WAITS, _RESTS = range(4)
_TITLES = {
    _NEEDS: ("needs you", "need you", (1, 33)),
    _WORKS: ("at work", "at work", (32,)),
    _WAITS: ("waiting", "waiting", (36,)),
    _RESTS: ("at rest", "at rest", (2,)),
}
"""The title of each group, of one and of many, with its rendition."""
_FEW = 3
"""Most entries at rest that are shown: a user with one project looks for that. More are folded."""
_ALL = "handoffd status --all"
_MOST_FOOT = 3
"""Warnings that concern no single project get at most one in this many lines of the screen."""


def screen(status: Json, *, width: int, height: int | None) -> list[str]:
    """Return at most `height` lines of `width` columns for an answer of `GET /v1/status`.

    Only a command to type may be wider, because a part of it would be another one. `height` None: everything.
    """
    foot = folded(_foot(status), width)
    if height is not None:
        foot = cut(foot, max(height // _MOST_FOOT, 1))
    if not status["projects"]:
        return [NO_PROJECT, *foot]
    groups: dict[int, list[_Entry]] = {group: [] for group in _TITLES}
    for project in status["projects"]:
        for group, track in _grouped(project, daemon=status["daemon"]):
            groups[group].append((project, track))
    room = None if height is None else height - len(foot)
    shown = {group: groups[group][:count] for group, count in _fitting(groups, room).items()}
    entries = _Entries(status, [entry for few in shown.values() for entry in few], width)
    lines = [] if groups[_NEEDS] else [painted("Nothing needs you.", 32)]
    for group, every in groups.items():
        if every:
            lines += entries.of(group, shown[group], len(every))
    return [*lines, *foot][:height]


def cut(lines: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines; a sign at the end says that there are more."""
    return list(lines) if len(lines) <= most else [*lines[: most - 1], "…"]


def _grouped(project: Json, *, daemon: bool) -> Iterator[tuple[int, Json | None]]:
    """Yield the tracks of a project, and its flows, with their groups; None is the project itself."""
    condition, tracks, flows = project["condition"], project["tracks"], project.get("flows", ())
    if condition not in {"ok", "invalid_rules", "not_initialized"}:
        yield _NEEDS, None  # nothing of it can go on
        return
    if condition == "invalid_rules" or project["warnings"]:
        yield _NEEDS, None
    elif not tracks and not flows:
        yield _RESTS, None
    for flow in flows:
        yield _NEEDS if flow["next_command"] else _WORKS if daemon else _WAITS, as_track(flow)
    for track in tracks:
        for story in track.get("unlanded", ()):  # older daemons send none
            yield _NEEDS, left_to_land(project, track, story)
        if track["story"] is not None or track["backlog"] or (len(tracks) == 1 and not flows):
            yield _group_of(project, track, daemon=daemon), track


def _group_of(project: Json, track: Json, *, daemon: bool) -> int:
    following = track["next_command"] or ""
    if track["dispatch"] is not None or track["status"] == "running":
        return _WORKS if daemon or track["pid"] is not None else _WAITS
    if track.get("needs_you", track["story"] is not None and bool(following)):  # older daemons do not say it
        return _NEEDS
    over = track["story"] is None or track["step"] == _DONE
    return _RESTS if over or following.startswith(("handoffd start ", "handoffd continue ")) else _WAITS


def _fitting(groups: Mapping[int, Sequence[object]], room: int | None) -> dict[int, int]:
    """Return how many entries of each group fit into `room` lines, in the order of their urgency."""
    if room is None:
        return {group: len(rows) for group, rows in groups.items()}
    left = room - sum(1 for rows in groups.values() if rows) - (0 if groups[_NEEDS] else 1)
    found = {}
    for group, rows in groups.items():
        lines_each = 2 if group == _NEEDS else 1
        if group == _RESTS and len(rows) > _FEW:
            count = 0
        elif len(rows) * lines_each <= left:
            count = len(rows)
        else:
            count = max((left - 1) // lines_each, 0)  # and a line for the number of the others
            left -= 1 if count else 0
        found[group] = count
        left -= count * lines_each
    return found


class _Entries:
    """Writes the entries of one screen in columns: project, story and step, and words in what is left."""

    def __init__(self, status: Json, entries: Sequence[_Entry], width: int) -> None:
        self._daemon, self._at = status["daemon"], status.get("at")
        most = (width // 4, width // 5, width // 5)
        places = [_place_of(*entry) for entry in entries]
        cells = [[place[at] for place in places if at < len(place)] for at in range(3)]
        self._widths = [
            min(max(map(columns, column), default=0), limit)
            for column, limit in zip(cells, most, strict=True)
        ]
        self._width = width

    def of(self, group: int, entries: Sequence[_Entry], count: int) -> Iterator[str]:
        """Yield the title of a group of `count` entries, and the shown ones."""
        one, many, codes = _TITLES[group]
        title = painted(f"{count:,} {one if count == 1 else many}:", *codes)
        if not entries:
            yield f"{title} {_ALL}"
            return
        yield title
        for project, track in entries:
            yield from self._entry(group, project, track)
        if len(entries) < count:
            yield f"  and {count - len(entries):,} more: {_ALL}"

    def _entry(self, group: int, project: Json, track: Json | None) -> Iterator[str]:
        name, *rest = _place_of(project, track)
        cells = [painted(padded(shorten_path(name, self._widths[0]), self._widths[0]), 1)]
        cells += [
            padded(shorten(cell, most), most) for cell, most in zip(rest, self._widths[1:], strict=False)
        ]
        before = f"  {'  '.join(cells)}  "
        room = max(self._width - columns(unstyled(before)), 1)
        following = None
        if group == _NEEDS:
            told, following = _need(project, track, self._at)
        elif group == _WORKS and track is not None and self._daemon:
            told = _at_work(track, self._at)
        else:
            told = _idle(group, project, track, room, daemon=self._daemon)
        yield f"{before}{_with_title(told, track, room)}".rstrip()
        if following is not None:
            yield f"  {' ' * self._widths[0]}  {painted(following, 1)}"


def _with_title(told: str, track: Json | None, room: int) -> str:
    """Return words in at most `room` columns, with the story's title where that leaves them whole."""
    words = shorten(told, room)
    left = room - columns(words) - 3
    if track is None or not track.get("title") or left < _LEAST_TITLE:  # older daemons send none
        return words
    return f"{words} · {shorten(track['title'], left)}"


_LEAST_TITLE = 10


def _place_of(project: Json, track: Json | None) -> tuple[str, ...]:
    """Return the project, and where there is a story, that and its step."""
    name = plain(project.get("called") or project["name"])  # older daemons do not send `called`
    if track is None or track["story"] is None:
        return (name,)
    return name, plain(track["story"]), _step(track)


def _need(project: Json, track: Json | None, at: str | None) -> tuple[str, str]:
    """Return why the user is needed, and the command to type."""
    from handoffd.engine.wording import command_for, repair_command

    root = project["project"]
    if track is None:
        why = project["detail"] or next(iter(project["warnings"]), project["condition"].replace("_", " "))
        fixing = command_for(root, "trust" if project.get("held") else "status")
        following = repair_command(root, project["condition"]) or fixing
    elif track["step"] == _DONE:
        why, following = _unlanded(track.get("whereabouts")), track["next_command"]
    else:
        why = "your review" if track.get("gate") else track["waits_for"] or track["status"]
        following = track.get("look_command") or track["next_command"]  # older daemons send only that
    since = track["completed_at"] if track is not None else project.get("since")
    age = f"for {_age(since, at)}: " if since and at else ""
    return f"{age}{why}", plain(by_name(following.split("  # ")[0], project))


def _unlanded(where: Json | None) -> str:
    from handoffd.engine.wording import conflicts_in_words

    if where is not None and where["would"] == "landed":
        return f"all of it is on {where['onto']}"
    if where is None or where["would"] != "conflict":
        return "not merged yet"
    return f"conflicts with {where['onto']} in {conflicts_in_words(where['conflicts'])}"


def _at_work(track: Json, at: str | None) -> str:
    """Return how far an attempt is, and what its agent does."""
    again = f"attempt {track['attempt']} of {track['max_attempts']}" if track["attempt"] > 1 else None
    time = None if track["elapsed_min"] is None else f"{_time(track)} min"
    phase = track["phase"] if track["phase"] != "executing" else None
    return " · ".join(part for part in (time, again, phase, *_work(track, at, whole=False)) if part)


def _idle(group: int, project: Json, track: Json | None, room: int, *, daemon: bool) -> str:
    """Return why nothing happens; of what rests also the backlog, and what starts it if that fits."""
    from handoffd.engine.wording import repair_command

    if track is None:
        why = condition_of(project, None, daemon=daemon).replace("_", " ")
        following = repair_command(project["project"], project["condition"])
    else:
        condition = condition_of(project, track, daemon=daemon)
        open_ = track["story"] is not None and not track.get("discarded")
        why = track["waits_for"] if open_ and track["waits_for"] else condition
        following = track["next_command"]
    if group == _WAITS:
        return why
    queued = f"backlog: {_backlog(track, _WIDTH)}" if track is not None and track["backlog"] else None
    told = " · ".join(part for part in (why if why != _DONE else None, queued) if part)
    command = plain(by_name(following, project)) if following else ""
    longer = " · ".join(part for part in (told, command) if part)
    return longer if columns(longer) <= room else told
