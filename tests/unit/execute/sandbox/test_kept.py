"""A shim's work is the same with a sandbox around its program: ends, stops, deadlines, leftovers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually_sync
from tests.support.runs import processes, run_spec, script
from tests.support.sandboxes import require_namespaces
from tests.unit.execute.runner.test_shim import begin, claim_of, finish, run

from handoffd.execute.base import Rung, StartRecord
from handoffd.execute.runner import proc, records
from handoffd.execute.sandbox.plan import Plan

pytestmark = pytest.mark.usefixtures("namespaces")

LADDER = (Rung(signal="INT", grace_s=1), Rung(signal="TERM", grace_s=1))


@pytest.fixture
def namespaces() -> None:
    """Skip the test where no sandbox can be made."""
    require_namespaces()


@pytest.fixture
def root(root: Path) -> Path:
    """A workspace whose output folder, too, is in it."""
    (root / ".ai").mkdir()
    return root


def plan(root: Path, level: str = "auto") -> Plan:
    """Return a sandbox that shows the scripts of tests."""
    shown = [str(Path(word).parents[1]) for word in script("listener") if word.startswith("/")]
    return Plan.from_raw({"level": level, "network": "on", "workspace": str(root), "readable": shown})


@pytest.mark.parametrize("level", ["auto", "landlock"])
@pytest.mark.parametrize(
    ("text", "code", "number"),
    [("echo out; exit 3", 3, None), ("echo out; kill -KILL $$", None, signal.SIGKILL)],
    ids=["code", "signal"],
)
def test_the_end_of_the_program_is_the_end_of_the_run(
    root: Path, level: str, text: str, code: int | None, number: int | None
) -> None:
    """Not that of the process which keeps the namespace."""
    record = run(root, "sh", "-c", text, sandbox=plan(root, level))

    assert (code, number, "itself", None) == (record.code, record.signal, record.by, record.spawn_error)
    assert ("out\n", 0) == (record.tail, record.killed)


@pytest.mark.parametrize(
    ("words", "heard", "code"),
    [((), "ready\nSIGINT\nSIGTERM\n", None), (("polite",), "ready\nSIGINT\ntidied up\n", 0)],
    ids=["deaf", "polite"],
)
def test_a_deadline_goes_down_the_ladder(
    root: Path, words: tuple[str, ...], heard: str, code: int | None
) -> None:
    """The program hears each signal once, though the keeper gets it, too."""
    more: dict[str, Any] = {"deadline_s": 1.5, "ladder": LADDER, "sandbox": plan(root)}

    record = run(root, *script("listener", *words), **more)

    assert ("deadline", heard, code) == (record.by, record.tail, record.code)
    assert (None if code == 0 else signal.SIGKILL) == record.signal


def test_what_the_program_leaves_behind_is_killed_and_counted(root: Path) -> None:
    """The keeper is not among them."""
    record = run(root, "sh", "-c", "setsid sleep 601 & setsid sleep 602 & exit 0", sandbox=plan(root))

    assert (0, "itself", 2) == (record.code, record.by, record.killed)


def test_a_killed_shim_takes_its_whole_run_along(root: Path) -> None:
    """The kernel sees to it: there is no launcher here, and no daemon."""
    word = f"handoffd-test-{os.getpid()}"
    left = f"setsid sh -c 'env -i sleep 603 # {word}' & sleep 604"
    run_dir = begin(root, run_spec(root, "r1", "sh", "-c", left, sandbox=plan(root)))
    eventually_sync(lambda: processes(word))

    os.kill(claim_of(run_dir).pid, signal.SIGKILL)

    eventually_sync(lambda: processes(word) == [])


def test_the_start_record_names_the_program_and_what_holds_it(root: Path) -> None:
    """By its number outside, also if it has ended by then."""
    run_dir = begin(
        root, run_spec(root, "r1", "sh", "-c", "until test -e go; do sleep 0.05; done", sandbox=plan(root))
    )
    start = StartRecord.from_json(records.read(str(run_dir), "start.json") or "")

    assert b"sh\0-c\0" == (proc.read(f"/proc/{start.pid}/cmdline") or b"")[:6]
    assert start.pid_started == proc.started(start.pid)
    assert start.sandbox in {"strict", "namespaces"}
    (root / "go").touch()
    assert 0 == finish(run_dir).code


def test_a_sandbox_that_cannot_be_made_is_a_run_that_did_not_start(root: Path) -> None:
    """It is neither the program's fault nor its absence."""
    wrong = Plan.from_raw(
        {"level": "auto", "network": "on", "workspace": str(root), "writable": ["/proc/x/y"]}
    )

    record = run(root, "true", sandbox=wrong)

    assert (None, None, False) == (record.code, record.signal, record.no_program)
    assert record.spawn_error is not None
    assert "no sandbox: /proc/x" in record.spawn_error


def test_a_program_that_is_out_of_sight_is_one_that_is_missing(root: Path) -> None:
    """The reason names it."""
    record = run(root, "no-such-program", sandbox=plan(root))

    assert ("ENOENT: program 'no-such-program' is not on the daemon's PATH", True) == (
        record.spawn_error,
        record.no_program,
    )
