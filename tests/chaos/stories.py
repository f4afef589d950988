"""Stories with their scripts and their ends, from one seed.

A story is walked once before it is played: each step draws an act for the rehearsal, whose outcome
determines the next step of the step table. The same walk yields the script of the executors and the
sequence of attempts and verbs that the journal must contain afterwards, whichever processes are killed
meanwhile. It knows the protocol, but none of the engine's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

REVIEW = "review"
NAP = "nap"
"""A step whose executor always hangs: its short time limit ends it, and a person skips it."""
DONE = "done"
FIRST = "bdd"

NEXT: Mapping[str, str] = {
    "bdd": REVIEW,
    REVIEW: "scaffold",
    "scaffold": "impl",
    "impl": "verify",
    "verify": "update-memory",
    NAP: "update-memory",
    "update-memory": DONE,
}
ON_FAIL: Mapping[str, Mapping[str | None, str]] = {
    "scaffold": {None: "scaffold", "constitution_violation": "bdd"},
    "impl": {
        None: "impl",
        "constitution_violation": "bdd",
        "needs_clarification": REVIEW,
        "scope_warning": REVIEW,
    },
    "verify": {None: "impl", "constitution_violation": "bdd"},
}
MOST_ATTEMPTS: Mapping[str, int] = {
    "bdd": 3,
    "scaffold": 2,
    "impl": 3,
    "verify": 2,
    NAP: 1,
    "update-memory": 2,
}

LOST = "lost"
"""An act of ours: the executor hangs, and its shim is killed. Costs no attempt."""
HANG = "hang"

_PASSING = (
    "pass", "pass", "pass", "pass", "pass", "slow:0.3", "slow:0.7",
    "flood:60000", "orphan", "linger", "tamper",
)  # fmt: skip
_UNHEARD = frozenset({"none", "half", "garbage", "stale", "old-format"})
"""Acts that end without an error and without a hand-off: the daemon asks again for it."""
_FAILING = ("crash", "exit:3", "none", "half", "garbage", "stale", "old-format", "fail")
_WILD = ("pass", "pass", "slow:0.2", "slow:0.6")
_MOST_DETOURS = 2
_MOST_LOST = 2
"""In a row: the fourth free repetition in a row is a person's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """The share of each outcome of an attempt; the rest passes. `odd`: the share of unusual passes."""

    lost: float = 0.06
    fail: float = 0.18
    elsewhere: float = 0.06
    asks: float = 0.03
    odd: float = 1.0
    refusals: bool = True
    """Whether the sink refuses some notices at first, and takes others twice."""


ROUGH = Odds()
"""Hardly a story goes through without something."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One dispatch that must be found, and how it must have been judged."""

    step: str
    attempt: int
    act: str
    result: str


@dataclass(frozen=True, slots=True)
class Verb:
    """What a person says when the story waits at `step`; `kind` is the journal's name of it."""

    step: str
    verb: str
    kind: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    """One story: the script of its executors, and everything that must have happened in the end.

    In a `wild` one every act passes, so that a shim may be killed at any instant: the number of repeated
    attempts is then unpredictable, but nothing else changes.
    """

    name: str
    script: Mapping[str, Sequence[str]]
    attempts: tuple[Attempt, ...]
    verbs: tuple[Verb, ...]
    wild: bool = False

    @property
    def tampers(self) -> bool:
        """Whether an executor writes STATE.json, which only handoffd may."""
        return any(attempt.act == "tamper" for attempt in self.attempts)

    def rehearsal(self) -> dict[str, list[str]]:
        """Return the script as the rehearsal reads it."""
        return {step: [HANG if act == LOST else act for act in acts] for step, acts in self.script.items()}


def rules(*, naps: bool) -> dict[str, Any]:
    """Return the step table of the projects: the shipped one, shortened; its checks cost next to nothing."""
    following = {**NEXT, "verify": NAP if naps else NEXT["verify"]}
    steps: dict[str, dict[str, Any]] = {
        step: {"next_on_pass": target, "max_visits": 50}
        for step, target in following.items()
        if step != NAP or naps
    }
    for step, routes in ON_FAIL.items():
        steps[step]["on_fail"] = {reason or "default": target for reason, target in routes.items()}
    for step, limit in MOST_ATTEMPTS.items():
        if step in steps:
            steps[step] |= {"max_attempts": limit, "timeout_min": 10}
    steps[REVIEW]["on_fail"] = {"default": "bdd", "needs_clarification": "bdd"}
    if naps:
        steps[NAP] |= {"timeout_min": 0.015, "on_fail": {"default": NAP}, "step_instruction": {"en": "Rest."}}
        steps[NAP] |= {"claude_reads": [], "claude_writes": []}
    return {"steps": steps}


def tell(name: str, chance: Random, *, naps: bool = False, wild: bool = False, odds: Odds = ROUGH) -> Story:
    """Return a story drawn from `chance`."""
    walk = _Walk(chance, odds, naps=naps, wild=wild)
    while walk.step != DONE:
        walk.on()
    return Story(
        name=name,
        script={step: tuple(acts) for step, acts in walk.script.items()},
        attempts=tuple(walk.attempts),
        verbs=tuple(walk.verbs),
        wild=wild,
    )


class _Walk:
    """The way of one story through the table, as it is drawn."""

    def __init__(self, chance: Random, odds: Odds, *, naps: bool, wild: bool) -> None:
        self._chance = chance
        self._odds = odds
        self._naps = naps
        self._wild = wild
        self._lost = 0
        """Repetitions in a row that have cost no attempt."""
        self._asking = False
        self._detours = Counter[str]()
        self.step = FIRST
        self.attempt = 1
        self.script: dict[str, list[str]] = {}
        self.attempts: list[Attempt] = []
        self.verbs: list[Verb] = []

    def on(self) -> None:
        """Go one attempt or one verb further."""
        if self.step == REVIEW:
            self._review()
        elif self.step == NAP:
            self._record(HANG, "timeout")
            self._say("skip", "skipped")
            self._enter(NEXT[NAP])
        else:
            self._work()

    def _review(self) -> None:
        if not self._wild and self._may_detour() and self._chance.random() < 0.15 * self._odds.odd:
            self._say("reject", "rejected", reason="needs_clarification", note="Say more.")
            self._enter("bdd")
        else:
            self._say("approve", "approved")
            self._enter(NEXT[REVIEW])

    def _work(self) -> None:
        draw, odds = self._chance.random(), self._odds
        fails = odds.lost + odds.fail
        leads_elsewhere = fails + odds.elsewhere
        if self._wild:
            self._pass(self._chance.choice(_WILD))
        elif draw < odds.lost and self._lost < _MOST_LOST:
            self._lost += 1
            self._record(LOST, "interrupted")
        elif draw < fails:
            self._fail()
        elif draw < leads_elsewhere and self.step in ON_FAIL and self._may_detour():
            reason = self._chance.choice([reason for reason in ON_FAIL[self.step] if reason])
            self._record(f"fail:{reason}", "failing")
            self._after_failing(reason)
        elif draw < leads_elsewhere + odds.asks:
            self._record("needs_human", "needs_human")
            self._try_again()
        elif odds.odd < 1 and self._chance.random() >= odds.odd:
            self._pass("pass")
        else:
            self._pass(self._chance.choice(_PASSING))

    def _pass(self, act: str) -> None:
        self._record(act, "pass")
        following = NAP if self.step == "verify" and self._naps else NEXT[self.step]
        self._enter(following)

    def _fail(self) -> None:
        # A step that has to show failing tests fails by design, unless the tests are measured.
        acts = _FAILING[:-1] if self.step == "scaffold" else _FAILING
        act = self._chance.choice(acts)
        if act == "crash" and self._lost == 0:
            self._lost += 1
            self._record(act, "interrupted")
        elif act in _UNHEARD and not self._asking:
            self._asking = True
            self._record(act, "interrupted")
        else:
            self._record(act, "failing")
            self._after_failing(None)

    def _after_failing(self, reason: str | None) -> None:
        if self.attempt >= MOST_ATTEMPTS[self.step]:
            self._try_again()
            return
        target = ON_FAIL.get(self.step, {}).get(reason, self.step)
        if target == self.step:
            self.attempt += 1
            self._lost, self._asking = 0, False
        else:
            self._enter(target)

    def _try_again(self) -> None:
        self._say("retry", "retried")
        self._enter(self.step)

    def _enter(self, step: str) -> None:
        self.step, self.attempt, self._lost, self._asking = step, 1, 0, False

    def _may_detour(self) -> bool:
        self._detours[self.step] += 1
        return self._detours[self.step] <= _MOST_DETOURS

    def _record(self, act: str, result: str) -> None:
        self.script.setdefault(self.step, []).append(act)
        self.attempts.append(Attempt(self.step, self.attempt, act, result))

    def _say(self, verb: str, kind: str, **arguments: str) -> None:
        self.verbs.append(Verb(self.step, verb, kind, arguments))
