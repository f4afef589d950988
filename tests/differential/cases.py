"""The cases: project states times verbs. Each is a folder and the words of a command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.differential.folders import (
    DOCUMENTS,
    HANDOFF,
    STATUSES,
    STEPS,
    Ago,
    File,
    Folder,
    at,
    handoff,
)

ROOT = "<root>"
REASONS = (
    "constitution_violation", "needs_clarification", "nfr_missing", "scope_warning", "test_timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """`name` is unique and never changes: recordings use it. In `words` ROOT means the folder."""

    name: str
    folder: Folder
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """The verb, or its placeholder."""
        return self.words[0] if self.words else "(none)"


def cases() -> tuple[Case, ...]:
    """Return every case. Two never have one name."""
    groups = (
        _matrix(), _turns(), _handoffs(), _without_state(), _strange_states(), _stories(), _tasks(),
        _ways_back(), _gates(), _looks(), _first(), _words(), _messages(), _crashes(),
    )  # fmt: skip
    found = tuple(case for group in groups for case in group)
    assert len({case.name for case in found}) == len(found)
    return found


def _case(where: str, folder: Folder, verb: str, *words: str) -> Case:
    said = (verb, ROOT, *words)
    return Case(" ".join([verb, *words, "@", where]), folder, said)


_EVERYWHERE: tuple[tuple[str, ...], ...] = (
    ("status",), ("query",), ("check-prereqs",), ("dispatch",), ("peek",), ("approve", "looks good"),
    ("reject", "needs_clarification", "which prices?"), ("rollback", "bdd"), ("reopen", "impl"),
    ("apply-handoff",), ("post-check",),
)  # fmt: skip


def _matrix() -> Iterator[Case]:
    """Every step with every status, and every verb that looks at it."""
    for step in STEPS:
        for status in STATUSES:
            for words in _EVERYWHERE:
                folder = at(step, status)
                if words[0] == "apply-handoff":
                    folder = folder.holding(HANDOFF, handoff(step))
                yield _case(f"{step} {status}", folder, *words)


_WORKING = ("bdd", "contract", "scaffold", "impl", "verify", "update-memory", "custom")


def _turns() -> Iterator[Case]:
    """What decides a turn beside step and status."""
    for step in _WORKING:
        shapes = dict(_shapes(step))
        for name, folder in shapes.items():
            for verb in ("dispatch", "peek"):
                yield _case(f"{step} {name}", folder, verb)
    for step in STEPS[:-1]:
        reopened = at("verify", "failing", reopened_from=step, attempt=1)
        yield _case(f"verify failing, reopened from {step}", reopened, "dispatch")
    for name, folder in _shapes("review"):
        yield _case(f"review {name}", folder, "dispatch")


def _shapes(step: str) -> Iterator[tuple[str, Folder]]:
    failing, most = at(step, "failing"), {"attempt": 9, "max_attempts": 9}
    yield "failing at max", failing.having(**most)
    for reason in REASONS:
        yield f"failing {reason}", failing.having(reason=reason)
        yield f"failing {reason} at max", failing.having(reason=reason, **most)
        yield f"needs_human {reason}", at(step, "needs_human", reason=reason)
    yield "blocked by a story", at(step, "pending", blocked_by=["US-000"])
    yield "blocked by attempts", at(step, "needs_human", blocked_by=["max_attempts_exceeded"], **most)
    yield "with a note", at(step, "pending", human_note="先看價格")
    yield "passed with a note", at(step, "pass", human_note="mind the prices")
    yield "a team", at(step, "pending", agent_teams=True)
    yield "second attempt", at(step, "pending", attempt=2, failing_tests=["a", "b"])
    yield "out of time", at(step, "running", dispatched_at=Ago(500))
    yield "no limit", at(step, "running", dispatched_at=Ago(500), timeout_min=0)
    yield "running since nobody knows when", at(step, "running", dispatched_at=None)
    yield "nothing to read", replace(at(step, "pending"), files={})
    tests = {"pass": 3, "fail": 1, "skip": 0}
    yield "with tests", at(step, "pass", tests=tests, files_changed=["a.py"], failing_tests=["x"])


def _handoffs() -> Iterator[Case]:
    """What an agent may leave."""
    for step, alias in (
        ("impl", "implementation"), ("contract", "api-contract"), ("scaffold", "test-scaffolding"),
        ("update-memory", "update_memory"), ("custom", "custom"),
    ):  # fmt: skip
        for name, text, age in _left(step, alias):
            for status in ("running", "pending"):
                files = {key: file for key, file in DOCUMENTS.items() if key != HANDOFF}
                folder = replace(at(step, status), files=files)
                if text is not None:
                    folder = folder.holding(HANDOFF, text, age)
                yield _case(f"{step} {status}, {name}", folder, "apply-handoff")


def _left(step: str, alias: str) -> Iterator[tuple[str, str | None, float]]:
    counts = ("tests_pass: 5", "tests_fail: 2", "tests_skip: 1")
    fresh: dict[str, str] = {
        "passed": handoff(step, *counts[:1], "files_changed: [a.py, b.py]"),
        "failed": handoff(step, *counts, status="failing"),
        "failing tests, no status": handoff(step, *counts, status=None),
        "no status": handoff(step, status=None),
        "passed with a reason": handoff(step, "reason: scope_warning"),
        "failed with a reason": handoff(step, "reason: needs_clarification", status="failing"),
        "an unknown reason": handoff(step, "reason: the moon is full", status="failing"),
        "a person asked for": handoff(step, "reason: needs_clarification", status="needs_human"),
        "said done": handoff(step, status="done"),
        "said completed": handoff(step, status="completed"),
        "said running": handoff(step, status="running"),
        "said fine": handoff(step, status="fine"),
        "an alias": handoff(alias),
        "another step": handoff("bdd"),
        "another story": handoff(step, story="US-999"),
        "another attempt": handoff(step, "attempt: 4"),
        "this attempt": handoff(step, "attempt: 1"),
        "a list in lines": handoff(step, "files_changed:", "  - a.py", "  - b.py"),
        "null for nothing": handoff(step, "reason: null"),
        "Windows lines": handoff(step).replace("\n", "\r\n"),
        "front matter alone": f"---\nstep: {step}\nstatus: pass\n---\n",
        "old format": "# What was done\n\nall of it\n",
        "old format, unclear": "# What was done\n\nNEEDS CLARIFICATION: which prices?\n",
        "old format, constitution": "CONSTITUTION VIOLATION in a.py\n",
        "front matter that is not closed": f"---\nstep: {step}\nstatus: pass\n",
        "empty": "",
    }
    yield from ((name, text, 0) for name, text in fresh.items())
    yield "none", None, 0
    yield "stale", handoff(step), 30
    yield "a second too old", handoff(step), 2.01


_ALL: tuple[tuple[str, ...], ...] = (
    *_EVERYWHERE, ("report-error", "it crashed"), ("detect",), ("list-projects",), ("review",), ("triage",),
)  # fmt: skip


def _without_state() -> Iterator[Case]:
    """Projects that have not begun."""
    empty = Folder()
    for words in (*_ALL, ("start-story", "US-001"), ("start-custom", "tidy up"), ("init", "shop")):
        yield _case("an empty folder", empty, *words)
        yield _case("documents, no STATE.json", Folder(DOCUMENTS), *words)
        yield Case(f"{' '.join(words)} @ no folder", empty, (words[0], f"{ROOT}/gone", *words[1:]))


def _strange_states() -> Iterator[Case]:
    """STATE.json as other tools and people leave it."""
    for name, folder in _strange():
        for words in (("status",), ("query",), ("dispatch",), ("approve",), ("apply-handoff",)):
            yield _case(name, folder, *words)


def _strange() -> Iterator[tuple[str, Folder]]:
    texts = {
        "no JSON": "{nothing", "an empty STATE.json": "", "a list": "[]", "null": "null", "a number": "7",
    }  # fmt: skip
    yield from ((name, Folder(DOCUMENTS, text)) for name, text in texts.items())
    here = at("review", "needs_human")
    for word in ("passing", "done", "complete", "failed", "FAILED", "timedout", "blocked", "human", "fine"):
        yield f"status {word}", at("impl", "pending", status=word)
    changes: dict[str, dict[str, Any]] = {
        "a step of nobody": {"step": "polish"},
        "a reason of nobody": {"status": "failing", "reason": "the moon is full"},
        "a reason that passed": {"status": "pass", "reason": "scope_warning"},
        "no name": {"project": ""},
        "attempt 0": {"attempt": 0},
        "attempt -1": {"attempt": -1},
        "no attempts": {"max_attempts": 0},
        "keys of others": {"owner": "Ann", "nested": {"b": [1, 2.5, 1e-7], "2": None, "1": "ü\u2028"}},
        "a fraction of a minute": {"timeout_min": 0.5},
        "Chinese": {"project": "商店", "human_note": "先看價格"},
    }
    yield from ((name, here.having(**values)) for name, values in changes.items())
    yield "no reason key", here.lacking("reason")
    yield "few keys", here.lacking("tests", "failing_tests", "agent_teams", "reopened_from", "last_error")


def _stories() -> Iterator[Case]:
    """Starting a story, in any state of the project."""
    places = {
        "initial": at("bootstrap", "pending", timeout_min=5),
        "bootstrapped": at("bootstrap", "pass"),
        "done": at("done", "pass"),
        "in flight": at("impl", "pending"),
        "running": at("impl", "running"),
        "at the review": at("review", "needs_human"),
        "failed": at("impl", "failing"),
        "passed last step": at("update-memory", "pass"),
        "a custom task": at("custom", "pending", story="CUSTOM-1700000000000", human_note="tidy up"),
    }
    for name, folder in places.items():
        for words in (("US-001",), ("US-002",), ("US-001", "--force"), ("US-002", "--force")):
            yield _case(name, folder, "start-story", *words)
    for story in ("013", "us-7", "PROJ-12.a", "two words", "../../etc", "-x", "", "故事一", "US-\u2060003"):
        yield _case("done", at("done", "pass"), "start-story", story)
    unknown = replace(at("done", "pass"), files={})
    yield _case("done, no documents", unknown, "start-story", "US-002")


def _tasks() -> Iterator[Case]:
    """Starting a custom task."""
    places = {
        "initial": at("bootstrap", "pending"), "done": at("done", "pass"), "in flight": at("impl", "pending"),
        "running": at("impl", "running"), "at the review": at("review", "needs_human"),
        "another task": at("custom", "pending", story="CUSTOM-1700000000000", human_note="first"),
    }  # fmt: skip
    for name, folder in places.items():
        yield _case(name, folder, "start-custom", "tidy up")
    for words in (
        ("tidy up", "CLEAN-1"), ("tidy up", "CLEAN-1", "--agent-teams"), ("tidy up", "--agent-teams"),
        ("tidy up", "two words"), ("",), ("整理一下",), ("say \"hi\" & 'bye'",), ("two\nlines",),
    ):  # fmt: skip
        yield _case("done", at("done", "pass"), "start-custom", *words)


def _ways_back() -> Iterator[Case]:
    """Rolling back and reopening."""
    for target in (*STEPS, "polish", ""):
        yield _case("from verify", at("verify", "failing"), "rollback", target)
        yield _case("done", at("done", "pass"), "rollback", target)
        yield _case("done", at("done", "pass"), "reopen", target)
        yield _case("done, noted", at("done", "pass"), "reopen", target, "the total is wrong")
    for step in STEPS:
        yield _case(f"{step} needs_human", at(step, "needs_human"), "rollback", "bootstrap", "--force")
        yield _case(f"{step} failing", at(step, "failing"), "rollback", "impl")
    left = at(
        "verify", "failing", tests={"pass": 1, "fail": 1, "skip": 0}, failing_tests=["a"], lint_pass=False
    )
    yield _case("verify with results", left, "rollback", "impl")
    blocked = at("impl", "needs_human", blocked_by=["max_attempts_exceeded"], attempt=5, last_error="no")
    yield _case("impl without attempts", blocked, "rollback", "scaffold")


def _gates() -> Iterator[Case]:
    """Answers to a review."""
    here = at("review", "needs_human")
    for words in ((), ("",), ('with "quotes"',), ("價格要含稅",), ("a\u200bb",)):
        yield _case("review", here, "approve", *words)
    for reason in (*REASONS, "dislike", ""):
        yield _case("review", here, "reject", reason)
        yield _case("review, noted", here, "reject", reason, "see the delta")
    yield _case("review, a note before", here.having(human_note="old"), "approve")
    yield _case("review, a note before", here.having(human_note="old"), "reject", "scope_warning")


def _looks() -> Iterator[Case]:
    """Reads of whole projects, at every level."""
    some = {name: file for name, file in DOCUMENTS.items() if name in {"PROJECT_MEMORY.md", "package.json"}}
    quiet = {"PROJECT_MEMORY.md": File("# Memory\n\n## ISSUES\n- [x] a typo\n")}
    long = {"PROJECT_MEMORY.md": File("## NEXT\n" + "- one more thing\n" * 60 + "\n## ISSUES\n")}
    folders = {
        "level 2": at("impl", "pending"), "level 1": Folder(some), "level 0": Folder(),
        "done": at("done", "pass"),
        "no open issues": Folder(quiet), "much to do": Folder(long),
        "package.json without a name": Folder({"package.json": File("{}")}),
        "package.json that is none": Folder({"package.json": File("{")}),
    }  # fmt: skip
    for name, folder in folders.items():
        for verb in ("detect", "query", "review", "triage", "check-prereqs"):
            yield _case(name, folder, verb)
    yield _case("a workspace", _workspace(), "list-projects")
    yield _case("no projects", Folder({"notes/a.txt": File("x")}), "list-projects")


def _workspace() -> Folder:
    state = '{"project": "one", "story": "US-1", "step": "impl", "status": "running"}'
    return Folder(
        {
            "one/.ai/STATE.json": File(state),
            "two/package.json": File('{"name": "@x/two"}'),
            "three/go.mod": File("module example.org/three\n"),
            "four/setup.py": File(""),
            "broken/.ai/STATE.json": File("{"),
            "nothing/a.txt": File("x"),
            ".hidden/package.json": File("{}"),
            "file.txt": File("x"),
        }
    )


def _first() -> Iterator[Case]:
    """The first thing said about a project."""
    yield _case("STATE.json is there", at("impl", "failing"), "init", "shop")
    own = Folder({"CLAUDE.md": File("# Mine\n")})
    yield _case("CLAUDE.md is there", own, "init", "shop")
    for name in ("two words", "商店", "", 'quo"te'):
        yield _case("an empty folder", Folder(), "init", name)
    for file, text in (
        ("package.json", '{"name": "from-npm"}'), ("go.mod", "module example.org/a/from-go\n"),
        ("pyproject.toml", '[project]\nname = "from-python"\n'),
    ):  # fmt: skip
        folder = Folder({file: File(text)})
        yield _case(f"only {file}", folder, "start-story", "US-001")
        yield _case(f"only {file}", folder, "start-custom", "tidy up")


def _words() -> Iterator[Case]:
    """The command line itself."""
    here = at("impl", "pending")
    for words in ((), ("--version",), ("-v",), ("--help",), ("-h",), ("polish",), ("polish", ROOT), ("",)):
        yield Case(f"words: {' '.join(words) or '(none)'} {len(words)}", here, words)
    verbs = (*(words[0] for words in _ALL), "auto", "init", "start-story", "start-custom")
    for verb in dict.fromkeys(verbs):
        yield Case(f"{verb} without a project", here, (verb,))
        yield Case(f"{verb} with nothing more", here, (verb, ROOT))
    yield Case("status with invisible characters", here, ("status", f"{ROOT}\u2060\u200b"))
    yield Case("status with spaces", here, ("status", f"  {ROOT}  "))
    yield Case("status from below", here, ("status", f"{ROOT}/docs/.."))


_MESSAGES = (
    "status", "what is the status?", "how is the project going?", "what's next?", "tests?", "current step",
    "summary", "continue", "next", "go", "dispatch", "approve", "LGTM", "approved with thanks",
    "reject needs clarification", "reject scope too much", "reject", "start story US-007", "start US-007",
    "US-008", "list projects", "all projects", "detect", "framework?", "review", "code review", "triage",
    "reopen impl", "reopen at verify the total is wrong", "refactor the basket", "use agent teams to tidy up",
    "why is it blocked?", "CC fix the login", "Continue", "ok",
)  # fmt: skip


def _messages() -> Iterator[Case]:
    """What a chat layer passes on."""
    places = {
        "review": at("review", "needs_human"), "impl": at("impl", "pending"), "done": at("done", "pass"),
        "impl passed": at("impl", "pass"), "impl running": at("impl", "running"),
        "impl without attempts": at("impl", "failing", attempt=5), "nothing yet": Folder(DOCUMENTS),
    }  # fmt: skip
    for name, folder in places.items():
        for message in _MESSAGES:
            yield _case(name, folder, "auto", message)
    yield _case("impl, in words", at("impl", "pending"), "auto", "what", "is", "the", "status?")
    for message in ("目前狀態如何", "進度", "核准", "繼續", "開新 story US-009", "退回 不清楚"):
        yield _case("review", at("review", "needs_human"), "auto", message)


def _crashes() -> Iterator[Case]:
    """An agent's wrapper that reports a crash."""
    for status in STATUSES:
        yield _case(f"impl {status}", at("impl", status), "report-error", "no space left")
