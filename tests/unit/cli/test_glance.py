"""`handoffd status` on the quick way: it says what the whole command line says, or leaves it to that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import Commands, environment, program
from tests.support.controlled import Controlled
from tests.support.supervision import project_view, track_view

from handoffd.api.unix_socket import NoAnswerError, Silent
from handoffd.cli.status_report import glance, tell
from handoffd.cli.wording import unstyled
from handoffd.files.locks import acquire, daemon_lock_path


@pytest.mark.parametrize("words", [(), ("shop",), ("/srv/shop",), ("--json",), ("shop", "--json")])
def test_it_says_what_the_whole_command_line_says(
    control: Controlled, handoffd: Commands, words: tuple[str, ...]
) -> None:
    """Every project, or one whole; for people and for programs. But for the time that it is."""
    quick = glance(words, None, os.environ)

    assert quick is not None
    assert _timeless(handoffd("status", *words).lines) == _timeless(unstyled(quick).splitlines())


def _timeless(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith('  "at": ')]


@pytest.mark.parametrize("name", ["a b", "ä", "50%25", "x&project=shop", "#1", "a+b", "a?b"])
def test_a_name_reaches_the_daemon_as_it_is(control: Controlled, name: str) -> None:
    """Whatever a URL would make of its signs."""
    view = project_view(f"/srv/{name}", track_view())
    control.supervision.projects[view.project] = view

    quick = glance((view.project,), None, os.environ)

    assert quick is not None
    assert f"root: {view.project} " in quick


@pytest.mark.parametrize("words", [("--watch",), ("-h",), ("shop", "bank"), ("--jsn",), ("nowhere",)])
def test_what_is_not_plain_is_left_to_it(control: Controlled, words: tuple[str, ...]) -> None:
    """Other options, words too many, and what the daemon refuses: it has the words for that."""
    assert glance(words, None, os.environ) is None


def test_without_a_daemon_it_is_left_to_it_too(alone: Path) -> None:
    """The journal is looked at then, which takes its time."""
    assert glance((), None, os.environ) is None


def test_settings_that_have_to_be_read_are_left_to_it(control: Controlled, tmp_path: Path) -> None:
    """A socket that only their own reader can find."""
    config = tmp_path / "handoffd.yaml"
    config.write_text("runtime_dir: ~/run\n")
    environ = {key: value for key, value in os.environ.items() if key != "HANDOFFD_RUNTIME_DIR"}

    assert glance((), str(config), environ) is None


def test_a_daemon_that_does_not_answer_is_said_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """As the whole command line says it, with its exit code."""
    error = NoAnswerError(Silent(0))

    assert (1, 1) == (tell(error, as_json=False), tell(error, as_json=True))
    out, err = capsys.readouterr()
    assert "handoffd: a daemon runs and does not answer\n  next: handoffd doctor\n" == err
    told = {"message": "a daemon runs and does not answer", "hint": "handoffd doctor"}
    assert {"type": "error", "code": "NO_ANSWER", **told} == json.loads(out)


def test_a_full_queue_tells_the_process_that_holds_the_lock(control: Controlled) -> None:
    """The kernel does not; so nobody is told that no daemon runs."""
    state = control.runtime / "locked"
    environ = {**environment(control.runtime), "HANDOFFD_STATE_DIR": str(state)}
    control.socket.unlink()
    with (
        acquire(daemon_lock_path(state), "the state directory"),
        socket.socket(socket.AF_UNIX) as mute,
        socket.socket(socket.AF_UNIX) as first,
    ):
        mute.bind(str(control.socket))
        mute.listen(0)
        first.connect(str(control.socket))
        with pytest.raises(NoAnswerError, match=f"process {os.getpid()}"):
            glance((), None, environ, limit_s=0.05)


SLOW = {"click", "contextlib", "dataclasses", "http.client", "inspect", "socket", "typing", "urllib"}


@pytest.mark.parametrize("words", [(), ("shop",)])
def test_as_a_program_it_prints_without_colours_into_a_pipe(
    control: Controlled, words: tuple[str, ...]
) -> None:
    """And neither click nor anything else that takes milliseconds is imported for it."""
    env = environment(control.runtime)
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from handoffd.cli.start import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "status", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "PROJECT" in said.stdout
    assert "\x1b" not in said.stdout
    assert not SLOW & set(said.stderr.split())
    assert said.stdout == program("status", *words, env=env).out
