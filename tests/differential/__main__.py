"""`make differential`: the reference CLI and ours over the same project states, and every difference.

python -m tests.differential [--record] [--only GLOB] [--sequences N] [--seed S] [--jobs J]

First each case of one verb, then sequences of three to six verbs, with the agents' files between them.
Installs the reference from npm once. Exits with 1 when a difference is not in `deliberate.yaml`, or something
there makes no difference any more, or says more than is so; a sequence that shows one is made as short as can
be, and written as a script that plays it again. Else the counts are written into
docs/reference/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.differential.cases import cases
from tests.differential.comparing import Compared, Difference, Judgement, deliberate, judged
from tests.differential.driving import Turn
from tests.differential.recordings import SEQUENCES, record, record_sequences, write_results
from tests.differential.reference import CACHE, VERSION, NotInstalled, installed
from tests.differential.replaying import script, shortest
from tests.differential.sequences import Played, sequences
from tests.differential.working import begin, in_sequence, of_case, of_sequence
from tests.support import generate

Json = dict[str, Any]

_SHOWN = 3
_SHRUNK = 3
"""How many failing sequences are shortened: each takes a while."""


def main(arguments: Sequence[str]) -> int:
    """Compare, tell, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write tests/data/differential anew")
    parser.add_argument("--only", default="*", metavar="GLOB", help="cases whose names match, and no report")
    parser.add_argument("--sequences", type=int, default=SEQUENCES, metavar="N", help="how many sequences")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first one's seed; no report")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="J", help="how many at once")
    options = parser.parse_args(arguments)
    chosen = tuple(case for case in cases() if fnmatchcase(case.name, options.only))
    played = tuple(
        one for one in sequences(options.seed, options.sequences) if fnmatchcase(one.name, options.only)
    )
    whole = (options.only, options.sequences, options.seed) == ("*", SEQUENCES, 1)
    try:
        cli = installed()
    except NotInstalled as error:
        sys.stderr.write(f"differential: {error}\n")
        return 2
    begun = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, begun, initializer=begin, initargs=(cli,)) as pool:
        done = dict(zip((case.name for case in chosen), pool.map(of_case, chosen, chunksize=20), strict=True))
        taken = dict(
            zip((one.name for one in played), pool.map(of_sequence, played, chunksize=2), strict=True)
        )
        if options.record and whole:
            record({name: theirs for name, (theirs, _) in done.items()}, chosen)
            record_sequences(taken)
        return _told([found for _, found in done.values()], taken, played, pool, whole=whole)


def _told(
    single: Sequence[Compared],
    taken: Mapping[str, Sequence[Turn]],
    played: Sequence[Played],
    pool: Executor,
    *,
    whole: bool,
) -> int:
    verbs = [in_sequence(turn) for found in taken.values() for turn in found]
    judgement = judged([*single, *verbs], deliberate())
    _list_counts(single, verbs, len(taken), judgement)
    _list(judgement.unexplained)
    _shrink([one for one in played if _is_unexplained(one, judgement)], pool)
    faults = judgement.broad + (judgement.idle if whole else ())
    sys.stdout.writelines(f"RULE {fault}\n" for fault in faults)
    if judgement.unexplained or faults:
        return 1
    if whole:
        same = sum(not one.differences for one in single), sum(not one.differences for one in verbs)
        write_results((len(single), len(played), len(verbs)), same, judgement.explained, VERSION)
        return generate.main([])
    return 0


def _list_counts(
    single: Sequence[Compared], verbs: Sequence[Compared], played: int, judgement: Judgement
) -> None:
    told = ((f"{len(single)} cases", single), (f"{played} sequences of {len(verbs)} verbs", verbs))
    for name, found in told:
        sys.stdout.write(f"{name}, {sum(not one.differences for one in found)} the same in both\n")
    for name, count in judgement.explained.items():
        sys.stdout.write(f"  {count:5} {name}\n")


def _list(unexplained: Sequence[Difference]) -> None:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in unexplained:
        groups[one.verb, one.at, _short(one.theirs), _short(one.ours)].append(one.case)
    for (verb, at, theirs, ours_), names in sorted(groups.items()):
        sys.stdout.write(f"UNEXPLAINED {verb} {at}: theirs {theirs}, ours {ours_}, in {len(names)} cases\n")
        for name in names[:_SHOWN]:
            sys.stdout.write(f"    {name}\n")


def _is_unexplained(sequence: Played, judgement: Judgement) -> bool:
    return any(f" #{sequence.seed}." in one.case for one in judgement.unexplained)


def _shrink(failing: Sequence[Played], pool: Executor) -> None:
    rules = deliberate()

    def unexplained(sequence: Played) -> frozenset[tuple[str, str]]:
        found = judged(map(in_sequence, pool.submit(of_sequence, sequence).result()), rules).unexplained
        return frozenset((one.verb, one.at) for one in found)

    for one in failing[:_SHRUNK]:
        least = shortest(one, unexplained)
        path = _written(least, CACHE.parent / "differential" / f"{one.name.replace(' ', '-')}.sh")
        sys.stdout.write(f"{one.name} ({one.place}), made short; to play it again: sh {path}\n")
        sys.stdout.writelines(f"    {line}\n" for line in script(least).splitlines() if line.startswith("$P"))


def _written(sequence: Played, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(sequence), encoding="utf-8")
    return path


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
