"""What the sinks that post have in common; what servers do to it is in test_webhook.py."""

from __future__ import annotations

import pytest
from tests.support.notices import serving

from handoffd.notify.ports import Undelivered
from handoffd.notify.sinks import judge, place_of, post


def test_of_an_address_only_scheme_and_host_are_told() -> None:
    """The rest may be a key."""
    assert "https://example.org" == place_of("https://me:key@example.org:8443/key?key#key")


async def test_headers_of_ones_own_go_before_those_of_the_address() -> None:
    """A token is meant, when both are given."""
    with serving(200) as server:
        await post(server.address("/x", user="a:b@"), b"{}", {"Authorization": "Bearer t"}, 60)

    ((_, path, headers, body),) = server.requests
    assert ("/x", "Bearer t", {}) == (path, headers["Authorization"], body)


@pytest.mark.parametrize(("status", "worth_retrying"), [(404, True), (413, False)])
def test_some_answers_are_about_this_very_notice(status: int, worth_retrying: bool) -> None:
    """Which ones, the sink says."""
    with pytest.raises(Undelivered) as caught:
        judge("https://h/key", status, frozenset({413}))

    assert (f"https://h answered {status}", worth_retrying) == (caught.value.why, caught.value.worth_retrying)
    judge("https://h/key", 204, frozenset())
