"""What `cargo test` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.execute.reports import cargo
from handoffd.execute.reports.report import MAX_RESULTS, TestReport

DATA = Path(__file__).parents[3] / "data" / "reports"
RUNNING = "     Running unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)\n"
OK = "test result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"


def sample(name: str) -> TestReport:
    """Read one of the kept outputs."""
    return cargo.read((DATA / name).read_bytes())


def printed(*parts: str) -> TestReport:
    """Read an output made up of parts."""
    return cargo.read("".join(parts).encode())


def test_a_real_output() -> None:
    """Ids have the binary, or the documentation; the output of a failing test is not a result."""
    report = sample("cargo-mixed.txt")

    assert {
        "shop src/lib.rs::tests::it_works": "passed",
        "shop src/lib.rs::tests::later": "skipped",
        "shop src/lib.rs::tests::later2": "skipped",
        "shop src/lib.rs::tests::fails": "failed",
        "shop src/lib.rs::tests::panics": "passed",
        "outer tests/outer.rs::it_works": "passed",
        "second tests/second.rs::it_works": "passed",
        "shop doc::src/lib.rs - add (line 2)": "passed",
        "shop doc::src/lib.rs - add (line 5)": "passed",
    } == report.results
    assert ((), (), None) == (report.load_errors, report.cut_short, report.problem)


def test_a_file_that_cannot_be_compiled_is_a_load_error() -> None:
    """No test ran, which does not prove that any of them fails."""
    report = sample("cargo-not-compiled.txt")

    assert [("tests/second.rs", "this file contains an unclosed delimiter")] == [
        (error.file, error.message) for error in report.load_errors
    ]
    assert ({}, (), None) == (report.results, report.cut_short, report.problem)


def test_a_compiler_that_names_no_file_names_the_crate() -> None:
    """A linker, for one; a warning's file is not the error's."""
    report = printed(
        "warning: unused variable: `x`\n --> src/lib.rs:1:1\n",
        "error: linking with `cc` failed: exit status: 1\n",
        "error: could not compile `shop` (lib test) due to 1 previous error; 1 warning emitted\n",
    )

    assert [("shop", "it could not be compiled")] == [(e.file, e.message) for e in report.load_errors]


def test_a_binary_that_ends_itself_was_cut_short() -> None:
    """Its later tests are missing, and not known to pass."""
    report = sample("cargo-aborted.txt")

    assert ("second tests/second.rs::",) == report.cut_short
    assert "error" == report.results["second tests/second.rs"]
    assert "passed" == report.results["outer tests/outer.rs::it_works"]
    assert "passed" == report.results["shop doc::src/lib.rs - add (line 2)"]


def test_documentation_may_come_in_several_parts() -> None:
    """Examples that cannot be merged with the rest run by themselves; a crate without tests passes."""
    none = printed(RUNNING, "\nrunning 0 tests\n\n", OK.format(0))
    assert ({}, None) == (none.results, none.problem)

    part = "\nrunning 1 test\ntest src/lib.rs - {} (line 1) ... ok\n\n"
    report = printed("   Doc-tests shop\n", part.format("a"), OK.format(1), part.format("b"), OK.format(1))

    assert ["shop doc::src/lib.rs - a (line 1)", "shop doc::src/lib.rs - b (line 1)"] == list(report.results)
    assert () == report.cut_short


def test_output_between_the_lines_makes_it_unusable() -> None:
    """A child of a test printed into its line: fewer results than were announced."""
    report = printed(RUNNING, "\nrunning 2 tests\ntest a ... hello\nok\ntest b ... ok\n\n", OK.format(2))

    assert report.problem is not None
    assert "announced 2 tests and reported 1" in report.problem


def test_a_sum_that_does_not_agree_is_an_error() -> None:
    """A test prints the line of another that passes, in place of its own failure."""
    report = printed(
        RUNNING,
        "\nrunning 1 test\ntest forged ... ok\ntest real ... FAILED\n\n",
        "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    )

    assert "error" == report.results["shop src/lib.rs"]


@pytest.mark.parametrize(
    "body",
    [b"", b"error: failed to parse manifest at `/p/Cargo.toml`\n", b"\xff\x00\n" * 100, b"running 3 tests\n"],
)
def test_another_output_is_a_problem(body: bytes) -> None:
    """It proves nothing."""
    assert cargo.read(body).problem is not None


def test_too_many_results_are_refused() -> None:
    """The memory of the daemon is not the agent's to fill."""
    count = MAX_RESULTS + 1
    told = "".join(f"test t{number} ... ok\n" for number in range(count))

    assert "refused" in (printed(RUNNING, f"running {count} tests\n", told, OK.format(count)).problem or "")
