"""Records are there whole or not there, and a claim has one winner."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from handoffd.execute.runner import records


def test_written_record_reads_back_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """A missing one is None; it is for this account alone, since a specification holds secrets."""
    assert None is records.read(str(tmp_path), "spec.json")
    records.write(str(tmp_path), "spec.json", "一\n")
    records.write(str(tmp_path), "spec.json", "二\n")

    assert "二\n" == records.read(str(tmp_path), "spec.json")
    assert ["spec.json"] == os.listdir(tmp_path)
    assert 0o600 == (tmp_path / "spec.json").stat().st_mode & 0o777


def test_record_can_be_dated_like_the_claim(tmp_path: Path) -> None:
    """Its modification time is the one asked for, also in a reserved place."""
    assert None is records.claimed(str(tmp_path), "claim")
    records.claim(str(tmp_path), "claim", "1 2 boot")
    made_ns = records.claimed_ns(str(tmp_path), "claim") - 1_000_000_000

    records.write(str(tmp_path), "start.json", "{}", durable=False, modified_ns=made_ns)
    records.Reserved(str(tmp_path), "exit.json", 1024).write("{}", durable=False, modified_ns=made_ns)

    assert (
        made_ns == (tmp_path / "start.json").stat().st_mtime_ns == (tmp_path / "exit.json").stat().st_mtime_ns
    )


def test_a_claim_has_exactly_one_winner_and_is_complete(tmp_path: Path) -> None:
    """However many try at once, one gets it, and what it wrote is what is read."""
    texts = [letter * 50 for letter in "abcde"]
    barrier = threading.Barrier(len(texts))
    won: list[str] = []

    def attempt(text: str) -> None:
        barrier.wait()
        if records.claim(str(tmp_path), "claim", text):
            won.append(text)

    threads = [threading.Thread(target=attempt, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == len(won)
    assert won[0] == records.claimed(str(tmp_path), "claim")
    assert ["claim"] == os.listdir(tmp_path)


def test_reserved_record_takes_its_place_whole(tmp_path: Path) -> None:
    """Before it is written there is no record; afterwards nothing of the reserve is left."""
    reserved = records.Reserved(str(tmp_path), "exit.json", 1024)
    assert None is records.read(str(tmp_path), "exit.json")

    reserved.write("{}\n")

    assert "{}\n" == records.read(str(tmp_path), "exit.json")
    assert ["exit.json"] == os.listdir(tmp_path)


def test_record_larger_than_its_reserve_is_written_all_the_same(tmp_path: Path) -> None:
    """The reserve helps on a full disk; it is not a limit."""
    records.Reserved(str(tmp_path), "exit.json", 1024).write("x" * 2_000)

    assert "x" * 2_000 == records.read(str(tmp_path), "exit.json")
    assert ["exit.json"] == os.listdir(tmp_path)


def test_a_reserve_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    """Giving it up twice, or after the record was written, does no harm."""
    records.Reserved(str(tmp_path), "start.json", 1024).give_up()
    assert [] == os.listdir(tmp_path)

    written = records.Reserved(str(tmp_path), "start.json", 1024)
    written.write("{}")
    written.give_up()
    written.give_up()
    assert ["start.json"] == os.listdir(tmp_path)


def test_record_in_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """The caller learns that nothing was written."""
    with pytest.raises(FileNotFoundError):
        records.write(str(tmp_path / "gone"), "start.json", "")
