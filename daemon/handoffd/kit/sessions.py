"""`session-open`, `session-check`, `retro`: pieces of work that are taken up, checked and looked back on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from handoffd.engine.wording import counted
from handoffd.errors import NotFound
from handoffd.files.rooted import read_project_file
from handoffd.kit.given import MAX_FILE, Done, Entry, Given, invalid, parsed, text_of
from handoffd.kit.plans import check_needs, planned

ANALYSIS: Final = "task-analysis.json"
OPEN_FLOWS: Final = "flows.json"
ROLES: Final = ("reader", "writer", "developer", "tester")
_PIPELINE: Final = "session"


def session_open(given: Given) -> Done:
    """Begin a session, or take up the open one with the same topic; of several a person picks one."""
    same = _same_topic(given)
    answer = given.answers.get("pick")
    if answer is not None and answer.choice == "chosen":
        named = [flow for flow in same if flow in answer.words]
        if len(named) != 1:
            invalid("the answer", "", "must name one session", same)
        same = named
    elif answer is not None:
        same = []
    if len(same) > 1:
        listed = "\n".join(same)
        return Done(outcome="ambiguous", fields={"sessions": len(same)}, summary=f"Open:\n{listed}")
    if same:
        return Done(outcome="reused", fields={"session": same[0]}, summary=f"{same[0]} goes on.")
    return Done(outcome="created", fields={"session": given.flow or ""}, summary="A new session.")


def _same_topic(given: Given) -> list[str]:
    """Return the other open sessions with the topic of this one."""
    found = None if given.flows is None else read_project_file(given.flows, OPEN_FLOWS, MAX_FILE)
    rows = [] if found is None else parsed(found.content, OPEN_FLOWS)
    if not isinstance(rows, list):
        invalid(OPEN_FLOWS, "", "must be a list")
    topic = _words(given.param("topic"))
    return sorted(str(row["flow"]) for row in rows if _is_session(row, given.flow) and _topic(row) == topic)


def _is_session(row: Any, own: str | None) -> bool:
    return isinstance(row, dict) and row.get("pipeline") == _PIPELINE and row.get("flow") not in {None, own}


def _topic(row: dict[str, Any]) -> str:
    params = row.get("params")
    return _words(str(params.get("topic", ""))) if isinstance(params, dict) else ""


def _words(topic: str) -> str:
    return " ".join(topic.casefold().split())


# --- the plan of another session ----------------------------------------------------------------------
def session_check(given: Given) -> Done:
    """Hand over the tasks of another flow, if a team can work them off as they are."""
    flow = given.words["flow"]
    board = given.of_flow(flow)
    files = [file for _, file in board.named(ANALYSIS)]
    if not files:
        raise NotFound(f"the flow '{flow}' has no {ANALYSIS}")
    file = files[-1]
    tasks = planned(board.json(file), file, "tasks", "blocked_by")
    if not tasks:
        invalid(file, "tasks", "is empty")
    check_needs(tasks, file)
    for at, task in enumerate(tasks):
        text_of(task.row, "role", file, f"tasks[{at}]", ROLES)
        text_of(task.row, "description", file, f"tasks[{at}]")
    summary = f"{counted(len(tasks), 'task')} of {flow}."
    return Done(fields={"tasks": len(tasks)}, summary=summary, out={ANALYSIS: board.read(file)})


# --- looking back -------------------------------------------------------------------------------------
def retro(given: Given) -> Done:
    """Say how much of a sprint was done."""
    done, planned_ = counted_items(given.board.entries)
    velocity = round(done / planned_, 4) if planned_ else 1.0
    rate = next((one.fields["pass_rate"] for one in given.board.entries if "pass_rate" in one.fields), None)
    tests = "" if rate is None else f" Tests passed: {rate:.0%}."
    summary = f"{done} of {counted(planned_, 'task')} done.{tests}"
    return Done(fields={"velocity": velocity, "done": done, "planned": planned_}, summary=summary)


def counted_items(entries: Sequence[Entry]) -> tuple[int, int]:
    """Return how many items of lists were done, and how many there were.

    An item is done if none of its tasks was left out, or failed.
    """
    bad: dict[str, bool] = {}
    for one in entries:
        if one.item is not None:
            bad[one.item] = bad.get(one.item, False) or one.state not in {"accepted", "skipped"}
    return sum(not failed for failed in bad.values()), len(bad)
