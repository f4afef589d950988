"""A failing sequence for people: as short as it can be, and as a script that plays it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import replace
from shlex import quote

from tests.differential.cases import ROOT
from tests.differential.folders import STATE, Ago
from tests.differential.sequences import FORMS, Added, Edited, Left, Move, Played, Said

_HEAD = """#!/bin/sh
# {name}: {place}. P is the program: orchestrator, or: node .../dist/cli.js
P=${{P:-orchestrator}}
R=$(mktemp -d)/shop
S=$R/.ai/STATE.json
mkdir -p "$R" && cd "$R" || exit 1
now() {{ date -u -d "$1 minutes ago" +%Y-%m-%dT%H:%M:%S.000Z; }}
put() {{ mkdir -p "$(dirname "$1")"; cat > "$1"; }}
said() {{ sed -n "s/^  \\"$1\\": \\"*\\([^\\",]*\\)\\"*,*$/\\1/p" "$S"; }}
filled() {{ sed "s/{{story}}/$(said story)/; s/{{step}}/$(said step)/; s/{{attempt}}/$(said attempt)/"; }}
"""


def shortest(sequence: Played, failing: Callable[[Played], frozenset[Hashable]]) -> Played:
    """Return the sequence without the moves, and files, that its failure does not need.

    `failing` returns what is wrong with a sequence: one of that has to remain.
    """
    wrong = failing(sequence)
    number = 0
    while number < len(sequence.moves):
        less = sequence.shorter(sequence.moves[:number] + sequence.moves[number + 1 :])
        if failing(less) & wrong:
            sequence = less
        else:
            number += 1
    for path in tuple(sequence.folder.files):
        files = {name: file for name, file in sequence.folder.files.items() if name != path}
        fewer = replace(sequence, folder=replace(sequence.folder, files=files))
        if failing(fewer) & wrong:
            sequence = fewer
    return sequence


def script(sequence: Played) -> str:
    """Return a shell script that lays out the project and says the verbs of a sequence."""
    lines = [_HEAD.format(name=sequence.name, place=sequence.place)]
    for path, file in sequence.folder.files.items():
        lines += [_put(path, file.text), f"touch -d '{file.age_min:g} minutes ago' {quote(path)}"]
    if isinstance(sequence.folder.state, dict):
        values = {
            key: f"@{v.minutes:g}@" if isinstance(v, Ago) else v for key, v in sequence.folder.state.items()
        }
        lines.append(_put(STATE, json.dumps(values, indent=2, ensure_ascii=False) + "\n"))
        times = {f"{value.minutes:g}" for value in sequence.folder.state.values() if isinstance(value, Ago)}
        lines += [f'sed -i "s/@{one}@/$(now {one})/" "$S"' for one in sorted(times)]
    return "\n".join([*lines, *map(_line, sequence.moves), ""])


def _line(move: Move) -> str:
    match move:
        case Said(words=words):
            said = " ".join('"$R"' if word == ROOT else quote(word) for word in words)
            return f'$P {said}; echo "exit code $?"; sleep 3'
        case Left(form=form):
            return f"filled > .ai/HANDOFF.md <<'END'\n{FORMS[form]}END"
        case Added(path=path, text=text):
            return f"filled >> {quote(path)} <<'END'\n{text}END"
        case Edited(values=values):
            new = "; ".join(f"state[{key!r}] = {value!r}" for key, value in values)
            return (
                "python3 -c 'import json, sys; path = sys.argv[1]; state = json.load(open(path)); "
                f'{new.replace(chr(39), chr(34))}; json.dump(state, open(path, "w"), indent=2)\' "$S"'
            )


def _put(path: str, text: str) -> str:
    return f"put {quote(path)} <<'END'\n{text}{'' if text.endswith(chr(10)) else chr(10)}END"
