"""Endpoints that only tell."""

from __future__ import annotations

import os
from typing import Final

import handoffd
from handoffd.control.api.endpoint import ONE_PROJECT, PROJECT, Asked, Endpoint, UrlParameter
from handoffd.control.history import MOST_EVENTS, Json
from handoffd.control.reads import API


async def _health(_: Asked) -> Json:
    return {"api": API, "version": handoffd.__version__, "pid": os.getpid()}


async def _status(asked: Asked) -> Json:
    return await asked.service.status(asked.given["project"])


async def _projects(asked: Asked) -> Json:
    return await asked.service.projects()


async def _project(asked: Asked) -> Json:
    return await asked.service.project(asked.given["project"])


async def _peek(asked: Asked) -> Json:
    return await asked.service.peek(asked.given["project"])


async def _limits(asked: Asked) -> Json:
    return await asked.service.limits()


async def _runs(asked: Asked) -> Json:
    return {"runs": await asked.service.runs(asked.given["project"], asked.given["limit"])}


async def _usage(asked: Asked) -> Json:
    given = asked.given
    return await asked.service.usage(given["by"], given["since"], given["project"])


READS: Final = (
    Endpoint(
        name="health", path="/v1/health", help="Who answers: version of the API and of handoffd, process id.",
        answer=_health,
    ),
    Endpoint(
        name="status", path="/v1/status", help="Where every project stands, or one: as `status --json`.",
        url=(PROJECT,), answer=_status,
    ),
    Endpoint(
        name="projects", path="/v1/projects", help="The supervised projects, each in a few words.",
        answer=_projects,
    ),
    Endpoint(
        name="project", path="/v1/projects/{project:path}",
        help="Where one project stands: one of those of `status`.",
        url=(UrlParameter(name="project", help="a name, or a path, encoded or not", place="path"),),
        answer=_project,
    ),
    Endpoint(
        name="peek", path="/v1/peek", help="What the next turn of a project would do: as `peek --json`.",
        url=(ONE_PROJECT,), answer=_peek, hint="handoffd peek PROJECT",
    ),
    Endpoint(
        name="limits", path="/v1/limits", help="The accounts that are limited: as `limits --json`.",
        answer=_limits,
    ),
    Endpoint(
        name="usage", path="/v1/usage", help="What ended runs used: as `usage --json`.",
        url=(
            PROJECT,
            UrlParameter(name="by", help="what is summed up: as `--by` of `usage`"),
            UrlParameter(name="since", help="as `--since` of `usage`, or an RFC 3339 time"),
        ),
        answer=_usage,
    ),
    Endpoint(
        name="runs", path="/v1/runs", help="The latest dispatches, newest first: as `runs --json`.",
        url=(
            PROJECT,
            UrlParameter(
                name="limit", type="number", default=100, most=MOST_EVENTS, help="how many; at most 1000"
            ),
        ),
        answer=_runs, hint="handoffd runs --help",
    ),
)  # fmt: skip
