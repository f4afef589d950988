"""The program around the steps: exit codes, the start log, what it imports, and its JSON lines."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.rehearsal import Rehearsal

from handoffd.engine.run import Usage
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.line import StreamVerdict
from handoffd.execute.stream.reader import Seen, StreamReader


def test_every_start_is_logged_once(shop: Rehearsal, tmp_path: Path) -> None:
    """One line per start, also of a crash or a bad script, in the order of the starts."""
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


def test_a_bad_script_ends_the_session_before_any_work(shop: Rehearsal) -> None:
    """Exit code 2, a message with file, key and allowed values, and no file is written."""
    (shop.root / ".ai/rehearsal.json").write_text('{"impl": ["pass", "explode"]}')
    before = shop.files()

    ended = shop.run("impl")

    assert (2, before) == (ended.returncode, shop.files())
    assert "rehearsal: .ai/rehearsal.json: impl[1]: there is no act 'explode' (allowed" in ended.stderr


def test_a_prompt_without_a_step_ends_with_an_error(tmp_path: Path) -> None:
    """The message names both places of a step."""
    argv = (sys.executable, "-I", "-m", "handoffd.rehearsal")
    ended = subprocess.run(argv, cwd=tmp_path, input=b"hello", capture_output=True, check=False)

    assert (2, b"") == (ended.returncode, ended.stdout)
    why = b"rehearsal: neither the prompt's front matter template nor .ai/STATE.json names a step\n"
    assert why == ended.stderr


def test_a_link_out_of_the_project_is_refused(shop: Rehearsal, tmp_path: Path) -> None:
    """A hostile project cannot make it write elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(shop.root / "docs/bdd")
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
    """Like an agent it reports its work, so there is output to keep and to watch."""
    lines = shop.run("bdd").stdout.splitlines()

    assert [
        "rehearsal: bdd of US-001, attempt 1",
        "rehearsal: done: docs/bdd/US-001.md",
        "rehearsal: pass: the scenarios of US-001 are written",
    ] == lines


def test_a_session_needs_no_reader(shop: Rehearsal) -> None:
    """It hands over although its output is closed."""
    with shop.session("bdd") as session:
        assert session.stdout is not None
        session.stdout.close()
        session.stdout = None
        session.communicate(timeout=60)

    assert (0, "pass") == (session.returncode, shop.handoff()["status"])


def test_only_what_a_step_needs_is_imported(shop: Rehearsal) -> None:
    """Tests start it hundreds of times: it imports no third-party packages and no slow modules."""
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
    slow = "pydantic anyio asyncio structlog click dataclasses subprocess pathlib handoffd.errors"
    assert set() == set(slow.split()) & loaded


EXECUTOR = load_book(shipped_layer()).get("rehearsal-stream")


SPENDING = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 7, "cost_usd": 0.25}


def heard(shop: Rehearsal, script: dict[str, Any], *arguments: str, code: int = 0) -> Seen:
    """Return what the executor's rules read from a session with this script."""
    shop.environ["HANDOFFD_REHEARSAL"] = json.dumps(script)
    ended = shop.run("impl", arguments=("--stream", *arguments))
    assert (code, "") == (ended.returncode, ended.stderr)
    reader = StreamReader(EXECUTOR)
    reader.feed(ended.stdout.encode())
    assert 0 == reader.seen.malformed
    return reader.seen


def test_a_session_has_a_name_and_an_end(shop: Rehearsal) -> None:
    """The work is done as without a stream."""
    found = heard(shop, {"impl": "pass"})

    assert ("session-d-impl-1", "rehearsal") == (found.session, found.model)
    assert StreamVerdict(is_error=False, said="impl is over") == found.result
    assert "pass" == shop.handoff()["status"]


def test_every_turn_uses_the_tokens_of_the_script(shop: Rehearsal) -> None:
    """The result has their sum."""
    found = heard(shop, {"stream": {"turns": 2, **SPENDING}, "impl": "turns:3+pass"})

    assert Usage(
        input_tokens=500, output_tokens=100, cache_read_tokens=35, cost_usd=1.25, priced="provider"
    ) == (found.usage)


def test_usage_is_reported_before_the_end(shop: Rehearsal) -> None:
    """Also by a session without a result."""
    found = heard(shop, {"stream": SPENDING, "impl": "turns:2+exit:3"}, code=3)

    assert (None, 300, None) == (found.result, found.usage.input_tokens, found.usage.cost_usd)


def test_the_shipped_rules_recognise_a_limit(shop: Rehearsal) -> None:
    """They read when it is over."""
    found = heard(shop, {"impl": "limit:3600"}, code=1)

    assert found.limit is not None
    assert found.limit.startswith("Claude AI usage limit reached|")
    assert found.resets_at is not None
    assert 0 < found.resets_at - time.time() <= 3600  # noqa: TID251 (a process printed the time)


def test_an_error_is_reported_and_nothing_handed_over(shop: Rehearsal) -> None:
    """The script has its text."""
    found = heard(shop, {"impl": "error:Not logged in"}, code=1)

    assert StreamVerdict(is_error=True, error="Not logged in") == found.result
    assert not (shop.root / ".ai/HANDOFF.md").exists()


def test_a_session_is_continued_or_gone(shop: Rehearsal) -> None:
    """A new session cannot be gone."""
    assert "s-7" == heard(shop, {"impl": "pass"}, "--resume", "s-7", "--model", "big").session

    gone = heard(shop, {"impl": "gone+pass"}, "--resume", "s-7", code=1).result
    assert gone is not None
    assert "No conversation found with session ID: s-7" == gone.error
    assert "s-1" == heard(shop, {"stream": {"session": "s-1"}, "impl": "gone+pass"}).session


def test_without_a_stream_an_error_is_a_plain_line(shop: Rehearsal) -> None:
    """As an agent prints plain text."""
    shop.environ["HANDOFFD_REHEARSAL"] = json.dumps({"impl": "error:no quota"})
    ended = shop.run("impl")

    assert (1, "no quota") == (ended.returncode, ended.stdout.splitlines()[-1])
