"""The phrases that read like a translation, what to write instead, and how many of each are left.

The old ones are counted in `tests/data/phrases.json`, by folder. A number there can only fall:
`python -m tests.support.phrases` (`make phrases`) writes lower numbers and never a higher one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / "tests" / "data" / "phrases.json"

_BE: Final = r"(?:is|are|was|were|be|been|being)"
_NOUN: Final = r"(?!longer|more|less|later|earlier|sooner|fewer|further|different|better|worse)\w+"
PHRASES: Final[Mapping[str, tuple[str, str]]] = {
    "be no": (rf"(?<!there )(?:is|are|was|were) no {_NOUN}", "'is not a …', or 'there is no …'"),
    "be to": (r"(?:is|are|was|were) to \w+", "must, should, will"),
    "be told": (rf"{_BE} (?:\w+ )?told", "name who reports it: 'the daemon notifies', 'doctor reports'"),
    "be said": (rf"{_BE} (?:\w+ )?said", "name who says it: 'the report lists …'"),
    "by and by": (r"by and by", "later, gradually"),
    "for good": (r"for good", "permanently"),
    "gets on": (r"gets? on", "progresses"),
    "has its time": (r"ha[sd]\w* (?:its|their) time|whose time", "is due"),
    "hear of": (r"(?:hears?|heard|knows?|knew) of", "learns about, has seen"),
    "in force": (r"(?:in|into) force", "applies, in effect; 'accept the edit'"),
    "lie": (r"lies?|lying", "is in, is at, exists"),
    "looked at": (rf"{_BE} looked at", "name who checks it: 'the daemon reads …'"),
    "mend": (r"mend(?:s|ed|ing)?", "fix, repair"),
    "nobody": (r"nobody", "name the actor: 'no client', 'no process', 'the user does not'"),
    "of those": (r"of those|those (?:who|of|that|in|with|given|under)", "name the things again"),
    "once more": (r"once more", "again"),
    "says so": (r"(?:say|says|said|saying) so", "name what is said: 'reports the error'"),
    "so many": (r"so many", "name the number: 'at most N …'"),
    "somebody": (r"somebody|anybody|everybody", "name the actor: 'the user', 'an agent', 'another process'"),
    "stands": (r"stands|stood", "is; 'X means Y'; 'the status of …'"),
    "such a one": (r"such a one|such ones?", "name the thing"),
    "tell of": (r"(?:tells?|told) of", "reports, mentions"),
    "to be had": (r"(?:be|is|are|was) had", "available; 'can be read'"),
    "what became of": (r"(?:became|becomes|become) of", "the result of, the outcome of"),
    "what waits": (r"(?:what|who) waits", "name it: 'queued stories', 'the waiting task'"),
    "whoever": (r"who(?:m|so)?ever|whosoever", "name the actor: 'a client that …', 'the caller'"),
    "with what": (r"with what", "name the thing: 'with the error', 'with its files'"),
}  # fmt: skip
"""By its name in `FILE`: the pattern of a phrase, and what to write instead."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield folder and text of each file, in lower case, without line breaks and the marks around prose."""
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in ("daemon", "config", "docs", "tests"):
        files += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml", ".j2"}
        ]
    for path in sorted(set(files) - {Path(__file__).resolve()}):
        parts = path.relative_to(ROOT).parts
        if parts[:2] != ("tests", "data"):
            folder = "/".join(parts[: 3 if parts[0] == "daemon" else 1])
            yield folder, re.sub(r"[\s\"#]+", " ", path.read_text(encoding="utf-8").lower())


def occurrences() -> dict[str, dict[str, int]]:
    """Return how often each phrase occurs, by folder; zeros are left out."""
    # Without a word boundary at its beginning a pattern is searched five times as fast.
    patterns = {
        name: (re.compile(rf"(?:{found})\b"), re.compile(rf"\b(?:{found})\b"))
        for name, (found, _) in PHRASES.items()
    }
    counts: dict[str, dict[str, int]] = {}
    for folder, text in texts():
        for name, (loose, exact) in patterns.items():
            if loose.search(text) and (count := len(exact.findall(text))):
                phrases = counts.setdefault(folder, {})
                phrases[name] = phrases.get(name, 0) + count
    return {folder: dict(sorted(phrases.items())) for folder, phrases in sorted(counts.items())}


def recorded() -> dict[str, dict[str, int]]:
    """Return the counts that `FILE` allows."""
    allowed: dict[str, dict[str, int]] = json.loads(FILE.read_text(encoding="utf-8"))
    return allowed


def differences() -> Iterator[str]:
    """Yield each count that is not the recorded one, with what to do."""
    now, allowed = occurrences(), recorded()
    for folder in sorted({*now, *allowed}):
        for name, (_, instead) in PHRASES.items():
            count, limit = now.get(folder, {}).get(name, 0), allowed.get(folder, {}).get(name, 0)
            if count > limit:
                yield f"{folder}: {name!r} occurs {count} times, {limit} allowed. Write instead: {instead}"
            elif count < limit:
                yield f"{folder}: {name!r} occurs {count} times, {limit} recorded. Run: make phrases"


def lowered() -> dict[str, dict[str, int]]:
    """Return the recorded counts, lowered to what is there now."""
    now = occurrences()
    found = {
        folder: {name: min(limit, now.get(folder, {}).get(name, 0)) for name, limit in phrases.items()}
        for folder, phrases in recorded().items()
    }
    return {
        folder: {name: count for name, count in phrases.items() if count}
        for folder, phrases in found.items()
        if any(phrases.values())
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(lowered(), indent=1) + "\n", encoding="utf-8")
    sys.exit("\n".join(differences()) or None)
