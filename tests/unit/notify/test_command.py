"""The command sink against real programs: obedient, failing, hanging, and leaving children behind."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.notices import NOTICE
from tests.unit.notify.making import is_running

from handoffd.notify.command import CommandSink
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import NotifySettings

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/tmp", "SECRET_KEY": "do not tell"}


def sink(script: str, *arguments: object, timeout_s: float = 60) -> CommandSink:
    """Return a sink that runs `script` with sh."""
    argv = ("/bin/sh", "-c", script, "sh", *map(str, arguments))
    return CommandSink(NotifySettings(command=argv, command_timeout_s=timeout_s), ENVIRON)


def read_pid(file: Path) -> int | None:
    """Return the number in `file` once it is written whole."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return int(text) if text.endswith("\n") else None


def written_by(pid: int) -> list[str]:
    """Return the numbers of the files without a name that a process has opened."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += [file.name] if os.readlink(file).endswith(" (deleted)") else []
    return found


async def test_the_program_gets_the_notice_as_json(tmp_path: Path) -> None:
    """Standard input holds the JSON and then ends."""
    await sink('cat > "$1"', tmp_path / "got").deliver(NOTICE)

    assert json.loads(NOTICE.as_json()) == json.loads((tmp_path / "got").read_text(encoding="utf-8"))


async def test_a_program_that_does_not_read_is_no_failure() -> None:
    """It is delivered if the program succeeds."""
    await sink("exit 0").deliver(NOTICE)


async def test_the_program_gets_a_short_environment_without_secrets(tmp_path: Path) -> None:
    """It starts in the root folder."""
    code = "import json, os, sys; json.dump([dict(os.environ), os.getcwd()], open(sys.argv[1], 'w'))"
    argv = (sys.executable, "-c", code, str(tmp_path / "got"))
    await CommandSink(NotifySettings(command=argv), ENVIRON).deliver(NOTICE)

    environ, folder = json.loads((tmp_path / "got").read_text(encoding="utf-8"))
    assert {"PATH": ENVIRON["PATH"], "HOME": "/tmp", "HANDOFFD_NOTICE_ID": NOTICE.id} == {
        name: value
        for name, value in environ.items()
        if name not in {"LC_CTYPE", "HANDOFFD_CHILD"}  # set by Python itself, and what verbs are refused by
    }  # fmt: skip
    assert "/" == folder


async def test_a_failure_has_exit_code_and_last_output() -> None:
    """Only the end of a flood."""
    with pytest.raises(Undelivered) as caught:
        await sink("yes noise | head -c 100000; echo no route >&2; exit 3").deliver(NOTICE)

    assert caught.value.why.startswith("/bin/sh: exit code 3, after writing: ")
    assert caught.value.why.endswith("no route")
    assert len(caught.value.why) < 3000
    assert caught.value.worth_retrying


async def test_a_notice_needs_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The notice may be that the disk is full; and a program that floods does not fill it."""
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    largest = 0

    async def measure() -> None:
        nonlocal largest
        while True:
            sizes = [os.stat(f"/proc/self/fd/{number}").st_size for number in written_by(os.getpid())]
            largest = max(largest, *sizes, 0)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure)
        await sink('cat > "$1"; head -c 5000000 /dev/zero', tmp_path / "got").deliver(NOTICE)
        with pytest.raises(Undelivered, match=r"ended by us after 0.3 s, after writing: y\ny\n"):
            await sink("yes", timeout_s=0.3).deliver(NOTICE)
        tasks.cancel_scope.cancel()

    assert json.loads(NOTICE.as_json()) == json.loads((tmp_path / "got").read_text(encoding="utf-8"))
    assert largest < 100_000


async def test_a_signal_is_a_failure() -> None:
    """A program that another process killed did not deliver."""
    with pytest.raises(Undelivered, match="signal 15"):
        await sink("kill -TERM $$").deliver(NOTICE)


async def test_a_missing_program_is_worth_retrying() -> None:
    """Notices wait until a person installs it."""
    settings = NotifySettings(command=("/no/such/program",))

    with pytest.raises(Undelivered, match=r"/no/such/program cannot be started: No such file") as caught:
        await CommandSink(settings, ENVIRON).deliver(NOTICE)

    assert caught.value.worth_retrying


async def test_a_hanging_program_is_ended_with_its_children(tmp_path: Path) -> None:
    """At its time limit the whole group is killed, whatever signals it ignores."""
    script = 'trap "" TERM INT; sleep 1000 & echo $! > "$1"; wait'

    with pytest.raises(Undelivered, match=r"ended by us after 2 s"):
        await sink(script, tmp_path / "pid", timeout_s=2).deliver(NOTICE)

    child = read_pid(tmp_path / "pid")
    assert child is not None
    await eventually(lambda: not is_running(child))


async def test_a_programs_children_do_not_outlive_it(tmp_path: Path) -> None:
    """A background child that holds the output open neither delays the delivery nor stays."""
    await sink('sleep 1000 & echo $! > "$1"', tmp_path / "pid").deliver(NOTICE)

    child = read_pid(tmp_path / "pid")
    assert child is not None
    await eventually(lambda: not is_running(child))


async def test_a_cancelled_delivery_leaves_no_process(tmp_path: Path) -> None:
    """A daemon that stops ends its notification programs."""
    pid: int | None = None
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(sink('echo $$ > "$1"; sleep 1000', tmp_path / "pid").deliver, NOTICE)
            pid = await eventually(lambda: read_pid(tmp_path / "pid"))
            group.cancel_scope.cancel()

    assert pid is not None
    await eventually(lambda: not is_running(pid))
