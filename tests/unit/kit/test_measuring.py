"""`tests` and `compare-baseline`: what the project's tests say, and what they said before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, Refused
from handoffd.kit.given import Done
from handoffd.kit.measuring import compare_baseline, coverage_in, measure, regressions
from handoffd.kit.measuring import tests as run_tests

SCHEMA = json.loads((ROOT / "config/schema/tests/1.json").read_text("utf-8"))
TAP = "print('1..3'); print('ok 1 - a'); print('not ok 2 - b'); print('ok 3 - c # SKIP'); raise SystemExit(1)"
XML = '<testsuite><testcase classname="t" name="a"/></testsuite>'
JUNIT = f"import sys; open(sys.argv[1], 'w').write('{XML}')"


def _test(code: str, report: str = "exit", *more: str) -> dict[str, str]:
    return {"command": json.dumps([sys.executable, "-c", code, *more]), "report": report}


def _tests(root: Path, test: dict[str, str]) -> tuple[Done, Any]:
    done = run_tests(given(root, test=test))
    return done, json.loads(done.out["tests.json"])


def test_a_report_is_counted(tmp_path: Path) -> None:
    """Skipped tests are neither passed nor failed."""
    done, data = _tests(tmp_path, _test(TAP, "tap"))

    assert ("pass", 0.5) == (done.outcome, done.fields["pass_rate"])
    assert (3, 1, 1, 1) == tuple(data[key] for key in ("total", "passed", "failed", "skipped"))
    assert [] == complaints(data, SCHEMA)


def test_a_report_in_a_file_is_read_from_where_the_command_was_told(tmp_path: Path) -> None:
    """`{report}` is replaced by the place."""
    data = _tests(tmp_path, _test(JUNIT, "junit", "{report}"))[1]

    assert (1.0, True, ["passed"]) == (data["pass_rate"], data["named"], list(data["results"].values()))


@pytest.mark.parametrize(("code", "rate"), [("0", 1.0), ("1", 0.0)])
def test_without_a_report_the_exit_code_counts(tmp_path: Path, code: str, rate: float) -> None:
    """Whatever the tests print."""
    done, data = _tests(tmp_path, _test(f"print('FAIL'); raise SystemExit({code})"))

    assert (rate, False) == (done.fields["pass_rate"], data["named"])
    assert "FAIL" in data["output"]


def test_a_failure_that_no_test_has_is_counted(tmp_path: Path) -> None:
    """A run that ends with an error is never whole."""
    code = "print('1..1'); print('ok 1 - a'); raise SystemExit(3)"

    assert 0.5 == _tests(tmp_path, _test(code, "tap"))[0].fields["pass_rate"]


def test_tests_that_cannot_be_run_are_no_result(tmp_path: Path) -> None:
    """No command, no program, and no report of a run that claims success."""
    with pytest.raises(Refused, match="no test command"):
        measure(given(tmp_path))
    with pytest.raises(Refused, match="cannot be run"):
        measure(given(tmp_path, test={"command": '["/nowhere/at/all"]'}))
    with pytest.raises(Refused, match="report cannot be used"):
        measure(given(tmp_path, test=_test("pass", "junit")))
    with pytest.raises(InvalidFile, match=r"unknown value 'xml' \(allowed: junit"):
        measure(given(tmp_path, test=_test("pass", "xml")))
    with pytest.raises(InvalidFile, match="JSON list of words"):
        measure(given(tmp_path, test={"command": '"make test"'}))


def test_the_tests_do_not_learn_where_the_result_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent wrote what they run."""
    monkeypatch.setenv("HANDOFFD_RESULT", "/x")
    monkeypatch.setenv("SHOP_LEVEL", "3")
    code = "import os; print(sorted(name for name in os.environ if name.startswith(('HANDOFFD', 'SHOP'))))"

    assert "['SHOP_LEVEL']\n" == measure(given(tmp_path, test=_test(code))).output


def test_a_signal_is_a_failure(tmp_path: Path) -> None:
    """With the code that a shell would give."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    assert 137 == measure(given(tmp_path, test=_test(code))).exit_code


# --- against the baseline -----------------------------------------------------------------------------
def _worse(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return regressions({"results": before}, {"results": after, "exit_code": 0}, "tests.json")


def test_a_test_that_passed_and_fails_now_is_worse() -> None:
    """So is one that is gone or skipped, and a new one that fails."""
    before = {"a": "passed", "b": "passed", "c": "passed", "d": "failed", "e": "passed"}
    after = {"a": "passed", "b": "failed", "c": "skipped", "d": "failed", "f": "error"}

    assert ["b: failed", "c: skipped", "e: gone", "f: new, and error"] == _worse(before, after)


def test_a_test_that_was_red_before_is_nobodys_regression() -> None:
    """Nor is it one when it passes or is gone now."""
    assert [] == _worse({"a": "failed", "b": "skipped"}, {"a": "passed"})


def test_without_names_the_exit_code_is_compared() -> None:
    """Green before and red now is worse; red before is not."""
    after = {"results": {}, "exit_code": 2}

    assert ["the tests end with 2, and ended with 0"] == regressions(
        {"results": {}, "exit_code": 0}, after, "f"
    )
    assert [] == regressions({"results": {}, "exit_code": 1}, after, "f")


@pytest.mark.parametrize(("before", "outcome"), [("passed", "pass"), ("failed", "pass")])
def test_the_baseline_is_found_on_the_board(tmp_path: Path, before: str, outcome: str) -> None:
    """The tests run again in the workspace."""
    old = {"results": {"a": before}, "exit_code": 1}
    one = board(tmp_path / "b", [row("baseline", "tests.json")], {"baseline/tests.json": old})
    code = "print('1..1'); print('ok 1 - a')"
    names = list(measure(given(tmp_path / "w", test=_test(code, "tap"))).report.results)
    (tmp_path / "b" / "baseline/tests.json").write_text(json.dumps({**old, "results": {names[0]: before}}))

    assert outcome == compare_baseline(given(tmp_path / "w", board=one, test=_test(code, "tap"))).outcome


def test_a_regression_is_named(tmp_path: Path) -> None:
    """The next agent reads which tests it broke."""
    old = {"results": {"gone_test": "passed"}, "exit_code": 0}
    one = board(tmp_path / "b", [row("baseline", "tests.json")], {"baseline/tests.json": old})

    done = compare_baseline(given(tmp_path / "w", board=one, test=_test("print('1..0')", "tap")))

    assert ("regression", 1) == (done.outcome, done.fields["regressions"])
    assert "gone_test: gone" == done.summary


# --- coverage -----------------------------------------------------------------------------------------
def test_coverage_is_read_from_a_report(tmp_path: Path) -> None:
    """Cobertura, or lcov over all files."""
    assert coverage_in(tmp_path) is None
    (tmp_path / "lcov.info").write_text("LF:10\nLH:5\nend_of_record\nLF:10\nLH:10\n")
    assert 0.75 == coverage_in(tmp_path)
    (tmp_path / "coverage.xml").write_text('<?xml version="1.0"?><coverage version="7" line-rate="0.81">')
    assert 0.81 == coverage_in(tmp_path)
