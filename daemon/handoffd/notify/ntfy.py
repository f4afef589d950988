"""A topic of an ntfy server: notices on telephones, with a priority by kind.

Published as JSON, so that nothing of a notice has to fit into a header. ntfy has no keys against
repetition: a notice that is sent again is shown again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from handoffd.notify.notice import Notice
from handoffd.notify.posting import judge, place_of, post
from handoffd.notify.sink import Undelivered
from handoffd.notify.wording import headline, message
from handoffd.settings_notify import NtfySettings

PRIORITIES: Final[Mapping[str, int]] = {
    "needs_human": 4, "timeout": 4, "blocked": 4, "reminder": 4, "escalation": 5, "done": 3, "warning": 3,
}  # fmt: skip
"""Of the five that ntfy knows; 3 is its usual one, 5 breaks through what a telephone holds back."""

_TAGS: Final[Mapping[str, str]] = {
    "needs_human": "raised_hand", "timeout": "hourglass", "blocked": "no_entry", "reminder": "bell",
    "escalation": "rotating_light", "done": "white_check_mark", "warning": "warning", "digest": "memo",
}  # fmt: skip
_NEVER = frozenset({413})
_KEYS = frozenset({401, 403})


class NtfySink:
    """Publishes the notice in words."""

    def __init__(self, settings: NtfySettings, name: str = "ntfy") -> None:
        self.name = name
        self._settings = settings

    async def deliver(self, notice: Notice) -> None:
        """Publish `notice`; raises Undelivered with the place and the reason."""
        settings = self._settings
        body = json.dumps(published(notice, settings), ensure_ascii=False).encode("utf-8", "replace")
        token = settings.token
        headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
        status = await post(settings.server, body, headers, settings.timeout_s)
        if status in _KEYS:
            raise Undelivered(
                f"{place_of(settings.server)} answered {status}: it wants a (better) notify token"
            )
        judge(settings.server, status, _NEVER)

    def close(self) -> None:
        """Hold nothing."""


def published(notice: Notice, settings: NtfySettings) -> dict[str, Any]:
    """Return what ntfy is given, as plain JSON values."""
    given = {**PRIORITIES, **{str(kind): priority for kind, priority in settings.priority.items()}}
    tag = _TAGS.get(notice.kind)
    body: dict[str, Any] = {
        "topic": settings.topic.get_secret_value(),
        "title": headline(notice),
        "message": message(notice),
        "priority": given.get(notice.kind, 3),
        "tags": [*([tag] if tag else []), *settings.tags],
    }
    return body if settings.click is None else {**body, "click": settings.click}
