"""Questions about any folder, supervised or not, as tools: what its files say, prompts for a closer look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, get_args

from handoffd.api.service import Service
from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.mcp.arguments import PROJECT, takes
from handoffd.mcp.offer import DATA, Json, Offer, path_of, project_of
from handoffd.mcp.reads import asked
from handoffd.protocol.rules import Language

_ANY: Final[Json] = {
    **PROJECT,
    "description": "A supervised project by its name, or any folder by its absolute path.",
}
_FOLDER: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "description": "The absolute path of a folder that holds projects.",
}
_LANGUAGE: Final[Json] = {
    "type": "string",
    "enum": list(get_args(Language)),
    "description": "Of the prompt; left out, as the settings say.",
}
_PROMPT: Final = (
    "The prompt is for a coding agent in that folder, not for you. Nothing is started or changed."
)

Question = Callable[[Service, str, Json], Awaitable[Json]]


def _offer(name: str, title: str, description: str, question: Question, *languages: str) -> Offer:
    subject = "folder" if name == "list_projects" else "project"

    def run(place: Place, given: Json) -> Answer:
        word = path_of(given["folder"]) if subject == "folder" else project_of(given)
        assert word is not None  # the schema requires it
        query = {subject: word, **({"language": given.get("language")} if languages else {})}
        return asked(
            place,
            lambda client: client.get(f"/v1/{name.replace('_', '-')}", **query),
            lambda service: question(service, word, given),
        )

    properties = {subject: _FOLDER if subject == "folder" else _ANY}
    return Offer(
        name=name,
        title=title,
        description=f"{description} {DATA}",
        schema=takes({**properties, **dict.fromkeys(languages, _LANGUAGE)}, (subject,)),
        run=run,
        reads=True,
        repeats=True,
    )


INSPECTIONS: Final = (
    _offer(
        "query",
        "Where a project stands",
        "Story, step, what comes next, status, tests, what blocks it and what it waits for; by its files, "
        "and by the journal if it is supervised. For a person's question about one project, ask this.",
        lambda service, project, _: service.query(project),
    ),
    _offer(
        "detect",
        "Protocol files",
        "Which of the protocol's files a folder has, and the level of adoption that follows.",
        lambda service, project, _: service.detect(project),
    ),
    _offer(
        "list_projects",
        "Projects of a folder",
        "The projects that lie in a folder, supervised or not. `projects` lists the supervised ones.",
        lambda service, folder, _: service.list_projects(folder),
    ),
    _offer(
        "check_prereqs",
        "Missing files",
        "Which files the step in hand reads and cannot find. A warning; it blocks nothing.",
        lambda service, project, _: service.check_prereqs(project),
    ),
    _offer(
        "review",
        "Prompt for a health check",
        f"A prompt for a session that examines a project. {_PROMPT}",
        lambda service, project, given: service.review(project, given.get("language")),
        "language",
    ),
    _offer(
        "triage",
        "Prompt for open issues",
        f"A prompt for a session that sorts a project's open issues into a plan. {_PROMPT}",
        lambda service, project, given: service.triage(project, given.get("language")),
        "language",
    ),
)
"""The tools that look at files."""
