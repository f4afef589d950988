"""What an answer means for a person, in their language: the report that stands before its JSON.

Of a question it is the answer in words; of a verb, where the project stands now, or what was done where no
story moves. An answer without a
report is whole all the same, so nothing here is a reason to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from handoffd.chat.replies import Report
from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError
from handoffd.mcp.offer import Json, Offer
from handoffd.protocol.rules import Language

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


def _sentence(key: str, *values: str) -> Callable[[Report, Json], str]:
    return lambda report, answer: report.wording.say(key, **{name: answer[name] for name in values})


def _trusted(report: Report, answer: Json) -> str:
    files = report.wording.listed(list(answer["trusted"]))
    return report.wording.say("action.trusted" if files else "action.trusted_nothing", files=files)


def _checked(report: Report, answer: Json) -> str:
    kind = {True: "passed", False: "failed", None: "nothing"}[answer["passed"]]
    return report.wording.say(f"action.checked_{kind}")


_ABOUT_PROJECTS: Final[Mapping[str, Callable[[Report, Json], str]]] = {
    "initialised": _sentence("action.initialised", "name"),
    "added": _sentence("action.added", "name"),
    "removed": _sentence("action.removed", "name"),
    "trusted": _trusted,
    "checked": _checked,
}
"""Answers that leave every story where it stood: what was done is told, not where the story stands."""


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
        told = _ABOUT_PROJECTS.get(str(answer.json.get("type")))
        if told is not None:
            return told(self._report, answer.json)
        root = answer.json.get("project")
        # Without a daemon, asking costs a second, and nothing has moved that the answer does not tell.
        return self._standing(root) if answer.daemon and isinstance(root, str) else None

    def _standing(self, root: str) -> str | None:
        try:
            view, *_ = self._place.client().get("/v1/status", project=root)["projects"]
        except HandoffdError:
            return None
        return self._report.status(view)
