"""A program is started as specified, or the error names the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.runs import printed

from handoffd.execute.runner import spawn

# In a process of its own, since it changes the working directory, and has signals that a shim has.
PROGRAM = """
from handoffd.execute.runner import spawn
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
null = os.open("/dev/null", os.O_RDONLY)
try:
    argv = [word.replace("%NUL", chr(0)) for word in sys.argv[3:]]
    pid = spawn.spawn(argv, {"PATH": sys.argv[1]}, sys.argv[2], null, 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.getcwd())
except spawn.Refusal as refusal:
    print(refusal)
"""


def spawned(cwd: Path, *argv: str, path: str = "/usr/bin:/bin") -> str:
    """Return what a program and then its parent have written."""
    return printed(PROGRAM, path, str(cwd), *argv)


def test_child_runs_in_its_folder_and_its_parent_does_not_stay_there(tmp_path: Path) -> None:
    """A shim keeps no file system busy."""
    assert f"{tmp_path}\n0 /\n" == spawned(tmp_path, "pwd")


def test_child_has_its_own_session_and_no_inherited_signal_settings(tmp_path: Path) -> None:
    """What the shim ignores or blocks, the program does not."""
    text = "grep -E '^Sig(Blk|Ign):' /proc/self/status | cut -f 2; ps -o sid= -p $$; echo $$"

    blocked, ignored, session, pid, *_ = spawned(tmp_path, "sh", "-c", text).split()

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

    assert "second\n0 /\n" == spawned(tmp_path, "agent", path=path)


NOWHERE = "ENOENT: program 'nope' is not on the daemon's PATH"
INTERPRETER = "the interpreter that the first line of '{here}/script' names"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("nope", NOWHERE),
        ("./nope", "ENOENT: program './nope': No such file or directory"),
        ("locked", "EACCES: program 'locked': Permission denied"),
        ("script", f"ENOENT: {INTERPRETER}: No such file or directory"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_with_the_reason(
    tmp_path: Path, program: str, text: str
) -> None:
    """A path is tried as it is; a file that is found is not called missing, though its interpreter may be."""
    for name, mode in (("locked", 0o644), ("script", 0o755)):
        (tmp_path / name).write_text("#!/no/such/node\n")
        (tmp_path / name).chmod(mode)

    assert text.format(here=tmp_path) + "\n" == spawned(tmp_path, program, path=f"{tmp_path}:/none")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["ec%NULho"], r"the name of the program 'ec\x00ho' holds a NUL character"),
        (["./ec%NULho"], r"the name of the program './ec\x00ho' holds a NUL character"),
        (["echo", "a", "b%NUL"], "argument 2 of the program 'echo' holds a NUL character"),
    ],
)
def test_a_nul_character_is_named_as_the_reason(tmp_path: Path, argv: list[str], text: str) -> None:
    """A program that is not on the PATH could be installed; this one cannot."""
    assert text + "\n" == spawned(tmp_path, *argv)


def test_a_missing_working_directory_is_named(tmp_path: Path) -> None:
    """It is not mistaken for a missing program."""
    gone = tmp_path / "gone"

    assert f"ENOENT: working directory '{gone}': No such file or directory\n" == spawned(gone, "pwd")


def test_a_pipe_without_a_writer_as_stdin_does_not_block(tmp_path: Path) -> None:
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
