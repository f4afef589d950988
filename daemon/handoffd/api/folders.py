"""Reads the files of any folder, supervised or not; and what `init` writes into one.

For a supervised project the answer adds from the journal what the story waits for and the next command.
Reads change nothing, anywhere. `init` overwrites no user content: settings are written once, and the pointer
for agents is a marked block that is replaced as a whole.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar, TypeVarTuple, get_args

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import asdict, replace

from handoffd.api.answers import FolderAnswer, PrerequisitesAnswer, QueryAnswer, ReviewAnswer, TriageAnswer
from handoffd.api.events import gate_before
from handoffd.api.ports import Supervision
from handoffd.engine.views import ProjectView
from handoffd.engine.wording import command_for, repair_command
from handoffd.errors import NotFound, Refused, StoreError, remedies
from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.inspection import sessions
from handoffd.inspection.discovery import folders_called, list_projects, looks_like_project, others_in, unfit
from handoffd.inspection.framework import Framework, detect_framework
from handoffd.inspection.own_files import shipped_layers
from handoffd.inspection.papers import Quote, Subject, quoted
from handoffd.inspection.project_status import (
    INVALID_STATE,
    NOT_INITIALIZED,
    PrerequisiteCheck,
    ProjectStatus,
    check_prerequisites,
    query_project_status,
)
from handoffd.inspection.suites import Suite, Suites, command_for_all, find_suites
from handoffd.protocol.rules import DONE, REWRITTEN, Language
from handoffd.protocol.state import STATE_FILE
from handoffd.protocol.story import MAX_PATH_CHARACTERS
from handoffd.settings.loading import load_project

# --- reads -------------------------------------------------------------------------------------------
LOOK_S: Final = 30.0
"""How long a folder may take to answer."""
MOST_THREADS: Final = 16

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Inspecting:
    """Reads about projects by name, as in `supervision`, and about any folder by path.

    `language` is that of prompts where neither the caller nor the project sets one; a folder that does not
    answer within `look_s` seconds is given up.
    """

    def __init__(
        self, supervision: Supervision | None, language: Language = "en", *, look_s: float = LOOK_S
    ) -> None:
        self._supervised = supervision
        self._language = language
        self._look_s = look_s
        self._threads = anyio.CapacityLimiter(MOST_THREADS)

    def configure(self, language: Language) -> None:
        """Set the language of prompts from now on."""
        self._language = language

    async def detect(self, project: str) -> Framework:
        """Return which of the protocol's files exist, and the level of adoption that follows."""
        root, _ = await self._found(project)
        return await self._look(detect_framework, root)

    async def query(self, project: str) -> QueryAnswer:
        """Return the state of a project from its files and, if it is supervised, from the journal.

        `level` 0: no STATE.json; 1: people dispatch; 2: the daemon dispatches.
        """
        root, view = await self._found(project)
        return _queried(root, await self._look(query_project_status, root), view)

    async def list_projects(self, folder: str) -> FolderAnswer:
        """Return the projects in a folder, given by absolute path."""
        if not folder.startswith("/"):
            hint = "handoffd list-projects FOLDER"
            raise Refused("folder must be an absolute path", code="BAD_ARGUMENT", hint=hint)
        found = await self._look(list_projects, await self._look(folder_at, folder))
        return FolderAnswer(folder=folder, projects=list(found))

    async def papers(self, project: str, subject: Subject) -> tuple[Quote, ...]:
        """Return what a project's papers say on a subject: untrusted lines that agents or strangers wrote."""
        root, _ = await self._found(project)
        return await self._look(quoted, root, subject)

    async def looks_like_project(self, folder: str) -> bool:
        """Return whether a folder has the files of a project."""
        return await self._look(looks_like_project, folder)

    async def folders_called(
        self, words: tuple[str, ...], bases: tuple[str, ...], sure: str | None
    ) -> Mapping[str, str]:
        """Return the paths of project folders in `bases` by the `words` that name them."""
        return await self._look(lambda first: folders_called(words, bases, sure), bases[0]) if bases else {}

    async def others_in(self, bases: tuple[str, ...], known: Container[str]) -> tuple[str, ...]:
        """Return the names of project folders in `bases` that are not in `known`."""
        return await self._look(lambda first: others_in(bases, known), bases[0]) if bases else ()

    async def check_prereqs(self, project: str) -> PrerequisitesAnswer:
        """Return the missing files that the current step reads. Only a warning."""
        root, view = await self._found(project)
        with remedies(root):
            check = await self._look(check_prerequisites, root)
        if view is None and check.next_command is not None:
            added = f"{command_for(root, 'add')} && {check.next_command}"
            check = replace(check, next_command=added)
        return PrerequisitesAnswer(**asdict(check), project=root, caller_instruction=_about_files(check))

    async def review(self, project: str, language: str | None = None) -> ReviewAnswer:
        """Return the prompt for a session that examines a project and changes nothing."""
        root, _ = await self._found(project)
        chosen = _checked(language)
        with remedies(root):
            made = await self._look(sessions.review, root, chosen, self._language)
        return ReviewAnswer(
            prompt=made.prompt,
            fw_lv=made.fw_lv,
            project=root,
            caller_instruction=f"{_GIVE_IT}; a person acts on its report.",
        )

    async def triage(self, project: str, language: str | None = None) -> TriageAnswer:
        """Return the prompt for a session that sorts a project's open issues into a plan."""
        root, _ = await self._found(project)
        chosen = _checked(language)
        with remedies(root):
            made = await self._look(sessions.triage, root, chosen, self._language)
        return TriageAnswer(
            prompt=made.prompt,
            issues=made.issues,
            fw_lv=made.fw_lv,
            project=root,
            caller_instruction=f"{_GIVE_IT}; a person decides on its plan.",
        )

    async def _found(self, project: str) -> tuple[str, ProjectView | None]:
        """Return the root of a project, and its view if it is supervised. Raises NotFound, Refused."""
        if self._supervised is not None:
            known = project in self._supervised.names() or not project.startswith("/")
            # The path is resolved here, under a time limit: its disk may not answer.
            named = project if known else await self._look(_resolved, project)
            try:
                root = self._supervised.find(named)
            except NotFound:
                if not named.startswith("/"):
                    raise
            else:
                return root, await self._supervised.view(root)
        return await self._look(folder_at, project), None

    async def _look(self, look: Callable[[str, *_Ts], _T], path: str, *others: *_Ts) -> _T:
        """Return what `look` finds at a path, in a thread. Raises StoreError when the path does not answer.

        A hanging network mount blocks every thread that touches it. So these threads are few, and separate
        from the daemon's other worker threads.
        """
        with anyio.move_on_after(self._look_s):
            return await to_thread.run_sync(
                look, path, *others, abandon_on_cancel=True, limiter=self._threads
            )
        shown = path[:MAX_PATH_CHARACTERS]
        raise StoreError(f"{shown} does not answer within {self._look_s:g} s", hint=f"stat {quote(shown)}")


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a character that is not allowed in names
        return path.replace("\0", "?")


def folder_at(project: str) -> str:
    """Return the real path of a folder. Raises NotFound for a relative path and if it is not a folder."""
    if not project.startswith("/"):
        raise NotFound(f"there is no folder {project[:80]} here, and a path is needed", hint="ls")
    try:
        folder = os.path.realpath(project)
        if stat.S_ISDIR(os.stat(folder).st_mode):
            return folder
    except (OSError, ValueError):  # also for names that are too long or hold forbidden characters
        pass
    shown = project[:MAX_PATH_CHARACTERS]
    raise NotFound(f"{shown} is not a folder", hint=f"ls {quote(os.path.dirname(shown))}")


def _queried(root: str, status: ProjectStatus, view: ProjectView | None) -> QueryAnswer:
    """Return a project's state; the journal's part of it is, if unsupervised, the first command."""
    track = view.tracks[0] if view is not None and view.tracks else None
    waits_for = track.waits_for if track is not None else None
    following = track.next_command if track is not None else None
    if view is None:
        level = 1 if status.has_framework.has_state else 0
        following = repair_command(root, status.status) or command_for(root, "add")
    else:
        level = view.level
        waits_for = waits_for or view.detail
        following = repair_command(root, view.condition) or gate_before(view, following) or following
    return QueryAnswer(
        **asdict(status),
        root=root,
        called=view.called if view is not None else None,
        supervised=view is not None,
        level=level,
        waits_for=waits_for,
        next_command=following,
        caller_instruction=_about_standing(status, waits_for, following),
    )


def _about_standing(status: ProjectStatus, waits_for: str | None, following: str | None) -> str:
    if status.status == NOT_INITIALIZED:
        where = "The project has no STATE.json: no story is in hand"
    elif status.status == INVALID_STATE:
        where = f"STATE.json cannot be used: {status.last_error}"
    elif status.step == DONE:
        where = f"{status.story or 'The story'} is done"
    else:
        where = f"{status.story or 'The project'} is at {status.step}, {status.status}"
    place = waits_for is not None and waits_for[:1].isdigit()  # in line: `3rd for a slot`
    waiting = f"; it {'is' if place else 'waits for'} {waits_for}" if waits_for else ""
    advice = f"; a person who wants to go on types: {following}" if following else ""
    return f"{where}{waiting}{advice}. Report this; do not dispatch anything because of it."


def _about_files(check: PrerequisiteCheck) -> str:
    if check.ok:
        return "The step in hand finds everything it reads; go on."
    told = f"Missing: {', '.join(check.missing)}. That blocks nothing; tell a person"
    return f"{told}, who may have it made first: {check.next_command}" if check.next_command else f"{told}."


_GIVE_IT: Final = "This is a prompt, and nothing was changed: give it to an executor in that folder"


def _checked(language: str | None) -> Language | None:
    """Return the requested language. Raises Refused (BAD_ARGUMENT)."""
    if language is None:
        return None
    found = next((known for known in LANGUAGES if known == language), None)
    if found is None:
        message = f"there are no prompts in {language[:20]!r}; allowed: {', '.join(LANGUAGES)}"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd review --help")
    return found


# --- what `init` puts into a project -----------------------------------------------------------------
MAX_BYTES = 1024 * 1024
BEGIN = "<!-- handoffd: begin -->"
END = "<!-- handoffd: end -->"
SETTINGS = ".ai/handoffd.yaml"
POINTER = "CLAUDE.md"
IGNORED = ".ai/.gitignore"
_OFFERED = 5
EXPECTED = ("PROJECT_CONTEXT.md", "PROJECT_MEMORY.md")

_POINTER = f"""{BEGIN}
## How work goes here

This project is worked on step by step, by hand-offs. Do only the step you were given, then write
`.ai/HANDOFF.md` as your prompt describes. Never edit `.ai/STATE.json`, `.ai/step-rules.yaml` or
`.ai/handoffd.yaml`: the orchestrator and the people who run it own them.
{END}
"""

_IGNORED_TEXT = "\n".join(
    [
        "# handoffd and its agents rewrite these while they work. What else is here is yours to commit.",
        *(f"/{name.removeprefix('.ai/')}" for name in REWRITTEN),
        "/.*.tmp",
        "# Without this line, what agents add to the history lands with each story.",
        "/history.md",
        "",
    ]
)

_BLOCK = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END) + r"\n?", re.DOTALL)


class Prepared(Struct, frozen=True, kw_only=True):
    """What `init` wrote into a project, which expected files it lacks, and what tests it.

    `settings` is the text of its settings if they are as `init` writes them, now or earlier; else None.
    `test_command` is the one that they name, detected now or written before; None: there is none.
    `others` are test suites that were found and that it does not run. They are left out when a person's own
    settings name a command.
    """

    settings: str | None
    begun: bool
    """Whether it had a STATE.json before."""
    created: tuple[str, ...]
    missing: tuple[str, ...]
    test_command: tuple[str, ...] | None
    others: tuple[Suite, ...] = ()


def check_project(root: str, state_dir: Path, name: str | None = None) -> None:
    """Check that a folder can be a project, called `name` if that is given. Writes nothing.

    Raises Refused (BAD_ARGUMENT) for a system folder, a home folder, a folder of handoffd, and a blank name.
    """
    hint = command_for("PROJECT", "init")
    if (why := unfit(root, state_dir)) is not None:
        raise Refused(f"{root} cannot be a project: {why}", code="BAD_ARGUMENT", hint=hint)
    if name is not None and not name.strip():
        raise Refused("name is blank: a project needs one", code="BAD_ARGUMENT", hint=hint)


def prepare_project(root: str, settings: str | None = None) -> Prepared:
    """Write the files that a supervised project needs and lacks; `settings` is what a person has chosen.

    Raises StoreError, InvalidFile; Refused (BAD_ARGUMENT) if it has other settings than these.
    """
    found, begun = find_suites(Path(root)), os.path.lexists(os.path.join(root, STATE_FILE))
    ours = settings_text(found) if settings is None else _chosen_settings(root, settings)
    created = [SETTINGS] if _write_settings(root, ours) else []
    if _write_ignored(root):
        created.append(IGNORED)
    with suppress(StoreError):  # often a link to another tool's file, which handoffd must not replace
        if _write_pointer(root):
            created.append(POINTER)
    missing = tuple(name for name in EXPECTED if not Path(root, name).is_file())
    command = _test_command(root)
    others = found.others if SETTINGS in created or command is None else ()
    if command is None and found.chosen is not None:  # the settings are a person's, and name none
        others = (found.chosen, *others)
    return Prepared(
        settings=ours if _text_of(root) == ours else None,
        begun=begun,
        created=tuple(created),
        missing=missing,
        test_command=command,
        others=others,
    )


def _chosen_settings(root: str, settings: str) -> str:
    """Return the settings of a project, if they can be its first. Raises InvalidFile, Refused."""
    shipped_layers(load_project(settings, SETTINGS).preset)
    if _text_of(root) not in {None, settings}:
        message = f"{SETTINGS} is there already, and init writes over nothing: edit it, then trust it"
        raise Refused(message, code="BAD_ARGUMENT", hint=command_for(root, "trust"))
    return settings


def _test_command(root: str) -> tuple[str, ...] | None:
    return load_project(_text_of(root), SETTINGS).test.command


def _text_of(root: str) -> str | None:
    """Return the text of a project's settings; None without any."""
    seen = read_project_file(Path(root), SETTINGS, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def _write_settings(root: str, text: str) -> bool:
    if _text_of(root) is not None:
        return False
    write_project_file(Path(root), SETTINGS, text)
    return True


_COMMENTED: Final[Mapping[str, str]] = {
    "auto": "# auto: true               # dispatch by itself as soon as the project is added",
    "executor": "# executor: claude",
    "preset": "# preset: proven           # or: go, web, with-commit, [go, proven]",
    "gates": "# gates: after             # you decide behind the code; or: before (the default), both, none",
}
"""What the first settings show of a key that a person has not chosen."""

_CACHES: Final = {
    "cargo": "cargo", "go": "go", "gradle": "gradle", "gradlew": "gradle", "mvn": "maven", "mvnw": "maven",
}  # fmt: skip
"""Programs whose runs take long with an empty cache, and the name that lets in a person's own."""
_LET_IN: Final = "{}'s caches, shared with you; without them each run begins with empty ones"


def settings_text(found: Suites, chosen: Mapping[str, object] | None = None) -> str:
    """Return a first `.ai/handoffd.yaml`, with the detected test command, or a commented place for one.

    `chosen` has what a person has chosen, by key.
    """
    chosen = chosen or {}
    lines = ["# What handoffd does in this project. Every setting: docs/reference/settings.md"]
    lines += [text for key, text in _COMMENTED.items() if key not in chosen]
    lines += [f"{key}: {json.dumps(value)}" for key, value in chosen.items()]
    if found.chosen is None:
        return "\n".join([*lines, *_place_for_tests(found.others), ""])
    test = found.chosen.settings
    lines += ["test:", f"  command: {json.dumps(list(test.command or ()))}", f"  report: {test.report}"]
    if test.reports:
        lines.append(f"  reports: {json.dumps(list(test.reports))}")
    if test.exclude_argument:
        lines.append(f"  exclude_argument: {json.dumps(test.exclude_argument)}")
    if cache := _CACHES.get(os.path.basename((test.command or ("",))[0])):
        lines.append(f"# sandbox: {{let_in: [{cache}]}}  # {_LET_IN.format(cache)}")
    return "\n".join([*lines, ""])


def _place_for_tests(below: tuple[Suite, ...]) -> list[str]:
    """Return commented lines for the test command, filled in with the suites below the root."""
    if not below:
        return ["# test:", "#   command: [make, test]", "#   report: exit"]
    return [
        "# Tests were found below this folder only. One command runs all that count, for instance:",
        "# test:",
        f"#   command: {json.dumps(list(command_for_all(below[:_OFFERED])))}",
        "#   report: exit",
    ]


def _write_ignored(root: str) -> bool:
    if os.path.lexists(os.path.join(root, IGNORED)):
        return False
    write_project_file(Path(root), IGNORED, _IGNORED_TEXT)
    return True


def _write_pointer(root: str) -> bool:
    seen = read_project_file(Path(root), POINTER, MAX_BYTES)
    text = seen.content.decode("utf-8", errors="surrogateescape") if seen is not None else ""
    wanted = _BLOCK.sub("", text).rstrip("\n")
    wanted = f"{wanted}\n\n{_POINTER}" if wanted else _POINTER
    if wanted == text:
        return False
    write_project_file(Path(root), POINTER, wanted.encode("utf-8", errors="surrogateescape"))
    return True


def after_init(view: ProjectView) -> str:
    """Return the command that follows `init`."""
    track = view.tracks[0] if view.tracks else None
    if view.held:
        return command_for(view.project, "trust")
    if track is None or track.story is None or track.step == DONE:
        return command_for(view.project, "start", "STORY")
    following = track.next_command
    return gate_before(view, following) or following or command_for(view.project, "status")
