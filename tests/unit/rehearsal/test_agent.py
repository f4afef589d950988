"""The program around the steps: exit codes, the start log, and how little it needs to start."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.support.rehearsal import Rehearsal


def test_every_start_is_logged_once(shop: Rehearsal, tmp_path: Path) -> None:
    """One line a start, also of one that crashes or is told nonsense, in the order of the starts."""
    log = tmp_path / "starts.jsonl"
    shop.environ = {
        "HANDOFFD_REHEARSAL_LOG": str(log),
        "HANDOFFD_REHEARSAL": '{"impl": "crash", "verify": "?"}',
    }

    for step in ("bdd", "impl", "verify"):
        shop.run(step, attempt=2)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    facts = [[line[key] for key in ("dispatch", "story", "step", "attempt")] for line in lines]
    assert [[f"d-{step}-2", "US-001", step, 2] for step in ("bdd", "impl", "verify")] == facts
    assert 3 == len({line["pid"] for line in lines})
    assert [line["monotonic"] for line in lines] == sorted(line["monotonic"] for line in lines)


def test_many_starts_at_once_are_all_logged_whole(shop: Rehearsal, tmp_path: Path) -> None:
    """Sessions that start together do not tear each other's lines."""
    log = tmp_path / "starts.jsonl"
    shop.environ = {"HANDOFFD_REHEARSAL_LOG": str(log), "HANDOFFD_REHEARSAL": '{"*": "exit:0"}'}
    with ExitStack() as stack:
        sessions = [stack.enter_context(shop.session("bdd", attempt=number)) for number in range(1, 9)]
        for session in sessions:
            session.communicate(timeout=60)

    assert set(range(1, 9)) == {json.loads(line)["attempt"] for line in log.read_text().splitlines()}


def test_a_bad_script_ends_the_session_before_it_begins(shop: Rehearsal) -> None:
    """Exit code 2, a message that names file, key and what is allowed, and nothing written."""
    (shop.root / ".ai/rehearsal.json").write_text('{"impl": ["pass", "explode"]}')
    before = shop.files()

    ended = shop.run("impl")

    assert (2, before) == (ended.returncode, shop.files())
    assert "rehearsal: .ai/rehearsal.json: impl[1]: there is no act 'explode' (allowed" in ended.stderr


def test_a_prompt_without_a_step_ends_with_an_error(tmp_path: Path) -> None:
    """Nothing is guessed, and the message says what was looked for."""
    ended = subprocess.run(
        [sys.executable, "-I", "-m", "handoffd.rehearsal"],
        cwd=tmp_path,
        input=b"hello",
        capture_output=True,
        check=False,
    )

    assert (2, b"") == (ended.returncode, ended.stdout)
    assert (
        b"rehearsal: neither the prompt's front matter template nor .ai/STATE.json names a step\n"
        == ended.stderr
    )


def test_a_link_out_of_the_project_is_refused(shop: Rehearsal, tmp_path: Path) -> None:
    """A hostile project cannot make it write elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (shop.root / "docs/bdd/.gitkeep").unlink()
    (shop.root / "docs/bdd").rmdir()
    (shop.root / "docs/bdd").symlink_to(tmp_path / "elsewhere")

    ended = shop.run("bdd")

    assert 2 == ended.returncode
    assert "outside of the project" in ended.stderr
    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_modules_of_the_project_do_not_shadow_ours(shop: Rehearsal) -> None:
    """A project may have a json.py or a handoffd folder of its own."""
    (shop.root / "json.py").write_text("raise RuntimeError('imported')\n")
    (shop.root / "handoffd").mkdir()
    (shop.root / "handoffd/__init__.py").write_text("raise RuntimeError('imported')\n")

    shop.passes("bdd")


def test_progress_is_printed(shop: Rehearsal) -> None:
    """Like an agent it says what it does, so that there is output to keep and to watch."""
    lines = shop.run("bdd").stdout.splitlines()

    assert [
        "rehearsal: bdd of US-001, attempt 1",
        "rehearsal: done: docs/bdd/US-001.md",
        "rehearsal: pass: the scenarios of US-001 are written",
    ] == lines


def test_nobody_needs_to_listen(shop: Rehearsal) -> None:
    """A reader that has gone does not keep the session from handing over."""
    with shop.session("bdd") as session:
        assert session.stdout is not None
        session.stdout.close()
        session.stdout = None
        session.communicate(timeout=60)

    assert (0, "pass") == (session.returncode, shop.handoff()["status"])


def test_only_what_a_step_needs_is_imported(shop: Rehearsal) -> None:
    """It is started hundreds of times: neither third-party packages nor slow parts of the library."""
    code = (
        "import sys, os; from handoffd.rehearsal.__main__ import main; main([], os.environ);"
        "sys.stderr.write(' '.join(sorted(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=shop.root,
        input=b"---\nstory: US-001\nstep: scaffold\nattempt: 1\ndispatch: d\n---\n",
        capture_output=True,
        check=True,
    )

    loaded = set(ended.stderr.decode().split())
    assert "handoffd.rehearsal.coding" in loaded
    slow = {
        "pydantic",
        "anyio",
        "asyncio",
        "structlog",
        "click",
        "dataclasses",
        "subprocess",
        "pathlib",
        "handoffd.errors",
    }
    assert set() == slow & loaded
