"""Sequences: a project, three to six verbs, and the agents' moves between them.

A seed makes one sequence, always the same. What an agent leaves depends on the step that is in hand when it
does: so a sequence without some of its moves is still one, and a failing one can be made shorter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.differential.cases import ROOT
from tests.differential.folders import DOCUMENTS, MEMORY, File, Folder, at

FEWEST, MOST = 3, 6
SETTINGS, HISTORY = ".ai/handoffd.yaml", ".ai/history.md"


@dataclass(frozen=True, slots=True)
class Said:
    """A verb with its words; ROOT means the folder."""

    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """The verb alone."""
        return self.words[0]


@dataclass(frozen=True, slots=True)
class Left:
    """An agent leaves a hand-off for what is in hand, in one of the forms of `FORMS`."""

    form: str


@dataclass(frozen=True, slots=True)
class Added:
    """A person or tool adds to a file; `{story}` means the current story."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A tool edits values of STATE.json, as tools did before there was a journal."""

    values: tuple[tuple[str, Any], ...]


Move = Said | Left | Added | Edited


@dataclass(frozen=True, slots=True)
class Played:
    """A sequence: `place` is the first state of the project, `done` the finished stories in its files."""

    seed: int
    place: str
    folder: Folder
    done: frozenset[str]
    moves: tuple[Move, ...]

    @property
    def name(self) -> str:
        """What it is called in reports and in recordings."""
        return f"sequence {self.seed}"

    def shorter(self, moves: Sequence[Move]) -> Played:
        """Return the sequence with other moves."""
        return replace(self, moves=tuple(moves))


_COUNTS = "tests_pass: 5\ntests_fail: {fail}\ntests_skip: 1"
_HEAD = "---\nstory: {story}\nstep: {step}\n"

FORMS: Mapping[str, str] = {
    "passed": _HEAD + "attempt: {attempt}\nstatus: pass\nfiles_changed: [a.py, b.py]\n---\ndone\n",
    "passed with counts": f"{_HEAD}status: pass\n{_COUNTS.format(fail=0)}\n---\ndone\n",
    "failed": f"{_HEAD}status: failing\n{_COUNTS.format(fail=2)}\n---\nnot yet\n",
    "failing tests, no status": f"{_HEAD}{_COUNTS.format(fail=2)}\n---\nnot yet\n",
    "no status": _HEAD + "---\nx\n",
    "failed needs_clarification": _HEAD
    + "status: failing\nreason: needs_clarification\n---\nwhich prices?\n",
    "failed constitution_violation": _HEAD + "status: failing\nreason: constitution_violation\n---\nx\n",
    "failed scope_warning": _HEAD + "status: failing\nreason: scope_warning\n---\nx\n",
    "failed nfr_missing": _HEAD + "status: failing\nreason: nfr_missing\n---\nx\n",
    "a person asked for": _HEAD + "status: needs_human\nreason: needs_clarification\n---\nx\n",
    "passed with a reason": _HEAD + "status: pass\nreason: scope_warning\n---\nx\n",
    "said done": _HEAD + "status: done\n---\nx\n",
    "said fine": _HEAD + "status: fine\n---\nx\n",
    "a list in lines": _HEAD + "status: pass\nfiles_changed:\n  - a.py\n  - b.py\n---\nx\n",
    "another step": "---\nstory: {story}\nstep: nothing\nstatus: pass\n---\nx\n",
    "another story": "---\nstory: US-999\nstep: {step}\nstatus: pass\n---\nx\n",
    "old format": "# What was done\n\nall of it\n",
    "old format, unclear": "# What was done\n\nNEEDS CLARIFICATION: which prices?\n",
    "front matter that is not closed": _HEAD + "status: pass\n",
    "empty": "",
}
"""What an agent may leave, by the names under which `cases.py` knows such hand-offs too."""

SESSION = "\n## {story}\n\n### DONE\n- {story} done\n\n### LOG\n- five tests pass\n"
_REOPENED = (
    "### Reopen — {story} → impl\n- **Date**: 2026-01-02T03:04:05.678Z\n"
    "- **From**: done → impl\n- **Note**: N/A\n"
)
_DONE_MEMORY = MEMORY + "\n## DONE\n- US-090: prices\n- [x] US-091: taxes\n"


def sequences(first: int, count: int) -> tuple[Played, ...]:
    """Return the sequences of `count` seeds, starting with `first`."""
    return tuple(sequence(seed) for seed in range(first, first + count))


def sequence(seed: int) -> Played:
    """Return the sequence of a seed."""
    chance = random.Random(seed)
    place, folder, done, kind = _start(chance)
    moves: list[Move] = []
    verbs, wanted = 0, chance.randint(FEWEST, MOST)
    while verbs < wanted:
        idiom = tuple(_idiom(chance, kind))
        kind = "anything" if chance.random() < 0.3 else _after(idiom, kind)
        said = sum(isinstance(move, Said) for move in idiom)
        if verbs + said <= MOST:
            moves += idiom
            verbs += said
    return Played(seed, place, folder, done, tuple(moves))


# --- the first state of a project -----------------------------------------------------------------
def _start(chance: random.Random) -> tuple[str, Folder, frozenset[str], str]:
    """Return a project, its name, its finished stories, and the likely next verb."""
    name, folder, kind = chance.choice(_PLACES)
    history, changed, done = chance.choice(_HISTORIES)
    preset = chance.choice(_PRESETS)
    files = {**folder.files, **{path: File(text) for path, text in changed.items()}}
    if preset is not None:
        files[SETTINGS] = File(f"preset: {preset}\n")
    told = ", ".join(part for part in (name, history, preset) if part)
    return told, replace(folder, files=files), frozenset(done), kind


_WORK = ("bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory")
_NEW = {"timeout_min": 5}
_TASK = {"story": "CUSTOM-1700000000000", "human_note": "tidy up"}
_FOREIGN = {name: file for name, file in DOCUMENTS.items() if name == "package.json"}

_PLACES: tuple[tuple[str, Folder, str], ...] = (
    *((f"{step} pending", at(step, "pending"), "turn") for step in _WORK),
    ("custom pending", at("custom", "pending", **_TASK), "turn"),
    *((f"{step} running", at(step, "running"), "hand-off") for step in ("bdd", "contract", "impl", "verify")),
    *((f"{step} pass", at(step, "pass"), "turn") for step in ("contract", "impl", "verify", "update-memory")),
    *((f"{step} failing", at(step, "failing"), "turn") for step in ("scaffold", "impl", "verify")),
    ("impl failing at max", at("impl", "failing", attempt=5), "turn"),
    ("review needs_human", at("review", "needs_human"), "gate"),
    ("review needs_human", at("review", "needs_human", human_note="old"), "gate"),
    ("done", at("done", "pass"), "end"),
    ("done", at("done", "pass"), "end"),
    ("reopened at impl", at("impl", "pending", reopened_from="impl"), "turn"),
    ("verify running, reopened", at("verify", "running", reopened_from="verify"), "hand-off"),
    ("blocked", at("bdd", "pending", blocked_by=["US-000"]), "turn"),
    ("initialised", at("bootstrap", "pending", **_NEW), "begin"),
    ("initialised, no documents", replace(at("bootstrap", "pending", **_NEW), files={}), "begin"),
    ("an empty folder", Folder(), "begin"),
    ("only package.json", Folder(_FOREIGN), "begin"),
    ("documents, no STATE.json", Folder(DOCUMENTS), "begin"),
)  # fmt: skip

_STATE_OF_ITS_OWN = '{"project": "shop", "story": "US-090", "step": "done", "status": "pass"}\n'
_HISTORIES: tuple[tuple[str, Mapping[str, str], tuple[str, ...]], ...] = (
    ("", {}, ()),
    ("", {}, ()),
    ("with a session", {HISTORY: "# History\n" + SESSION.format(story="US-090")}, ("US-090",)),
    ("with three reopenings", {HISTORY: "".join(_REOPENED.format(story=f"US-09{n}") for n in range(3))}, ()),
    ("with stories done", {"PROJECT_MEMORY.md": _DONE_MEMORY}, ("US-090", "US-091")),
    ("with states of stories", {".ai/states/US-090.json": _STATE_OF_ITS_OWN}, ("US-090",)),
)

_PRESETS = (None, None, None, "with-commit", "go")


# --- verbs ----------------------------------------------------------------------------------------
def _said(*words: str) -> Said:
    verb, *more = words
    return Said((verb, ROOT, *more))


def _idiom(chance: random.Random, kind: str) -> Iterator[Move]:
    """Yield a few moves that belong together."""
    if chance.random() < 0.22:
        yield _said(*chance.choice(_LOOKS))
        return
    match kind if kind in _WEIGHTS else chance.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]:
        case "turn":
            yield _said("dispatch") if chance.random() < 0.85 else _said("auto", chance.choice(_ON))
            yield from _end(chance)
        case "hand-off":
            yield from _end(chance)
        case "gate":
            yield _said(*chance.choice(_ANSWERS))
        case "end":
            yield _said(*chance.choice(_AGAIN))
        case "begin":
            yield _said(*chance.choice(_BEGINNINGS))
        case _:
            yield from _else(chance)


_WEIGHTS = {"turn": 4, "hand-off": 1, "gate": 1, "end": 1, "begin": 1, "else": 2}


def _end(chance: random.Random) -> Iterator[Move]:
    """Yield how an attempt ends."""
    if chance.random() < 0.06:
        yield _said("report-error", "no space left")
        return
    good = chance.random() < 0.6
    form = chance.choice(("passed", "passed with counts")) if good else chance.choice(tuple(FORMS))
    if good and chance.random() < 0.5:
        yield Added(HISTORY, SESSION)
        yield Added("PROJECT_MEMORY.md", "\n## DONE\n- {story}: as planned\n")
    yield Left(form)
    yield _said("apply-handoff")
    if chance.random() < 0.1:
        yield _said("apply-handoff")


def _else(chance: random.Random) -> Iterator[Move]:
    """Yield moves that are possible at any time."""
    way = chance.random()
    if way < 0.35:
        yield _said("rollback", chance.choice(_STEPS), *(("--force",) if chance.random() < 0.3 else ()))
    elif way < 0.55:
        yield _said(*chance.choice(_BEGINNINGS))
    elif way < 0.7:
        yield _said("auto", chance.choice(_MESSAGES))
    elif way < 0.8:
        yield Edited((chance.choice(_EDITS),))
        yield _said("dispatch")
    elif way < 0.9:
        yield _said("reopen", chance.choice(_STEPS))
    else:
        yield _said("report-error", "it crashed")


def _after(idiom: Sequence[Move], kind: str) -> str:
    """Return what is likely to come behind some moves."""
    verbs = [move.verb for move in idiom if isinstance(move, Said)]
    if set(verbs) <= {words[0] for words in _LOOKS}:
        return kind
    return "turn"


_STEPS = (
    "bootstrap",
    "bdd",
    "sdd-delta",
    "contract",
    "review",
    "scaffold",
    "impl",
    "verify",
    "commit",
    "update-memory",
)
_LOOKS = (
    ("status",), ("query",), ("peek",), ("check-prereqs",), ("detect",), ("post-check",), ("auto", "status"),
    ("list-projects",), ("triage",), ("review",),
)  # fmt: skip
_ON = ("continue", "next", "go")
_ANSWERS = (
    ("approve",), ("approve", "looks good"), ("approve", "looks good"), ("reject", "scope_warning"),
    ("reject", "needs_clarification", "which prices?"), ("reject", "constitution_violation"),
    ("reject", "nfr_missing"), ("auto", "approve"), ("auto", "reject scope"), ("auto", "LGTM"),
)  # fmt: skip
_AGAIN = (
    ("reopen", "impl"), ("reopen", "verify", "the total is wrong"), ("reopen", "bdd"), ("reopen", "review"),
    ("reopen", "update-memory"), ("rollback", "impl"), ("start-story", "US-001"), ("start-story", "US-002"),
    ("start-story", "US-001", "--force"), ("start-story", "US-090"), ("start-custom", "tidy up"),
    ("auto", "reopen impl"), ("dispatch",), ("auto", "start story US-007"),
)  # fmt: skip
_BEGINNINGS = (
    ("start-story", "US-001"), ("start-story", "US-002"), ("start-story", "US-002", "--force"),
    ("start-story", "US-090"), ("start-story", "US-001", "--force"), ("start-custom", "tidy up"),
    ("start-custom", "tidy up", "CLEAN-1"), ("init", "shop"), ("auto", "start story US-007"),
    ("auto", "rename the basket"),
)  # fmt: skip
_MESSAGES = (
    "status", "continue", "approve", "reject scope", "reopen verify", "start US-007", "review", "triage",
    "list projects", "framework?",
)  # fmt: skip
_EDITS: tuple[tuple[str, Any], ...] = (
    ("blocked_by", ["US-050"]), ("human_note", "mind the prices"), ("agent_teams", True), ("owner", "Ann"),
)  # fmt: skip
