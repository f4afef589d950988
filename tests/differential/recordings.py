"""Outcomes of the reference that are kept, so that the ordinary tests need neither npm nor a network.

A part of all cases, chosen by their names: a new case changes nothing about the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.differential.cases import Case

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "data" / "differential"
RESULTS = FOLDER / "results.json"
ONE_OF = 10
"""So many cases share one that is recorded."""


def is_recorded(case: Case) -> bool:
    """Return whether a case is one of those that are kept."""
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


def _compact(outcome: Json) -> str:
    return json.dumps(outcome, separators=(",", ":"))


def _file_name(verb: str) -> str:
    letters = "".join(char if char.isalpha() else "-" for char in verb).strip("-") or "none"
    return f"recorded-{letters}.json"


def write_results(cases: int, same: int, rules: Mapping[str, int], version: str) -> None:
    """Keep what the latest whole comparison found, for the documentation."""
    found = {"reference": version, "cases": cases, "same": same, "rules": dict(rules)}
    FOLDER.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def results() -> Json:
    """Return what the latest whole comparison found."""
    found: Json = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found
