"""The verbs and reads, below the socket, and their answers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.support.refusals import refused
from tests.support.supervision import (
    MemoryRenewing,
    MemorySupervision,
    project_view,
    track_view,
    whereabouts,
)
from tests.unit.api.conftest import EVE, service_over

from handoffd.api.folders import after_init
from handoffd.api.outcomes import added_many, applied, post_checked, reloaded, tried
from handoffd.api.service import Caller, Service
from handoffd.api.verbs import VERBS
from handoffd.clock import SystemClock
from handoffd.engine.decision import Refusal
from handoffd.engine.events import Approved, ExecutorChosen, Initialised, Started, TestEvidence
from handoffd.engine.run import PostCheck
from handoffd.engine.views import Applied, AppliedKind, Tried
from handoffd.engine.wording import command
from handoffd.errors import NotFound, Problem, Refused
from handoffd.journal.journal import Journal
from handoffd.journal.retention import Cleaned
from handoffd.protocol.state import State, TestCounts, plain
from handoffd.settings.loading import Renewed, SettingsView

ASKED = Started(
    story="US-7", bootstrapped=False, tells_aside=True, heeds_begun=True, keeps_place=True, by="eve",
    names_story=True, heeds_words=True,
)  # fmt: skip
"""What `start US-7` of eve's gives to the engine."""


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A folder that is not supervised yet."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    return str(folder)


# --- verbs ----------------------------------------------------------------------------------------
async def test_a_verb_reaches_the_project_and_tells_what_comes_next(
    supervision: MemorySupervision, service: Service
) -> None:
    """The engine's result comes back, with the place and the next command filled in."""
    told = await service.call("approve", "shop", {"note": "fine"}, EVE)

    assert [("/srv/shop", Approved(note="fine", undoable=True, by="eve"))] == supervision.given
    assert ("accepted", "/srv/shop") == (told["type"], told["project"])
    assert "taken; see /srv/shop" == told["caller_instruction"]
    assert "handoffd gate /srv/shop" == told["next_command"]  # before it is decided, it is seen


@pytest.mark.parametrize(
    ("advice", "told"),
    [(None, None), ("handoffd rollback {project} bdd", "handoffd rollback /srv/shop bdd")],
)
async def test_a_refusal_of_the_engine_is_an_answer(
    supervision: MemorySupervision, service: Service, advice: str | None, told: str | None
) -> None:
    """Of type error, with the engine's own advice, and none by the status of the track."""
    supervision.answer = Refusal(
        code="WRONG_STEP", message="no gate", caller_instruction="x", next_command=advice
    )

    answer = await service.call("approve", "shop", {}, EVE)

    assert ("error", "WRONG_STEP", told) == (answer["type"], answer["code"], answer["next_command"])


async def test_no_refusal_leads_on_to_an_approval_of_what_nobody_has_seen(
    supervision: MemorySupervision, service: Service
) -> None:
    """It names the screen of the gate, to programs, too; so does what the next turn would do."""
    approve = "handoffd approve {project}"
    supervision.answer = Refusal(
        code="ALREADY_RUNNING",
        message="in flight",
        caller_instruction=f"next: {approve}",
        next_command=approve,
    )

    answer = await service.call("start", "shop", {"story": "US-001", "queue": True}, EVE)

    assert ("handoffd gate /srv/shop", "next: handoffd gate /srv/shop") == (
        answer["next_command"],
        answer["caller_instruction"],
    )


async def test_start_adds_and_initialises_an_unknown_project(
    supervision: MemorySupervision, service: Service, root: str
) -> None:
    """One command is enough to begin; an initialised project only gets the start."""
    await service.call("start", root, {"story": "US-7"}, EVE)
    await service.call("start", "shop", {"story": "US-7", "queue": True}, EVE)

    initialised = (root, Initialised(project="fresh", as_published=True))
    fresh = replace(ASKED, undescribed=("US-7",))
    assert [initialised, (root, fresh), ("/srv/shop", replace(ASKED, queue=True))] == supervision.given


async def test_a_start_that_goes_on_from_an_earlier_one_says_so(
    supervision: MemorySupervision, service: Service
) -> None:
    """It names the commands that begin it anew. A branch that has landed, or a refusal, gets no warning."""
    warned: list[object] = []
    for commits in (2, 0):
        supervision.where = whereabouts("/srv/shop", commits=commits)
        warned.append((await service.call("start", "shop", {"story": "US-001"}, EVE))["warnings"])
    supervision.where = whereabouts("/srv/shop")
    supervision.answer = Refusal(code="BUSY", message="no", next_command=None, caller_instruction="")

    assert "warnings" not in await service.call("start", "shop", {"story": "US-001"}, EVE)
    anew = (
        "handoffd abort /srv/shop --story US-001 && handoffd discard /srv/shop US-001"
        " && handoffd start /srv/shop US-001"
    )
    told = f"US-001 goes on from handoffd/US-001, 2 commits of an earlier start; to begin anew: {anew}"
    assert [[told], []] == warned


async def test_a_story_that_was_aborted_begins_anew_unless_it_shall_go_on(
    supervision: MemorySupervision, service: Service
) -> None:
    """The warning names the ref that keeps its work, and not its branch."""
    supervision.where = whereabouts("/srv/shop", commits=2)
    supervision.put_away = {"US-001": "refs/handoffd/US-001/discarded-1"}

    anew = await service.call("start", "shop", {"story": "US-001"}, EVE)
    on = await service.call("start", "shop", {"story": "US-001", "go_on": True}, EVE)

    look = "git -C /srv/shop log refs/handoffd/US-001/discarded-1"
    kept = "refs/handoffd/US-001/discarded-1 keeps what its aborted start did"
    assert [f"US-001 begins anew; {kept}; to look at that: {look}"] == anew["warnings"]
    (told,) = on["warnings"]
    assert "US-001 goes on from handoffd/US-001, 2 commits of an earlier start" in told


async def test_a_start_names_what_a_clone_is_without(
    supervision: MemorySupervision, service: Service
) -> None:
    """A story in a clone begins at a commit: what a person has not committed is missing there."""
    supervision.without = ("shop/cart.py", "shop/till.py")
    several = await service.call("start", "shop", {"story": "US-001"}, EVE)
    supervision.without = ("shop/cart.py",)
    one = await service.call("start", "shop", {"story": "US-001"}, EVE)

    look = "to look: git -C /srv/shop status --short"
    are = "shop/cart.py, shop/till.py are not committed, so the story begins without them"
    assert [[f"{are}; {look}"]] == [several["warnings"]]
    assert [f"shop/cart.py is not committed, so the story begins without it; {look}"] == one["warnings"]


async def test_a_custom_task_has_an_id_or_a_label(supervision: MemorySupervision, service: Service) -> None:
    """A label is checked like a story's id: it becomes part of paths."""
    await service.call("custom", "shop", {"text": "tidy up"}, EVE)
    await service.call("custom", "shop", {"text": "tidy up", "label": "CLEAN-1"}, EVE)
    with pytest.raises(Refused):
        await service.call("custom", "shop", {"text": "tidy up", "label": "../etc"}, EVE)

    numbered, labelled = (verb for _, verb in supervision.given)
    assert isinstance(numbered, Started)
    assert isinstance(labelled, Started)
    assert ("custom", "tidy up") == (numbered.task_type, numbered.instruction)
    assert (True, "CLEAN-1") == (numbered.story.removeprefix("CUSTOM-").isdigit(), labelled.story)


async def test_an_unknown_name_is_not_taken_for_a_path(
    supervision: MemorySupervision, service: Service
) -> None:
    """`start typo US-1` must not supervise a folder called typo below the daemon's own."""
    for verb, given in (("start", {"story": "US-1"}), ("add", {}), ("init", {})):
        with pytest.raises(NotFound):
            await service.call(verb, "typo", given, EVE)

    assert {"/srv/shop", "/srv/empty"} == set(supervision.projects)


async def test_init_lists_what_it_wrote_and_what_is_missing(
    supervision: MemorySupervision, service: Service, root: str
) -> None:
    """A second init writes nothing. The project gets the given name, else the one in its files."""
    first = await service.call("init", root, {"name": "The Shop"}, EVE)
    second = await service.call("init", root, {}, EVE)

    assert ("initialised", root, "The Shop") == (first["type"], first["project"], first["name"])
    assert [(root, Initialised(project="The Shop", as_published=True))] == supervision.given
    assert [".ai/handoffd.yaml", ".ai/.gitignore", "CLAUDE.md"] == first["created"]
    assert ["PROJECT_CONTEXT.md", "PROJECT_MEMORY.md"] == first["missing"]
    assert [] == second["created"]


async def test_init_trusts_the_settings_that_it_wrote_and_nothing_else(
    supervision: MemorySupervision, service: Service, root: str
) -> None:
    """The project may have been taken in without any; an init that was cut short is made good by the next."""
    first = await service.call("init", root, {}, EVE)
    await service.call("init", root, {}, EVE)

    text = Path(root, ".ai/handoffd.yaml").read_text()  # noqa: ASYNC240
    assert [(root, {".ai/handoffd.yaml": text})] * 2 == supervision.written
    Path(root, ".ai/handoffd.yaml").write_text("auto: true\n")  # noqa: ASYNC240
    await service.call("init", root, {}, EVE)
    assert 2 == len(supervision.written)
    assert f"handoffd start {root} STORY" == first["next_command"]


def test_init_leads_on_to_what_is_in_flight(supervision: MemorySupervision) -> None:
    """Another start would be refused."""
    shop = supervision.projects["/srv/shop"]
    running = replace(shop.tracks[0], story="US-1", step="bdd", next_command=None)
    waiting = replace(running, next_command="handoffd approve /srv/shop")

    assert "handoffd trust /srv/shop" == after_init(replace(shop, held=("schedule",)))
    assert "handoffd status /srv/shop" == after_init(replace(shop, tracks=(running,)))
    assert "handoffd gate /srv/shop" == after_init(replace(shop, tracks=(waiting,)))
    assert "handoffd start /srv/shop STORY" == after_init(replace(shop, tracks=()))


async def test_an_init_that_is_refused_writes_nothing(
    supervision: MemorySupervision, service: Service, root: str
) -> None:
    """Of a folder that does not exist, or under a blank name."""
    with pytest.raises(NotFound):
        await service.call("init", "/srv/does/not/exist", {}, EVE)
    with pytest.raises(Refused):
        await service.call("init", root, {"name": "  "}, EVE)

    assert ([], True) == (os.listdir(root), root not in supervision.projects)


async def test_trust_lists_the_edits_that_now_apply(supervision: MemorySupervision, service: Service) -> None:
    """For the person who trusts them."""
    supervision.held = ("test.command",)

    told = await service.call("trust", "shop", {}, EVE)

    assert {"type": "trusted", "project": "/srv/shop", "trusted": ["test.command"]} == told


@pytest.mark.parametrize(("story", "told"), [(None, "namespaces; network: on"), ("US-001", None)])
async def test_a_first_start_says_what_holds_agents(
    supervision: MemorySupervision, service: Service, story: str | None, told: str | None
) -> None:
    """Later it is in the status of the project."""
    track = track_view(story=story, status="pending", step="bdd", needs_you=False)
    supervision.projects["/srv/shop"] = project_view("/srv/shop", track, sandbox="namespaces; network: on")

    answer = await service.call("start", "/srv/shop", {"story": "US-7", "queue": True}, EVE)

    assert told == answer.get("sandbox")


# --- who may --------------------------------------------------------------------------------------
SAID: dict[str, dict[str, Any]] = {
    "reject": {"reason": "scope_warning"}, "reopen": {"step": "bdd"}, "start": {"story": "US-1"},
    "custom": {"text": "x", "queue": True}, "rollback": {"step": "bdd"}, "note": {"text": "x"},
    "level": {"level": 2}, "backlog_import": {"stories": [{"text": "x"}]}, "backlog_move": {"story": "US-1"},
    "backlog_edit": {"story": "US-1"}, "backlog_remove": {"stories": ["US-1"]},
    "backlog_auto": {"auto": "on"}, "use": {"executor": "codex"}, "discard": {"story": "US-1"},
    "budget": {"usd": 5},
}  # fmt: skip
"""What verbs need besides the project."""


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_a_process_of_a_run_gives_no_verb(
    supervision: MemorySupervision, inside: Service, verb: str
) -> None:
    """It speaks by its hand-off: nothing reaches the engine, and a person reads what to type."""
    with pytest.raises(Refused) as caught:
        await inside.call(verb, "/srv/shop", SAID.get(verb, {}), EVE)

    assert ("INSIDE_EXECUTOR", []) == (caught.value.code, supervision.given)
    named = "" if verb.startswith("flow_") else " /srv/shop"  # the id of a flow says it
    assert (caught.value.hint or "").startswith(f"handoffd {VERBS[verb].typed}{named}")
    assert (caught.value.hint or "").endswith("  # in a terminal of your own")


class Untouched:
    """A cleaner that is not asked."""

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Fail the test."""
        raise AssertionError(dry_run)


@pytest.mark.parametrize(
    ("order", "hint"),
    [
        (lambda asked: asked.reload(EVE), "handoffd reload"),
        (lambda asked: asked.gc(EVE), "handoffd gc"),
        (lambda asked: asked.add_many(("/srv/new",), EVE), "handoffd scan DIR --add"),
        (lambda asked: asked.test_notices(None, EVE), "handoffd notify test"),
        (lambda asked: asked.trust_settings(None, EVE), "handoffd trust --daemon"),
        (lambda asked: asked.trust_settings("s-1", EVE), "handoffd trust --daemon"),
        (lambda asked: asked.try_workspace("/srv/shop", "clone", EVE), "handoffd init /srv/shop"),
        (lambda asked: asked.lift_limit("claude", EVE), "handoffd limits lift claude"),
    ],
)
async def test_a_process_of_a_run_gives_no_order_to_the_daemon(
    supervision: MemorySupervision,
    journal: Journal,
    tmp_path: Path,
    order: Callable[[Service], Awaitable[object]],
    hint: str,
) -> None:
    """Nor does it see an edit that waits for a person."""
    asked = Service(
        supervision, journal, SystemClock(), runs_dir=tmp_path, stop=lambda _: None, inside=lambda _: True,
        renewing=MemoryRenewing(supervision), cleaner=Untouched(),
    )  # fmt: skip
    with pytest.raises(Refused) as caught:
        await order(asked)

    assert "INSIDE_EXECUTOR" == caught.value.code
    assert (caught.value.hint or "").startswith(hint)


async def test_an_executor_cannot_have_tests_tried(service: Service, inside: Service) -> None:
    """They run outside an executor's limits, and it can write them itself."""
    with pytest.raises(Refused) as caught:
        await inside.try_tests("/srv/shop", EVE)
    told = await service.try_tests("/srv/shop", EVE)

    assert ("INSIDE_EXECUTOR", "handoffd doctor /srv/shop") == (caught.value.code, caught.value.hint)
    assert ("/srv/shop", None) == (told.project, told.command)


async def test_over_tcp_no_project_is_dispatched(
    supervision: MemorySupervision, service: Service, root: str
) -> None:
    """Adding one trusts its files, and whether the daemon dispatches its steps is a person's choice."""
    by_hand, stranger = "/srv/hand", Caller(pid=None, by="api")
    supervision.projects[by_hand] = project_view(by_hand, track_view(), level=1)
    for project in (root, by_hand):
        with pytest.raises(Refused) as caught:
            await service.call("custom", project, {"text": "x"}, stranger)
        assert ("NOT_OVER_TCP", []) == (caught.value.code, supervision.given)

    given = {"text": "x", "manual": True}
    assert "accepted" == (await service.call("custom", by_hand, given, stranger))["type"]


@pytest.mark.parametrize(
    ("verb", "given", "refused"),
    [
        ("note", {"text": "x"}, False), ("custom", {"text": "x", "queue": True}, False),
        ("rollback", {"step": "bdd"}, False), ("rollback", {"step": "bdd", "force": True}, True),
        ("start", {"story": "US-1", "force": True}, True), ("approve", {}, True), ("trust", {}, True),
    ],
)  # fmt: skip
async def test_over_tcp_a_stranger_does_what_opens_nothing(
    supervision: MemorySupervision, service: Service, verb: str, given: dict[str, object], refused: bool
) -> None:
    """A client with the token may leave notes and follow-up tasks."""
    try:
        await service.call(verb, "shop", given, Caller(pid=None, by="api"))
        code = None
    except Refused as error:
        code = error.code

    assert ("NOT_OVER_TCP", 0) == (code, len(supervision.given)) if refused else len(supervision.given) == 1


async def test_an_executor_can_neither_stop_the_daemon_nor_lift_a_limit(
    supervision: MemorySupervision, journal: Journal, inside: Service
) -> None:
    """It would end other executors, or spend what no person granted. No one can stop a missing daemon."""
    with pytest.raises(NotFound):
        await service_over(supervision, journal, daemon=False).stop(EVE)
    with pytest.raises(Refused):
        await inside.stop(EVE, executors=True)
    with pytest.raises(Refused, match="lifting a limit is for people"):
        await inside.lift_limit("claude", EVE)


async def test_only_known_executors_can_be_chosen(supervision: MemorySupervision, service: Service) -> None:
    """The refusal names them; a wrong name would else wake a person at night."""
    with refused(
        "UNKNOWN_EXECUTOR", "handoffd executors", match=r"no executor 'cluade'; allowed: auto, claude, codex"
    ):
        await service.call("start", "shop", {"story": "US-2", "executor": "claude,cluade"}, EVE)
    await service.call("use", "shop", {"executor": "codex,auto"}, EVE)
    assert [("/srv/shop", ExecutorChosen(executor=("codex", "auto"), by="eve"))] == supervision.given


@pytest.mark.parametrize("verb", ["add", "start", "custom"])
@pytest.mark.parametrize("place", ["/", "//", "/srv/.."])
async def test_the_root_of_all_files_cannot_be_a_project(
    supervision: MemorySupervision, service: Service, verb: str, place: str
) -> None:
    """Its name would be empty, and everything would belong to it."""
    given = {"start": {"story": "US-1"}, "custom": {"text": "x"}}.get(verb, {})
    with pytest.raises(Refused, match="cannot be a project"):
        await service.call(verb, place, given, EVE)

    assert [] == supervision.given


async def test_among_many_the_root_of_all_files_stops_no_other(service: Service) -> None:
    """The answer lists it beside them, as it does a missing folder."""
    told = await service.add_many(("/", "/srv/new", "/gone/x"), EVE)

    assert ["/srv/new"] == told.added
    assert {"/": "BAD_ARGUMENT", "/gone/x": "NOT_FOUND"} == {one.project: one.code for one in told.refused}


@pytest.mark.parametrize("verb", ["start", "custom", "use"])
async def test_an_executor_that_is_not_installed_is_refused(service: Service, verb: str) -> None:
    """At once; the refusal names the installed ones, and of several one is enough."""
    given = {"start": {"story": "US-2"}, "custom": {"text": "x"}, "use": {}}[verb]
    with refused(
        "NO_EXECUTOR",
        "handoffd executors check codex",
        match="codex is not installed here; installed: auto, claude",
    ):
        await service.call(verb, "shop", given | {"executor": "codex"}, EVE)
    await service.call(verb, "shop", given | {"executor": "codex,claude"}, EVE)


# --- answers to people and programs that do steps themselves -----------------------------------------
STATE = State(project="shop", story="US-001")


@pytest.mark.parametrize("kind", get_args(AppliedKind))
def test_every_answer_says_what_to_do_next(kind: AppliedKind) -> None:
    """As a command for people, and in a sentence for programs; with the state."""
    outcome = Applied(type=kind, message="so it is", state=STATE, code="X", next_command=command("dispatch"))
    told = plain(applied(outcome, "/srv/shop", "shop"))

    assert (kind, "handoffd dispatch /srv/shop") == (told["type"], told["next_command"])
    assert told["caller_instruction"].startswith("so it is; ")
    assert told["caller_instruction"].endswith("; next: handoffd dispatch /srv/shop")
    assert ("shop", "US-001", "pending") == tuple(
        told["state"][key] for key in ("project", "story", "status")
    )
    assert ("code" in told) == (kind == "error")


def test_an_answer_may_come_before_the_checks_have_ended() -> None:
    """The attempt is not judged before."""
    told = applied(
        Applied(type="applied", message="claimed", state=STATE, checking=True), "/srv/shop", "shop"
    )

    assert told.checking
    assert "its claims are being checked" in told.caller_instruction


@pytest.mark.parametrize(
    ("ended", "passed", "message", "tail"),
    [
        ((), None, "the step has no post_check", ""),
        ((PostCheck(passed=True, code=0, tail="fine"),), True, "post_check passed", "fine"),
        ((PostCheck(passed=False, code=1, tail="x.go:3"),), False, "post_check failed", "x.go:3"),
        ((PostCheck(passed=False, signal=9),), False, "post_check failed", ""),
        ((PostCheck(passed=False, timed_out=True),), False, "post_check did not end in time", ""),
        ((PostCheck(passed=False, fault="?"),), False, "post_check could not be run: ?", ""),
        (
            (
                PostCheck(passed=True, code=0, name="a", tail="fine"),
                PostCheck(passed=False, code=2, name="b", tail="E1\nE2", line="E2"),
                PostCheck(passed=False, timed_out=True, name="c"),
            ),
            False,
            "post_check: a passed, b failed with exit code 2 (E2), c did not end in time",
            "b: failed with exit code 2\nE1\nE2\nc: did not end in time\n",
        ),
    ],
)
def test_the_result_of_a_post_check(
    ended: tuple[PostCheck, ...], passed: bool | None, message: str, tail: str
) -> None:
    """Null without one; of several, each has its end, and the failed ones their output."""
    told = post_checked("make lint", ended, "/srv/shop")

    assert (passed, message, "make lint", tail) == (told.passed, told.message, told.command, told.tail)
    assert ended == told.checks


@pytest.mark.parametrize(
    ("evidence", "passed", "tests"),
    [
        (TestEvidence(counts=TestCounts(passed=2, skipped=1)), True, {"pass": 2, "fail": 0, "skip": 1}),
        (TestEvidence(counts=TestCounts(failed=1), failing=("a",)), False, {"pass": 0, "fail": 1, "skip": 0}),
        (TestEvidence(verified=False), True, None),
        (TestEvidence(verified=False, failing=("exit code 1",)), False, None),
        (TestEvidence(timed_out=True, verified=False), None, None),
        (TestEvidence(fault="no report", verified=False), None, None),
        (None, None, None),
    ],
)
def test_the_result_of_tests_that_were_tried(
    evidence: TestEvidence | None, passed: bool | None, tests: dict[str, int] | None
) -> None:
    """Counts only if they were measured; tests that did not end have neither passed nor failed."""
    command = None if evidence is None else ("make", "test")
    told = plain(tried(Tried(command=command, path="/bin", evidence=evidence), "/srv/shop", "shop"))

    assert ("tried", "/srv/shop", passed, tests) == tuple(
        told[key] for key in ("type", "project", "passed", "tests")
    )
    assert (None if command is None else list(command)) == told["command"]


# --- answers of `reload` and of adding many projects --------------------------------------------------
PROBLEM = Problem(file="/etc/h.yaml", line=3, key="language", message="must be one", allowed=("en", "zh-TW"))


def test_reload_answers_with_settings_and_projects() -> None:
    """`problems` has the problems of both, in words."""
    view = SettingsView(file="/etc/h.yaml", problems=(PROBLEM,), restart=("control.tcp.port",))
    renewed = Renewed(settings=view, brought=2, let_go=1, problems=("/srv/shop: bad",))

    told = plain(reloaded(renewed, view.warnings))

    assert (2, 1, [str(PROBLEM), "/srv/shop: bad"]) == (told["brought"], told["let_go"], told["problems"])
    assert {
        "file": "/etc/h.yaml", "taken": False, "changed": [], "restart": ["control.tcp.port"],
        "problems": [PROBLEM.as_json()], "held": [],
    } == told["settings"]  # fmt: skip
    assert 2 == len(told["warnings"])
    assert {
        "file": "/etc/h.yaml", "line": 3, "key": "language", "message": "must be one",
        "allowed": ["en", "zh-TW"], "meant": None,
    } == PROBLEM.as_json()  # fmt: skip


def test_an_answer_lists_the_added_projects_and_the_refused_ones() -> None:
    """Under the names of the request."""
    told = plain(added_many({"/srv/a": "/srv/a", "/gone": NotFound("/gone is not a folder", hint="ls")}))

    assert ["/srv/a"] == told["added"]
    refusal = {"project": "/gone", "code": "NOT_FOUND", "message": "/gone is not a folder", "hint": "ls"}
    assert [refusal] == told["refused"]
