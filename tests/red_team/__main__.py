"""Plays every row of the table of threats, and prints how each went; exit code 1 if one got through.

docs/explanation/threats.md has the rows and the tests that play them. A test that this machine cannot run (an
old kernel, no namespaces) is `not tried`; one that pytest did not find or could not load is `NOT PLAYED`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/explanation/threats.md"
_COLUMNS = 3


class Threat(NamedTuple):
    """A row of the table: the attack, what keeps it off, and the test that plays it."""

    attack: str
    guard: str
    test: str
    """As pytest names it."""


def threats() -> tuple[Threat, ...]:
    """Return the rows of the page."""
    return tuple(_rows(PAGE.read_text(encoding="utf-8")))


def _rows(text: str) -> Iterator[Threat]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == _COLUMNS and cells[2].startswith("`"):
            yield Threat(cells[0], cells[1], cells[2].strip("`"))


def played(tests: Sequence[str], options: Sequence[str]) -> Mapping[str, str]:
    """Return by test how its attack ended: `held`, `GOT THROUGH`, `not tried` or `NOT PLAYED`."""
    with tempfile.TemporaryDirectory(prefix="handoffd-red-team-") as folder:
        report = Path(folder, "report.xml")
        pytest = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
        words = [*pytest, *options, *dict.fromkeys(tests)]
        subprocess.run(words, cwd=REPOSITORY, check=False, stdout=sys.stderr)
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    return {test: _outcome([case for case in cases if _is_of(case, test)]) for test in tests}


def _is_of(case: ET.Element, test: str) -> bool:
    file, _, name = test.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    return case.get("classname") == module and (not name or (case.get("name") or "").split("[")[0] == name)


def _outcome(cases: Sequence[ET.Element]) -> str:
    if any(case.find(word) is not None for case in cases for word in ("failure", "error")):
        return "GOT THROUGH"
    if not cases:
        return "NOT PLAYED"
    return "held" if any(case.find("skipped") is None for case in cases) else "not tried"


def main(options: Sequence[str]) -> int:
    """Play all rows, and print them."""
    rows = threats()
    outcomes = played([row.test for row in rows], options)
    width = max(len(row.attack) for row in rows)
    for row in rows:
        sys.stdout.write(f"{outcomes[row.test]:<11}  {row.attack:<{width}}  {row.guard}\n")
    counts = Counter(outcomes[row.test] for row in rows)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    sys.stdout.write(f"{len(rows)} attacks: {told}\n")
    return int(not counts.keys() <= {"held", "not tried"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
