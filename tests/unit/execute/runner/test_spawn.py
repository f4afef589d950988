"""A program is started where and as it was told, or the reason why not is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.execute.runner import spawn

PACKAGE = str(Path(spawn.__file__).parents[3])

# In a process of its own, since it changes the working directory, and has signals that a shim has.
PROGRAM = """
import os, signal, sys
sys.path.append(sys.argv[1])
from handoffd.execute.runner import spawn
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
null = os.open("/dev/null", os.O_RDONLY)
try:
    pid = spawn.spawn(sys.argv[4:], {"PATH": sys.argv[2]}, sys.argv[3], null, 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.getcwd())
except spawn.Refusal as refusal:
    print(refusal)
"""


def spawned(cwd: str, *argv: str, path: str = "/usr/bin:/bin") -> str:
    """Return what a program and then its parent have written."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, PACKAGE, path, cwd, *argv]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout


def test_child_runs_where_it_was_told_to_and_its_parent_does_not_stay_there(tmp_path: Path) -> None:
    """A shim keeps no file system busy."""
    assert f"{tmp_path}\n0 /\n" == spawned(str(tmp_path), "pwd")


def test_child_has_its_own_session_and_no_inherited_signal_settings(tmp_path: Path) -> None:
    """What the shim ignores or blocks, the program does not."""
    text = "grep -E '^Sig(Blk|Ign):' /proc/self/status | cut -f 2; ps -o sid= -p $$; echo $$"

    blocked, ignored, session, pid, *_ = spawned(str(tmp_path), "sh", "-c", text).split()

    the_c_librarys_own = 0b11 << 31
    assert 0 == int(blocked, 16)
    assert 0 == int(ignored, 16) & ~the_c_librarys_own
    assert session == pid


def test_program_is_looked_for_in_its_own_path(tmp_path: Path) -> None:
    """Ours may be another one; folders and files that cannot be executed are passed over."""
    for name, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "agent"
        program.write_text(f"#!/bin/sh\necho {name}\n")
        program.chmod(mode)
    (tmp_path / "folder" / "agent").mkdir(parents=True)
    path = f"{tmp_path}/none:{tmp_path}/folder:{tmp_path}/first:{tmp_path}/second"

    assert "second\n0 /\n" == spawned(str(tmp_path), "agent", path=path)


def test_program_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    """It was found, so it is not said to be missing."""
    (tmp_path / "agent").write_text("#!/bin/sh\n")

    expected = "EACCES: program 'agent': Permission denied\n"
    assert expected == spawned(str(tmp_path), "agent", path=str(tmp_path))


def test_program_that_is_nowhere_is_named_with_the_path_that_was_looked_at(tmp_path: Path) -> None:
    """It is the daemon's, seldom the one of the person who reads this; and what to type is said, too."""
    expected = (
        "ENOENT: program 'nope' is not on the PATH that the daemon gives executors and checks"
        f" (/none:{tmp_path}); `command -v 'nope'` says whether it is on yours,"
        " `handoffd service install` gives that to a service\n"
    )

    assert expected == spawned(str(tmp_path), "nope", path=f"/none:{tmp_path}")


def test_path_beyond_measure_is_not_told_whole(tmp_path: Path) -> None:
    """The line becomes part of STATE.json and of a notice."""
    assert f"({'/' * 500}...);" in spawned(str(tmp_path), "nope", path="/" * 5000)


def test_program_named_by_its_path_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    """The failure says which kind, which program and why."""
    assert "ENOENT: program './nope': No such file or directory\n" == spawned(str(tmp_path), "./nope")


def test_script_whose_interpreter_is_not_there_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """The kernel gives the same error for both."""
    script = tmp_path / "agent"
    script.write_text("#!/no/such/node\n")
    script.chmod(0o755)
    interpreter = f"the interpreter that the first line of '{script}' names"

    assert f"ENOENT: {interpreter}: No such file or directory\n" == spawned(
        str(tmp_path), "agent", path=str(tmp_path)
    )


def test_working_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing folder is not mistaken for a missing program."""
    gone = str(tmp_path / "gone")

    assert f"ENOENT: working directory '{gone}': No such file or directory\n" == spawned(gone, "pwd")


def test_stdin_that_is_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    """Opening it ends at once; reading waits again, as programs expect."""
    os.mkfifo(tmp_path / "pipe")

    stdin = spawn.open_stdin(str(tmp_path / "pipe"))

    assert os.get_blocking(stdin)
    os.close(stdin)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied"), "EACCES: stdin: Permission denied"),
        (ValueError("embedded null byte"), "stdin: embedded null byte"),
    ],
)
def test_explanation_is_one_line(error: Exception, text: str) -> None:
    """Errors of the system are named by their symbol, others speak for themselves."""
    assert text == spawn.explain("stdin", error)
