"""What `status` says of stories that are over, and of an open gate in short.

Users and scripts run `status` often, so this imports nothing slow, not even click.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handoffd.cli.wording import plain, shorten
from handoffd.entrance.place import by_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.errors import Json


# --- a story that is over ------------------------------------------------------------------------------
def placed(where: Json) -> str:
    """Return where the work of a story is that is over, and what landing it would do."""
    return plain(f"{where['branch']}, {where['says']}" if where["branch"] else where["says"])


def located(where: Json) -> str:
    """Return that as a line of its own."""
    return f"{'branch' if where['branch'] else 'work'}: {placed(where)}"


def ways(where: Json, project: Mapping[str, object], story: str) -> Iterator[str]:
    """Yield the commands to type for a story that is over: what throws it away, and `next:`."""
    from handoffd.engine.wording import addressed, throwing_away

    discarding = addressed(throwing_away(story), str(project["project"]))
    if where["would"] not in {"landed", "folder"}:
        yield f"to throw it away: {plain(by_name(discarding, project))}"
    label = "to take it up again" if where.get("aborted") else "next"
    label = "to look" if where["would"] == "folder" else label
    if where["command"]:
        yield f"{label}: {plain(by_name(where['command'], project))}"


def left_to_land(project: Json, track: Json, story: str) -> Json:
    """Return a story in whose track another one is in flight, as a track that waits to be landed."""
    over = {"story": story, "step": "done", "status": "pass", "title": None, "whereabouts": None}
    return {**track, **over, "completed_at": None, "next_command": landing(project, story)}


def landing(project: Json, story: str) -> str:
    """Return the command that merges a story into the branch that it began at."""
    from handoffd.engine.wording import command_for

    return command_for(project["project"], "land", "--story", story)


# --- an open gate --------------------------------------------------------------------------------------
_CLAIM = 300


def brief(gate: Json, project: Mapping[str, object]) -> Iterator[str]:
    """Yield what `status PROJECT` says of an open gate; its `next:` line is the approval."""
    from handoffd.engine.wording import command_for, gate_in_words

    yield from gate_in_words(gate)
    if gate["claim"]:
        yield f"the agent says: {shorten(gate['claim'], _CLAIM)}"
    yield from (f"unknown: {plain(one)}" for one in gate["unknown"])
    reject = command_for(gate["project"], "reject", "REASON", "--story", gate["story"])
    yield f"to send it back: {plain(by_name(reject, project))}"
    yield f"all of it: {plain(by_name(gate['command'], project))}"
