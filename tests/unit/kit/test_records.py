"""`archive` and `export`: what a flow made, kept and taken away."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.kit.given import Given
from handoffd.kit.records import archive, export

SCHEMA = json.loads((ROOT / "config/schema/archive/1.json").read_text("utf-8"))


def _given(tmp_path: Path) -> Given:
    rows = [row("design", "plan.json", outcome="ready"), row("work[T1]/perform", outcome="done")]
    one = board(tmp_path / "b", rows, {"design/plan.json": "{}"})
    return given(tmp_path / "w", board=one, flow="team-coordinate-1a2b", pipeline="team-coordinate")


def test_the_record_has_every_task_and_the_digest_of_every_file(tmp_path: Path) -> None:
    """As its schema says."""
    done = archive(_given(tmp_path))
    data = json.loads(done.out["archive.json"])

    assert [] == complaints(data, SCHEMA)
    assert ["design", "work[T1]/perform"] == [one["node"] for one in data["tasks"]]
    assert hashlib.sha256(b"{}").hexdigest() == data["tasks"][0]["files"][0]["sha256"]
    assert "1 file recorded." == done.summary


def test_the_bundle_has_the_files_and_their_record(tmp_path: Path) -> None:
    """Under the names that they have on the board."""
    bundle = export(_given(tmp_path)).out["export.tar.gz"]

    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        assert ["archive.json", "design/plan.json"] == tar.getnames()
        member = tar.extractfile("design/plan.json")
        assert member is not None
        assert b"{}" == member.read()


def test_the_same_files_make_the_same_bundle(tmp_path: Path) -> None:
    """Byte for byte, on another day and under another account."""
    assert export(_given(tmp_path / "1")).out == export(_given(tmp_path / "2")).out
