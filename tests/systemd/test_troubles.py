"""A service that does not start: what verbs say about it, and that the command they name repairs it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.eventually import eventually_sync
from tests.systemd.box import Done
from tests.systemd.service import Form, Service, Story


def test_a_credential_that_is_missing(service: Service) -> None:
    """No endless restarts; every verb names the cause and the command."""
    service.box.must(f"mv {service.secret} {service.secret}.away")
    assert 0 != service.systemctl(f"restart {service.daemon}").returncode
    assert ("failed", "0") == (
        service.show(service.daemon, "ActiveState"),
        service.show(service.daemon, "NRestarts"),
    )
    assert 3 == service.service("status").returncode
    look, _, start = told_next(service, "243/CREDENTIALS").partition(" # then: ")
    assert 0 != service.administers(look).returncode

    service.box.must(f"mv {service.secret}.away {service.secret}")
    assert 0 == service.administers(f"{look} && {start}").returncode
    service.answers()


def test_a_program_that_is_gone(service: Service, story: Story) -> None:
    """Every verb names the cause and the fix; the agent continues."""
    with moved(service):
        assert 0 != service.systemctl(f"restart {service.daemon}").returncode
        command = told_next(service, "203/EXEC").removeprefix("sudo ")

        repaired = service.administers(f"PATH={Path(service.program).parent}:$PATH; {command}")
        assert 0 == repaired.returncode, repaired.stdout + repaired.stderr
        story.goes_on()


@contextlib.contextmanager
def moved(service: Service) -> Iterator[None]:
    """Have the program in another folder, as it is after another way to install it, and then back."""

    def move(before: str, after: str) -> None:
        service.box.must(f"mv {before} {after} && sed -i s,{before},{after}, {after}/bin/handoffd")
        service.program = f"{after}/bin/handoffd"

    folder = str(Path(service.program).parents[1])
    move(folder, "/opt/moved")
    try:
        yield
    finally:
        move("/opt/moved", folder)
        done = service.service("install")
        assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.form(Form.SYSTEM)
def test_an_account_that_is_gone(service: Service, story: Story) -> None:
    """Every verb names the cause and the command for afterwards."""
    assert 0 == service.systemctl(f"stop {service.daemon}").returncode
    with renamed(service):
        assert 0 != service.systemctl(f"start {service.daemon}").returncode
        command = told_next(service, f"the account {service.account} does not exist (exit status 217/USER)")
        look, _, start = command.partition(" # then: ")
        assert 0 != service.administers(look).returncode

    assert 0 == service.administers(f"{look} && {start}").returncode
    story.goes_on()


@contextlib.contextmanager
def renamed(service: Service) -> Iterator[None]:
    """Have the account under another name for a while."""

    def rename(before: str, after: str) -> None:
        service.box.must(f"sed -i s/^{before}:/{after}:/ /etc/passwd /etc/shadow")
        service.login = after

    rename(service.account, "another")
    try:
        yield
    finally:
        rename("another", service.account)


def told_next(service: Service, what: str) -> str:
    """Return what every verb that needs the daemon says to type next, once it says `what`.

    For a moment at each new start systemd has forgotten how the last one ended.
    """

    def told(ask: Callable[[], Done]) -> str:
        _, _, after = ask().stdout.partition(what)
        found = re.search(r"^ *next:? +(.*)$", after, re.MULTILINE)
        return re.sub(" +", " ", found[1]) if found else ""

    verbs = (partial(service.types, f"handoffd {verb}") for verb in ("status", "doctor"))
    commands = [eventually_sync(partial(told, ask)) for ask in (partial(service.service, "status"), *verbs)]
    assert 1 == len({command.partition(" # ")[0] for command in commands}), commands
    return commands[-1]
