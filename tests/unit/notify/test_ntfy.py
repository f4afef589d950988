"""The ntfy sink against a server on loopback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.notices import NOTICE, Server, serving

from handoffd.notify.ports import Undelivered
from handoffd.notify.sinks import NtfySink, published
from handoffd.settings.notify import NtfySettings


def sink(server: Server, **values: Any) -> NtfySink:
    """Return a sink that publishes at a server."""
    return NtfySink(NtfySettings.model_validate({"server": server.address(), "topic": "shop-4711", **values}))


async def test_the_notice_is_published_in_words() -> None:
    """With a priority and a tag for its kind, whatever letters are in it."""
    notice = replace(NOTICE, text="需要審查")
    with serving(200) as server:
        await sink(server, tags=["shop"], click="https://ci.example.org/").deliver(notice)

    ((method, path, headers, body),) = server.requests
    assert ("POST", "/") == (method, path)
    assert "Authorization" not in headers
    message = body.pop("message")
    assert message.startswith("需要審查\nWhy: ")
    assert message.endswith("\nNext: handoffd approve /srv/shop")
    assert {
        "topic": "shop-4711", "title": "shop US-005 needs you", "priority": 4,
        "tags": ["raised_hand", "shop"], "click": "https://ci.example.org/",
    } == body  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "priority"),
    [("done", 1), ("escalation", 5), ("warning", 3), ("digest", 3), ("test", 3), ("new", 3)],
)
def test_priorities_are_by_kind(kind: str, priority: int) -> None:
    """Those of the settings go before ours."""
    settings = NtfySettings.model_validate({"topic": "t", "priority": {"done": 1}})

    assert priority == published(replace(NOTICE, kind=kind), settings)["priority"]


async def test_a_token_opens_the_server() -> None:
    """As a header."""
    with serving(200) as server:
        await sink(server, token="tk_1").deliver(NOTICE)

    ((_, _, headers, body),) = server.requests
    assert ("Bearer tk_1", "shop-4711") == (headers["Authorization"], body["topic"])


@pytest.mark.parametrize(
    ("status", "why", "worth_retrying"),
    [(403, "token", True), (400, "400", True), (429, "429", True), (413, "413", False), (500, "500", True)],
)
async def test_what_a_person_can_mend_is_tried_again(status: int, why: str, worth_retrying: bool) -> None:
    """And neither topic nor token is told."""
    with serving(status) as server, pytest.raises(Undelivered, match=why) as caught:
        await sink(server, token="tk_secret").deliver(NOTICE)

    assert worth_retrying == caught.value.worth_retrying
    assert not {"4711", "tk_secret"} & set(caught.value.why.replace("-", " ").split())
