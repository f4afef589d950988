"""A story played on a daemon of its own, told as it goes and once more in the end: `demo` and `rehearse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from handoffd.cli.asking import print_json
from handoffd.cli.private_daemon import private_daemon
from handoffd.cli.reviewer import Changes, approve_by_itself, ask_at_terminal
from handoffd.cli.storyline import UNMEASURED, Json, Storyline, table_of
from handoffd.errors import HandoffdError

progress = Console(stderr=True)
"""Where people see how it goes; standard output is for what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a story went: where its track stood in the end, and a row for each attempt and decision."""

    project: str
    story: str
    track: Json
    rows: tuple[Json, ...]
    log: Path
    unmeasured: frozenset[str] = frozenset()
    """Steps whose tests did not run, for want of a test command, or because they were skipped."""
    skipped: str | None = None
    """Why the story's tests were skipped, if they were."""

    @property
    def json(self) -> Json:
        """The same for programs."""
        where = {"project": self.project, "story": self.story, "log": str(self.log)}
        return {
            "type": "played",
            **where,
            "rows": list(self.rows),
            "unmeasured": sorted(self.unmeasured),
            "skipped": self.skipped,
        }


class StoryFailed(HandoffdError):
    """What was tried out did not come to its end. `details` are the keys that the JSON has besides."""

    default_code = "STORY_STOPPED"

    def __init__(self, message: str, *, hint: str, details: Json, code: str | None = None) -> None:
        super().__init__(message, hint=hint, code=code)
        self.details = {key: value for key, value in details.items() if key != "type"}


def play(
    project: str, story: str, *, base: Path, settings: Mapping[str, Any], approved_by: str | None, by: str
) -> Played:
    """Return how a story of `project` went on a private daemon that keeps its records below `base`.

    `approved_by` is what approves at human steps instead of a person at this terminal, in words; None asks.
    """
    changes = Changes(project)
    ask = (
        ask_at_terminal(progress, changes, f"handoffd {by} --yes")
        if approved_by is None
        else approve_by_itself(progress, changes, approved_by)
    )
    progress.print(f"Starting a daemon for this alone; it writes {base / 'daemon.log'}", soft_wrap=True)
    with private_daemon(base, settings) as client:
        client.post("/v1/verbs/start", {"project": project, "story": story, "by": by})
        storyline = Storyline(client, project, progress, ask, by=by)
        track = storyline.follow()
        rows = storyline.rows()
    return Played(project=project, story=story, track=track, rows=rows, log=base / "daemon.log")


def tell(played: Played, *, as_json: bool, prove: Callable[[Played], Json] = lambda _: {}) -> Json:
    """Print what came of it, with what `prove` finds out about a story that is done, and return that.

    Raises StoryFailed when the story did not reach its end.
    """
    if not as_json:
        Console().print(table_of(played.rows, played.unmeasured, "skipped" if played.skipped else UNMEASURED))
    track = played.track
    if track["step"] != "done":
        why = track["last_error"] or track["reason"]
        message = f"the story stopped at {track['step']} ({track['status']}): {why}"
        raise StoryFailed(message, hint=f"less {quote(str(played.log))}", details=played.json)
    proof = prove(played)
    if as_json:
        print_json({**played.json, **proof})
    return proof
