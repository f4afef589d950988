"""Asking the daemon, and what happens without one."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from tests.support.controlled import Controlled

from handoffd.api.client import Client
from handoffd.engine.events import Noted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, account, either, give
from handoffd.errors import Json, Locked, NoDaemon


def _place(runtime: Path) -> Place:
    return Place(config=None, environ={"HANDOFFD_RUNTIME_DIR": str(runtime)})


def test_the_daemon_is_asked_first(control: Controlled) -> None:
    """In the name of the account."""
    answer = give(_place(control.runtime), "note", "/srv/shop", {"text": "x"})

    assert answer.daemon
    assert [("/srv/shop", Noted(text="x", by=account()))] == control.supervision.given


def test_without_a_daemon_the_other_way_is_taken(tmp_path: Path) -> None:
    """And the answer says so."""
    answer = either(_place(tmp_path), lambda client: client.get("/v1/health"), lambda: {"type": "x"})

    assert Answer({"type": "x"}, daemon=False) == answer


def test_a_daemon_that_starts_meanwhile_is_asked(tmp_path: Path) -> None:
    """It has the lock before it answers; neither is an error."""
    answers: list[Json | Exception] = [NoDaemon("not yet"), NoDaemon("not yet"), {"type": "from the daemon"}]

    def ask(_: Client) -> Json:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def without() -> Json:
        raise Locked("a daemon starts")

    assert Answer({"type": "from the daemon"}, daemon=True) == either(_place(tmp_path), ask, without)


def test_other_errors_are_not_tried_again(tmp_path: Path) -> None:
    """What fails without a daemon fails at once."""
    tries = []

    def without() -> Json:
        tries.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  (any will do)
        either(_place(tmp_path), lambda client: client.get("/v1/health"), without)
    assert [1] == tries


def test_verbs_are_recorded_under_the_accounts_name() -> None:
    """As `id -un` tells it."""
    assert pwd.getpwuid(os.getuid()).pw_name == account()
