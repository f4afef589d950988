"""`go test -json`, with the build's words in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.execute.reports import gotest
from handoffd.execute.reports.report import TestReport
from handoffd.protocol.state import TestCounts

DATA = Path(__file__).parents[3] / "data" / "reports"


def sample(name: str) -> TestReport:
    """Read one of the kept reports."""
    return gotest.read((DATA / name).read_bytes())


def stream(*events: dict[str, str]) -> bytes:
    """Return events as lines."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def test_results_are_known_by_package_and_test() -> None:
    """Subtests count for themselves; a package without test files counts for nothing."""
    report = sample("go-mixed.json")

    assert {
        "example.com/shop/cart::TestTotal/empty": "passed",
        "example.com/shop/cart::TestTotal/rounds_up": "failed",
        "example.com/shop/cart::TestTotal": "failed",
        "example.com/shop/cart::TestCoupon": "skipped",
        "example.com/shop/money::TestParse": "passed",
    } == report.results
    assert TestCounts(passed=2, failed=2, skipped=1) == report.counts
    assert ((), (), None) == (report.cut_short, report.load_errors, report.problem)


def test_the_output_of_failing_tests_is_kept() -> None:
    """The test's own words help an agent to repair it; the stream of JSON does not."""
    excerpt = sample("go-mixed.json").excerpt

    assert "cart_test.go:21: got 2, want 3" in excerpt
    assert "needs a database" not in excerpt


WALLET = ("cart/wallet_test.go", "undefined: NewWallet")


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("go-build-failure.json", {WALLET, ("cart/coupon_test.go", "undefined: Coupon")}),
        ("go-build-failure-1.23.json", {WALLET, ("api/server.go", "undefined: Serve")}),
        ("go-setup-failure.json", {("cart/cart_test.go", "expected ';', found is")}),
    ],
)
def test_a_package_that_does_not_build_is_one_load_error_a_file(
    name: str, errors: set[tuple[str, str]]
) -> None:
    """With the compiler's first message, which comes as events or as text on stderr."""
    report = sample(name)

    assert len(errors) == len(report.load_errors)
    assert errors == {(error.file, error.message) for error in report.load_errors}
    assert not any("failed" == outcome for outcome in report.results.values())
    assert report.cut_short == ()


def test_what_the_compiler_says_is_kept_with_its_lines() -> None:
    """Once, whatever it keeps from being built."""
    lines = [f"./lib/lib.go:{number}:1: undefined: X\n" for number in (3, 7)]
    broken = [{"Action": "build-output", "ImportPath": "m/lib", "Output": line} for line in lines]
    packages = [{"Action": "fail", "Package": name, "FailedBuild": "m/lib"} for name in ("m/app", "m/tool")]

    assert "".join(lines) == gotest.read(stream(*broken, *packages)).excerpt


@pytest.mark.parametrize(
    ("events", "file"),
    [
        (
            # `FailedBuild` leads to the package whose file is broken.
            [
                {
                    "Action": "build-output",
                    "ImportPath": "m/lib",
                    "Output": "./lib/lib.go:3:1: syntax error\n",
                },
                {"Action": "build-fail", "ImportPath": "m/lib"},
                {"Action": "fail", "Package": "m/app", "FailedBuild": "m/lib"},
            ],
            "lib/lib.go",
        ),
        (
            # An import cycle names no file.
            [
                {"Action": "output", "Package": "m/app", "Output": "FAIL\tm/app [setup failed]\n"},
                {"Action": "fail", "Package": "m/app"},
            ],
            "m/app",
        ),
    ],
)
def test_a_build_failure_names_the_file_at_fault_or_else_the_package(
    events: list[dict[str, str]], file: str
) -> None:
    """Also the file of a dependency."""
    assert [file] == [error.file for error in gotest.read(stream(*events)).load_errors]


def test_a_panic_cuts_its_package_short() -> None:
    """The test that ran is an error; that later ones are missing is on record."""
    report = sample("go-panic.json")

    assert "error" == report.results["example.com/shop/cart::TestSecond"]
    assert ("example.com/shop/cart::",) == report.cut_short
    assert "panic: assignment to entry in nil map" in report.excerpt


def test_a_package_that_fails_without_a_test_is_an_error_of_its_own() -> None:
    """TestMain that exits with an error fails no test, but the package."""
    body = stream({"Action": "start", "Package": "m"}, {"Action": "fail", "Package": "m"})

    report = gotest.read(body)

    assert {"m": "error"} == report.results
    assert ("m::",) == report.cut_short


def test_a_stream_that_stops_is_no_success() -> None:
    """A package without an end leaves an unnamed failure, whatever its tests said."""
    body = stream(
        {"Action": "run", "Package": "m", "Test": "TestA"},
        {"Action": "pass", "Package": "m", "Test": "TestA"},
    )

    assert "the report ends before m does" == gotest.read(body).unnamed_failure


@pytest.mark.parametrize(
    "body",
    [
        b"go: go.mod file not found in current directory or any parent directory\n",
        b'{"Action":1}\n{"no":"action"}\n[]\n' + b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_output_without_events_is_a_problem(body: bytes) -> None:
    """The command did not even begin to test."""
    assert "there is no event of `go test -json` in the report" == gotest.read(body).problem


def test_hostile_names_are_made_harmless() -> None:
    """Lone surrogates and escapes in a name can be stored and printed afterwards."""
    body = stream(
        {"Action": "fail", "Package": "m", "Test": "Test\ud800\x1b"}, {"Action": "fail", "Package": "m"}
    )

    assert all(test_id.encode() and test_id.isprintable() for test_id in gotest.read(body).results)
