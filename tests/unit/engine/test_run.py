"""Values of a run: its usage, its measurements, the classes of its ends, and their words."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.engine.events import TestEvidence
from handoffd.engine.run import (
    FREE_REPEATS,
    LAST_LINES,
    LINE,
    POLICIES,
    TOKEN_KINDS,
    AnyEnd,
    End,
    Exit,
    Footprint,
    OwnEnd,
    Policy,
    PostCheck,
    Silence,
    Then,
    Usage,
    footprint_in_words,
    last_line,
    last_lines,
    size_in_words,
    with_line,
)


def counts(factor: int, **cost: Any) -> Usage:
    """Return 1, 2, 3 and 4 tokens of each kind, times a factor."""
    return Usage(
        input_tokens=factor, output_tokens=2 * factor, cache_read_tokens=3 * factor,
        cache_write_tokens=4 * factor, **cost,
    )  # fmt: skip


# --- usage ----------------------------------------------------------------------------------------
def test_a_sum_adds_every_count() -> None:
    """Each kind of token by itself; a reader of stored usage adds the kinds up."""
    assert counts(11) == counts(1) + counts(10)
    assert 110 == counts(11).tokens == sum(getattr(counts(11), kind) for kind in TOKEN_KINDS)


def test_an_unknown_cost_is_not_a_cost_of_nothing() -> None:
    """A sum shows what is known, and whether it comes from several places."""
    known = Usage(cost_usd=0.25, priced="provider")
    both = known + Usage(cost_usd=0.5, priced="table")
    assert (Usage() + Usage()).cost_usd is None
    assert (known + Usage()).cost_usd == 0.25
    assert (Usage() + known).priced == "provider"
    assert (both.cost_usd, both.priced) == (0.75, "mixed")


def test_what_came_to_a_sum_is_found_again() -> None:
    """Of each kind, and of a cost that was not known before."""
    before, more = counts(1), counts(10, cost_usd=0.25, priced="table")
    assert more == (before + more) - before
    assert more == (more + more) - more
    assert Usage() == before - before


# --- measurements ---------------------------------------------------------------------------------
def test_a_measurement_of_nothing_claims_nothing() -> None:
    """No test ran, so none failed or passed; a post_check that could not be run has not timed out."""
    nothing, check = TestEvidence(), PostCheck(passed=False, fault="no shell")
    assert (0, 0, ()) == (nothing.collected, nothing.counts.passed, nothing.failing)
    assert (None, False) == (nothing.fault, nothing.timed_out)
    assert (False, "no shell") == (check.timed_out, check.fault)


def test_every_sign_of_silence_is_named_with_its_figure() -> None:
    """So that a person can judge whether it really was one."""
    silence = Silence(quiet_min=10.0, limit_min=10, output_bytes=41_213, cpu_s=0.64, written_bytes=192)
    assert "no output (after 41,213 bytes), 0.6 s of processor time, 192 bytes written" == silence.signs


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 MiB"), (812 << 20, "812 MiB"), (1536 << 20, "1.5 GiB"), (64 << 30, "64 GiB")]
)
def test_a_size_has_few_characters(count: int, words: str) -> None:
    """As people write it."""
    assert words == size_in_words(count)


def test_the_footprint_of_a_run_is_shown_as_far_as_it_is_known() -> None:
    """A kernel may count the one and not the other; a limit is named only if it was met."""
    assert "812 MiB, 41 tasks" == footprint_in_words(812 << 20, 41)
    assert "1 task" == footprint_in_words(None, 1)
    assert "" == footprint_in_words(None, None)
    assert "" == Footprint(memory_max=1, tasks_max=2).limits_met
    met = "the kernel ended a process of it at its memory limit (execute.memory_max)"
    assert met == Footprint(memory_kills=1).limits_met


# --- the end of its output ------------------------------------------------------------------------
def test_the_end_of_an_output_fits_into_one_line() -> None:
    """The last five lines that say something, cut from the front."""
    assert "b | c | d | e | f" == last_lines("a\nb\n\n  c \nd\ne\nf\n\n")
    assert "" == last_lines(" \n\n")
    long = last_lines("x" * 5000)
    assert (LAST_LINES + 1, "…") == (len(long), long[0])


TRACE = "Traceback (most recent call last):\n  File 'x'\nOSError: no key\n"


@pytest.mark.parametrize(
    ("exit_", "problem"),
    [
        (Exit(tail=TRACE, line=last_line(TRACE)), "exited with code 1 (OSError: no key)"),
        (Exit(tail="\n", line=""), "exited with code 1"),
        (Exit(tail="no key\nbye\n"), "exited with code 1 (no key | bye)"),  # an earlier release, for replays
    ],
)
def test_a_problem_comes_with_the_output_that_explains_it(exit_: Exit, problem: str) -> None:
    """Nothing is appended when there is no output."""
    assert problem == with_line("exited with code 1", exit_)


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        ("\x1b[31mE501 bad\x1b[0m\n\x1b[0m\x1b[0m\n", "E501 bad"),
        ("\x1b]8;;file:///x\x07here\x1b]8;;\x07\n", "here"),
        (
            "[ERROR] Failed to compile: no network -> [Help 1]\n[ERROR] \n[ERROR] Re-run with -X\n",
            "[ERROR] Failed to compile: no network -> [Help 1]",
        ),
    ],
)
def test_the_line_that_says_why_has_no_colours_and_is_not_a_hint(tail: str, line: str) -> None:
    """A terminal's orders are not words."""
    assert line == last_line(tail)


RAISED = 'Traceback (most recent call last):\n  File "<string>", line 3, in h\n    raise e\n    ^^^^^^^\n'


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        ("at x\n  ValueError:   no\n}\n=====\n\n", "ValueError: no"),
        (" \n---\n", ""),
        (f"{RAISED}ValueError: outside\ninside\n", "ValueError: outside inside"),
        (f"{RAISED}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{RAISED}shop.errors.Full: no room\nbye\n", "shop.errors.Full: no room bye"),
        (RAISED.replace("  ", ""), "raise e"),
        (f"No stock.\n{RAISED}", "No stock."),
        (
            'Timeout (0:00:05)!\nThread 0x1 (most recent call first):\n  File "<string>", line 3 in h\n',
            "Timeout (0:00:05)!",
        ),
        (f"{RAISED}KeyError: 1\n" + "It goes on.\n" * 9, "It goes on."),
        (
            "throw e\n^\n\nError: boom\n    at f (/srv/x.js:1:7)\n    at /srv/y.js:2:1\n\nNode.js v22.1.0\n",
            "Error: boom",
        ),
        (
            'Exception in thread "main" x.Y: boom\n\tat x.Y.main(Y.java:3)\n',
            'Exception in thread "main" x.Y: boom',
        ),
    ],
)
def test_the_line_of_an_output_is_the_last_that_says_something(tail: str, line: str) -> None:
    """Not a rule, a bracket or the last frame of a trace, nor just the end of a message of several lines."""
    assert line == last_line(tail)


def test_the_line_of_an_output_is_bounded() -> None:
    """A long one is cut."""
    line = last_line("x" * 5000)
    assert (LINE, "…") == (len(line), line[-1])


# --- classes of ends: public words, kept in journals, each with a bounded policy -----------------------
def test_the_words_of_ends_are_those_that_journals_hold() -> None:
    """A class may be added; one that is there keeps its word."""
    assert {end.value for end in End} >= {
        "clean", "failed", "missing_binary", "logged_out", "bad_call", "crash", "out_of_memory", "limit",
        "overload", "session_gone",
    }  # fmt: skip


def test_each_class_has_one_policy_and_a_word_of_its_own() -> None:
    """What follows from an end is a row of one table."""
    assert [*End, *OwnEnd] == list(POLICIES)
    assert len(POLICIES) == len({end.value for end in POLICIES})


@pytest.mark.parametrize(("end", "policy"), POLICIES.items(), ids=[end.value for end in POLICIES])
def test_a_policy_is_bounded_and_only_a_pause_has_a_remedy(end: AnyEnd, policy: Policy) -> None:
    """All free repetitions in a row have one limit; a pause says what is wrong, and names a command."""
    assert 0 <= policy.free <= FREE_REPEATS
    assert (policy.then is Then.PAUSE) == bool(policy.fault) == bool(policy.remedy), end
    assert not policy.remedy or policy.remedy.startswith("handoffd ")
