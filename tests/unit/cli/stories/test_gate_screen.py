"""The screen of an open gate: what it says, in 80 columns, and that nothing reaches the terminal raw."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from tests.support.supervision import gate_view

from handoffd.cli.stories.gate import WIDTH, screen
from handoffd.cli.stories.standing import brief
from handoffd.cli.wording import unstyled
from handoffd.engine.views import GateTests, OpenPoint
from handoffd.protocol.state import TestCounts, plain


def answered(**changes: Any) -> dict[str, Any]:
    """Return an answer of the API."""
    return {**plain(gate_view("/srv/shop", **changes)), "name": "shop", "daemon": True}


def shown(*, whole: bool = False, **changes: Any) -> list[str]:
    """Return the lines of the screen, without colours."""
    return [unstyled(line) for line in screen(answered(**changes), whole=whole)]


def test_it_says_what_is_asked_what_was_done_and_where_the_answers_lead() -> None:
    """One screen."""
    assert (
        """\
shop US-001 waits at review
Dark mode

  People read the shop at night.

Asked     approve review of US-001, and impl begins; or reject it with a reason
Why       review is a human step: the step table lets only a person pass it
Steps     bdd → [review] → impl → update-memory
Files     3 files changed since bdd-0: +60 -4 lines
          1 of them is outside of what the step may write
          src/\\x1b[2Jshop.py  +8 -4   outside of bdd
          docs/bdd/US-001.md  +52 -0  added
          logo.png            binary  removed
Tests     before: 11 passed; claimed: 99 passed; measured: 11 passed, 1 failed
          what the agent claims is not what was measured
          fail, and are new: tests/test_shop.py::test_new
          new in this story: tests/test_shop.py::test_new,
            tests/test_shop.py::test_dark and 1 more
          gone, passed before: tests/test_shop.py::test_old
          test files changed: tests/test_shop.py
Attempts  bdd: 2 attempts, 1 failed
            bdd 1 by claude failing after 1 min: it left no hand-off
Rejected  review by mei, 01-02 02:04, needs_clarification: Which\\x1b[2J zone?
Unclear   docs/bdd/US-001.md:7 [NEEDS CLARIFICATION] which time zone?
Unticked  .ai/CHECKLIST.md:5 Each scenario has a tag
Cost      12.4k tokens, $0.21; agents ran 2 min; sandbox: strict
Claim     All \\x1b[31mscenarios are written. (the agent's own words)

approve → impl
reject: needs_clarification → bdd
  handoffd approve shop --story US-001
  handoffd reject shop REASON --story US-001 --note "..."
""".splitlines()
        == shown()
    )


HOSTILE = "\x1b]0;x\x07 \x9b31m \u202e " + "夜" * 300 + " word " * 60


@pytest.mark.parametrize("whole", [False, True])
def test_no_line_is_wider_than_the_screen_and_nothing_is_raw(whole: bool) -> None:
    """Whatever agents wrote; only a command is longer than that, because it must stay whole."""
    point = OpenPoint(file=HOSTILE, line=1, text=HOSTILE)
    base = gate_view("/srv/shop")
    assert base.changes is not None
    files = tuple(replace(one, path=f"{number}{HOSTILE}") for number, one in enumerate(base.changes.files))
    lines = shown(
        whole=whole, title=HOSTILE, text=f"{HOSTILE}\n{HOSTILE}", claim=HOSTILE, note=HOSTILE,
        unclear=(point,) * 9, unticked=(point,), unknown=(HOSTILE,),
        changes=replace(base.changes, files=files), tests=replace(base.tests, failing=(HOSTILE,)),
        attempts=tuple(replace(one, why=HOSTILE) for one in base.attempts),
    )  # fmt: skip

    commands = [line for line in lines if "handoffd " in line]
    files_shown = [line for line in lines if "\\x1b]0" in line and "binary" in line]
    wide = [line for line in lines if cell_len(line) > WIDTH and line not in (*commands, *files_shown)]
    assert [] == wide
    assert all(sign.isprintable() for line in lines for sign in line)


def test_a_long_text_and_long_lists_are_cut_but_for_the_whole_screen() -> None:
    """What is left out is counted, with where to find it."""
    text = "Dark mode\n\n" + "\n".join(f"line {number}" for number in range(40))
    points = tuple(OpenPoint(file="a.md", line=number, text="?") for number in range(9))
    short, whole = shown(text=text, unclear=points), shown(whole=True, text=text, unclear=points)

    assert any("28 more lines: handoffd story shop US-001" in line for line in short)
    assert any("and 4 more" in line for line in short)
    assert any("line 39" in line for line in whole)
    assert any("a.md:8" in line for line in whole)
    assert any("handoffd log --run 20260102T030405-0a1b2c3d2" in line for line in whole)


def test_of_a_long_claim_the_beginning_is_shown() -> None:
    """An agent must not push the facts off the screen; all of it is on the whole one."""
    words = "I have done all of it. " * 80
    lines, whole = shown(claim=words), shown(claim=words, whole=True)
    assert 20 < len(whole) - len(lines)
    assert any("(the agent's own words, their beginning)" in line for line in lines)
    assert any("(the agent's own words)" in line for line in whole)


def test_what_is_not_known_is_said() -> None:
    """Neither files, tests, cost nor a claim."""
    lines = shown(
        changes=None, tests=GateTests(), attempts=(), tokens=None, cost_usd=None, seconds=0.0, sandbox=None,
        claim=None, title=None, text=None, unknown=("which files have changed is not known: no git",),
    )  # fmt: skip

    assert "Tests     none were run so far" in lines
    assert not any(line.startswith("Attempts") for line in lines)
    assert "Cost      tokens and cost are not known; no agent ran; sandbox: unknown" in lines
    assert "Claim     the agent says nothing" in lines
    assert "Unknown   which files have changed is not known: no git" in lines
    assert not any(line.startswith("Files") for line in lines)


def test_of_an_exit_code_no_test_is_counted() -> None:
    """The command failed or succeeded."""
    unverified = GateTests(claimed=TestCounts(passed=3), verified=False)

    assert "the test command succeeded" in "\n".join(shown(tests=unverified))
    assert "the test command failed" in "\n".join(shown(tests=replace(unverified, failing=("make test",))))


def test_status_has_it_in_short() -> None:
    """Files, scope, tests, open points, attempts, cost, the claim, and the other command."""
    assert [
        "asked for: Dark mode People read the shop at night.",
        "changed since bdd-0: 3 files, +60 -4 lines",
        "scope: 1 of them is outside of what the step may write",
        "tests: before: 11 passed; claimed: 99 passed; measured: 11 passed, 1 failed",
        "tests: what the agent claims is not what was measured",
        "tests: new in this story: tests/test_shop.py::test_new and 2 more",
        "tests: gone, passed before: tests/test_shop.py::test_old",
        "open: 1 unclear point, 1 unticked box",
        "attempts: 2, 1 failed; sent back 1 time",
        "cost: 12.4k tokens, $0.21; agents ran 2 min; sandbox: strict",
        "the agent says: All \\x1b[31mscenarios are written.",
        "to send it back: handoffd reject shop REASON --story US-001",
        "all of it: handoffd gate shop",
    ] == list(brief(answered(), {"project": "/srv/shop", "called": "shop"}))
