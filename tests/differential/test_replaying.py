"""A failing sequence for people: made short, and a script that plays it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.differential.folders import File, Folder, at
from tests.differential.replaying import script, shortest
from tests.differential.sequences import Added, Edited, Left, Played, Said, sequences

MOVES = (
    Said(("status", "<root>")),
    Said(("dispatch", "<root>")),
    Added(".ai/history.md", "- {story}\n"),
    Edited((("owner", "Ann"),)),
    Left("passed"),
    Said(("apply-handoff", "<root>")),
)


def test_only_what_a_failure_needs_remains() -> None:
    """Moves and files; the failure is still one of the former ones."""
    folder = Folder({"a": File("a"), "b": File("b")})

    def failing(sequence: Played) -> frozenset[str]:
        needed = MOVES[1] in sequence.moves and MOVES[4] in sequence.moves and "b" in sequence.folder.files
        return frozenset({"it", "more"} if needed and len(sequence.moves) > 2 else {"it"} if needed else ())

    least = shortest(Played(1, "somewhere", folder, frozenset(), MOVES), failing)

    assert ((MOVES[1], MOVES[4]), {"b"}) == (least.moves, set(least.folder.files))


def test_a_script_lays_the_project_out_and_says_the_verbs(tmp_path: Path) -> None:
    """Together with the moves of agents and people between them, for the current step."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "said $1"; [ "$1" = status ] || cat .ai/*\n')
    program.chmod(0o755)
    text = script(Played(1, "impl running", at("impl", "running"), frozenset(), MOVES)).replace(
        "sleep 3", ":"
    )

    ended = subprocess.run(
        ["/bin/sh", "-c", text],
        env={**os.environ, "P": str(program), "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert ["status", "dispatch", "apply-handoff"] == [
        line.split()[1] for line in ended.stdout.splitlines() if line.startswith("said ")
    ]
    (root,) = tmp_path.glob("*/shop")
    state = json.loads((root / ".ai/STATE.json").read_text())
    assert ("Ann", "impl", True) == (state["owner"], state["step"], state["dispatched_at"].endswith(".000Z"))
    assert "- US-001\n" == (root / ".ai/history.md").read_text()
    handed = (root / ".ai/HANDOFF.md").read_text()
    assert handed.startswith("---\nstory: US-001\nstep: impl\nattempt: 1\nstatus: pass\n")


def test_each_sequence_has_a_script() -> None:
    """Whatever is in it; a shell can read it."""
    for sequence in sequences(1, 30):
        told = script(sequence)
        subprocess.run(["/bin/sh", "-n"], input=told, text=True, check=True)
        assert sequence.name in told
