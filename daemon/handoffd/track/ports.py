"""What a track asks of its project, and its parts of the track: declared here, so that nothing looks up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from handoffd.engine.events import Event
from handoffd.engine.track import Track, TrackKey
from handoffd.inspection.own_files import Texts
from handoffd.protocol.rules import RuleBook
from handoffd.settings.model import ProjectSettings


class Files(Protocol):
    """A project's own files: `settings` and `rules` are the last valid ones."""

    settings: ProjectSettings
    rules: RuleBook

    async def refresh(self) -> bool:
        """Take over what changed on the disk; return whether anything did. Raises StoreError."""

    async def take(self, texts: Texts) -> bool:
        """Take over what the files say, read a moment ago; return whether that is anything new."""


class Home(Protocol):
    """The project a track belongs to."""

    ending: bool
    """The daemon ends its executors: what is stopped now is carried out by the next daemon."""

    @property
    def files(self) -> Files:
        """What its own files say."""

    @property
    def workable(self) -> bool:
        """Whether anything may be dispatched in it."""

    @property
    def running(self) -> bool:
        """Whether an attempt of ours is in flight in any of its tracks."""

    def touched(self) -> None:
        """Take a hint that something under `.ai/` may have changed."""

    async def has_unfinished_git(self) -> bool:
        """Return whether its repository is in the middle of a merge or the like; marks the project then."""

    def is_there(self) -> bool:
        """Return whether its own folder is at its root; blocks on the disk."""

    def stories_done(self) -> frozenset[str]:
        """Return the stories that are done, in any of its tracks."""

    def is_aborted(self, key: TrackKey) -> bool:
        """Return whether the dispatch in flight of a track was ordered to end for good."""


class Inbox(Protocol):
    """How facts get back to the track."""

    def post(self, event: Event) -> None:
        """Hand in a fact; it is decided on in its turn."""

    async def settle(self, event: Event) -> None:
        """Hand in a fact and return when it is committed."""

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start lasting work in the track's task group; without a loop it is left for the daemon."""

    @property
    def lasting(self) -> bool:
        """Whether there is a loop: a daemon, not a verb given without one."""

    @property
    def track(self) -> Track:
        """The track as it is now."""
