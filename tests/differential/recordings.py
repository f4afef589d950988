"""Outcomes of the reference that are kept, so that the ordinary tests need neither npm nor a network.

A part of all cases, chosen by their names: a new case changes nothing about the others. And the first of the
sequences: of each verb, what both programs were given (a digest of it), and what the reference made of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.differential.cases import Case
from tests.differential.driving import Turn

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "data" / "differential"
RESULTS = FOLDER / "results.json"
_PLAYED = "sequences.json"
ONE_OF = 10
"""One in this number of cases is recorded."""
SEQUENCES = 240
"""How many sequences `make differential` plays."""
PLAYED = 40
"""How many of them are recorded."""


def is_recorded(case: Case) -> bool:
    """Return whether a case is recorded."""
    return int(hashlib.sha256(case.name.encode()).hexdigest(), 16) % ONE_OF == 0


def recorded() -> dict[str, Json]:
    """Return the outcomes that are kept, by the names of their cases."""
    found: dict[str, Json] = {}
    for file in sorted(FOLDER.glob("recorded-*.json")):
        found |= json.loads(file.read_text(encoding="utf-8"))
    return found


def record(outcomes: Mapping[str, Json], cases: Iterable[Case]) -> None:
    """Write the recordings anew, a file for each verb."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("recorded-*.json"):
        old.unlink()
    by_verb: dict[str, dict[str, Json]] = {}
    for case in cases:
        if is_recorded(case):
            by_verb.setdefault(_file_name(case.verb), {})[case.name] = outcomes[case.name]
    for name, kept in by_verb.items():
        lines = [f"{json.dumps(case)}: {_compact(outcome)}" for case, outcome in kept.items()]
        (FOLDER / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def record_sequences(taken: Mapping[str, Sequence[Turn]]) -> None:
    """Write the recordings of sequences anew."""
    kept = tuple(taken.items())[:PLAYED]
    lines = [
        f"{json.dumps(name)}: {_compact([[turn.given, turn.theirs] for turn in found])}"
        for name, found in kept
    ]
    (FOLDER / _PLAYED).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recorded_sequences() -> dict[str, list[tuple[str, Json]]]:
    """Return what the reference made of sequences, verb by verb, by their names."""
    found = json.loads((FOLDER / _PLAYED).read_text(encoding="utf-8"))
    return {name: [(given, outcome) for given, outcome in told] for name, told in found.items()}


class Outdated(Exception):
    """Ours has made other files of a sequence than it had when the reference was recorded."""


class Remembered:
    """The reference, as far as one sequence of it was recorded."""

    def __init__(self, told: Sequence[tuple[str, Json]]) -> None:
        self._told = told

    def answer(self, number: int, words: Sequence[str], given: str, root: Path) -> Json:
        """Return the outcome of a verb. Raises Outdated where the reference was given something else."""
        before, outcome = self._told[number]
        if before != given:
            raise Outdated(f"{' '.join(words)} has other files than the recording (RECORD=1)")
        return outcome


def _compact(outcome: object) -> str:
    return json.dumps(outcome, separators=(",", ":"))


def _file_name(verb: str) -> str:
    letters = "".join(char if char.isalpha() else "-" for char in verb).strip("-") or "none"
    return f"recorded-{letters}.json"


def write_results(
    counts: tuple[int, int, int], same: tuple[int, int], rules: Mapping[str, int], version: str
) -> None:
    """Keep what the latest whole comparison found, for the documentation.

    `counts` are of cases, of sequences and of their verbs; `same` of cases and verbs without a difference.
    """
    cases, sequences, verbs = counts
    found = {
        "reference": version, "cases": cases, "same": same[0], "sequences": sequences, "verbs": verbs,
        "same_verbs": same[1], "rules": dict(rules),
    }  # fmt: skip
    FOLDER.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def results() -> Json:
    """Return what the latest whole comparison found."""
    found: Json = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found
