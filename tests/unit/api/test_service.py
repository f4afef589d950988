"""The verbs and reads, below the socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import opened

from handoffd.api.service import Caller, Service
from handoffd.clock import SystemClock
from handoffd.engine.decision import Refusal
from handoffd.engine.events import Approved, ExecutorChosen, Initialised, Started
from handoffd.errors import NotFound, Refused
from handoffd.journal.journal import Journal

EVE = Caller(pid=4711, by="eve")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


def service(
    supervision: MemorySupervision, journal: Journal, *, inside: bool = False, daemon: bool = True
) -> Service:
    """Return a service, of a daemon unless told otherwise, whose callers belong to an executor or not."""
    return Service(
        supervision, journal, SystemClock(), runs_dir=Path(os.devnull).parent / "nowhere",
        stop=(lambda _: None) if daemon else None, inside=lambda _: inside,
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A folder that is not supervised yet."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    return str(folder)


# --- verbs ----------------------------------------------------------------------------------------
async def test_a_verb_reaches_the_project_and_tells_what_comes_next(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """The engine's result comes back, with the place and the next command filled in."""
    told = await service(supervision, journal).call("approve", "shop", {"note": "fine"}, EVE)

    assert [("/srv/shop", Approved(note="fine", by="eve"))] == supervision.given
    assert ("accepted", "/srv/shop") == (told["type"], told["project"])
    assert "taken; see /srv/shop" == told["caller_instruction"]
    assert "handoffd approve /srv/shop" == told["next_command"]


async def test_what_the_engine_refuses_is_an_answer(supervision: MemorySupervision, journal: Journal) -> None:
    """A refusal is a result of type error, not an exception."""
    supervision.answer = Refusal(code="WRONG_STEP", message="no gate", caller_instruction="no gate; wait")

    told = await service(supervision, journal).call("approve", "shop", {}, EVE)

    assert ("error", "WRONG_STEP", None) == (told["type"], told["code"], told["next_command"])


async def test_after_a_refusal_the_engines_own_advice_is_told(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """It knows what was asked; where the track stands says no more than before."""
    supervision.answer = Refusal(
        code="ROLLBACK_FORWARD",
        message="no",
        caller_instruction="x",
        next_command="handoffd rollback {project} bdd",
    )

    told = await service(supervision, journal).call("rollback", "shop", {"step": "impl"}, EVE)

    assert "handoffd rollback /srv/shop bdd" == told["next_command"]


async def test_start_makes_an_unknown_project_known_and_initialised(
    supervision: MemorySupervision, journal: Journal, root: str
) -> None:
    """One command is enough to begin."""
    await service(supervision, journal).call("start", root, {"story": "US-7"}, EVE)

    assert [
        (root, Initialised(project="fresh", as_published=True)),
        (
            root,
            Started(
                story="US-7",
                bootstrapped=False,
                tells_aside=True,
                heeds_begun=True,
                keeps_place=True,
                by="eve",
            ),
        ),
    ] == supervision.given


async def test_start_leaves_an_initialised_project_as_it_is(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """Only the start is given."""
    await service(supervision, journal).call("start", "shop", {"story": "US-7", "queue": True}, EVE)

    assert [
        Started(
            story="US-7",
            bootstrapped=False,
            tells_aside=True,
            heeds_begun=True,
            keeps_place=True,
            queue=True,
            by="eve",
        )
    ] == [verb for _, verb in supervision.given]


async def test_a_custom_task_gets_an_id_of_its_own(supervision: MemorySupervision, journal: Journal) -> None:
    """The text is its instruction."""
    await service(supervision, journal).call("custom", "shop", {"text": "tidy up"}, EVE)

    started = supervision.given[0][1]
    assert isinstance(started, Started)
    assert ("custom", "tidy up") == (started.task_type, started.instruction)
    assert started.story.removeprefix("CUSTOM-").isdigit()


async def test_a_custom_task_can_have_a_label(supervision: MemorySupervision, journal: Journal) -> None:
    """It is checked like a story's id: it becomes part of paths."""
    asked = service(supervision, journal)
    await asked.call("custom", "shop", {"text": "tidy up", "label": "CLEAN-1"}, EVE)

    started = supervision.given[0][1]
    assert isinstance(started, Started)
    assert "CLEAN-1" == started.story
    with pytest.raises(Refused):
        await asked.call("custom", "shop", {"text": "tidy up", "label": "../etc"}, EVE)


async def test_a_new_project_can_be_given_a_name(
    supervision: MemorySupervision, journal: Journal, root: str
) -> None:
    """Otherwise its own files say how it is called."""
    await service(supervision, journal).call("init", root, {"name": "The Shop"}, EVE)

    assert [Initialised(project="The Shop", as_published=True)] == [verb for _, verb in supervision.given]


async def test_a_name_nobody_knows_is_not_taken_for_a_path(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """`start typo US-1` must not supervise a folder called typo below the daemon's own."""
    for verb, given in (("start", {"story": "US-1"}), ("add", {}), ("init", {})):
        with pytest.raises(NotFound):
            await service(supervision, journal).call(verb, "typo", given, EVE)

    assert {"/srv/shop", "/srv/empty"} == set(supervision.projects)


async def test_init_says_what_it_wrote_and_what_is_missing(
    supervision: MemorySupervision, journal: Journal, root: str
) -> None:
    """A second init writes nothing."""
    first = await service(supervision, journal).call("init", root, {}, EVE)
    second = await service(supervision, journal).call("init", root, {}, EVE)

    assert ("initialised", root, "fresh") == (first["type"], first["project"], first["name"])
    assert [".ai/handoffd.yaml", "CLAUDE.md"] == first["created"]
    assert ["PROJECT_CONTEXT.md", "PROJECT_MEMORY.md"] == first["missing"]
    assert [] == second["created"]


async def test_init_of_what_is_no_folder_is_refused(supervision: MemorySupervision, journal: Journal) -> None:
    """Nothing is made up."""
    with pytest.raises(NotFound):
        await service(supervision, journal).call("init", "/srv/does/not/exist", {}, EVE)


async def test_init_under_a_blank_name_writes_nothing(
    supervision: MemorySupervision, journal: Journal, root: str
) -> None:
    """It is refused before the project is touched, and nobody supervises it."""
    with pytest.raises(Refused):
        await service(supervision, journal).call("init", root, {"name": "  "}, EVE)

    assert ([], True) == (os.listdir(root), root not in supervision.projects)


async def test_trust_tells_what_was_held(supervision: MemorySupervision, journal: Journal) -> None:
    """A person sees what is in force from now on."""
    supervision.held = ("test.command",)

    told = await service(supervision, journal).call("trust", "shop", {}, EVE)

    assert {"type": "trusted", "project": "/srv/shop", "trusted": ["test.command"]} == told


# --- who may --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("approve", {}), ("reject", {"reason": "scope_warning"}), ("retry", {}), ("skip", {}), ("resume", {}),
        ("reopen", {"step": "bdd"}), ("confirm", {}), ("trust", {}), ("add", {}), ("init", {}),
        ("start", {"story": "US-1", "force": True}), ("rollback", {"step": "bdd", "force": True}),
    ],
)  # fmt: skip
async def test_an_executor_cannot_open_a_gate(
    supervision: MemorySupervision, journal: Journal, verb: str, given: dict[str, object]
) -> None:
    """What is for people is refused to a process of a run, and nothing reaches the engine."""
    with pytest.raises(Refused) as caught:
        await service(supervision, journal, inside=True).call(verb, "/srv/shop", given, EVE)

    assert "INSIDE_EXECUTOR" == caught.value.code
    assert [] == supervision.given
    assert (caught.value.hint or "").startswith(f"handoffd {verb} /srv/shop")
    assert (caught.value.hint or "").endswith("  # in a terminal of your own")


async def test_an_executor_cannot_have_tests_tried(supervision: MemorySupervision, journal: Journal) -> None:
    """They run outside of what holds an executor, and are its own to write."""
    with pytest.raises(Refused) as caught:
        await service(supervision, journal, inside=True).try_tests("/srv/shop", EVE)
    told = await service(supervision, journal).try_tests("/srv/shop", EVE)

    assert ("INSIDE_EXECUTOR", "handoffd doctor /srv/shop") == (caught.value.code, caught.value.hint)
    assert ("tried", "/srv/shop", None) == (told["type"], told["project"], told["command"])


async def test_an_executor_cannot_bring_in_a_project(
    supervision: MemorySupervision, journal: Journal, root: str
) -> None:
    """Adding a folder trusts its files, so starting an unknown one is for people, too."""
    with pytest.raises(Refused) as caught:
        await service(supervision, journal, inside=True).call("start", root, {"story": "US-1"}, EVE)

    assert "INSIDE_EXECUTOR" == caught.value.code


async def test_an_executor_cannot_have_a_project_dispatched(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """That people dispatch its steps is a person's choice, as `level` and `resume` are."""
    at_level_1 = project_view("/srv/hand", track_view(), level=1)
    supervision.projects["/srv/hand"] = at_level_1
    asked = service(supervision, journal, inside=True)
    with pytest.raises(Refused) as caught:
        await asked.call("custom", "/srv/hand", {"text": "x"}, EVE)

    assert ("INSIDE_EXECUTOR", []) == (caught.value.code, supervision.given)
    assert "accepted" == (await asked.call("custom", "/srv/hand", {"text": "x", "manual": True}, EVE))["type"]


@pytest.mark.parametrize(
    ("verb", "given"),
    [("note", {"text": "x"}), ("custom", {"text": "x", "queue": True}), ("rollback", {"step": "bdd"})],
)
async def test_an_executor_may_do_what_opens_nothing(
    supervision: MemorySupervision, journal: Journal, verb: str, given: dict[str, object]
) -> None:
    """Notes and follow-up tasks are welcome from anybody."""
    await service(supervision, journal, inside=True).call(verb, "shop", given, EVE)

    assert 1 == len(supervision.given)


async def test_an_executor_cannot_stop_the_daemon(supervision: MemorySupervision, journal: Journal) -> None:
    """Nor could it end those of others with it."""
    with pytest.raises(Refused):
        await service(supervision, journal, inside=True).stop(EVE, executors=True)


async def test_only_known_executors_can_be_chosen(supervision: MemorySupervision, journal: Journal) -> None:
    """The refusal names them; an attempt that nobody could make would ask a person at night."""
    asked = service(supervision, journal)
    with pytest.raises(Refused, match=r"no executor 'cluade'; allowed: auto, claude, codex") as caught:
        await asked.call("start", "shop", {"story": "US-2", "executor": "claude,cluade"}, EVE)
    assert ("UNKNOWN_EXECUTOR", "handoffd executors") == (caught.value.code, caught.value.hint)
    await asked.call("use", "shop", {"executor": "codex,auto"}, EVE)
    assert [("/srv/shop", ExecutorChosen(executor=("codex", "auto"), by="eve"))] == supervision.given


async def test_an_executor_cannot_lift_a_limit(supervision: MemorySupervision, journal: Journal) -> None:
    """It would spend what a person has not granted."""
    with pytest.raises(Refused, match="lifting a limit is for people"):
        await service(supervision, journal, inside=True).lift_limit("claude", EVE)


async def test_without_a_daemon_there_is_nothing_to_stop(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """The verb says so."""
    with pytest.raises(NotFound):
        await service(supervision, journal, daemon=False).stop(EVE)


async def test_reload_tells_the_problems(supervision: MemorySupervision, journal: Journal) -> None:
    """Of every project."""
    supervision.projects["/srv/bad"] = project_view("/srv/bad", detail="line 3")

    assert ["/srv/bad: line 3"] == (await service(supervision, journal).reload())["problems"]


@pytest.mark.parametrize("verb", ["add", "start", "custom"])
@pytest.mark.parametrize("place", ["/", "//", "/srv/.."])
async def test_the_root_of_all_files_is_no_project(
    supervision: MemorySupervision, journal: Journal, verb: str, place: str
) -> None:
    """Its name would be empty, and whatever lies below would belong to it."""
    given = {"start": {"story": "US-1"}, "custom": {"text": "x"}}.get(verb, {})
    with pytest.raises(Refused, match="cannot be a project"):
        await service(supervision, journal).call(verb, place, given, EVE)

    assert [] == supervision.given


async def test_among_many_the_root_of_all_files_stops_no_other(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """It is told beside them, as a folder that is gone is."""
    told = await service(supervision, journal).add_many(("/", "/srv/new", "/gone/x"), EVE)

    assert ["/srv/new"] == told["added"]
    assert {"/": "BAD_ARGUMENT", "/gone/x": "NOT_FOUND"} == {
        one["project"]: one["code"] for one in told["refused"]
    }


@pytest.mark.parametrize("verb", ["start", "custom", "use"])
async def test_an_executor_that_is_not_installed_is_refused(
    supervision: MemorySupervision, journal: Journal, verb: str
) -> None:
    """At once, and naming those that are; of several, one that is there is enough."""
    given = {"start": {"story": "US-2"}, "custom": {"text": "x"}, "use": {}}[verb]
    with pytest.raises(Refused, match="codex is not installed here; installed: auto, claude") as caught:
        await service(supervision, journal).call(verb, "shop", given | {"executor": "codex"}, EVE)
    assert ("NO_EXECUTOR", "handoffd executors check codex") == (caught.value.code, caught.value.hint)
    await service(supervision, journal).call(verb, "shop", given | {"executor": "codex,claude"}, EVE)
