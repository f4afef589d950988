"""Messages over projects in memory: what each is about, which verb it gives, and what is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.refusals import refused
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.api.conftest import EVE, service_over
from tests.unit.inspection.making import write
from tests.unit.journal.making import dispatch, record, track

from handoffd.api.chat import Messages, Progress, only_reads
from handoffd.api.places import Found, Places, Spoken
from handoffd.engine.decision import AlreadyRunning, Dispatched, Finished, Refusal
from handoffd.engine.events import (
    Aborted,
    Approved,
    ChecksFinished,
    Continued,
    Initialised,
    Noted,
    Paused,
    PromptTaken,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    Skipped,
    Started,
    TestEvidence,
    Verb,
)
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Applied
from handoffd.errors import HandoffdError, Json, NotFound, Refused
from handoffd.journal.journal import Journal
from handoffd.protocol.state import Reason, State, Status, TestCounts, plain

HERE = "/srv/shop"
SHOP = Spoken(project="shop")


def supervised(*roots: str, **track: Any) -> MemorySupervision:
    """Return projects that wait at their review."""
    return MemorySupervision(*(project_view(root, track_view(**track)) for root in roots))


async def answered(
    supervision: MemorySupervision, journal: Journal, text: str, spoken: Spoken = SHOP, **given: Any
) -> Json:
    """Return the answer to eve's message about those projects."""
    inside = given.pop("inside", False)
    chat = Messages(service_over(supervision, journal, inside=inside))
    return plain(await chat.answer(spoken, text, EVE, **given))


@pytest.mark.parametrize(
    ("text", "verb", "action"),
    [
        ("approve: fine", Approved(note="fine", story="US-001", undoable=True, by="eve"), "approved"),
        (
            "退回 範圍：太大",
            Rejected(reason=Reason.SCOPE_WARNING, note="太大", story="US-001", by="eve"),
            "rejected",
        ),
        ("retry", Retried(by="eve"), "retried"),
        ("跳過", Skipped(by="eve"), "skipped"),
        ("abort", Aborted(by="eve"), "aborted"),
        ("今天先到這裡", Paused(by="eve"), "paused"),
        ("note: use cents", Noted(text="use cents", by="eve"), "noted"),
        ("reopen impl: sums", Reopened(step="impl", note="sums", entry=2, by="eve"), "reopened"),
        ("use whole cents", Noted(text="use whole cents", by="eve"), "noted"),
        ("approve US-001", Approved(story="US-001", undoable=True, by="eve"), "approved"),
    ],
)
async def test_a_command_is_a_verb(journal: Journal, text: str, verb: Verb, action: str) -> None:
    """With its note, its reason, its sender, and for a gate the current story."""
    supervision = supervised(HERE)

    answer = await answered(supervision, journal, text)

    assert ([(HERE, verb)], action, HERE) == (supervision.given, answer["action"], answer["project"])
    assert "accepted" == answer["result"]["type"]
    assert answer["report"]
    assert answer["caller_instruction"]


@pytest.mark.parametrize(
    ("text", "action", "key"),
    [
        ("status", "query", "next_step"),
        ("list projects", "listed", "projects"),
        ("framework", "detected", "level"),
        ("review", "review", "prompt"),
        ("審查", "review", "prompt"),
    ],
)
async def test_a_read_gives_no_verb(
    journal: Journal, tmp_path: Path, text: str, action: str, key: str
) -> None:
    """The answer has the result of the read."""
    supervision = supervised(str(tmp_path))

    answer = await answered(supervision, journal, text, Spoken(project=str(tmp_path)))

    assert ([], action) == (supervision.given, answer["action"])
    assert key in answer["result"]


async def test_the_answer_to_a_question_that_may_be_work_names_the_way_to_start_it(journal: Journal) -> None:
    """It takes one word in front."""
    answer = await answered(supervised(HERE, gate=False), journal, "can you fix the sums?")

    assert ("query", "To start work on it, type `CC, …`") == (
        answer["action"],
        answer["report"].splitlines()[-1],
    )


async def test_an_unclear_message_does_nothing(journal: Journal) -> None:
    """Away from a gate; at one it becomes a note."""
    supervision = supervised(HERE, gate=False, status="running", next_command=None)

    answer = await answered(supervision, journal, "approve the new design")

    assert ("unclear", None, []) == (answer["action"], answer["result"], supervision.given)
    assert "approve" == answer["intent"]["near"]
    assert "do not guess" in answer["caller_instruction"]


async def test_without_a_project_the_only_one_is_meant(journal: Journal) -> None:
    """Of several, the named one; else nothing is done."""
    alone, two, none = supervised(HERE), supervised(HERE, "/srv/bank"), Spoken(project=None)

    assert HERE == (await answered(alone, journal, "approve", none))["project"]
    assert "/srv/bank" == (await answered(two, journal, "bank: approve", none))["project"]
    assert "/srv/bank" == (await answered(two, journal, "approve for bank"))["project"]
    assert ["/srv/bank"] * 2 == [root for root, _ in two.given]
    asked = await answered(two, journal, "approve", none)
    assert ("error", "PROJECT_MISSING") == (asked["action"], asked["result"]["code"])
    assert "which project? There are: bank, shop" in asked["report"]
    every = await answered(two, journal, "status", none)
    assert ("query", 3) == (every["action"], len(every["report"].splitlines()))


async def test_work_that_only_sounds_like_another_project_stays_here(journal: Journal) -> None:
    """The work may be about something of that name."""
    supervision = supervised(HERE, "/srv/bank", gate=False)

    answer = await answered(supervision, journal, "add the address of bank")

    assert HERE == answer["project"]
    assert "add the address of bank" == answer["intent"]["instruction"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("approve US-009", "WRONG_STORY"), ("start a story", "STORY_MISSING"), ("reopen", "STEP_MISSING")],
)
async def test_an_incomplete_message_is_asked_back(journal: Journal, text: str, code: str) -> None:
    """Before any verb is given."""
    supervision = supervised(HERE)

    answer = await answered(supervision, journal, text)

    assert ("error", code, []) == (answer["action"], answer["result"]["code"], supervision.given)
    assert "Understood: " in answer["report"]


def two_gates() -> MemorySupervision:
    """Return a project of which two stories wait at their reviews."""
    return MemorySupervision(project_view(HERE, track_view(), track_view(track="US-002", story="US-002")))


@pytest.mark.parametrize("text", ["approve", "退回 範圍：太大"])
async def test_a_decision_that_could_be_about_several_stories_is_asked_back(
    journal: Journal, text: str
) -> None:
    """A person answers the notice that came last; which one that was is not known here."""
    supervision = two_gates()

    answer = await answered(supervision, journal, text)

    assert ("error", "AMBIGUOUS", []) == (answer["action"], answer["result"]["code"], supervision.given)
    assert answer["result"]["hint"].endswith("  # then again, with the story: US-001")


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("approve US-002", Approved(story="US-002", undoable=True, by="eve")),
        ("retry US-002", Retried(by="eve")),
    ],
)
async def test_a_command_is_for_the_story_that_it_names(journal: Journal, text: str, verb: Verb) -> None:
    """Also where another one is the project's first."""
    supervision = two_gates()

    await answered(supervision, journal, text)

    assert [(HERE, verb)] == supervision.given


async def test_a_refusal_of_the_engine_is_reported_with_the_understood_intent(journal: Journal) -> None:
    """And with a way on."""
    supervision = supervised(HERE)
    supervision.answer = Refusal(
        code="WRONG_STEP", message="bdd is not a human step", caller_instruction="no",
        next_command="handoffd status {project}",
    )  # fmt: skip

    answer = await answered(supervision, journal, "核准")

    assert ("error", "WRONG_STEP") == (answer["action"], answer["result"]["code"])
    assert ["沒有做到：現在沒有需要決定的審查", "我的理解：核准", "想再看進度請輸入「狀態」"] == answer[
        "report"
    ].splitlines()


@pytest.mark.parametrize("text", ["approve", "reject scope", "retry", "reopen impl", "continue"])
async def test_an_executor_decides_nothing(journal: Journal, text: str) -> None:
    """Its message is refused as its verb would be."""
    supervision = supervised(HERE, gate=False)
    view = supervision.projects[HERE]
    supervision.projects[HERE] = project_view(HERE, *view.tracks, paused_by="eve")

    answer = await answered(supervision, journal, text, inside=True)

    assert ("error", "INSIDE_EXECUTOR", []) == (answer["action"], answer["result"]["code"], supervision.given)


@pytest.mark.parametrize(("project", "text"), [("nope", "status"), ("/srv/nope", "continue")])
async def test_a_missing_project_is_reported(journal: Journal, project: str, text: str) -> None:
    """By its name or its folder."""
    answer = await answered(supervised(HERE), journal, text, Spoken(project=project))

    assert "NOT_FOUND" == answer["result"]["code"]


async def test_a_message_may_ask_about_any_folder(journal: Journal, tmp_path: Path) -> None:
    """Its files answer; nothing is made in it."""
    folder = tmp_path / "folder"
    folder.mkdir()

    answer = await answered(supervised(HERE), journal, "狀態", Spoken(project=str(folder)))

    assert ("query", "not_initialized") == (answer["action"], answer["result"]["status"])
    assert "這裡還沒開始過任何故事" == answer["report"].splitlines()[0]
    assert not any(folder.iterdir())


async def test_the_language_is_the_messages_own_or_a_given_one(journal: Journal) -> None:
    """There are two."""
    for text, given, language in (
        ("狀態", None, "zh-TW"),
        ("status", None, "en"),
        ("status", "zh-TW", "zh-TW"),
    ):
        answer = await answered(supervised(HERE), journal, text, language=given)
        assert language == answer["language"]
    with pytest.raises(Refused, match="allowed: en, zh-TW"):
        await answered(supervised(HERE), journal, "status", language="tlh")


def test_a_message_that_only_reads_needs_no_lock() -> None:
    """In any project; a doubtful one may become a note."""
    assert [True, True, False, False, False] == [
        only_reads(text) for text in ("status", "所有專案", "approve", "ok", "the tests on windows are slow")
    ]


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (TestEvidence(counts=TestCounts(passed=3)), "測試全過（3/3），"),
        (TestEvidence(verified=False), "測試全過（3/3）（自行回報，未經量測），"),
        (None, "測試全過（3/3）（自行回報，未經量測），"),
    ],
)
async def test_a_report_tells_measured_counts_from_claimed_ones(
    journal: Journal, tmp_path: Path, evidence: TestEvidence | None, told: str
) -> None:
    """Measured by the daemon, or claimed by the agent."""
    root = str(tmp_path)
    supervision = MemorySupervision(project_view(root, track_view(step="impl", status="running"), level=1))
    state = State(project="shop", story="US-001", step="impl", status=Status.PASS, tests=TestCounts(passed=3))
    supervision.applied = Applied(type="applied", message="it passed", state=state)
    key = TrackKey(root)
    running = track("impl", Status.RUNNING, dispatch=dispatch())
    await journal.commit(record(key=key, after=running))
    finished = ChecksFinished(dispatch="d1", tests=evidence)
    await journal.commit(record(finished, key=key, after=track("impl", Status.PASS)))
    await journal.commit(record(key=key, after=track("verify", Status.RUNNING, dispatch=dispatch("d2"))))

    answer = await answered(supervision, journal, "繼續", Spoken(project=root))

    assert told in answer["report"]


# --- starts and `continue`, at both levels ------------------------------------------------------------
@pytest.fixture
def root(tmp_path: Path) -> str:
    """A project's folder."""
    return str(tmp_path)


def progress(supervision: MemorySupervision, journal: Journal) -> Progress:
    """Return what goes on for eve."""
    return Progress(service_over(supervision, journal), EVE)


TAKEN = Dispatched(project="shop", story="US-2", step="bdd", attempt=1, dispatch="d", caller_instruction="x")
RUNNING = AlreadyRunning(step="bdd", elapsed_min=1, last_error=None, caller_instruction="wait")
FINISHED = Finished(story="US-1", summary="done", caller_instruction="x", next_story="US-2")


def at(root: str, level: Any, **track: Any) -> MemorySupervision:
    """Return a project at a level."""
    return MemorySupervision(project_view(root, track_view(**track), level=level))


async def test_at_level_2_a_start_is_all(journal: Journal, root: str) -> None:
    """The daemon dispatches by itself."""
    supervision = at(root, 2)

    action, _ = await progress(supervision, journal).start(root, "start", {"story": "US-2"})

    [(_, verb)] = supervision.given
    assert ("started", True) == (action, isinstance(verb, Started) and verb.automatic)


@pytest.mark.parametrize("known", [True, False])
async def test_below_it_the_prompt_is_taken(journal: Journal, root: str, known: bool) -> None:
    """The level stays, also in a folder that was not supervised."""
    supervision = at(root, 1) if known else MemorySupervision()

    action, result = await progress(supervision, journal).start(root, "custom", {"text": "fix it"})

    verbs = [verb for _, verb in supervision.given if not isinstance(verb, Initialised)]
    assert [Started, PromptTaken] == [type(verb) for verb in verbs]
    assert isinstance(verbs[0], Started)
    assert not verbs[0].automatic
    assert ("dispatched", "# Do bdd") == (action, result["prompt"])
    assert {"step", "attempt", "next_step", "fw_lv", "caller_instruction"} <= result.keys()


@pytest.mark.parametrize(
    ("code", "tries"), [("ALREADY_RUNNING", [False]), ("STORY_IN_PROGRESS", [False, True])]
)
async def test_a_refused_start_dispatches_nothing(
    journal: Journal, root: str, code: str, tries: list[bool]
) -> None:
    """It is queued while another story is in flight; else the refusal is the answer."""
    supervision = at(root, 1)
    supervision.answer = Refusal(code=code, message="no", caller_instruction="no")

    action, result = await progress(supervision, journal).start(root, "start", {"story": "US-2"})

    assert ("error", code) == (action, result["code"])
    assert tries == [verb.queue for _, verb in supervision.given if isinstance(verb, Started)]


async def test_continue_at_level_1_applies_the_hand_off_and_takes_the_next_step(
    journal: Journal, root: str
) -> None:
    """At once; the answer has both results."""
    supervision = at(root, 1, status="running")
    supervision.applied = replace(supervision.applied, type="applied", message="it passed")

    action, result = await progress(supervision, journal).go_on(root)

    assert ("dispatched", "it passed") == (action, result["applied"]["message"])


async def test_a_hand_off_that_cannot_be_read_is_not_passed_over(journal: Journal, root: str) -> None:
    """Nothing is dispatched behind it."""
    supervision = at(root, 1, status="running")
    supervision.applied = replace(supervision.applied, type="error", message="line 3", code="INVALID_FILE")

    assert "error" == (await progress(supervision, journal).go_on(root))[0]
    assert [] == supervision.given


@pytest.mark.parametrize(
    ("paused", "coming", "action"),
    [
        ("eve", RUNNING, "resumed"),
        (None, RUNNING, "already_running"),
        (None, TAKEN, "resumed"),
        (None, replace(FINISHED, next_story=None), "done"),
    ],
)
async def test_continue_at_level_2(
    journal: Journal, root: str, paused: str | None, coming: Any, action: str
) -> None:
    """It lifts a pause, and reports work that goes on by itself or needs a person."""
    supervision = MemorySupervision(project_view(root, track_view(), paused_by=paused))
    supervision.answer = coming

    found, _ = await progress(supervision, journal).go_on(root)

    assert action == found
    assert (action == "resumed") == ((root, Resumed(by="eve")) in supervision.given)


async def test_continue_after_a_story_starts_the_next_of_the_backlog(journal: Journal, root: str) -> None:
    """Which waits for that."""
    supervision = MemorySupervision(
        project_view(root, track_view(step="done", status="pass", backlog=("US-2",), next_story="US-2"))
    )

    assert "resumed" == (await progress(supervision, journal).go_on(root))[0]
    assert [(root, Continued(by="eve"))] == supervision.given


async def test_continue_at_level_1_starts_it_and_takes_its_prompt(journal: Journal, root: str) -> None:
    """The project's level stays."""
    supervision = at(root, 1, step="done", status="pass", backlog=("US-2",), next_story="US-2")
    supervision.handed_out = [FINISHED, TAKEN]

    action, result = await progress(supervision, journal).go_on(root)

    assert ("dispatched", "US-2") == (action, result["story"])
    assert [Continued, PromptTaken] == [type(verb) for _, verb in supervision.given][-2:]


# --- which project a message is about: named, current, around the sender, or the only one ------------
@pytest.fixture
def places(tmp_path: Path, journal: Journal) -> Places:
    """A workspace with two supervised projects, `shop` and `bank`, and the folder `legacy`."""
    for name in ("shop", "bank", "legacy"):
        write(tmp_path / name, "package.json", "{}")
    return Places(service_over(supervised(str(tmp_path / "shop"), str(tmp_path / "bank")), journal))


def about(found: Found) -> str | None:
    """Return the name of the folder that a message is about."""
    return None if found.root is None else Path(found.root).name


@pytest.mark.parametrize(
    ("text", "talked_of", "name", "supervised"),
    [
        ("status", "bank", "bank", True),
        ("open project bank", "shop", "bank", True),
        ("開啟專案 bank", "shop", "bank", True),
        ("bank: fix the sums", "shop", "bank", True),
        ("add a link to legacy", "shop", "shop", True),
        ("open legacy", "shop", "legacy", False),
        ("legacy 專案加入購物車", "shop", "legacy", False),
        ("用 CC 幫 legacy 做 code review", "shop", "legacy", False),
        ("create project legacy", "shop", "legacy", False),
    ],
)
async def test_a_message_is_about_what_it_names(
    places: Places, tmp_path: Path, text: str, talked_of: str, name: str, supervised: bool
) -> None:
    """Else about the current one; a folder beside a project has a name, too."""
    found = await places.found(text, Spoken(project=str(tmp_path / talked_of)))

    assert (name, supervised) == (about(found), found.supervised)


@pytest.mark.parametrize("text", ["open project nosuch", "繼續專案 nosuch", "nosuch 專案加入購物車"])
async def test_an_unknown_name_is_not_found(places: Places, tmp_path: Path, text: str) -> None:
    """A message for it does not reach the current project; a person makes the folder of a new one."""
    with pytest.raises(NotFound) as unknown:
        await places.found(text, Spoken(project=str(tmp_path / "shop")))

    assert ("PROJECT_UNKNOWN", "nosuch") == (unknown.value.code, unknown.value.details["given"])
    with pytest.raises(NotFound) as unknown:
        await places.found("create project nosuch", Spoken(project=str(tmp_path / "shop")))
    assert f"mkdir {tmp_path}/nosuch && handoffd init {tmp_path}/nosuch" == unknown.value.hint


@pytest.mark.parametrize("text", ["fix the sums", "CC, fix the sums", "start US-1", "init project"])
async def test_nothing_begins_where_the_sender_happens_to_be(
    places: Places, tmp_path: Path, text: str
) -> None:
    """The refusal has a command that names the folder."""
    with pytest.raises(Refused) as caught:
        await places.found(text, Spoken(here=str(tmp_path / "legacy")))

    assert "FOLDER_NOT_NAMED" == caught.value.code
    assert str(caught.value.hint).startswith(f"handoffd auto {tmp_path}/legacy ")


async def test_where_the_sender_is_can_be_asked_about(places: Places, tmp_path: Path) -> None:
    """Every message may mean a supervised project there; only `detect` means any other folder."""
    inside, beside = Spoken(here=str(tmp_path / "shop/src")), Spoken(here=str(tmp_path / "legacy"))

    assert "shop" == about(await places.found("fix the sums", inside))
    assert "legacy" == about(await places.found("status", beside))
    assert None is about(await places.found("status", Spoken(here=str(tmp_path))))
    assert tmp_path.name == about(await places.found("framework", Spoken(here=str(tmp_path))))
    assert (str(tmp_path),) == await places.bases(Spoken())  # where names are looked for
    (tmp_path / "elsewhere").mkdir()
    assert str(tmp_path / "elsewhere") == (await places.bases(Spoken(here=str(tmp_path / "elsewhere"))))[0]


async def test_projects_are_compared_by_name(places: Places, tmp_path: Path) -> None:
    """In the order of the message, and at least two."""
    found = await places.found("compare bank and legacy", Spoken(project=str(tmp_path / "shop")))
    assert (str(tmp_path / "bank"), str(tmp_path / "legacy")) == found.compared

    with pytest.raises(HandoffdError, match="which project"):
        await places.found("compare the progress of bank and nosuch", Spoken())


@pytest.mark.parametrize("text", ["legacy 專案加入購物車", "create project legacy"])
async def test_only_people_begin_with_a_new_project(places: Places, tmp_path: Path, text: str) -> None:
    """Where the caller asks for that: beginning trusts a project's settings."""
    with refused("PEOPLE_ONLY"):
        await places.found(text, Spoken(project=str(tmp_path / "shop"), supervised_only=True))
