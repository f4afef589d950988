"""`merge` and `spec-check`: requirements as one list, and whether a specification is ready.

The check counts what can be counted, in four parts of 25 points each. It judges no content: that is the
work of an agent or a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from handoffd.engine.wording import counted
from handoffd.errors import Refused
from handoffd.kit.given import Done, Given, as_json, id_of, objects, text_of

FOLDER: Final = "docs/specs"
GAPS: Final = "gaps.json"
REFINED: Final = "refined-requirements.json"
DOCUMENTS: Final = ("brief.md", "requirements.md", "architecture.md", "epics.md")
_ID: Final = re.compile(r"\b(?:REQ|NFR|ADR|EPIC|STORY|US)-\d+\b")
_REQUIREMENT: Final = re.compile(r"\b(?:REQ|NFR)-\d+\b")
_OPEN: Final = re.compile(r"\b(?:TBD|TODO|FIXME|XXX)\b|待定|待補")
_POINTS: Final = 25
_FULL_LENGTH: Final = 150
"""Words (of Chinese, characters) from which on a document is long enough."""
_WORDS: Final = re.compile(r"[\u4e00-\u9fff]|\w+")


# --- requirements -------------------------------------------------------------------------------------
def merge(given: Given) -> Done:
    """Merge the requirements of the board; what a person answered confirms what was assumed."""
    files = [file for _, file in given.board.named(GAPS)]
    if not files:
        raise Refused(f"the board has no {GAPS}")
    answer = given.answers.get("questions")
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for at, row in enumerate(objects(given.board.json(file), file, "requirements")):
            key = f"requirements[{at}]"
            text_of(row, "text", file, key)
            # The later one counts: it was written with the answers at hand.
            found[id_of(row, file, key)] = {"source": "the idea", **row, "assumed": bool(row.get("assumed"))}
    rows = list(found.values())
    if answer is not None and answer.choice == "answered" and answer.text:
        text = " ".join(answer.text.split())
        rows.append({"id": "ANSWER", "text": text, "source": "the answer of a person", "assumed": False})
    assumed = sum(row["assumed"] for row in rows)
    summary = f"{counted(len(rows), 'requirement')}, {assumed} of them assumed."
    fields = {"requirements": len(rows), "assumed": assumed}
    return Done(fields=fields, summary=summary, out={REFINED: as_json({"requirements": rows})})


# --- readiness ----------------------------------------------------------------------------------------
def spec_check(given: Given) -> Done:
    """Rate the documents of a specification from 0 to 100."""
    texts = {name: given.text(f"{FOLDER}/{name}") or "" for name in DOCUMENTS}
    parts = {
        "completeness": _completeness(texts),
        "consistency": _consistency(texts),
        "traceability": _traceability(texts),
        "depth": _depth(texts),
    }
    score = round(sum(share for share, _ in parts.values()) * _POINTS, 2)
    lines = [f"{score:g} of 100."]
    lines += [f"{name}: {share * _POINTS:.3g} of {_POINTS}. {why}" for name, (share, why) in parts.items()]
    numbers = {name: round(share * 100, 2) for name, (share, _) in parts.items()}
    return Done(fields={"score": score, **numbers}, summary="\n".join(line.rstrip() for line in lines))


_Rated = tuple[float, str]
"""A share from 0 to 1, and what is missing."""


def _completeness(texts: Mapping[str, str]) -> _Rated:
    missing = [name for name, text in texts.items() if not text.strip()]
    opened = [name for name, text in texts.items() if _OPEN.search(text)]
    share = (len(texts) - len(missing) - 0.5 * len(opened)) / len(texts)
    said = [f"Missing: {', '.join(missing)}."] if missing else []
    said += [f"With open places: {', '.join(opened)}."] if opened else []
    return max(share, 0.0), " ".join(said)


def _consistency(texts: Mapping[str, str]) -> _Rated:
    """Every id that a document refers to is the id of a heading or of a line's beginning."""
    used = {one for text in texts.values() for one in _ID.findall(text)}
    known = {one for text in texts.values() for one in _defined(text)}
    lost = sorted(used - known)
    if not used:
        return 0.0, "No ids such as REQ-1 are used."
    return 1 - len(lost) / len(used), f"Not defined: {', '.join(lost[:10])}." if lost else ""


def _defined(text: str) -> set[str]:
    lines = (re.sub(r"^[\s#>*|\-+.\d\[\]_]+", "", line) for line in text.splitlines())
    return {found[0] for line in lines if (found := _ID.match(line))}


def _traceability(texts: Mapping[str, str]) -> _Rated:
    """Every requirement is named in the architecture or the epics."""
    wanted = set(_REQUIREMENT.findall(texts["requirements.md"]))
    followed = set(_REQUIREMENT.findall(texts["architecture.md"] + texts["epics.md"]))
    lost = sorted(wanted - followed)
    if not wanted:
        return 0.0, "There are no requirements with ids."
    return 1 - len(lost) / len(wanted), f"Not followed up: {', '.join(lost[:10])}." if lost else ""


def _depth(texts: Mapping[str, str]) -> _Rated:
    lengths = {name: len(_WORDS.findall(text)) for name, text in texts.items()}
    short = [name for name, length in lengths.items() if length < _FULL_LENGTH]
    share = sum(min(length / _FULL_LENGTH, 1.0) for length in lengths.values()) / len(lengths)
    return share, f"Short: {', '.join(short)}." if short else ""
