"""`make differential`: the reference CLI and ours over the same project states, and every difference.

python -m tests.differential [--record] [--only GLOB]

Installs the reference from npm once. Exits with 1 when a difference is not in `deliberate.yaml`, or
something there makes no difference any more; else writes the counts into docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.differential.cases import Case, cases
from tests.differential.comparing import Difference, Judgement, deliberate, differences, judged
from tests.differential.driving import before, ours, through
from tests.differential.recordings import record, write_results
from tests.differential.reference import VERSION, NotInstalled, driven, installed
from tests.support import generate

Json = dict[str, Any]

_SHOWN = 3


def main(arguments: Sequence[str]) -> int:
    """Compare, tell, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write tests/data/differential anew")
    parser.add_argument("--only", default="*", metavar="GLOB", help="cases whose names match, and no report")
    options = parser.parse_args(arguments)
    chosen = tuple(case for case in cases() if fnmatchcase(case.name, options.only))
    try:
        theirs = _of_reference(chosen)
    except NotInstalled as error:
        sys.stderr.write(f"differential: {error}\n")
        return 2
    found = [one for case in chosen for one in _compared(case, theirs[case.name])]
    judgement = judged(found, deliberate())
    whole = options.only == "*"
    if options.record and whole:
        record(theirs, chosen)
    return _told(len(chosen), found, judgement, whole=whole)


def _of_reference(chosen: Sequence[Case]) -> dict[str, Json]:
    with driven(installed()) as reference:
        return {case.name: through(lambda words, _: reference.run(list(words)), case) for case in chosen}


def _compared(case: Case, theirs: Json) -> list[Difference]:
    return differences(case.name, case.verb, theirs, through(ours, case), before(case.folder))


def _told(count: int, found: Sequence[Difference], judgement: Judgement, *, whole: bool) -> int:
    differing = {difference.case for difference in found}
    sys.stdout.write(f"{count} cases, {count - len(differing)} the same in both\n")
    for name, cases_ in judgement.explained.items():
        sys.stdout.write(f"  {cases_:5} {name}\n")
    _list(judgement.unexplained)
    idle = judgement.idle if whole else ()
    for name in idle:
        sys.stdout.write(f"{name} explains no difference any more\n")
    if judgement.unexplained or idle:
        return 1
    if whole:
        write_results(count, count - len(differing), judgement.explained, VERSION)
        return generate.main([])
    return 0


def _list(unexplained: Sequence[Difference]) -> None:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in unexplained:
        groups[one.verb, one.at, _short(one.theirs), _short(one.ours)].append(one.case)
    for (verb, at, theirs, ours_), names in sorted(groups.items()):
        sys.stdout.write(f"UNEXPLAINED {verb} {at}: theirs {theirs}, ours {ours_}, in {len(names)} cases\n")
        for name in names[:_SHOWN]:
            sys.stdout.write(f"    {name}\n")


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
