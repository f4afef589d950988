"""Endpoints that only tell."""

from __future__ import annotations

import os
from typing import Final, get_args

import handoffd
from handoffd.control.api.endpoint import ONE_PROJECT, PROJECT, Asked, Endpoint, UrlParameter
from handoffd.control.api.shapes import (
    BacklogAnswer,
    Health,
    LimitsAnswer,
    NoticesAnswer,
    PeekAnswer,
    ProjectsAnswer,
    RunsAnswer,
    SchedulesAnswer,
    SlotsAnswer,
    StatusAnswer,
    UsageAnswer,
)
from handoffd.control.history import MOST_EVENTS, Json
from handoffd.control.reads import API
from handoffd.engine.views import ProjectView
from handoffd.store.usage import Grouping


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


async def _backlog(asked: Asked) -> Json:
    return await asked.service.backlog(asked.given["project"])


async def _schedules(asked: Asked) -> Json:
    return await asked.service.schedules(asked.given["project"])


async def _limits(asked: Asked) -> Json:
    return await asked.service.limits()


async def _slots(asked: Asked) -> Json:
    return await asked.service.slots()


async def _notices(asked: Asked) -> Json:
    return await asked.service.notices_in_full(asked.given["project"])


async def _runs(asked: Asked) -> Json:
    return {"runs": await asked.service.runs(asked.given["project"], asked.given["limit"])}


async def _usage(asked: Asked) -> Json:
    given = asked.given
    return await asked.service.usage(given["by"], given["since"], given["project"])


_SINCE: Final = "^([0-9]{1,4}[hdw]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"
"""Of the many ways to write a time, those that clients are told of."""

READS: Final = (
    Endpoint(
        name="health", path="/v1/health", help="Who answers: version of the API and of handoffd, process id.",
        answer=_health, shape=Health,
    ),
    Endpoint(
        name="status", path="/v1/status", help="Where every project stands, or one: as `status --json`.",
        url=(PROJECT,), answer=_status, long="projects", shape=StatusAnswer,
    ),
    Endpoint(
        name="projects", path="/v1/projects", help="The supervised projects, each in a few words.",
        answer=_projects, long="projects", shape=ProjectsAnswer,
    ),
    Endpoint(
        name="project", path="/v1/projects/{project:path}",
        help="Where one project stands: one of those of `status`.",
        url=(UrlParameter(name="project", help="a name, or a path, encoded or not", place="path"),),
        answer=_project, shape=ProjectView,
    ),
    Endpoint(
        name="peek", path="/v1/peek", help="What the next turn of a project would do: as `peek --json`.",
        url=(ONE_PROJECT,), answer=_peek, shape=PeekAnswer, hint="handoffd peek PROJECT",
    ),
    Endpoint(
        name="backlog", path="/v1/backlog",
        help="The stories that wait in a project, and what keeps each: as `backlog --json`.",
        url=(ONE_PROJECT,), answer=_backlog, shape=BacklogAnswer, hint="handoffd backlog PROJECT",
    ),
    Endpoint(
        name="schedules", path="/v1/schedules",
        help="What the clock starts, next and last, in one project or in all: as `schedule --json`.",
        url=(PROJECT,), answer=_schedules, shape=SchedulesAnswer, hint="handoffd schedule",
    ),
    Endpoint(
        name="limits", path="/v1/limits", help="The accounts that are limited: as `limits --json`.",
        answer=_limits, shape=LimitsAnswer,
    ),
    Endpoint(
        name="slots", path="/v1/slots", help="Who may run, who does, and who waits: as `slots --json`.",
        answer=_slots, shape=SlotsAnswer,
    ),
    Endpoint(
        name="notices", path="/v1/notices",
        help="What people have not been told yet, and what they will be told again: as `notices --json`.",
        url=(PROJECT,), answer=_notices, shape=NoticesAnswer, hint="handoffd notices",
    ),
    Endpoint(
        name="usage", path="/v1/usage", help="What ended runs used: as `usage --json`.",
        url=(
            PROJECT,
            UrlParameter(name="by", choices=get_args(Grouping), help="what is summed up; `step` without it"),
            UrlParameter(
                name="since", pattern=_SINCE, help="as `--since` of `usage`, or an RFC 3339 time"
            ),
        ),
        answer=_usage, shape=UsageAnswer,
    ),
    Endpoint(
        name="runs", path="/v1/runs", help="The latest dispatches, newest first: as `runs --json`.",
        url=(
            PROJECT,
            UrlParameter(
                name="limit", type="number", default=100, most=MOST_EVENTS, help="how many; at most 1000"
            ),
        ),
        answer=_runs, shape=RunsAnswer, hint="handoffd runs --help",
    ),
)  # fmt: skip
