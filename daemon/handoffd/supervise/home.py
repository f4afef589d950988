"""What a track asks of its project, declared on the track's side."""

from __future__ import annotations

from typing import Protocol

from handoffd.engine.track import TrackKey
from handoffd.supervise.project_files import ProjectFiles


class Home(Protocol):
    """The project a track belongs to."""

    files: ProjectFiles
    ending: bool
    """The daemon ends its executors: what is stopped now is carried out by the next daemon."""

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
        """Return whether its own folder lies at its root; blocks on the disk."""

    def stories_done(self) -> frozenset[str]:
        """Return the stories that are done, in any of its tracks."""

    def is_aborted(self, key: TrackKey) -> bool:
        """Return whether the dispatch in flight of a track was ordered to end for good."""
