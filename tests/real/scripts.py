"""What the scripted model does: a list of actions, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.real.agents import Action, Agent, Write
from tests.real.faults import FAULTS, RESET_AT, usage_limit
from tests.real.provider.turns import Answer, Asked, Model, Turn

from handoffd.clock import SystemClock

Actions = Callable[[Asked], Sequence[Action]]

_DISPATCH = re.compile(r"^dispatch: *(\S+)", re.MULTILINE)


def acting(agent: Agent, project: Path, actions: Actions) -> Model:
    """Return a model that makes the agent do `actions` one after the other and then stop."""

    def answer(asked: Asked) -> Answer:
        if agent.translate is not None and not asked.tools:
            return Turn("A title")  # what a CLI asks beside its work: titles, summaries
        if agent.translate is None and not _DISPATCH.search(asked.prompt):
            return Turn("Done.")  # aider reports the result of its edits to the model
        todo = actions(asked)
        if agent.translate is None:
            return Turn("\n".join(agent.turn(project, action, "").text for action in todo).strip() or "Done.")
        if asked.done < len(todo):
            return agent.turn(project, todo[asked.done], f"Step {asked.done + 1} of {len(todo)}.")
        return Turn("Everything is written; the hand-off is in .ai/HANDOFF.md.")

    return answer


def refusing(kind: str) -> Model:
    """Return a model whose provider refuses every request in this way."""
    return lambda asked: FAULTS[asked.dialect][kind]


def limited(claim: str = "five_hour", in_s: float | None = None) -> Model:
    """Return a model whose account has used up its allowance until `in_s` seconds from now."""
    reset = RESET_AT if in_s is None else round(SystemClock().now().timestamp() + in_s)
    return lambda asked: usage_limit(asked.dialect, claim, reset, in_s or 277200)


def handoff(asked: Asked, *, status: str = "pass") -> Write:
    """Return the writing of a hand-off for the dispatch that the prompt names."""
    found = _DISPATCH.findall(asked.prompt)
    named = f"story: US-001\nstep: bdd\ndispatch: {found[-1] if found else 'none'}\nstatus: {status}\n"
    return Write(".ai/HANDOFF.md", f"---\n{named}---\n\n# Done\n")
