"""What must be there before an attempt is decided on: an id, a prompt, a known executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.support.house import (
    NOW,
    House,
    MovableClock,
    at,
    dispatch_of,
    house,
    make_project,
    track_of,
)

from handoffd.engine.track import AgentSession, Asking, Phase, Track, TrackKey
from handoffd.errors import HandoffdError, NotFound, StoreError
from handoffd.execute.stream.format import StreamFormat
from handoffd.inspection.own_files import templates_for, warmed
from handoffd.project.files import ProjectFiles
from handoffd.protocol.state import Status
from handoffd.track.prompts import Prompts, cpu_limit_s, dispatch_id


async def preparation(here: House, root: str) -> Prompts:
    """Return the preparation of a project's main track."""
    files = ProjectFiles(root, here.journal, here.clock)
    await files.refresh()
    return Prompts(TrackKey(root), files, here.services)


@contextmanager
def slow_threads() -> Iterator[None]:
    """Have every line that a new thread executes take its time, as on a machine many times slower."""

    def dawdle(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        sum(range(300))
        return dawdle

    before = threading.gettrace()
    threading.settrace(dawdle)
    try:
        yield
    finally:
        threading.settrace(before)


def about_to_run(executor: str = "agent") -> Track:
    """Return a track whose dispatch has been decided on."""
    return track_of(Status.RUNNING, dispatch=dispatch_of(phase=Phase.STARTING, executor=executor))


def test_ids_sort_by_time_and_are_unique() -> None:
    """Two in the same second differ by chance."""
    clock = MovableClock()

    assert dispatch_id(clock).startswith(f"{NOW:%Y%m%dT%H%M%S}-")
    assert 100 == len({dispatch_id(clock) for _ in range(100)})


def _can_resume(here: House, definition: dict[str, Any]) -> None:
    """Let the agent continue a session, but for what `definition` says otherwise."""
    told = StreamFormat(session=("session_id",))
    known = {"argv": ("agent", ("--resume", "{session}")), "stream": told, **definition}
    executors = here.services.executors.executors
    executors["agent"] = executors["agent"].model_copy(update=known)  # type: ignore[index]


@pytest.mark.parametrize(
    ("rules", "definition", "asked", "resumes"),
    [
        ("", {"session": "resume"}, False, True),
        ("session: fresh", {"session": "resume"}, False, False),
        ("session: resume", {}, False, True),
        ("", {}, False, False),
        ("", {}, True, True),
        ("session: resume", {"argv": ("agent",)}, True, False),
    ],
)
async def test_a_session_is_continued_where_the_step_or_the_executor_says_so(
    tmp_path: Path, rules: str, definition: dict[str, Any], asked: bool, resumes: bool
) -> None:
    """The step goes first; for just the hand-off always, if there is a place for it in the argv."""
    async with house(tmp_path) as here:
        _can_resume(here, definition)
        root = make_project(tmp_path, rules=f"steps: {{bdd: {{{rules}}}}}")
        asking = Asking(step="bdd", attempt=1, problem="?") if asked else None

        found = (await preparation(here, root)).resumes(track_of().with_ledger(asking=asking), "agent")

        assert resumes == found


@pytest.mark.parametrize(
    ("rules", "definition", "unfinished", "resumes"),
    [
        ("", {}, True, True),
        ("", {}, False, False),
        ("session: fresh", {}, True, False),
        ("", {"argv": ("agent",)}, True, False),
    ],
)
async def test_a_run_that_was_cut_short_is_continued_unless_its_step_says_fresh(
    tmp_path: Path, rules: str, definition: dict[str, Any], unfinished: bool, resumes: bool
) -> None:
    """Else what it did so far would be paid for again."""
    async with house(tmp_path) as here:
        _can_resume(here, definition)
        root = make_project(tmp_path, rules=f"steps: {{bdd: {{{rules}}}}}")
        last = AgentSession(step="bdd", executor="agent", id="s1", unfinished=unfinished)

        found = (await preparation(here, root)).resumes(track_of().with_ledger(session=last), "agent")

        assert resumes == found


async def test_an_executor_that_nobody_knows_continues_nothing(tmp_path: Path) -> None:
    """That it is not there is told when it is to be started."""
    async with house(tmp_path) as here:
        wanted = await preparation(here, make_project(tmp_path))
        assert not wanted.resumes(track_of(), "cluade")


async def test_the_prompt_for_just_the_hand_off_says_what_was_wrong(tmp_path: Path) -> None:
    """Also after something else has gone wrong since."""
    async with house(tmp_path) as here:
        asking = Asking(step="bdd", attempt=1, problem="exited with code 0, without a hand-off")
        track = track_of(last_error="its process vanished").with_ledger(asking=asking)

        text, _ = await (await preparation(here, make_project(tmp_path))).prompt(track, "d1")

        assert "Only the hand-off" in text
        assert asking.problem in text
        assert "vanished" not in text


async def test_a_prompt_lies_where_the_shim_reads_it_and_where_people_do(tmp_path: Path) -> None:
    """Both are the same text, and it names the dispatch."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)

        await (await preparation(here, root)).stage(about_to_run(), "d1")

        text = (here.services.run_dir("d1") / "prompt.md").read_text()
        assert "Dispatch: d1" in text
        assert text == at(root, ".ai/runs/d1/prompt.md").read_text()


async def test_missing_files_are_warnings(tmp_path: Path) -> None:
    """They stop nothing."""
    async with house(tmp_path) as here:
        text, warnings = await (await preparation(here, make_project(tmp_path))).prompt(track_of(), "d1")

        assert ("PROJECT_MEMORY.md is missing",) == warnings
        assert "PROJECT_MEMORY.md" in text


async def test_an_unknown_executor_is_found_out_before_anything_is_written(tmp_path: Path) -> None:
    """With the names there are."""
    async with house(tmp_path) as here:
        wanted = await preparation(here, make_project(tmp_path))

        with pytest.raises(NotFound, match=r"no executor 'cluade'.*claude"):
            await wanted.stage(about_to_run("cluade"), "d1")
        with pytest.raises(NotFound, match=r"none is installed of claude"):
            await wanted.stage(about_to_run("auto"), "d1")
        assert not here.services.run_dir("d1").exists()


async def test_a_run_folder_that_cannot_be_made_is_an_error_like_any_other(tmp_path: Path) -> None:
    """Of one dispatch, which is tried again: the supervision of its project goes on."""
    async with house(tmp_path) as here:
        here.services.run_dir("d1").touch()

        with pytest.raises(StoreError, match="cannot make the folder: "):
            await (await preparation(here, make_project(tmp_path))).stage(about_to_run(), "d1")


async def test_a_template_that_does_not_come_to_an_end_is_given_up(tmp_path: Path) -> None:
    """One project's template holds up nobody for longer than a second of a processor."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        steps = at(root, ".ai/prompts/en/steps")
        steps.mkdir(parents=True)
        loop = "{% for a in range(99999) %}"
        (steps / "bdd.j2").write_text(f"{loop * 3}{'{% endfor %}' * 3}")

        with pytest.raises(HandoffdError):
            await (await preparation(here, root)).prompt(track_of(), "d1")


async def test_only_a_projects_own_templates_are_limited(tmp_path: Path) -> None:
    """A machine on which ours take seconds is slow, and no reason to blame a project's."""
    ours = templates_for(make_project(tmp_path))
    at(str(tmp_path), ".ai/prompts/en").mkdir(parents=True)
    at(str(tmp_path), ".ai/prompts/en/prompt.j2").write_text("{{ step }}")
    own = templates_for(str(tmp_path))

    assert cpu_limit_s(ours, 60.0) is None
    assert 1.0 == cpu_limit_s(own, 0.0)
    assert 100.0 == cpu_limit_s(own, 2.5)


async def test_a_project_without_templates_of_its_own_gets_ours_however_slow_the_machine_is(
    tmp_path: Path,
) -> None:
    """Every line that a thread executes is made to take a while; they are compiled in there, too."""
    compiled = templates_for(None).environment.cache
    assert compiled is not None
    compiled.clear()
    warmed.cache_clear()
    with slow_threads():
        async with house(tmp_path) as here:
            wanted = await preparation(here, make_project(tmp_path))
            text, _ = await wanted.prompt(track_of(), "d1")

    assert "Dispatch: d1" in text
