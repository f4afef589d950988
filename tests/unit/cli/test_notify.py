"""`handoffd notify test`, by a daemon and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands import Commands, environment
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision

from handoffd.errors import HandoffdError, NotFound

asked: list[str | None] = []


async def trials(only: str | None) -> list[tuple[str, str, str | None, float]]:
    """Stand for the notifier of a daemon."""
    asked.append(only)
    if only == "nobody":
        raise NotFound("there is no sink 'nobody'", hint="handoffd config show")
    return [("ntfy", "ntfy", None, 0.25), ("x", "webhook", "no \x1b[31mroute", 1.5)][: 1 if only else 2]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Controlled]:
    """A daemon that tells people."""
    asked.clear()
    with controlled(MemorySupervision(), try_sinks=trials) as lent:
        for name, value in environment(lent.runtime).items():
            monkeypatch.setenv(name, value)
        yield lent


def test_the_daemon_says_how_each_sink_did(daemon: Controlled, handoffd: Commands) -> None:
    """Exit code 1 unless all accepted it; a server's words do not drive the terminal."""
    said = handoffd("notify", "test")
    assert (1, [None]) == (said.code, asked)
    assert [
        "ntfy accepted it, after 0.2 s",
        "x (webhook) did not accept it: no \\x1b[31mroute, after 1.5 s",
        "next: handoffd config show  # then correct `notify` in that file",
    ] == said.lines

    one = handoffd("notify", "test", "ntfy", "--json")
    assert (0, "tested", True, ["ntfy"]) == (one.code, one.json["type"], one.json["ok"], asked[1:])
    assert 4 == handoffd("notify", "test", "nobody").code


def test_executors_tell_nobody(handoffd: Commands) -> None:
    """An agent could wake somebody up."""
    with (
        controlled(MemorySupervision(), try_sinks=trials, inside=lambda _: True) as lent,
        pytest.raises(HandoffdError, match="for people"),
    ):
        lent.client.post("/v1/notices/test", {})


def test_without_a_daemon_this_process_sends_it(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded."""
    monkeypatch.setenv("HANDOFFD_NOTIFY__COMMAND", json.dumps(["sh", "-c", "cat > $HOME/told"]))
    said = handoffd("notify", "test")

    assert (0, True) == (said.code, said.lines[0].startswith("command accepted it"))
    assert "test" == json.loads((alone / "told").read_text())["kind"]
    assert not (alone / "state").exists()
    assert "Nothing needs you." in handoffd("notices").out
