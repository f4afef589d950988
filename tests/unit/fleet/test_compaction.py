"""How a track stood after an event of long ago."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.recorded import BLOG, SHOP, spoil, story, write

from handoffd.errors import HandoffdError, StoreError
from handoffd.fleet.housekeeping import DIVERGED, standing_after


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of two projects."""
    path = tmp_path / "journal.db"
    write(path, story(SHOP), story(BLOG))
    return path


@pytest.mark.parametrize("count", [1, 5, 12])
def test_it_is_decided_again_from_its_events(path: Path, count: int) -> None:
    """Of that track alone, up to that event."""
    play = story(SHOP)

    assert play.records[count - 1].track == standing_after(path, SHOP, count)


def test_a_snapshot_is_a_beginning(path: Path) -> None:
    """What came before it need not be there."""
    play = story(SHOP)
    before = standing_after(path, SHOP, 4)
    spoil(
        path, "INSERT INTO snapshots SELECT project, track, 4, body FROM tracks WHERE project = '/srv/shop'"
    )
    spoil(path, "UPDATE snapshots SET body = :body", values={"body": _written(before)})
    spoil(path, "DELETE FROM effects WHERE seq < 4", "DELETE FROM events WHERE seq < 4")

    assert play.records[9].track == standing_after(path, SHOP, 10)


def _written(track: object) -> str:
    from handoffd.journal.codec import encode

    return encode(track)


def test_what_is_decided_otherwise_now_is_not_given_up(path: Path) -> None:
    """It is the only witness of what happened; who looks after journals is told."""
    spoil(path, "UPDATE events SET why = 'because' WHERE seq = 5")

    with pytest.raises(HandoffdError) as caught:
        standing_after(path, SHOP, 10)

    assert DIVERGED == caught.value.code
    assert "event 5" in caught.value.message
    assert "handoffd journal verify /srv/shop" == caught.value.hint
    assert standing_after(path, SHOP, 4).state is not None


def test_what_cannot_be_read_is_not_given_up(path: Path) -> None:
    """Nor is a track without any event there."""
    spoil(path, "UPDATE events SET event = '{' WHERE seq = 3")

    with pytest.raises(HandoffdError, match="event 3"):
        standing_after(path, SHOP, 10)
    with pytest.raises(StoreError):
        standing_after(path.with_name("missing.db"), SHOP, 10)
    with pytest.raises(HandoffdError, match="no STATE"):
        standing_after(path, BLOG, 1)
