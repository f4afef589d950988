"""What a result line says."""

from __future__ import annotations

import pytest

from handoffd.execute.stream.format import ResultRule
from handoffd.execute.stream.line import StreamVerdict, one_line, verdict_of

CLAUDE = ResultRule(
    is_error="is_error",
    text=("result",),
    error=("result", "errors.*"),
    denied=("permission_denials.*.tool_name",),
)


def test_the_error_flag_counts_and_not_the_subtype() -> None:
    """A failed request calls itself a success."""
    line = {"subtype": "success", "is_error": True, "result": "API Error: 401\n  invalid key"}

    assert StreamVerdict(is_error=True, error="API Error: 401 invalid key") == verdict_of(line, CLAUDE)


def test_a_success_has_no_error_text() -> None:
    """What the agent said at the end is not an error."""
    line = {"is_error": False, "result": "All\ndone."}

    assert StreamVerdict(is_error=False, said="All done.") == verdict_of(line, CLAUDE)


def test_a_line_may_be_the_answer_itself() -> None:
    """Where failures have lines of another kind."""
    assert StreamVerdict(is_error=False) == verdict_of({}, ResultRule(is_error=False))
    failed = ResultRule(is_error=True, error=("error.message",))
    assert StreamVerdict(is_error=True, error="x") == verdict_of({"error": {"message": "x"}}, failed)


@pytest.mark.parametrize("flag", ["yes", 1, None, [True]])
def test_what_is_no_flag_leaves_it_unknown(flag: object) -> None:
    """Unknown is neither success nor failure."""
    assert StreamVerdict() == verdict_of({"is_error": flag, "result": "x"}, CLAUDE)


def test_an_error_without_a_last_message_is_in_the_list_of_errors() -> None:
    """A session that was broken off has no last message."""
    line = {"is_error": True, "result": None, "errors": ["aborted", 7, "by a signal"]}

    assert "aborted by a signal" == verdict_of(line, CLAUDE).error
    assert "an error without a text" == verdict_of({"is_error": True}, CLAUDE).error


def test_denied_tools_are_named_once() -> None:
    """Nobody was there to permit them; the agent calls the run a success all the same."""
    denials = [{"tool_name": "WebFetch"}, {"tool_name": "Write"}, {"tool_name": "WebFetch"}, {}, "x"]

    line = {"is_error": False, "permission_denials": denials}
    assert ("WebFetch", "Write") == verdict_of(line, CLAUDE).denied
    many = {"permission_denials": [{"tool_name": f"{number}" * 100} for number in range(100)]}
    assert (10, 64) == (len(verdict_of(many, CLAUDE).denied), len(verdict_of(many, CLAUDE).denied[0]))


def test_a_text_becomes_one_bounded_printable_line() -> None:
    """It becomes part of a state file and of a notice."""
    line = one_line("x\x1b " * 1_000_000)

    assert line is not None
    assert 500 == len(line)
    assert line.isprintable()
    assert None is one_line(" \n ")
