"""Everything that an attempt needs before its decision: an id, a prompt, a known executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.house import NOW, House, MovableClock, at, dispatch_of, house, make_project, track_of

from handoffd.engine.track import AgentSession, Asking, Facts, Phase, Track, TrackKey
from handoffd.errors import HandoffdError, NotFound, StoreError
from handoffd.execute.stream.format import StreamFormat
from handoffd.inspection.own_files import shipped_layers, templates_for, warmed
from handoffd.project.files import ProjectFiles
from handoffd.protocol.prompt import PromptContext, render_prompt
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.state import Status, TestCounts
from handoffd.track.prompts import Prompts, cpu_limit_s, dispatch_id, prompt_context


async def preparation(here: House, root: str) -> Prompts:
    """Return the preparation of a project's main track."""
    files = ProjectFiles(root, here.journal, here.clock)
    await files.refresh()
    return Prompts(TrackKey(root), files, here.services)


@contextmanager
def slow_threads() -> Iterator[None]:
    """Slow down every line in new threads, like a machine that is many times slower."""

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
    """Return a track with a decided dispatch."""
    return track_of(Status.RUNNING, dispatch=dispatch_of(phase=Phase.STARTING, executor=executor))


def test_ids_sort_by_time_and_are_unique() -> None:
    """Two of the same second differ by a random part."""
    clock = MovableClock()

    assert dispatch_id(clock).startswith(f"{NOW:%Y%m%dT%H%M%S}-")
    assert 100 == len({dispatch_id(clock) for _ in range(100)})


def _can_resume(here: House, definition: dict[str, Any]) -> None:
    """Let the agent continue a session, with the changes in `definition`."""
    told = StreamFormat(session=("session_id",))
    known = {"argv": ("agent", ("--resume", "{session}")), "stream": told, **definition}
    executors = here.services.executors.executors
    executors["agent"] = executors["agent"].model_copy(update=known)  # type: ignore[index]


LAST = AgentSession(step="bdd", executor="agent", id="s1")
CUT_SHORT = {"session": replace(LAST, unfinished=True)}
ASKED = {"asking": Asking(step="bdd", attempt=1, problem="?")}
NO_PLACE = {"argv": ("agent",)}


@pytest.mark.parametrize(
    ("rules", "definition", "ledger", "resumes"),
    [
        pytest.param("", {}, {}, False, id="by default not"),
        pytest.param("", {"session": "resume"}, {}, True, id="the executor's setting"),
        pytest.param("session: fresh", {"session": "resume"}, {}, False, id="the step's setting wins"),
        pytest.param("session: resume", {}, {}, True, id="the step's setting"),
        pytest.param("", {}, ASKED, True, id="for the hand-off alone always"),
        pytest.param("session: resume", NO_PLACE, ASKED, False, id="no place in the argv"),
        pytest.param("", {}, {"session": LAST}, False, id="after a complete run"),
        # Otherwise its work so far would have to be paid for again.
        pytest.param("", {}, CUT_SHORT, True, id="after a run that was cut short"),
        pytest.param("session: fresh", {}, CUT_SHORT, False, id="cut short, but fresh"),
        pytest.param("", NO_PLACE, CUT_SHORT, False, id="cut short, no place in the argv"),
    ],
)
async def test_some_attempts_continue_a_session(
    here: House, tmp_path: Path, rules: str, definition: dict[str, Any], ledger: dict[str, Any], resumes: bool
) -> None:
    """By settings, or because the last run needs it."""
    _can_resume(here, definition)
    root = make_project(tmp_path, rules=f"steps: {{bdd: {{{rules}}}}}")

    found = (await preparation(here, root)).resumes(track_of().with_ledger(**ledger), "agent")

    assert resumes == found


async def test_the_prompt_for_the_hand_off_alone_has_its_problem(here: House, root: str) -> None:
    """Not a later error."""
    asking = Asking(step="bdd", attempt=1, problem="exited with code 0, without a hand-off")
    track = track_of(last_error="its process vanished").with_ledger(asking=asking)

    text, _ = await (await preparation(here, root)).prompt(track, "d1")

    assert "Only the hand-off" in text
    assert asking.problem in text
    assert "vanished" not in text


async def test_a_prompt_is_written_for_the_shim_and_for_people(here: House, root: str) -> None:
    """Both have the same text, with the dispatch."""

    await (await preparation(here, root)).stage(about_to_run(), "d1")

    text = (here.services.run_dir("d1") / "prompt.md").read_text()
    assert "Dispatch: d1" in text
    assert text == at(root, ".ai/runs/d1/prompt.md").read_text()


async def test_missing_files_are_warnings(here: House, root: str) -> None:
    """They stop nothing."""
    text, warnings = await (await preparation(here, root)).prompt(track_of(), "d1")

    assert ("PROJECT_MEMORY.md is missing",) == warnings
    assert "PROJECT_MEMORY.md" in text


async def test_an_unknown_executor_is_refused_before_anything_is_written(here: House, root: str) -> None:
    """With the known names; there is no session to continue."""
    wanted = await preparation(here, root)
    assert not wanted.resumes(track_of(), "cluade")

    with pytest.raises(NotFound, match=r"no executor 'cluade'.*claude"):
        await wanted.stage(about_to_run("cluade"), "d1")
    with pytest.raises(NotFound, match=r"none is installed of claude"):
        await wanted.stage(about_to_run("auto"), "d1")
    assert not here.services.run_dir("d1").exists()


async def test_a_run_folder_that_cannot_be_created_fails_its_dispatch(here: House, root: str) -> None:
    """The dispatch is repeated, and the project goes on."""
    here.services.run_dir("d1").touch()

    with pytest.raises(StoreError, match="cannot make the folder: "):
        await (await preparation(here, root)).stage(about_to_run(), "d1")


async def test_an_endless_template_is_stopped(here: House, root: str) -> None:
    """After a second of a processor."""
    steps = at(root, ".ai/prompts/en/steps")
    steps.mkdir(parents=True)
    loop = "{% for a in range(99999) %}"
    (steps / "bdd.j2").write_text(f"{loop * 3}{'{% endfor %}' * 3}")

    with pytest.raises(HandoffdError):
        await (await preparation(here, root)).prompt(track_of(), "d1")


async def test_only_a_projects_own_templates_are_limited(root: str, tmp_path: Path) -> None:
    """If the shipped ones are slow, the machine is, and the limit grows."""
    ours = templates_for(root)
    at(str(tmp_path), ".ai/prompts/en").mkdir(parents=True)
    at(str(tmp_path), ".ai/prompts/en/prompt.j2").write_text("{{ step }}")
    own = templates_for(str(tmp_path))

    assert cpu_limit_s(ours, 60.0) is None
    assert 1.0 == cpu_limit_s(own, 0.0)
    assert 100.0 == cpu_limit_s(own, 2.5)


async def test_shipped_templates_work_on_a_very_slow_machine(root: str, tmp_path: Path) -> None:
    """Their compilation is slowed down, too."""
    compiled = templates_for(None).environment.cache
    assert compiled is not None
    compiled.clear()
    warmed.cache_clear()
    with slow_threads():
        async with house(tmp_path) as here:
            wanted = await preparation(here, root)
            text, _ = await wanted.prompt(track_of(), "d1")

    assert "Dispatch: d1" in text


# --- the content of a prompt, and its templates ---------------------------------------------------
RULES = build_rulebook(shipped_layers(None))


def context(root: str, step: str, facts: Facts) -> PromptContext:
    """Return the context of an attempt of `step`."""
    track = track_of(step=step)
    return prompt_context(TrackKey(root), track.with_ledger(facts=facts), "d1", RULES, "en")


@pytest.mark.parametrize(
    ("step", "failing", "expected"), [("impl", ("t::new",), "green"), ("scaffold", (), "red")]
)
def test_facts_come_from_the_journal_and_not_from_the_cleared_state(
    root: str, step: str, failing: tuple[str, ...], expected: str
) -> None:
    """impl gets scaffold's failing tests; a red step gets none: it has to write some, not to fix old ones."""
    facts = Facts(failing_tests=("t::new",), tests=TestCounts.model_validate({"pass": 3}), files=("a.py",))

    found = context(root, step, facts)

    assert (failing, expected, ("a.py",)) == (found.failing_tests, found.tests_expected, found.facts.files)


def test_a_persons_note_and_the_last_error_are_in_the_prompt(root: str) -> None:
    """The agent needs both."""
    track = track_of(step="impl", human_note="Mind the cents.", last_error="exited with code 7")

    found = prompt_context(TrackKey(root), track, "d1", RULES, "en")

    assert ("Mind the cents.", "exited with code 7") == (found.human_note, found.last_error)


def test_paths_are_expanded_and_checked(root: str) -> None:
    """Missing ones are listed."""
    found = context(root, "sdd-delta", Facts())

    assert "docs/bdd/US-001.md" in found.reads
    assert ("docs/deltas/US-001.md",) == found.writes
    assert ("PROJECT_MEMORY.md", "docs/bdd/US-001.md", "docs/sdd.md") == found.missing
    assert "SDD delta" == found.display_name


def test_an_own_template_replaces_the_shipped_one(root: str) -> None:
    """For its step only."""
    steps = Path(root, ".ai/prompts/en/steps")
    steps.mkdir(parents=True)
    (steps / "bdd.j2").write_text("Write haiku.\n")

    templates = templates_for(root)

    assert "Write haiku." in render_prompt(context(root, "bdd", Facts()), templates)
    assert "Write haiku." not in render_prompt(context(root, "impl", Facts()), templates)
