"""What `status` says of the open flows of a project: a line for each, and what to type.

Users and scripts run `status` often, so this imports nothing slow, not even click.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handoffd.cli.wording import plain, shorten, waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.errors import Json


def flow_notes(project: Mapping[str, object], width: int) -> Iterator[str]:
    """Yield the lines about the open flows of a project; an older daemon sends none."""
    flows = project.get("flows") or ()
    assert isinstance(flows, list | tuple)
    for flow in flows:
        yield f"flow {_named(flow)}: {shorten(_told(flow), width)}"
        for question in flow["questions"]:
            yield from _asked(question, width)
        if flow["next_command"]:
            yield f"next: {plain(flow['next_command'])}"


def _named(flow: Json) -> str:
    return f"{plain(flow['flow'])} ({shorten(flow['label'], 40)})" if flow["label"] else plain(flow["flow"])


def _told(flow: Json) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in sorted(flow["counts"].items()))
    told = waits(flow["waits_for"]) if flow["waits_for"] else str(flow["state"])
    return f"{told} ({counts})" if counts else told


def _asked(question: Json, width: int) -> Iterator[str]:
    where = f"{plain(question['node'])}: " if question["node"] else ""
    yield f"asks: {where}{shorten(question['text'], width)}"
    for choice in question["choices"]:
        yield f"{plain(choice['choice'])}: {plain(choice['command'])}"


def as_track(flow: Json) -> Json:
    """Return a flow as the screen of `status` shows a track: its id as the story, no step."""
    return {
        "track": flow["flow"],
        "story": flow["flow"],
        "title": flow["label"],
        "step": "",
        "steps": (),
        "status": flow["state"],
        "attempt": 1,
        "max_attempts": 1,
        "timeout_min": 0,
        "elapsed_min": None,
        "phase": flow["waits_for"],
        "dispatch": None,
        "pid": None,
        "waits_for": flow["waits_for"],
        "gate": False,
        "look_command": None,
        "next_command": flow["next_command"],
        "completed_at": None,
        "backlog": (),
    }
