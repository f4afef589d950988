"""`archive` and `export`: what a flow made, as a record with digests, and as one file to take away."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import Any, Final

from handoffd.engine.wording import counted
from handoffd.kit.given import Done, Entry, Given, as_json

RECORD: Final = "archive.json"
BUNDLE: Final = "export.tar.gz"
_MODE: Final = 0o644


def archive(given: Given) -> Done:
    """Write the record of a flow."""
    rows = [_row(given, entry) for entry in given.board.entries]
    data = {"flow": given.flow or given.root.name, "pipeline": given.pipeline or "unknown", "tasks": rows}
    files = sum(len(row["files"]) for row in rows)
    return Done(
        fields={"files": files}, summary=f"{counted(files, 'file')} recorded.", out={RECORD: as_json(data)}
    )


def _row(given: Given, entry: Entry) -> dict[str, Any]:
    files = []
    for file in entry.files:
        content = given.board.read(file)
        digest = hashlib.sha256(content).hexdigest()
        files.append({"path": file, "sha256": digest, "bytes": len(content)})
    outcome = {} if entry.outcome is None else {"outcome": entry.outcome}
    return {"node": entry.node, "visit": entry.visit, **outcome, "files": files}


def export(given: Given) -> Done:
    """Pack the files of a flow, with its record, the same way each time."""
    record = archive(given).out[RECORD]
    packed: dict[str, bytes] = {RECORD: record}
    for entry in given.board.entries:
        packed.update({file: given.board.read(file) for file in entry.files})
    return Done(
        fields={"files": len(packed) - 1},
        summary=f"{BUNDLE} has {len(packed) - 1:,} of the flow's files, and their record.",
        out={BUNDLE: tarball(packed)},
    )


def tarball(files: dict[str, bytes]) -> bytes:
    """Return files as a compressed archive.

    Without owner, times and an order of its own: the same files are the same bytes.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(files[name]), _MODE, 0
            tar.addfile(member, io.BytesIO(files[name]))
    # Level 9 and no time: else the head of the file has the moment in it.
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)
