"""Tests of the runner that repeats tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.repeat import main


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rounds run without plug-ins, whose imports take most of their time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_it_tells_which_test_failed_and_how_often(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One fails in the second and the fourth of four rounds, the other never; two rounds are busy ones."""
    logs, tried = tmp_path / "logs", tmp_path / "tried"
    file = tmp_path / "test_sometimes.py"
    file.write_text(f"""
from pathlib import Path

def test_each_second_time():
    with Path({str(tried)!r}).open("a+") as file:
        file.write("x")
        assert file.tell() % 2

def test_always():
    pass
""")

    assert 1 == main(["--times", "4", "--logs", str(logs), "--", str(file), "-c", "/dev/null"])

    first, *_, second_last, last = capsys.readouterr().out.splitlines()
    assert first.startswith("round 1 of 4: 2 tests in ")
    assert "4 rounds of 2 tests, 2 of them on a busy machine; failed:" == second_last
    assert "  2 times (1 busy)  test_sometimes::test_each_second_time" == last
    assert ["round-2.log", "round-4.log"] == sorted(path.name for path in logs.rglob("*.*"))


def test_when_all_pass_nothing_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the exit code is 0."""
    file = tmp_path / "test_fine.py"
    file.write_text("def test_fine():\n    pass\n")

    assert 0 == main(
        ["--times", "2", "--jobs", "2", "--logs", str(tmp_path / "logs"), "--", str(file), "-c", "/dev/null"]
    )

    assert (
        "2 rounds of 1 tests, 1 of them on a busy machine: every test passed each time."
        in capsys.readouterr().out
    )
    assert [] == list((tmp_path / "logs").iterdir())


def test_tests_that_cannot_be_run_are_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name, for example."""
    words = ["--times", "1", "--logs", str(tmp_path / "logs"), "--", str(tmp_path / "nosuch.py")]
    assert 1 == main([*words, "-c", "/dev/null"])

    assert "pytest ended with 4" in capsys.readouterr().out
