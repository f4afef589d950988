"""The end of a run's output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled
from tests.support.runs import run_spec

from handoffd.entrance.asking import Answer
from handoffd.entrance.place import Place
from handoffd.errors import NotFound, Refused
from handoffd.execute.runner import ring
from handoffd.mcp.tail import tail_of


def _wrote(runs_dir: Path, root: Path, text: bytes) -> None:
    run_dir = runs_dir / "d1"
    run_dir.mkdir(parents=True)
    spec = run_spec(root, "d1", "true")
    (run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
    position = os.open(run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
    output = ring.Ring(ring.open_output(spec.output, str(root)), position, 400_000, 400_000, remember=10)
    output.write(memoryview(text))
    output.close()
    (run_dir / "exit.json").write_text("{}", encoding="utf-8")


def _tail(runtime: Path, **given: Any) -> Answer:
    return tail_of(Place(config=None, environ={"HANDOFFD_RUNTIME_DIR": str(runtime)}), given)


def test_the_last_lines_are_told(control: Controlled, tmp_path: Path) -> None:
    """With the run's id, and whether there is more; no blank ones, and of a long one its beginning."""
    _wrote(control.runs_dir, tmp_path, b"one\n\ntwo\n" + b"x" * 9000 + b"\n\xff!\n")

    answer = _tail(control.runtime, run="d1", lines=3)

    assert answer.daemon
    assert ("d1", True) == (answer.json["run"], answer.json["more"])
    assert ["two", "x" * 2000 + "…", "�!"] == answer.json["lines"]
    assert not _tail(control.runtime, run="d1", lines=4).json["more"]


def test_a_flood_is_not_held_whole(control: Controlled, tmp_path: Path) -> None:
    """Only its end is looked at."""
    _wrote(control.runs_dir, tmp_path, b"first\n" + b"y\n" * 300_000 + b"last\n")

    answer = _tail(control.runtime, run="d1", lines=500)

    assert (500, "last", True) == (len(answer.json["lines"]), answer.json["lines"][-1], answer.json["more"])


def test_a_run_or_a_project_must_be_named(control: Controlled) -> None:
    """And must be there."""
    with pytest.raises(Refused):
        _tail(control.runtime)
    with pytest.raises(NotFound):
        _tail(control.runtime, run="nope")
    with pytest.raises(NotFound, match="no executor has run"):
        _tail(control.runtime, project="shop")


def test_without_a_daemon_the_file_is_read(alone: Path, tmp_path: Path) -> None:
    """Agents go on writing without one."""
    with pytest.raises(NotFound):
        _tail(alone, run="d1")
