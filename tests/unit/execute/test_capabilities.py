"""What executors can do, by their definitions."""

from __future__ import annotations

from handoffd.execute.executor import Capabilities, Executor, capabilities
from handoffd.execute.registry import load_book, shipped_layer

BOOK = load_book(shipped_layer())


def test_what_claude_can_do() -> None:
    """Everything that there is."""
    assert Capabilities(
        name="claude", prompt="stdin", output="stream-json", resume=True, session="fresh", tokens="live",
        cost=True, limits=True, permission="work", permissions=("work", "read", "all"), account="claude",
        writes=("${CLAUDE_CONFIG_DIR:-~/.claude}", "${CLAUDE_CONFIG_DIR:-~}/.claude.json*"),
    ) == capabilities(BOOK.get("claude"))  # fmt: skip


def test_what_stands_in_the_place_of_a_permission_at_a_step_cannot_be_chosen() -> None:
    """codex may write elsewhere when it commits."""
    assert ("work", "read", "all") == capabilities(BOOK.get("codex")).permissions


def test_when_tokens_are_told() -> None:
    """While it runs, in the end, or never."""
    told = {name: capabilities(BOOK.get(name)).tokens for name in BOOK.names}

    assert {
        "aider": "live", "claude": "live", "codex": "at the end", "gemini": "at the end",
        "opencode": "live", "rehearsal": "no", "rehearsal-stream": "live",
    } == told  # fmt: skip


def test_a_plain_program_can_do_little() -> None:
    """It is started, and ends."""
    found = capabilities(Executor(name="x", argv=("x",), account="x"))

    assert (False, "no", False, False) == (found.resume, found.tokens, found.cost, found.limits)
