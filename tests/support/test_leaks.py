"""Tests of the check that blames a leak on the test that leaks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).parents[2]

_CONFTEST = """
from tests.support.leaks import LeakCheck

def pytest_configure(config):
    config.pluginmanager.register(LeakCheck(config, grace_s=0.2))
"""

_SETTINGS = """
[pytest]
filterwarnings = error
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def outcomes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Outcomes:
    """Return the outcome of each test of a file under the check."""
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY / 'daemon'}:{REPOSITORY}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing them takes most of the time
    pytester.makeconftest(_CONFTEST)
    pytester.makeini(_SETTINGS)
    return Outcomes(pytester)


class Outcomes:
    """Runs a file of tests, in a process of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.text = ""

    def of(self, source: str) -> dict[str, list[str]]:
        """Return the outcomes of each test's phases, as in `{"test_a": ["ERROR", "PASSED"]}`."""
        self._pytester.makepyfile(source)
        options = ("-rA", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "--tb=short")
        ran = self._pytester.run(sys.executable, "-m", "pytest", *options)
        self.text = "\n".join(ran.outlines)
        found: dict[str, list[str]] = {}
        for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", self.text, re.MULTILINE):
            found[name] = sorted([*found.get(name, []), outcome])
        return found


def test_what_is_left_open_fails_the_test_that_opened_it(outcomes: Outcomes) -> None:
    """Referred to or not, in a cycle or not; by name, and the tests after it pass."""
    found = outcomes.of("""
        import asyncio, os, socket

        kept = []

        class Cycle:
            def __init__(self):
                self.me, self.socket = self, socket.socket()

        def test_kept_socket():
            kept.append(socket.socket())

        def test_after_it():
            pass

        def test_socket_in_a_cycle():
            Cycle()

        def test_after_that():
            [[] for _ in range(100_000)]

        def test_descriptor():
            os.open("/dev/zero", os.O_RDONLY)

        def test_loop():
            asyncio.new_event_loop()

        async def test_tidy_loop():
            with open("/dev/null"), socket.socket():
                await asyncio.sleep(0)
    """)

    leaky = ["ERROR", "PASSED"]
    assert found == {
        "test_kept_socket": leaky,
        "test_after_it": ["PASSED"],
        "test_socket_in_a_cycle": leaky,
        "test_after_that": ["PASSED"],
        "test_descriptor": leaky,
        "test_loop": leaky,
        "test_tidy_loop": ["PASSED"],
    }
    assert re.search(r"descriptor \d+: socket:.*<socket\.socket fd=", outcomes.text)
    assert re.search(r"descriptor \d+: /dev/zero", outcomes.text)
    assert "ResourceWarning: unclosed <socket" in outcomes.text
    assert "ResourceWarning: unclosed event loop" in outcomes.text


def test_what_is_left_running_fails_the_test_that_started_it(outcomes: Outcomes) -> None:
    """A thread, a child, one that has ended and was not waited for, and one that went its own way."""
    found = outcomes.of("""
        import os, subprocess, threading

        kept = []

        def test_thread():
            threading.Thread(target=threading.Event().wait, name="waits", daemon=True).start()

        def test_child():
            kept.append(subprocess.Popen(["sleep", "600"]))

        def test_zombie():
            os.posix_spawn("/bin/true", ["true"], {})

        def test_orphan():
            subprocess.run(["sh", "-c", "setsid sleep 601 > /dev/null 2>&1 &"], check=True)

        def test_launcher(tmp_path):
            begun = f"{tmp_path}/begun"
            command = f"setsid sh -c ': > {begun}; sleep 602 > /dev/null 2>&1; : {tmp_path}/run' &"
            command += f" until test -e {begun}; do sleep 0.01; done"
            subprocess.run(["sh", "-c", command], check=True, env={"PATH": os.environ["PATH"]})

        def test_tidy():
            thread = threading.Thread(target=print)
            thread.start()
            thread.join()
            subprocess.run(["true"], check=True)
    """)

    leaky = ["ERROR", "PASSED"]
    assert found == {
        "test_thread": leaky,
        "test_child": leaky,
        "test_zombie": leaky,
        "test_orphan": leaky,
        "test_launcher": leaky,
        "test_tidy": ["PASSED"],
    }
    for said in ("thread 'waits'", "sleep 600", "was not waited for", "sleep 601", "sleep 602"):
        assert said in outcomes.text


def test_a_process_that_becomes_another_program_is_found(outcomes: Outcomes) -> None:
    """Between two programs it seems to have no environment, and so to belong to no test."""
    found = outcomes.of("""
        import subprocess, pytest

        BECOMES = 'test $1 = 0 && exec sleep 604; exec sh -c "$0" "$0" $(($1 - 1))'

        @pytest.mark.parametrize("number", range(5))
        def test_orphan(number):
            begins = 'setsid sh -c "$1" "$1" 500 > /dev/null 2>&1 &'
            subprocess.run(["sh", "-c", begins, "sh", BECOMES], check=True)
    """)

    assert {"test_orphan": ["ERROR"] * 5 + ["PASSED"] * 5} == found


def test_a_failure_answers_for_what_it_left(outcomes: Outcomes) -> None:
    """The frames of a failure hold what the test had; they go with the test, and not with the next."""
    found = outcomes.of("""
        import socket

        def test_fails():
            mine = socket.socket()
            assert mine is None

        def test_passes():
            pass

        def test_fails_too():
            assert not "open"
    """)

    assert found == {
        "test_fails": ["ERROR", "FAILED"],
        "test_passes": ["PASSED"],
        "test_fails_too": ["FAILED"],
    }


def test_a_shared_fixture_answers_when_it_is_over(outcomes: Outcomes) -> None:
    """A lent resource is not a leak of the tests that use it; a remaining one is a leak of the last test."""
    found = outcomes.of("""
        import socket, subprocess, pytest

        @pytest.fixture(scope="module")
        def tidy():
            with socket.socket() as lent:
                yield lent

        @pytest.fixture(scope="module")
        def untidy():
            process = subprocess.Popen(["sleep", "603"])
            yield process

        def test_first(tidy, untidy):
            assert tidy.fileno() > 0

        def test_second(tidy):
            assert tidy.fileno() > 0

        def test_last():
            pass
    """)

    assert found == {"test_first": ["PASSED"], "test_second": ["PASSED"], "test_last": ["ERROR", "PASSED"]}
    assert "sleep 603" in outcomes.text
