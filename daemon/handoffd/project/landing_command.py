"""The command of a project that takes a story in place of a merge: it opens a pull request, for instance.

It is a person's own, so it runs in the project's folder and outside of the sandbox. A note says which run has
got which commit before that begins: a daemon that takes a landing up finds the run, and no commit is given to
the command twice unless a person asks for that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from shlex import join

import msgspec
from anyio import to_thread
from msgspec import Struct

from handoffd.engine.run import last_line
from handoffd.errors import Refused
from handoffd.execute.base import ExitRecord, Rung, RunSpec
from handoffd.execute.checks import OUTPUT
from handoffd.execute.environment import MARK, child_environment
from handoffd.execute.run import adopt
from handoffd.files.atomic import replace_text
from handoffd.git.landing import Merge
from handoffd.git.worktree import shadow_of
from handoffd.protocol.story_text import StoryText
from handoffd.settings.model import ProjectSettings
from handoffd.track.prompts import dispatch_id
from handoffd.track.services import Services
from handoffd.track.workspace import ended_how

COMMAND_FAILED = "LAND_COMMAND_FAILED"

_NOTE = "given.json"
_KEPT = 256 * 1024
_LADDER = (Rung(signal="TERM", grace_s=5.0), Rung(signal="KILL", grace_s=5.0))


class _Given(Struct, frozen=True):
    """Which run was given the commit of a story."""

    story: str
    commit: str
    run: str


_GIVEN = msgspec.json.Decoder(_Given)


class LandingCommand:
    """`stories.land_command` of one project."""

    def __init__(self, root: str, services: Services) -> None:
        self._root = root
        self._services = services
        self._note = shadow_of(root, services.settings.state_dir) / _NOTE

    async def take(
        self, story: str, text: StoryText | None, merge: Merge, settings: ProjectSettings, *, again: bool
    ) -> str | None:
        """Give a story to the command, or find that it was given; return the last line that this printed.

        `again`: a person asks, so that a run which has failed does not count. The command finds the text of
        the story on its standard input. Raises Refused (LAND_COMMAND_FAILED).
        """
        name = await to_thread.run_sync(partial(self._run_of, story, merge.end, again=again))
        run_dir = self._services.run_dir(name)
        spec = await to_thread.run_sync(self._spec, name, story, text, merge, settings)
        record = await (await self._services.launcher.start(run_dir, spec)).wait()
        if (why := _failed(record, settings.stories.land_command_min)) is not None:
            hint = f"less {run_dir / OUTPUT}"
            raise Refused(f"{join(spec.argv)} {why}", code=COMMAND_FAILED, hint=hint)
        return last_line(record.tail) or None

    def has(self, story: str, commit: str, *, again: bool) -> bool:
        """Return whether the command was given a commit, and its outcome counts; blocks."""
        return self._counting(story, commit, again=again) is not None

    def _counting(self, story: str, commit: str, *, again: bool) -> str | None:
        try:
            given = _GIVEN.decode(self._note.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        if (given.story, given.commit) != (story, commit):
            return None
        run = adopt(self._services.run_dir(given.run))
        failed = isinstance(run, ExitRecord) and run.code != 0
        return None if run is None or (failed and again) else given.run

    def _run_of(self, story: str, commit: str, *, again: bool) -> str:
        """Return the run that is given a commit: the one that has got it already, where that counts."""
        if (run := self._counting(story, commit, again=again)) is not None:
            return run
        given = _Given(story, commit, f"{dispatch_id(self._services.clock)}.land")
        replace_text(self._note, msgspec.json.encode(given))
        return given.run

    def _spec(
        self, name: str, story: str, text: StoryText | None, merge: Merge, settings: ProjectSettings
    ) -> RunSpec:
        run_dir, limits = self._services.run_dir(name), self._services.settings.execute
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = run_dir / "story.md"
        replace_text(body, text.text if text is not None else "")
        own = {**variables_of(story, text, merge), MARK: name}
        return RunSpec(
            run_id=name,
            argv=_argv(self._root, settings),
            env=child_environment(
                self._services.environment, limits.env_allow, project=settings.env, variables=own
            ),
            cwd=self._root,
            stdin=str(body),
            output=str(run_dir / OUTPUT),
            deadline_s=settings.stories.land_command_min * 60,
            ladder=_LADDER,
            head_bytes=_KEPT,
            tail_bytes=_KEPT,
            memory_max=limits.memory_max,
            tasks_max=limits.tasks_max,
        )


# --- pure ---------------------------------------------------------------------------------------------
def variables_of(story: str, text: StoryText | None, merge: Merge) -> Mapping[str, str]:
    """Return the variables that tell the command what it is given."""
    return {
        "HANDOFFD_STORY": story,
        "HANDOFFD_TITLE": text.title if text is not None else story,
        "HANDOFFD_BRANCH": merge.branch,
        "HANDOFFD_COMMIT": merge.end,
        "HANDOFFD_ONTO": merge.onto,
    }


def _argv(root: str, settings: ProjectSettings) -> tuple[str, ...]:
    """Return the command; a path that does not begin at `/` is below the project's folder."""
    assert settings.stories.land_command is not None
    program, *words = settings.stories.land_command
    return (os.path.join(root, program) if "/" in program else program, *words)


def _failed(record: ExitRecord, limit_min: float) -> str | None:
    """Return why the command has not taken the story, in words; None: it has."""
    if record.by == "deadline":
        return f"did not end within {limit_min:g} min (stories.land_command_min)"
    if record.by == "lost":
        return "was cut off: whether it has taken the story is not known, so look before you land it again"
    return None if record.code == 0 else ended_how(record)
