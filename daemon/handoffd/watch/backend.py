"""What a way of watching folders promises to the watcher, and what it may ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import Place


class Listener(Protocol):
    """Who is told, on the event loop."""

    def touched(self, roots: Iterable[str]) -> None:
        """Known files of these projects may have changed."""

    def moved(self, roots: Iterable[str]) -> None:
        """The `.ai` folders of these came, went or were replaced: where to watch them is to be found anew."""

    def overflowed(self) -> None:
        """Changes may have been missed, nobody knows of which projects."""

    def barred(self, root: str) -> str | None:
        """Return why this project is not to be watched for a while; None if it may be."""

    def bar(self, root: str, why: str) -> None:
        """Have this project left alone until the next sweep: watching it did harm."""

    async def placed(self, places: Sequence[Place]) -> None:
        """From now on these are watched, or not, as their places say: what fell between is to be found."""


class Backend(Protocol):
    """Watches one folder of each project. A change after `placed` is told of; one before may not be."""

    def add(self, root: str) -> None:
        """Watch this project soon; it is told of by `placed`."""

    def remove(self, root: str) -> None:
        """Watch it no more. What is under way may still be told of."""

    def renew(self, roots: Iterable[str]) -> None:
        """Find anew where these, which were added, are to be watched, soon; told of by `placed`."""

    def recover(self) -> None:
        """Make good for events that were lost, beyond the sweep that has just been made."""

    def configure(self, settings: WatchSettings) -> None:
        """Go by these settings from now on."""

    async def run(self, listener: Listener) -> None:
        """Watch until cancelled; every project is placed first. May be run again."""
