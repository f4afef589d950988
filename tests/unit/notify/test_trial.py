"""A sample through each sink."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.support.notices import serving

from handoffd.clock import SystemClock
from handoffd.errors import NotFound
from handoffd.notify.sinks import Trial, try_sinks
from handoffd.settings.notify import EXAMPLE_TOPIC, NotifySettings


async def tried(only: str | None = None, **values: Any) -> tuple[Trial, ...]:
    """Return what became of a sample."""
    settings = NotifySettings.model_validate(values)
    return await try_sinks(settings, os.environ, SystemClock(), only=only, place="/state")


async def test_each_sink_says_how_it_went() -> None:
    """All of them at once, whatever became of others; routes, hours and kinds do not count."""
    with serving(200) as server, serving(500) as broken:
        found = await tried(
            ntfy={"server": server.address(), "topic": "t"}, command=["sh", "-c", "exit 3"], events=[],
            sinks={"x": {"webhook": {"url": broken.address("/key")}}}, routes=[{"to": []}],
        )  # fmt: skip

        ((_, _, _, body),) = server.requests
        assert "handoffd tests this way of telling you" == body["title"]
        ((_, _, _, notice),) = broken.requests
    assert [("command", "command"), ("ntfy", "ntfy"), ("x", "webhook")] == [
        (one.sink, one.form) for one in found
    ]
    assert ["sh: exit code 3", None, "http://127.0.0.1 answered 500"] == [one.why for one in found]
    assert ("test", "/state", True) == (notice["kind"], notice["project"], notice["id"].startswith("test-"))


async def test_one_can_be_tried_by_itself() -> None:
    """By its name."""
    (one,) = await tried("x", command=["false"], sinks={"x": {"command": ["true"]}})

    assert ("x", None) == (one.sink, one.why)


@pytest.mark.parametrize(
    ("only", "values", "words"),
    [
        (None, {}, "no notification sink is configured .sinks: none"),
        ("phone", {"command": ["true"]}, "there is no sink 'phone' .sinks: command"),
    ],
)
async def test_without_a_sink_it_is_said_so(only: str | None, values: dict[str, Any], words: str) -> None:
    """With what there is."""
    with pytest.raises(NotFound, match=words):
        await tried(only, **values)


async def test_a_sink_that_is_switched_off_gets_no_sample() -> None:
    """The trial gives the reason: the topic of the example is public."""
    with serving(200) as server:
        (one,) = await tried(ntfy={"server": server.address(), "topic": EXAMPLE_TOPIC})

    assert [] == server.requests
    assert one.why is not None
    assert "switched off: its topic, " in one.why
