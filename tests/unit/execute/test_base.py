"""The records of a run survive their way through a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.runs import run_spec

from handoffd.execute.base import Claim, ExitRecord, Rung, RunSpec, StartRecord

LADDER = (Rung(signal="INT", grace_s=2.5), Rung(signal="KILL", grace_s=0))


@pytest.mark.parametrize(
    "record",
    [
        run_spec(Path("/p"), "r1", "第一步", "\udcff", env={"KEY": "值"}, ladder=LADDER, deadline_s=None),
        StartRecord(run_id="r", shim_pid=1, shim_started=2, pid=3, pid_started=4, boot_id="b", monotonic=5.5),
        ExitRecord(run_id="r", signal=9, by="deadline", tail="…", killed=3),
    ],
)
def test_record_survives_json(record: RunSpec | StartRecord | ExitRecord) -> None:
    """It reads back as it was written, also beyond ASCII and beyond UTF-8."""
    assert record == type(record).from_json(record.to_json())


def test_claim_survives_its_few_words() -> None:
    """It is short enough for a file system to keep it with the name: 59 bytes on ext4."""
    claim = Claim(pid=4194304, started=10**9, boot_id="843b2f40-66b8-4db1-9982-1fb5d9402e0e")

    assert claim == Claim.from_text(claim.to_text())
    assert len(claim.to_text()) < 60


def test_entries_of_a_newer_version_are_ignored() -> None:
    """A daemon can read what a shim of a later version wrote."""
    text = json.dumps({"run_id": "r", "code": 0, "invented_later": True})

    assert ExitRecord(run_id="r", code=0) == ExitRecord.from_json(text)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"run_id": 1', '{"argv": null, "ladder": []}'])
def test_a_damaged_specification_is_a_value_error(text: str) -> None:
    """Whatever is in the file, the reader gets one kind of error."""
    with pytest.raises(ValueError, match=r"."):
        RunSpec.from_json(text)


def test_impossible_values_are_refused() -> None:
    """A signal that the shim does not know, naming those that it does; a run without a program."""
    with pytest.raises(ValueError, match=r"INT, TERM, KILL.*'STOP'"):
        Rung(signal="STOP", grace_s=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="argv is empty"):
        run_spec(Path("/p"), "r1")
