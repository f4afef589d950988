"""What the fan-out asks of a sink, and how a sink says that it failed."""

from __future__ import annotations

from typing import Protocol

from handoffd.notify.notice import Notice


class Undelivered(Exception):
    """A notice did not get through. Not `worth_retrying`: this sink will never take this very notice.

    The message is logged, so it must hold nothing secret.
    """

    def __init__(self, why: str, *, worth_retrying: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.worth_retrying = worth_retrying


class Sink(Protocol):
    """A way to reach a person."""

    name: str

    async def deliver(self, notice: Notice) -> None:
        """Deliver one notice within the sink's own time limit, or raise Undelivered."""

    def close(self) -> None:
        """Let go of what it holds while it has nothing to do; the next delivery takes it up again."""
