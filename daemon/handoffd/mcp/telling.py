"""What an answer means for a person, in their language: the report that stands before its JSON.

Of a question it is the answer in words; of a verb, where the project stands now. An answer without a
report is whole all the same, so nothing here is a reason to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError
from handoffd.mcp.offer import Json, Offer
from handoffd.protocol.rules import Language
from handoffd.reports.report import Report

_MOST_PROJECTS: Final = 10
"""More of them are told by a line each (`projects`), not whole."""


def _statuses(report: Report, answer: Json) -> str | None:
    views = answer["projects"]
    return "\n\n".join(map(report.status, views)) if len(views) <= _MOST_PROJECTS else None


_READS: Final[Mapping[str, Callable[[Report, Json], str | None]]] = {
    "status": _statuses,
    "projects": lambda report, answer: report.projects(answer["projects"]),
    "query": lambda report, answer: report.query(answer),
    "detect": lambda report, answer: report.framework(answer),
    "review": lambda report, answer: report.session("review", answer),
    "triage": lambda report, answer: report.session("triage", answer),
}


class Teller:
    """Puts answers into words. Blocks: where a verb left a project is asked for."""

    def __init__(self, place: Place, language: Language) -> None:
        self._place = place
        self._report = Report(language)

    def report_of(self, offer: Offer, answer: Answer) -> str | None:
        """Return the report of a tool's answer; None where there is none."""
        if answer.json.get("type") == "error":
            return None
        if answer.json.get("type") == "message":
            return str(answer.json["report"])
        if offer.reads:
            tell = _READS.get(offer.name)
            return None if tell is None else tell(self._report, answer.json)
        root = answer.json.get("project")
        # Without a daemon, asking costs a second, and nothing has moved that the answer does not tell.
        return self._standing(root) if answer.daemon and isinstance(root, str) else None

    def _standing(self, root: str) -> str | None:
        try:
            view, *_ = self._place.client().get("/v1/status", project=root)["projects"]
        except HandoffdError:
            return None
        return self._report.status(view)
