"""The table of questions: what people and programs can ask, once for every interface.

Endpoints and their description, the tools of MCP, and the answers of a command while no daemon runs are made
from it. A question changes nothing. `verbs.py` is the table of what does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, get_args, get_type_hints

from msgspec import Struct

from handoffd.api.arguments import BAD_ARGUMENT
from handoffd.api.client import question_path
from handoffd.api.events import MOST_EVENTS
from handoffd.api.folders import LANGUAGES, Inspecting
from handoffd.api.past import WHEN
from handoffd.api.reads import Reads
from handoffd.errors import Refused
from handoffd.journal.dispatches import Grouping
from handoffd.report.values import ClaimsBy

MOST: Final = 2**53
"""The largest integer that every JSON reader reads exactly: some use doubles."""


class UrlParameter(Struct, frozen=True, kw_only=True):
    """A value in the URL, or in a header.

    A `number` is a whole number from 0, cut to `most`. A `flag` is 1, true, 0 or false, and true when only
    its name is given. A value that is left out, and an empty text, becomes `default`.
    """

    name: str
    help: str
    type: Literal["text", "number", "flag"] = "text"
    place: Literal["query", "path", "header"] = "query"
    required: bool = False
    default: Any = None
    most: int = MOST
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    """The pattern of its text, for the description only; the endpoint's function checks the text."""


class Question(Struct, frozen=True, kw_only=True):
    """One question. `ask` is the method that answers it, which takes the parameters by name.

    `long` names a list in the answer that may have thousands of entries. `any_folder`: it can be asked about
    any folder, supervised or not, and needs no journal. `after_edits`: while no daemon runs, an edited
    STATE.json is taken up first, as a daemon would have done, so it waits for the lock. `hint`: the command
    line for the same, shown after a bad request.
    """

    name: str
    help: str
    ask: Callable[..., Awaitable[Struct]]
    parameters: tuple[UrlParameter, ...] = ()
    long: str | None = None
    any_folder: bool = False
    after_edits: bool = False
    hint: str | None = None

    @property
    def path(self) -> str:
        """Its path in the URL."""
        return question_path(self.name)

    def arguments(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return a valid value for every parameter. Raises Refused (BAD_ARGUMENT), with the hint."""
        texts = {name: str(value) for name, value in given.items()}
        try:
            check_names(texts, {one.name for one in self.parameters})
            return {one.name: value_of(one, texts.get(one.name)) for one in self.parameters}
        except Refused as refused:
            refused.hint = self.hint
            raise

    @property
    def shape(self) -> Any:
        """The type of the answer."""
        return get_type_hints(self.ask)["return"]


PROJECT: Final = UrlParameter(name="project", help="a project's name, or its path; all without it")
_ONE_PROJECT: Final = UrlParameter(name="project", help="a project's name, or its path", required=True)
_STORY: Final = UrlParameter(name="story", help="its id; without it, the story in flight")
_MEANT: Final = UrlParameter(name="story", help="the one that is meant, where several are in flight")
_WAITING: Final = UrlParameter(name="story", help="the one that is meant, where several wait at a gate")
_SINCE_LAST: Final = UrlParameter(
    name="since_last", type="flag", default=False,
    help="compare the files with how this gate was decided last, not with the beginning of the story",
)  # fmt: skip
_ANY: Final = UrlParameter(
    name="project", required=True, help="a project's name, or the path of any folder, supervised or not"
)
_FOLDER: Final = UrlParameter(
    name="folder", required=True, pattern="^/", help="the absolute path of a folder"
)
_LANGUAGE: Final = UrlParameter(
    name="language", choices=LANGUAGES, help="of the prompt; without it, as the settings say"
)
_BY: Final = UrlParameter(name="by", choices=get_args(Grouping), help="what to sum up by; `step` without it")
_CLAIMS_BY: Final = UrlParameter(
    name="by", choices=get_args(ClaimsBy), help="what to sum up by; both without it"
)
_WHEN: Final = "^([0-9]{1,4}[mhdw]|yesterday|today|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"
"""The check accepts more."""
_SINCE: Final = UrlParameter(name="since", pattern=_WHEN, help=WHEN)
_UNTIL: Final = UrlParameter(name="until", pattern=_WHEN, help="the end; as `since`")
_PROJECTS: Final = UrlParameter(
    name="projects", help="names of projects, or their paths, one a line; all without it"
)
_MORNING: Final = UrlParameter(
    name="until",
    help="08:00, 8h, or a time like 2026-01-31T07:00 within two days (without a zone: by the local clock);"
    " 08:00 without it",
    pattern="^(([01][0-9]|2[0-3]):[0-5][0-9]|([1-9]|[1-3][0-9]|4[0-8])h)$",
)
_OF_STORY: Final = UrlParameter(name="story", help="the id of a story; all without it")
_RUN: Final = UrlParameter(name="run", help="the id of an attempt, as `runs` lists it", required=True)
_PART: Final = (
    _OF_STORY,
    UrlParameter(name="step", help="the name of a step; all without it"),
    _SINCE,
    _UNTIL,
)
_AFTER: Final = UrlParameter(
    name="after", type="number", help="the last known number; without it, the latest events"
)


_ONE_FLOW: Final = UrlParameter(name="flow", help="its id, as `flows` has it", required=True)
_OF_FLOW: Final = UrlParameter(name="flow", help="the id of a flow: of it and its tasks; all without it")
_THIS_FLOW: Final = UrlParameter(name="flow", help="only the one with this id, whether it has ended or not")
_ITS_PROJECT: Final = UrlParameter(
    name="project", help="its project's name or path, where several have a flow of this id"
)
_NODE: Final = UrlParameter(name="node", help="one of its tasks, or an item: TASK[ITEM]")
_ENDED: Final = UrlParameter(name="ended", type="flag", default=False, help="also the ones that have ended")


def _at_most(default: int) -> UrlParameter:
    return UrlParameter(
        name="limit", type="number", default=default, most=MOST_EVENTS, help="how many; at most 1000"
    )


_QUESTIONS: Final = (
    Question(
        name="status", help="The state of every project, or of one: as `status --json`.",
        parameters=(PROJECT,), ask=Reads.status, long="projects",
    ),
    Question(
        name="projects", help="The supervised projects, in short.",
        ask=Reads.projects, long="projects",
    ),
    Question(
        name="peek", help="What the next turn of a project would do: as `peek --json`.",
        parameters=(_ONE_PROJECT, _MEANT), ask=Reads.peek, after_edits=True, hint="handoffd peek PROJECT",
    ),
    Question(
        name="backlog", help="A project's backlog, and what each story waits for: as `backlog --json`.",
        parameters=(_ONE_PROJECT,), ask=Reads.backlog, hint="handoffd backlog PROJECT",
    ),
    Question(
        name="story", help="A story with its text: as `story --json`.",
        parameters=(_ONE_PROJECT, _STORY), ask=Reads.story, hint="handoffd story PROJECT STORY",
    ),
    Question(
        name="gate", help="What a person needs to decide the gate that a project waits at: as `gate --json`.",
        parameters=(_ONE_PROJECT, _WAITING, _SINCE_LAST), ask=Reads.gate, hint="handoffd gate PROJECT",
    ),
    Question(
        name="gates", help="The open gates of all projects, the oldest first: as `gate --json`.",
        ask=Reads.gates, long="gates", hint="handoffd gate",
    ),
    Question(
        name="snapshots", help="The files of a project's story as they were kept: as `snapshots --json`.",
        parameters=(_ONE_PROJECT, _STORY), ask=Reads.snapshots, hint="handoffd snapshots PROJECT",
    ),
    Question(
        name="workspaces", help="The clones in which stories work: as `workspaces --json`.",
        parameters=(PROJECT,), ask=Reads.workspaces, hint="handoffd workspaces",
    ),
    Question(
        name="schedules",
        help="Schedules of one project or of all, next and last start: as `schedule --json`.",
        parameters=(PROJECT,), ask=Reads.schedules, hint="handoffd schedule",
    ),
    Question(
        name="limits", help="The limited accounts: as `limits --json`.",
        ask=Reads.limits,
    ),
    Question(
        name="slots", help="Slots, running and waiting tracks: as `slots --json`.",
        ask=Reads.slots,
    ),
    Question(
        name="notices", help="Undelivered notices and coming reminders: as `notices --json`.",
        parameters=(PROJECT,), ask=Reads.notices, hint="handoffd notices",
    ),
    Question(
        name="usage", help="What finished runs used: as `usage --json`.",
        parameters=(PROJECT, _BY, _SINCE), ask=Reads.usage,
    ),
    Question(
        name="claims", help="How often claims met their measurement (since 4w): as `claims --json`.",
        parameters=(PROJECT, _SINCE, _UNTIL, _CLAIMS_BY), ask=Reads.claims, hint="handoffd claims --help",
    ),
    Question(
        name="runs", help="The latest dispatches, newest first: as `runs --json`.",
        parameters=(PROJECT, *_PART, _OF_FLOW, _at_most(100)), ask=Reads.runs, hint="handoffd runs --help",
    ),
    Question(
        name="run", help="All that is kept of one attempt: as `show --json`.",
        parameters=(_RUN,), ask=Reads.run, hint="handoffd show RUN",
    ),
    Question(
        name="report",
        help="What happened since then (12h), what needs you, what goes on: as `report --json`.",
        parameters=(PROJECT, _SINCE, _UNTIL), ask=Reads.report, hint="handoffd report --help",
    ),
    Question(
        name="tonight", help="What would happen until then (08:00), and what stops it: as `tonight --json`.",
        parameters=(_PROJECTS, _MORNING), ask=Reads.tonight, hint="handoffd tonight --help",
    ),
    Question(
        name="stories", help="Stories, the latest first, with outcome, cost and commit: as `stories --json`.",
        parameters=(PROJECT, _OF_STORY, _SINCE, _UNTIL, _at_most(100)), ask=Reads.stories,
        hint="handoffd stories --help",
    ),
    Question(
        name="events",
        help="Events, oldest first; live with `follow` (one object a line) or `stream`.",
        parameters=(PROJECT, *_PART, _OF_FLOW, _AFTER, _at_most(500)), ask=Reads.events,
    ),
    Question(
        name="flows", help="Flows, first the ones that wait for a person: as `flow list --json`.",
        parameters=(PROJECT, _THIS_FLOW, _ENDED), ask=Reads.flows, long="flows", hint="handoffd flow list",
    ),
    Question(
        name="flow", help="All about one flow: tasks, questions, limits: as `flow show --json`.",
        parameters=(_ONE_FLOW, _ITS_PROJECT), ask=Reads.flow, hint="handoffd flow show FLOW",
    ),
    Question(
        name="flow_explain", help="Why a flow, or a task of it, is where it is: as `flow explain --json`.",
        parameters=(_ONE_FLOW, _NODE, _ITS_PROJECT), ask=Reads.flow_explain,
        hint="handoffd flow explain FLOW",
    ),
    Question(
        name="detect", help="Which of the protocol's files a folder has, and the level of adoption.",
        parameters=(_ANY,), ask=Inspecting.detect, any_folder=True,
        hint="handoffd detect PROJECT",
    ),
    Question(
        name="query", help="The state of a project by its files, and by the journal if supervised.",
        parameters=(_ANY,), ask=Inspecting.query, any_folder=True,
        hint="handoffd query PROJECT",
    ),
    Question(
        name="list_projects", help="The projects in a folder.",
        parameters=(_FOLDER,), ask=Inspecting.list_projects, any_folder=True,
        hint="handoffd list-projects FOLDER",
    ),
    Question(
        name="check_prereqs", help="The missing files that the current step reads.",
        parameters=(_ANY,), ask=Inspecting.check_prereqs, any_folder=True,
        hint="handoffd check-prereqs PROJECT",
    ),
    Question(
        name="review", help="The prompt of a session that reviews a project.",
        parameters=(_ANY, _LANGUAGE), ask=Inspecting.review, any_folder=True,
        hint="handoffd review PROJECT",
    ),
    Question(
        name="triage", help="The prompt of a session that sorts the open issues of a project's memory.",
        parameters=(_ANY, _LANGUAGE), ask=Inspecting.triage, any_folder=True,
        hint="handoffd triage PROJECT",
    ),
)  # fmt: skip

QUESTIONS: Final[Mapping[str, Question]] = {one.name: one for one in _QUESTIONS}


# --- the check of parameters -------------------------------------------------------------------------
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raise Refused (BAD_ARGUMENT) for the first name that is not `known`."""
    for name in names:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise _bad(f"unknown parameter {name[:80]!r} (allowed: {allowed})")


def value_of(parameter: UrlParameter, text: str | None) -> Any:
    """Return the value of a parameter that is given as `text`. Raises Refused (BAD_ARGUMENT)."""
    if text == "" and parameter.type == "flag":
        return True
    if text is None or (text == "" and parameter.type == "text"):
        if parameter.required or parameter.place == "path":
            raise _bad(f"{parameter.name} is missing: {parameter.help}")
        return parameter.default
    if parameter.type == "number":
        return _number(parameter, text)
    if parameter.type == "flag":
        if text not in _FLAGS:
            raise _bad(f"{parameter.name} must be 1, true, 0 or false")
        return _FLAGS[text]
    if parameter.choices and text not in parameter.choices:
        raise _bad(f"unknown {parameter.name} {text[:80]!r} (allowed: {', '.join(parameter.choices)})")
    return text


def _number(parameter: UrlParameter, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > MOST:
        raise _bad(f"{parameter.name} must be a whole number from 0")
    return min(int(text), parameter.most)


def _bad(message: str) -> Refused:
    return Refused(message, code=BAD_ARGUMENT)
