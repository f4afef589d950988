"""How a track stood after an event of long ago: decided again from its events, which may go then.

What cannot be decided again as it was is never given up: it is for `handoffd journal verify` to tell of.
Reads page by page, in a thread, beside whoever writes.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from handoffd.engine.replay import replay, standing_of
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import HandoffdError
from handoffd.journal.replay import Entry, Recordings

DIVERGED = "DIVERGED"


def standing_after(journal: Path, key: TrackKey, until: int) -> Track:
    """Return a track as it was after its event `until`.

    Raises HandoffdError (DIVERGED) when its events do not lead there, StoreError when they cannot be read.
    """
    with closing(Recordings(journal)) as source:
        seq, track = source.beginning(key)
        while page := source.page(seq, until, key.project):
            for entry in page:
                seq = entry.seq
                if entry.key == key:
                    track = _after(track, entry)
    if standing_of(track.state) is None:
        raise _diverged(key, until, "there is no STATE after it")
    return track


def _after(track: Track, entry: Entry) -> Track:
    if entry.recorded is None:
        raise _diverged(entry.key, entry.seq, entry.fault or "it cannot be read")
    again = replay(track, entry.recorded)
    if again.differences:
        named = ", ".join(difference.what for difference in again.differences)
        raise _diverged(entry.key, entry.seq, f"it is decided otherwise now: {named}")
    return again.track


def _diverged(key: TrackKey, seq: int, why: str) -> HandoffdError:
    return HandoffdError(
        f"events of {key.project} ({key.track}) are kept whatever their age: event {seq}: {why}",
        code=DIVERGED,
        hint=f"handoffd journal verify {key.project}",
    )
