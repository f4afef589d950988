"""Endpoints that tell of any folder by its files, supervised or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from handoffd.control.api.endpoint import Asked, Endpoint, UrlParameter
from handoffd.control.history import Json
from handoffd.control.inspecting import LANGUAGES
from handoffd.inspection.framework import Framework
from handoffd.inspection.prerequisites import PrerequisiteCheck
from handoffd.inspection.query import ProjectStatus
from handoffd.inspection.workspace import ListedProject


@dataclass(frozen=True, kw_only=True)
class QueryAnswer(ProjectStatus):
    """Where a project stands: by its files, and what the journal knows if it is supervised."""

    root: str
    supervised: bool
    level: int
    waits_for: str | None
    next_command: str | None
    caller_instruction: str


@dataclass(frozen=True, kw_only=True)
class FolderAnswer:
    """The projects that lie in a folder."""

    folder: str
    projects: list[ListedProject]


@dataclass(frozen=True, kw_only=True)
class PrerequisitesAnswer(PrerequisiteCheck):
    """Which files the step in hand reads and cannot find."""

    project: str
    caller_instruction: str


@dataclass(frozen=True, kw_only=True)
class ReviewAnswer:
    """A prompt for a session that examines a project."""

    type: Literal["review_prompt"]
    prompt: str
    fw_lv: int
    project: str
    caller_instruction: str


@dataclass(frozen=True, kw_only=True)
class TriageAnswer:
    """A prompt for a session that sorts the open issues of a project."""

    type: Literal["triage_prompt"]
    prompt: str
    issues: list[str]
    fw_lv: int
    project: str
    caller_instruction: str


async def _detect(asked: Asked) -> Json:
    return await asked.service.detect(asked.given["project"])


async def _query(asked: Asked) -> Json:
    return await asked.service.query(asked.given["project"])


async def _list_projects(asked: Asked) -> Json:
    return await asked.service.list_projects(asked.given["folder"])


async def _check_prereqs(asked: Asked) -> Json:
    return await asked.service.check_prereqs(asked.given["project"])


async def _review(asked: Asked) -> Json:
    return await asked.service.review(asked.given["project"], asked.given["language"])


async def _triage(asked: Asked) -> Json:
    return await asked.service.triage(asked.given["project"], asked.given["language"])


_ANY: Final = UrlParameter(
    name="project", required=True, help="a project's name, or the path of any folder, supervised or not"
)
_LANGUAGE: Final = UrlParameter(
    name="language", choices=LANGUAGES, help="of the prompt; without it, as the settings say"
)

INSPECTIONS: Final = (
    Endpoint(
        name="detect", path="/v1/detect", url=(_ANY,), answer=_detect, shape=Framework,
        help="Which of the protocol's files a folder has, and the level of adoption.",
        hint="handoffd detect PROJECT",
    ),
    Endpoint(
        name="query", path="/v1/query", url=(_ANY,), answer=_query, shape=QueryAnswer,
        help="Where a project stands, by its files, and by the journal if it is supervised.",
        hint="handoffd query PROJECT",
    ),
    Endpoint(
        name="list_projects", path="/v1/list-projects", answer=_list_projects, shape=FolderAnswer,
        url=(UrlParameter(name="folder", required=True, pattern="^/", help="the absolute path of a folder"),),
        help="The projects that lie in a folder.", hint="handoffd list-projects FOLDER",
    ),
    Endpoint(
        name="check_prereqs", path="/v1/check-prereqs", url=(_ANY,), answer=_check_prereqs,
        shape=PrerequisitesAnswer, help="Which files the step in hand reads and cannot find.",
        hint="handoffd check-prereqs PROJECT",
    ),
    Endpoint(
        name="review", path="/v1/review", url=(_ANY, _LANGUAGE), answer=_review, shape=ReviewAnswer,
        help="The prompt for a session that examines a project and changes nothing.",
        hint="handoffd review PROJECT",
    ),
    Endpoint(
        name="triage", path="/v1/triage", url=(_ANY, _LANGUAGE), answer=_triage, shape=TriageAnswer,
        help="The prompt for a session that sorts the open issues of a project's memory.",
        hint="handoffd triage PROJECT",
    ),
)  # fmt: skip
