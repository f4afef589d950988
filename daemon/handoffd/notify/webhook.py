"""A URL that receives each notice by POST."""

from __future__ import annotations

from handoffd.notify.notice import Notice
from handoffd.notify.posting import judge, post
from handoffd.settings_notify import WebhookSettings

ID_HEADER = "Idempotency-Key"
_NEVER = frozenset({400, 413, 415, 422})
"""Answers about this very notice. All others may be mended: a server, an address, a key."""


class WebhookSink:
    """Posts the notice as JSON; any answer of the 200s is a delivery."""

    def __init__(self, settings: WebhookSettings, name: str = "webhook") -> None:
        self.name = name
        self._settings = settings

    async def deliver(self, notice: Notice) -> None:
        """Post `notice`; raises Undelivered with the place and the reason."""
        address = self._settings.url.get_secret_value()
        body = notice.as_json().encode("utf-8", "replace")
        status = await post(address, body, {ID_HEADER: notice.id}, self._settings.timeout_s)
        judge(address, status, _NEVER)

    def close(self) -> None:
        """Hold nothing."""
