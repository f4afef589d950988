"""The output of the real programs, read by the shipped rules.

Recorded against a scripted model server: standard output, and after it standard error, where the shim has
both in one. In every session of more than a word the agent says "Step 1 of 3.", writes a file, says the
next, lists a folder, and writes the hand-off.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.engine.run import Usage
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.reader import Seen, StreamReader, last_words

STREAMS = Path(__file__).parents[3] / "data" / "streams"
BOOK = load_book(shipped_layer())
FILES = ("/project/src/greeting.py", "/project/.ai/HANDOFF.md")
LAST = "Everything is written; the hand-off lies in .ai/HANDOFF.md."
USED = Usage(input_tokens=4800, output_tokens=240, cache_read_tokens=3200)
AIDER = Usage(input_tokens=2000, output_tokens=60, cost_usd=0.0046, priced="provider")


def read(executor: str, scenario: str, before: Usage | None = None) -> Seen:
    """Return the reading of a recording."""
    reader = StreamReader(BOOK.get(executor), before)
    reader.feed(recorded(executor, scenario))
    reader.end()
    return reader.seen


def recorded(executor: str, scenario: str) -> bytes:
    """Return a program's output."""
    path = STREAMS / executor / f"{scenario}.{'txt' if executor == 'aider' else 'jsonl'}"
    errors = path.with_suffix(".err")
    return path.read_bytes() + (errors.read_bytes() if errors.exists() else b"")


def costing(usage: Usage, dollars: float) -> Usage:
    """Return the usage with the cost that the program reports."""
    return usage + Usage(cost_usd=dollars, priced="provider")


@pytest.mark.parametrize(
    ("executor", "session", "model", "usage"),
    [
        ("claude", "fada77d8-edce-4f28-87fd-4398e333ef7e", "claude-opus-4-8[1m]", costing(USED, 0.0316)),
        ("codex", "01a201a5-ce85-79a0-96d2-f5de6b42e14b", None, USED),
        ("gemini", "e29133e2-044f-42ba-bdcd-0f69e5b608a8", "gemini-2.5-pro", USED),
        ("opencode", "ses_dfe8a66d0ffe0UvfrNQ2oxiMiY", None, costing(USED, 0.00632)),
    ],
)
def test_a_session_that_went_well(executor: str, session: str, model: str | None, usage: Usage) -> None:
    """Session and model, acts, and usage."""
    found = read(executor, "success")

    assert (session, model, FILES, 3) == (found.session, found.model, found.files, found.tools)
    assert usage.tokens == found.usage.tokens
    assert (usage.input_tokens, usage.cache_read_tokens) == (
        found.usage.input_tokens, found.usage.cache_read_tokens,
    )  # fmt: skip
    assert usage.cost_usd == pytest.approx(found.usage.cost_usd)
    assert found.result is not None
    assert (False, LAST) == (found.result.is_error, found.result.said)
    assert (f"says {LAST}", (), None) == (found.activity, found.errors, found.limit)


def test_a_session_of_aider_that_went_well() -> None:
    """It has no stream: its usage and files are in plain lines."""
    found = read("aider", "success")

    assert ("openai/gpt-4o", AIDER) == (found.model, found.usage)
    assert {"src/greeting.py", ".ai/HANDOFF.md"} == set(found.files)
    assert found.result is not None
    assert (False, 0) == (found.result.is_error, found.malformed)


@pytest.mark.parametrize("executor", ["claude", "codex", "gemini", "opencode"])
def test_a_session_that_was_continued_counts_only_its_own(executor: str) -> None:
    """Codex counts the session's earlier usage again: the reader gets that from the caller."""
    found = read(executor, "resume", before=read(executor, "success").usage)

    assert (USED.tokens, False) == (found.usage.tokens, found.result and found.result.is_error)


@pytest.mark.parametrize(
    ("executor", "scenario", "error"),
    [
        ("claude", "logged-out", "Not logged in · Please run /login"),
        ("claude", "unauthorised", "Invalid API key · Fix external API key"),
        ("claude", "no-credit", "Credit balance is too low"),
        ("claude", "unknown-model", "There's an issue with the selected model (no-such-model)."),
        ("claude", "overload", "API Error: Repeated 529 Overloaded errors."),
        ("claude", "resume-unknown", "No conversation found with session ID: 00000000-"),
        ("codex", "logged-out", "unexpected status 401 Unauthorized: Incorrect API key provided"),
        ("codex", "unknown-model", "The model `no-such-model` does not exist"),
        ("codex", "overload", "Selected model is at capacity."),
        ("gemini", "unauthorised", '[API Error: {"error":{"code":400,"message":"API key not valid.'),
        ("gemini", "unknown-model", "[API Error: models/no-such-model is not found for API version"),
        ("opencode", "logged-out", "Incorrect API key provided"),
        ("opencode", "overload", "The server is overloaded or not ready yet."),
        ("aider", "unknown-model", "litellm.NotFoundError: OpenAIException - The model"),
        ("aider", "unauthorised", "The API provider is not able to authenticate you."),
    ],
)
def test_an_error_has_the_programs_own_words(executor: str, scenario: str, error: str) -> None:
    """Whatever its exit code; people read it as the last words."""
    found = read(executor, scenario)

    assert found.result is not None
    assert found.result.is_error
    assert (found.result.error or "").startswith(error)
    rules = BOOK.get(executor).stream
    assert rules is not None
    assert last_words(rules, found.result, b"").startswith(f"it reported: {error}")


@pytest.mark.parametrize(
    ("executor", "scenario", "error"),
    [
        ("codex", "resume-unknown", "thread/resume: thread/resume failed: no rollout found for thread id"),
        ("codex", "unknown-flag", "unexpected argument '--no-such-flag' found"),
        ("gemini", "logged-out", "When using Gemini API, you must specify the GEMINI_API_KEY"),
        ("gemini", "resume-unknown", "Error resuming session: Invalid session identifier"),
        ("gemini", "resume-none", "Error resuming session: No previous sessions found"),
        ("gemini", "unknown-flag", "Unknown arguments: such-flag"),
        ("opencode", "resume-unknown", "Session not found"),
        ("opencode", "denied", "permission requested: bash (ls -l src); auto-rejecting"),
    ],
)
def test_an_error_without_a_result_is_on_standard_error(executor: str, scenario: str, error: str) -> None:
    """The program never came to its stream."""
    found = read(executor, scenario)

    assert None is found.result
    assert found.errors[-1].startswith(error)


@pytest.mark.parametrize(
    ("executor", "scenario", "group", "expected"),
    [
        ("claude", "usage-limit-soon", "reset", "5:46am (UTC)"),
        ("claude", "usage-limit-weekly", "reset", "Nov 24, 11:49am (UTC)"),
        ("claude", "usage-limit-subscription", "reset", "Jan 1, 2030, 12am (UTC)"),
        ("claude", "rate-limit", None, None),
        ("codex", "usage-limit", "reset", "Jan 1st, 2030 12:00 AM"),
        ("codex", "usage-limit-soon", "reset", "5:46 AM"),
        ("codex", "rate-limit", None, None),
        ("gemini", "usage-limit", None, None),
        ("gemini", "usage-limit-delay", "wait", "12h34m56.789s"),
        ("opencode", "usage-limit", None, None),
        ("opencode", "rate-limit", "wait", "12.3s"),
        ("aider", "rate-limit", None, None),
    ],
)
def test_a_limit_is_recognised_among_errors(
    executor: str, scenario: str, group: str | None, expected: str | None
) -> None:
    """With the time that the program names, if it does."""
    found = read(executor, scenario)

    assert found.limit is not None
    times = [hit[group] for rule in BOOK.get(executor).limits if group and group in rule.groupindex
             and (hit := rule.search(found.limit))]  # fmt: skip
    assert ([expected] if expected else []) == times[:1]


def test_claude_reports_the_end_of_a_limit_as_a_number() -> None:
    """It needs no guess about a time zone."""
    assert 1893456000 == read("claude", "usage-limit-subscription").resets_at


def test_a_denied_tool_is_not_an_error_to_claude() -> None:
    """But it is reported."""
    found = read("claude", "denied").result

    assert found is not None
    assert (False, ("Write",)) == (found.is_error, found.denied)


@pytest.mark.parametrize("path", sorted(STREAMS.glob("*/*.jsonl")), ids=lambda path: path.parent.name)
def test_no_recording_has_lines_of_a_stream_that_are_malformed(path: Path) -> None:
    """Malformed lines come from standard error only."""
    reader = StreamReader(BOOK.get(path.parent.name))
    reader.feed(path.read_bytes())

    assert 0 == reader.seen.malformed
    assert reader.seen.lines == sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
