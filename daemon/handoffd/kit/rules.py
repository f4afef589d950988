"""`probe`, `scaffold`, `append-rules`: what a project is made of, and the files in which its rules are.

A rule is a line of a list in `specs/<topic>.md`. A file that is there is only ever added to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from handoffd.engine.wording import counted
from handoffd.errors import Refused
from handoffd.kit.given import Done, Given, objects, path_of, text_of

TECH: Final = "docs/project-tech.json"
FOLDER: Final = "specs"
UPDATES: Final = "updates.json"
SEEDS: Final[dict[str, tuple[str, str]]] = {
    "naming": ("Naming", "How modules, functions, branches and commits are named."),
    "files": ("Files", "Where what belongs, and how large a file may become."),
    "architecture": ("Architecture", "What may depend on what, and which decisions hold."),
    "performance": ("Performance", "What must be fast, and how fast."),
    "quality": ("Quality", "What is tested, and what a review looks at."),
}
"""By topic: the heading of its file, and what its rules are about."""
_TOPIC: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_RULE: Final = re.compile(r"^[-*] +(.+)$", re.MULTILINE)
_LONGEST: Final = 2_000


def probe(given: Given) -> Done:
    """Say whether the project was described before; a description that is not JSON does not count."""
    text = given.text(TECH)
    try:
        known = text is not None and isinstance(json.loads(text), dict)
    except ValueError:
        known = False
    summary = f"{TECH} is there." if known else f"There is no usable {TECH}."
    return Done(outcome="initialised" if known else "fresh", summary=summary)


# --- the files ----------------------------------------------------------------------------------------
def scaffold(given: Given) -> Done:
    """Lay out a file for each topic that has none; count the rules that there are."""
    folder = path_of(given.words["folder"], "FOLDER", "")
    writes, rules = {}, 0
    for topic, (heading, about) in SEEDS.items():
        path = f"{folder}/{topic}.md"
        text = given.text(path)
        if text is None:
            writes[path] = f"# {heading}\n\n{about}\n".encode()
        else:
            rules += len(_RULE.findall(text))
    fields = {"count": rules, "made": len(writes)}
    summary = f"{counted(len(writes), 'file')} made; {counted(rules, 'rule')} there."
    return Done(fields=fields, summary=summary, writes=writes)


# --- new rules ----------------------------------------------------------------------------------------
def append_rules(given: Given) -> Done:
    """Add the rules that a person approved or wrote, each once."""
    by_topic: dict[str, list[str]] = {}
    for topic, text in (*_learned(given), *_answered(given)):
        by_topic.setdefault(topic, []).append(_line(text))
    writes, added, known = {}, 0, 0
    for topic, rules in sorted(by_topic.items()):
        path = f"{FOLDER}/{topic}.md"
        before = given.text(path) or _head(topic)
        there = {_plain(one) for one in _RULE.findall(before)} if given.words.get("dedupe") else set()
        new = list(_unknown(rules, there))
        known += len(rules) - len(new)
        added += len(new)
        if new:
            lines = "".join(f"- {one}\n" for one in new)
            gap = "" if before.endswith("\n\n") or _RULE.search(before.rstrip().rpartition("\n")[2]) else "\n"
            writes[path] = f"{before.rstrip(chr(10))}\n{gap}{lines}".encode()
    summary = f"{counted(added, 'rule')} added, {known} were there."
    return Done(fields={"added": added, "known": known}, summary=summary, writes=writes)


def _learned(given: Given) -> Iterator[tuple[str, str]]:
    """Yield what was learned, if a person approved it: all of it, or what the answer names."""
    files = [file for _, file in given.board.named(UPDATES)]
    if not files:
        return
    answer = given.answers.get("approve")
    if answer is None or answer.choice != "apply":
        raise Refused("no person approved these rules")
    file = files[-1]
    for at, row in enumerate(objects(given.board.json(file), file, "learnings")):
        key = f"learnings[{at}]"
        topic = text_of(row, "topic", file, key)
        if _TOPIC.fullmatch(topic) is None:
            raise Refused(f"{file}: {key}.topic: '{topic[:80]}' cannot name a file")
        if not answer.words or row.get("id") in answer.words:
            yield topic, text_of(row, "text", file, key)


def _answered(given: Given) -> Iterator[tuple[str, str]]:
    """Yield the rules that a person wrote as answers: a question for each topic, a line for each rule."""
    for entry in given.board.entries:
        if entry.item in SEEDS and entry.outcome == "answered" and entry.text:
            for line in _lines(entry.text):
                yield entry.item, line


def _lines(text: str) -> Iterable[str]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    lines = map(str, values) if isinstance(values, list) else text.splitlines()
    return [line for line in (one.strip().lstrip("-* ") for one in lines) if line]


def _line(text: str) -> str:
    """Return a rule on one line, so that it cannot begin a heading of its own."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _head(topic: str) -> str:
    heading, about = SEEDS.get(topic, (topic.replace("-", " ").capitalize(), ""))
    return f"# {heading}\n\n{about}\n" if about else f"# {heading}\n"


def _unknown(rules: Iterable[str], there: set[str]) -> Iterator[str]:
    for rule in rules:
        if _plain(rule) not in there:
            there.add(_plain(rule))
            yield rule


def _plain(rule: str) -> str:
    """Return a rule by its words alone: signs and capitals make no other rule of it."""
    return " ".join(re.findall(r"\w+", rule.casefold()))
