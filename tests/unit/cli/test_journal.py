"""`handoffd journal`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.recorded import BLOG, spoil, story, write

from handoffd.files.locks import acquire, daemon_lock_path


@pytest.fixture
def journal(alone: Path) -> Path:
    """The journal of two projects, where commands look for it."""
    path = alone / "state/journal.db"
    write(path, story(), story(BLOG))
    return path


def test_a_sound_journal_is_verified(journal: Path, handoffd: Commands) -> None:
    """In one line, with exit code 0."""
    said = handoffd("journal", "verify")

    assert (0, 1) == (said.code, len(said.lines))
    assert "52 decisions of 2 tracks replayed; all as recorded." in said.out


def test_a_divergence_is_reported_with_both_values(journal: Path, handoffd: Commands) -> None:
    """Number, event, project; exit code 1; the same as JSON."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")

    said = handoffd("journal", "verify")
    told = handoffd("journal", "verify", "--json")

    assert 1 == said.code == told.code
    assert "diverged: event 3, advanced, /srv/shop, main: it is decided otherwise now: why" == said.lines[0]
    assert "        recorded  because" in said.lines
    assert (False, [3]) == (told.json["clean"], [one["seq"] for one in told.json["findings"]])


def test_what_was_changed_by_hand_is_made_again_from_its_events(journal: Path, handoffd: Commands) -> None:
    """`verify` says what to type; after it everything is as recorded."""
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")

    found = handoffd("journal", "verify")
    repaired = handoffd("journal", "repair", "/srv/shop")

    assert "  next: handoffd stop && handoffd journal repair /srv/shop" == found.lines[-1]
    assert (0, "  next: handoffd run") == (repaired.code, repaired.lines[-1])
    assert repaired.lines[0].startswith("/srv/shop (main) was rebuilt: its body is not the one that event ")
    assert 0 == handoffd("journal", "verify").code
    assert "Every track agrees with its last event.\n" == handoffd("journal", "repair").out


def test_a_restore_leaves_out_what_was_changed_by_hand_and_restores_the_others(
    journal: Path, handoffd: Commands
) -> None:
    """A decision on it would cover the change; made again from its events, it waits as they do."""
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")
    file = str(journal.parent / "copy.db")

    said = handoffd("journal", "backup", file)
    restored = handoffd("journal", "restore", file, "--json")

    assert (0, "  next: handoffd stop && handoffd journal repair   (then back up again)") == (
        said.code, said.lines[-1]
    )  # fmt: skip
    assert (1, "restored") == (restored.code, restored.json["type"])
    (left_out,) = restored.json["left_out"]
    assert ("/srv/shop", "main") == (left_out["project"], left_out["track"])
    assert left_out["why"].startswith("its body is not the one that event ")
    assert "/srv/shop" not in restored.json["paused"]
    assert "/srv/blog" in restored.json["paused"]

    repaired = handoffd("journal", "repair", "--json")
    assert (0, ["/srv/shop"]) == (repaired.code, repaired.json["paused"])
    assert [] == handoffd("journal", "backup", file, "--force", "--json").json["unsound"]


def test_an_order_that_cannot_be_read_is_named_and_not_made_again(journal: Path, handoffd: Commands) -> None:
    """No event says it once more: that takes a backup, and a backup of it names its project."""
    last = "SELECT max(id) FROM effects WHERE project = '/srv/shop'"
    spoil(journal, f"UPDATE effects SET effect = '{{', outcome = NULL WHERE id = ({last})")

    verified, repaired = handoffd("journal", "verify"), handoffd("journal", "repair")
    saved = handoffd("journal", "backup", str(journal.parent / "copy.db"), "--json")

    assert "handoffd journal restore FILE" in verified.lines[-1]
    assert (1, True) == (repaired.code, "cannot be read" in repaired.lines[0])
    assert "handoffd journal restore FILE" in repaired.lines[-1]
    assert ["/srv/shop"] == saved.json["unsound"]


def test_nothing_is_made_again_while_events_are_missing(journal: Path, handoffd: Commands) -> None:
    """Made from fewer of them, a track would stand where it stood long ago."""
    spoil(
        journal,
        "DELETE FROM events WHERE seq = (SELECT seq FROM tracks WHERE project = '/srv/shop')",
        "DELETE FROM tracks WHERE project = '/srv/shop'",
    )

    said = handoffd("journal", "repair", "shop", "--json")

    assert (1, [], ["/srv/shop"]) == (
        said.code, said.json["made"], [one["project"] for one in said.json["left"]]
    )  # fmt: skip


def test_what_cannot_be_proved_is_not_made_again(journal: Path, handoffd: Commands) -> None:
    """Events that were changed, too, lead elsewhere."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")

    said = handoffd("journal", "repair", "--json")

    assert (1, []) == (said.code, said.json["made"])
    assert ["/srv/shop"] == [one["project"] for one in said.json["left"]]


def test_nothing_is_repaired_beside_a_daemon(journal: Path, handoffd: Commands) -> None:
    """It would go on with what it has in memory."""
    with acquire(daemon_lock_path(journal.parent), "it"):
        said = handoffd("journal", "repair")

    assert (1, True) == (said.code, "handoffd stop" in said.err)


@pytest.mark.parametrize("words", [("blog",), ("--project", "blog"), ("-p", "/srv/blog/docs")])
def test_one_project_is_verified_however_it_is_named(
    journal: Path, handoffd: Commands, words: tuple[str, ...]
) -> None:
    """By name, by path, by a path inside it; as an argument or an option."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")

    said = handoffd("journal", "verify", *words, "--json")

    assert (0, "/srv/blog", 26) == (said.code, said.json["project"], said.json["replayed"])


def test_a_project_that_is_not_known_is_told(journal: Path, handoffd: Commands) -> None:
    """With the exit code for it."""
    assert 4 == handoffd("journal", "verify", "nothing").code


def test_without_a_journal_there_is_nothing_to_verify(alone: Path, handoffd: Commands) -> None:
    """And none is made."""
    assert (1, False) == (handoffd("journal", "verify").code, (alone / "state").exists())


def test_a_backup_is_made_and_restored(journal: Path, alone: Path, handoffd: Commands) -> None:
    """A round trip; the daemon's own log stays out of the answer."""
    file = alone / "monday.db"

    made = handoffd("journal", "backup", str(file))
    again = handoffd("journal", "backup", str(file), "--json")
    forced = handoffd("journal", "backup", str(file), "--force", "--json")
    put_back = handoffd("journal", "restore", str(file), "--json")

    assert (0, 1, 0, 0) == (made.code, again.code, forced.code, put_back.code)
    assert "up to event 52, checked." in made.out
    assert "EXISTS" == again.json["code"]
    assert ("backed_up", str(file), 52) == (forced.json["type"], forced.json["file"], forced.json["newest"])
    assert ("restored", 52, "") == (put_back.json["type"], put_back.json["newest"], put_back.err)
    assert ["/srv/blog", "/srv/shop"] == put_back.json["paused"]
    assert 0 == handoffd("journal", "verify").code


def test_a_restore_says_what_waits_for_a_person(journal: Path, alone: Path, handoffd: Commands) -> None:
    """Which projects, and what to type."""
    handoffd("journal", "backup", str(alone / "monday.db"))

    said = handoffd("journal", "restore", str(alone / "monday.db"))

    assert "2 projects are paused" in said.out
    assert "handoffd resume PROJECT" in said.out
    assert "    /srv/shop" in said.lines
