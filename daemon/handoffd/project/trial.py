"""Whether the stories of a project can work in clones: found out in one, by the project's own tests.

An installation that leads back to the project's folder is looked for first, as the tests in any clone would
prove nothing then. A clone is made as a story would get it, and set up, and the tests run there. If they fail
and it lacks packages that the project's folder has, they run again in one that shares these. The project's
files, index and branches stay as they are, and nothing stays of the clone.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import join, quote

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.events import TestEvidence
from handoffd.engine.judging import green_problem
from handoffd.engine.views import Tried, WorkspaceTrial
from handoffd.engine.wording import command_for, first_few
from handoffd.errors import HandoffdError, NotFound, Refused
from handoffd.execute.checks import OUTPUT, REPORT, RESULTS, read_bounded
from handoffd.execute.run import Run, adopt
from handoffd.git.clones import APART, Clone, Clones, clones_in, roots_with
from handoffd.git.landing import LIMIT_S, Landing, Merge, cut_off
from handoffd.git.repository import NO_REPOSITORY, repository_at
from handoffd.inspection.installs import leading_back
from handoffd.inspection.own_files import SETTINGS
from handoffd.project.project import Project
from handoffd.track.ai_folder import take_along
from handoffd.track.checks import Checks, end_run
from handoffd.track.prompts import dispatch_id
from handoffd.track.reach import Reach, resolved
from handoffd.track.services import Services
from handoffd.track.workspace import SETUP_FAILED, set_up

log = structlog.get_logger(__name__)

TESTS_S = 300.0
"""How long the tests may take in all clones of one trial together."""

FOR_TRIAL = f"{APART}trial-"
"""How the name begins of a clone in which it is found out whether clones will do."""

PACKAGES = ("node_modules", ".venv", "venv")
"""What a clone may share with the project's folder without a person's word: packages that were installed."""

_PASSING = frozenset({".ai", ".git", "CLAUDE.md", "__pycache__"})
_MOST_READ = 4 * 1024 * 1024
_REMEDY = "have workspace.setup install what the tests need, or name it in workspace.link"
_INSTALL = "have workspace.setup install what the tests need into each clone"
_CANNOT = "its tests in a clone would run the code of this folder"


class Trials:
    """The trials of one project, one at a time."""

    def __init__(self, project: Project, services: Services, tests_s: float = TESTS_S) -> None:
        self.project = project
        self._services = services
        self._tests_s = tests_s
        self._clones = Clones(project.root, services.settings.state_dir, services.environment)
        self._over: asyncio.Event | None = None
        """Set when the trial that goes on, or went on last, is over."""
        self._result: WorkspaceTrial | HandoffdError | None = None
        self._insist = False
        self._doing = ""
        self._tell: Callable[[str], None] = lambda _: None
        self._scope = anyio.CancelScope()

    async def find_out(
        self,
        within_s: float | None,
        *,
        again: bool = False,
        insist: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> WorkspaceTrial:
        """Return what a trial finds; after `within_s` seconds that it goes on. Raises HandoffdError.

        `again`: the caller waits for a trial that it has begun before. `insist`: make a clone also where
        there are no tests. `tell` hears what goes on, in words.
        """
        over = self._over
        if over is None or (over.is_set() and not again):
            over = self._over = asyncio.Event()
            self._result, self._tell, self._scope = None, tell, anyio.CancelScope()
            self._insist = insist
            if self.project.main.lasting:
                self.project.main.begin("trial of a clone", self._carry_out)
            else:
                await self._carry_out()
        with anyio.move_on_after(within_s):
            await over.wait()
        if not over.is_set() or self._result is None:
            return WorkspaceTrial(doing=self._doing)
        self._over = None
        if isinstance(self._result, HandoffdError):
            raise self._result
        return self._result

    def stop(self) -> None:
        """End the trial that goes on, if there is one."""
        self._scope.cancel()

    async def _carry_out(self) -> None:
        assert self._over is not None
        over = self._over
        self._result = Refused("the trial was ended before its tests were", code="CUT_OFF")
        try:
            with self._scope:
                self._result = await self._found_out()
        except HandoffdError as error:
            self._result = error
        finally:
            over.set()

    def _say(self, what: str) -> None:
        self._doing = what
        self._tell(what)

    # --- what is found ---------------------------------------------------------------------------
    async def _found_out(self) -> WorkspaceTrial:
        settings = self.project.files.settings
        try:
            await to_thread.run_sync(repository_at, self.project.root)
            links = await to_thread.run_sync(self._links)
            back = await to_thread.run_sync(self._back, links)
            if back is not None:
                return WorkspaceTrial(
                    why=f"{_CANNOT}: {back} leads there", remedy=_INSTALL, command=self._edited()
                )
            if settings.test.command is None:
                return await self._without_tests(links)
            return await self._with_tests(links, self._services.clock.monotonic() + self._tests_s)
        except HandoffdError as error:
            hint = error.hint
            if error.code == NO_REPOSITORY and hint is None:
                hint = f"git -C {quote(self.project.root)} init"
            return WorkspaceTrial(possible=error.code == SETUP_FAILED, why=error.message, command=hint)

    def _links(self) -> tuple[str, ...]:
        """Return what a first clone shares: what the settings say, and where the program of the tests is."""
        settings, root = self.project.files.settings, self.project.root
        links = settings.workspace.link
        program = (settings.test.command or ("",))[0].removeprefix("./").split("/")[0]
        if settings.workspace.setup is None and program in PACKAGES and program not in links:
            links += (program,) if os.path.isdir(os.path.join(root, program)) else ()
        return links

    def _back(self, links: Sequence[str]) -> str | None:
        settings = self.project.files.settings
        installs, environment = settings.workspace.setup is not None, self._checks(None, links).environment
        return leading_back(self.project.root, links, settings.test.command, environment, installs=installs)

    async def _without_tests(self, links: tuple[str, ...]) -> WorkspaceTrial:
        if self._insist:
            async with self._clone(links):
                pass
        why, command = "it has no test command to try one with", self._edited("test.command")
        return WorkspaceTrial(possible=True, link=links, why=why, command=command)

    async def _with_tests(self, links: tuple[str, ...], until: float) -> WorkspaceTrial:
        found = await self._in_clone(links, until)
        more = tuple(one for one in found.lacks if one in PACKAGES)
        back = None
        if found.problem is not None and more and self.project.files.settings.workspace.setup is None:
            back = await to_thread.run_sync(self._back, more)
            left = until - self._services.clock.monotonic()
            if back is None and not found.evidence.timed_out and left > 0:
                links += more
                found = await self._in_clone(links, until)
        return self._judged(found, links, back)

    def _judged(self, found: _Found, links: tuple[str, ...], back: str | None) -> WorkspaceTrial:
        evidence, command = found.evidence, self.project.files.settings.test.command
        tried = Tried(command=command, path=found.path, evidence=evidence)
        result = partial(WorkspaceTrial, possible=True, link=links, tried=tried)
        if found.problem is None and not found.names_root:
            return result(fits=True)
        anyway = command_for(self.project.root, "init", "--workspace", "clone")
        if found.problem is None:
            why = f"what its tests print in a clone names files of this folder: {found.names_root}"
            remedy = (
                "have them look for files from where they are; if it is harmless, take clones all the same"
            )
            return result(why=why, remedy=remedy, command=anyway)
        if evidence.timed_out:
            return result(
                why=f"in a clone {found.problem}", remedy="take clones all the same", command=anyway
            )
        lacks = f"; what git does not have is not there: {first_few(found.lacks)}" if found.lacks else ""
        led = f"; {back} leads to this folder, so that a clone cannot share that" if back else ""
        remedy = _REMEDY if back is None else _INSTALL
        return result(why=f"in a clone {found.problem}{lacks}{led}", remedy=remedy, command=self._edited())

    def _edited(self, key: str = "") -> str:
        root, comment = self.project.root, f"  # {key}" if key else ""
        again = " && ".join((command_for(root, "trust"), command_for(root, "init", "--workspace", "auto")))
        return f"${{EDITOR:-vi}} {quote(os.path.join(root, SETTINGS))} && {again}{comment}"

    # --- in a clone ------------------------------------------------------------------------------
    async def _in_clone(self, links: tuple[str, ...], until: float) -> _Found:
        """Run the tests in a clone that shares `links`, and return how that went. Raises HandoffdError."""
        root, named = self.project.root, list[str]()
        async with self._clone(links) as clone:
            checks = self._checks(clone, links)
            words = join(self.project.files.settings.test.command or ())
            self._say(f"running {words} in a clone{_sharing(links)}")
            look = partial(_look_for, root, (*links, *PACKAGES), named)
            left = max(0.1, until - self._services.clock.monotonic())
            evidence = await checks.trial(f"{dispatch_id(self._services.clock)}.trial", left, None, look)
            lacks = await to_thread.run_sync(_lacking, root, clone.workspace.folder)
        path, names_root = checks.environment["PATH"], next(iter(named), None)
        return _Found(evidence=evidence, path=path, lacks=lacks, names_root=names_root)

    @asynccontextmanager
    async def _clone(self, links: tuple[str, ...]) -> AsyncIterator[Clone]:
        """Lend a clone, made and set up as a story would get it."""
        services, settings = self._services, self.project.files.settings.workspace
        story = f"{FOR_TRIAL}{dispatch_id(services.clock)}"
        self._say(f"making a clone{_sharing(links)}")
        try:
            clone = await to_thread.run_sync(self._made, story, links)
            await set_up(clone, self._clones, self._checks(clone, links), settings, services, self._set_up)
            yield clone
        finally:
            with anyio.CancelScope(shield=True):
                await self._removed(story)

    def _set_up(self, what: str) -> None:
        self._say(f"a clone {what}")

    def _made(self, story: str, links: tuple[str, ...]) -> Clone:
        now = self._services.clock.now()
        self._clones.remove_all(FOR_TRIAL, now)  # of a trial whose process was killed
        clone = self._clones.make(story, links, None, now)
        take_along(Path(self.project.root), Path(clone.workspace.folder))
        return clone

    async def _removed(self, story: str) -> None:
        clone = await to_thread.run_sync(self._clones.of, story)
        if clone is not None and clone.setup is not None:
            await end_run(self._services.run_dir(clone.setup))
        await to_thread.run_sync(self._clones.remove_all, story, self._services.clock.now())

    def _checks(self, clone: Clone | None, links: Sequence[str]) -> Checks:
        track = self.project.main
        place = track.workspace if clone is None else clone.workspace
        return Checks(track.key, self.project, self._services, {}, lambda: place, tuple(links))


class _Found(Struct, frozen=True, kw_only=True):
    """How the tests went in a clone, what it lacks, and a path of the project's folder that they printed."""

    evidence: TestEvidence
    path: str
    lacks: tuple[str, ...]
    names_root: str | None

    @property
    def problem(self) -> str | None:
        """Why they are not green."""
        evidence = self.evidence
        if evidence.timed_out:
            return f"the tests did not end within {evidence.seconds:.0f} s"
        return evidence.fault or green_problem(evidence)


def _sharing(links: Sequence[str]) -> str:
    return f" with links to {first_few(links)}" if links else ""


def _lacking(root: str, folder: str) -> tuple[str, ...]:
    """Return what is in the project's folder and not in its clone: git ignores it, or has it not yet."""
    here, there = set(os.listdir(root)), set(os.listdir(folder))
    return tuple(sorted(here - there - _PASSING))


def _look_for(root: str, shared: Sequence[str], named: list[str], run_dir: Path) -> None:
    """Add to `named` a path of the project's folder that tests printed or reported, unless it is shared."""
    top = os.path.realpath(root)
    but = "|".join(re.escape(one) for one in (*shared, ".git"))
    inner = rf"/(?!(?:{but})(?![\w.-]))[\w.+@/-]*"
    path = re.compile(os.fsencode(rf"(?<![\w.-]){re.escape(top)}(?:{inner}|(?![\w./-]))"))
    for file in (run_dir / OUTPUT, run_dir / RESULTS / REPORT):
        found = path.search(read_bounded(file, _MOST_READ) or b"")
        if found is not None:
            named.append(os.fsdecode(found[0]))


async def placed(project: Project, wanted: str, trial: WorkspaceTrial) -> WorkspaceTrial:
    """Have the next stories of a project work where a person and its trial want them; return where that is.

    Raises HandoffdError where its settings cannot be changed.
    """
    place = project.files.settings.workspace
    kind, link = place.kind, place.link
    if wanted == "root":
        kind = "root"
    elif trial.fits or (wanted == "clone" and trial.possible):
        kind, link = "clone", trial.link or link
    if (kind, link) != (place.kind, place.link):
        await project.files.place_stories(place.model_copy(update={"kind": kind, "link": link}))
    return replace(trial, kind=kind)


# --- landings and trials that a crash has cut off ------------------------------------------------------
async def finish_landings(services: Services, limit_s: float = LIMIT_S) -> None:
    """Finish the landings that an earlier daemon has begun; a project that does not answer keeps its own.

    Of one that was cut off before its tests had passed, nothing stays.
    """
    state_dir = services.settings.state_dir
    begun = await to_thread.run_sync(lambda: {*cut_off(state_dir), *roots_with(state_dir, APART)})
    async with anyio.create_task_group() as tasks:
        for root in begun:
            tasks.start_soon(_finish, root, services, limit_s)


async def _finish(root: str, services: Services, limit_s: float) -> None:
    merge, why = None, None
    try:
        with suppress(NotFound):  # of a project that is gone, its clone goes, too
            await resolved(root)  # a dead mount is given up after a few seconds
        merge = await Reach(root, services.asking).asked(partial(_finished, root, services), limit_s)
    except HandoffdError as error:
        why = error.message
    log.warning("a landing or a trial was cut off", project=root, finished=merge is not None, error=why)


def _finished(root: str, services: Services) -> Merge | None:
    """End the tests of a landing that was cut off, or move the branch if they had passed; trials end, too."""
    state_dir, environment = services.settings.state_dir, services.environment
    for clone in clones_in(state_dir):
        if clone.root == root and clone.story.startswith(APART) and clone.setup is not None:
            run = adopt(services.run_dir(clone.setup))
            if isinstance(run, Run):
                run.stop()
    Clones(root, state_dir, environment).remove_all(APART, services.clock.now())
    return Landing(root, state_dir, environment).finish()
