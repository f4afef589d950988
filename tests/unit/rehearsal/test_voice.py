"""The rehearsal as it speaks in JSON lines: read as the executor's own rules read it."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.rehearsal import Rehearsal

from handoffd.engine.run import Usage
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.line import StreamVerdict
from handoffd.execute.stream.reader import Seen, StreamReader

EXECUTOR = load_book(shipped_layer()).get("rehearsal-stream")
SPENDING = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 7, "cost_usd": 0.25}


def heard(shop: Rehearsal, script: dict[str, Any], *arguments: str, code: int = 0) -> Seen:
    """Return what a session tells that follows this script."""
    shop.environ["HANDOFFD_REHEARSAL"] = json.dumps(script)
    ended = shop.run("impl", arguments=("--stream", *arguments))
    assert (code, "") == (ended.returncode, ended.stderr)
    reader = StreamReader(EXECUTOR)
    reader.feed(ended.stdout.encode())
    assert 0 == reader.seen.malformed
    return reader.seen


def test_a_session_has_a_name_and_an_end(shop: Rehearsal) -> None:
    """And the work is done as without a stream."""
    found = heard(shop, {"impl": "pass"})

    assert ("session-d-impl-1", "rehearsal") == (found.session, found.model)
    assert StreamVerdict(is_error=False, said="impl is over") == found.result
    assert "pass" == shop.handoff()["status"]


def test_every_turn_uses_what_the_script_says(shop: Rehearsal) -> None:
    """As the turns come, and in the end the sum of them."""
    found = heard(shop, {"stream": {"turns": 2, **SPENDING}, "impl": "turns:3+pass"})

    assert Usage(
        input_tokens=500, output_tokens=100, cache_read_tokens=35, cost_usd=1.25, priced="provider"
    ) == (found.usage)


def test_what_was_used_is_told_before_the_end(shop: Rehearsal) -> None:
    """Of a session that never reports a result."""
    found = heard(shop, {"stream": SPENDING, "impl": "turns:2+exit:3"}, code=3)

    assert (None, 300, None) == (found.result, found.usage.input_tokens, found.usage.cost_usd)


def test_a_limit_is_one_to_the_rules_that_ship(shop: Rehearsal) -> None:
    """With the time at which it is over."""
    found = heard(shop, {"impl": "limit:3600"}, code=1)

    assert found.limit is not None
    assert found.limit.startswith("Claude AI usage limit reached|")
    assert found.resets_at is not None
    assert 0 < found.resets_at - time.time() <= 3600  # noqa: TID251 (a process has told the time)


def test_an_error_is_reported_and_nothing_handed_over(shop: Rehearsal) -> None:
    """In the words of the script."""
    found = heard(shop, {"impl": "error:Not logged in"}, code=1)

    assert StreamVerdict(is_error=True, error="Not logged in") == found.result
    assert not (shop.root / ".ai/HANDOFF.md").exists()


def test_a_session_is_continued_or_gone(shop: Rehearsal) -> None:
    """One that is begun anew cannot be gone."""
    assert "s-7" == heard(shop, {"impl": "pass"}, "--resume", "s-7", "--model", "big").session

    gone = heard(shop, {"impl": "gone+pass"}, "--resume", "s-7", code=1).result
    assert gone is not None
    assert "No conversation found with session ID: s-7" == gone.error
    assert "s-1" == heard(shop, {"stream": {"session": "s-1"}, "impl": "gone+pass"}).session


def test_without_a_stream_an_error_is_a_plain_line(shop: Rehearsal) -> None:
    """As of an agent that prints plain text."""
    shop.environ["HANDOFFD_REHEARSAL"] = json.dumps({"impl": "error:no quota"})
    ended = shop.run("impl")

    assert (1, "no quota") == (ended.returncode, ended.stdout.splitlines()[-1])
