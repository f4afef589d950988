"""The end of a run's output as a tool: what an agent printed last, in lines a model can afford to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.errors import Refused
from handoffd.mcp.arguments import PROJECT, takes
from handoffd.mcp.offer import DATA, Json, Offer, project_of

LastLines = Callable[[Place, str | None, str | None, int], Answer]
"""Of a project's latest run, or of a run: at most so many lines, in words; as `handoffd log` has them."""

_LINES: Final = 40


def tail_offer(last_lines: LastLines) -> Offer:
    """Return the tool; its answer is `{"run", "lines", "more"}`, oldest line first."""

    def run(place: Place, given: Json) -> Answer:
        if not given.keys() & {"project", "run"}:
            message = "log_tail: name a project or a run"
            raise Refused(message, code="BAD_ARGUMENT", hint="handoffd runs")
        return last_lines(place, project_of(given), given.get("run"), given.get("lines", _LINES))

    return Offer(
        name="log_tail",
        title="Output of a run",
        description="The last lines that an agent printed: of a project's latest run, or of one named (see "
        f"`runs`). {DATA}",
        schema=takes(
            {
                "project": PROJECT,
                "run": {"type": "string", "description": "The id of a run, e.g. from `runs`."},
                "lines": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 500,
                    "description": "How many at most.",
                },
            }
        ),
        run=run,
        reads=True,
        repeats=True,
    )
