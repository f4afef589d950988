"""`trash` and `restore`: moves files of a project out of the way, and back.

A batch is a folder `.ai/trash/<flow or day>/` that holds the moved files, at their old paths below
`files/`, and a `MANIFEST.json`. The manifest is written before the first move and names every entry, so a
crash between two moves loses nothing: an entry that was not moved is simply still at its place. Every folder
is opened without following links; a move is a rename, which neither copies nor overwrites.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from handoffd.errors import NotFound, Refused, StoreError
from handoffd.files.errors import storage_error
from handoffd.files.rooted import open_parent, read_project_file, write_project_file
from handoffd.kit.given import (
    MAX_FILE,
    Done,
    Given,
    as_json,
    id_of,
    invalid,
    objects,
    parsed,
    path_of,
    text_of,
)

FOLDER: Final = ".ai/trash"
MANIFEST: Final = "MANIFEST.json"
PROTECTED: Final = (".git", ".ai")
RISKS: Final = ("low", "medium", "high")
_KINDS: Final = ("path", "branch", "note")
_BATCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Candidate(Struct, frozen=True):
    """One entry of a manifest."""

    id: str
    kind: str
    target: str
    risk: str


def candidates(data: object, file: str) -> list[Candidate]:
    """Return the entries of a manifest. Raises InvalidFile; a path outside of the project is one cause."""
    found: list[Candidate] = []
    for at, row in enumerate(objects(data, file, "entries")):
        key = f"entries[{at}]"
        kind = text_of(row, "kind", file, key, _KINDS)
        target = text_of(row, "target", file, key)
        if kind == "path":
            target = path_of(target, file, f"{key}.target")
            if target.partition("/")[0].lower() in PROTECTED:
                invalid(file, f"{key}.target", f"{target[:80]} is not for the trash: .git and .ai stay")
        one = Candidate(id_of(row, file, key), kind, target, text_of(row, "risk", file, key, RISKS))
        if any(one.id == other.id for other in found):
            invalid(file, f"{key}.id", f"'{one.id}' is there twice")
        found.append(one)
    return found


def chosen(given: Given, among: Sequence[Candidate]) -> list[Candidate]:
    """Return the entries that a person chose, or the ones of low risk. Raises Refused."""
    said = given.words.get("ids")
    answer = given.answers.get("choose")
    if said is None and answer is not None and answer.choice == "low_risk":
        return [one for one in among if one.risk == "low" and one.kind == "path"]
    if said is None and (answer is None or answer.choice != "chosen"):
        raise Refused(
            "no person chose what goes to the trash", hint="handoffd kit trash MANIFEST --ids ID,ID"
        )
    ids = tuple(said.split(",")) if said is not None else answer.words if answer is not None else ()
    known = {one.id for one in among}
    unknown = [one for one in ids if one not in known]
    if unknown:
        invalid("the answer", "", f"there is no entry '{unknown[0][:80]}'", sorted(known))
    return [one for one in among if one.id in ids]


# --- trash --------------------------------------------------------------------------------------------
def trash(given: Given) -> Done:
    """Move the chosen entries into a batch of their own."""
    file, data = given.find(given.words["manifest"])
    wanted = chosen(given, candidates(data, file))
    paths = [one for one in wanted if one.kind == "path"]
    left = {one.id: _by_hand(one) for one in wanted if one.kind != "path"}
    batch = _batch_name(given)
    if paths:
        _write_manifest(given.root, batch, paths)
    moved = 0
    for one in paths:
        why = _moved(given.root, one.target, f"{FOLDER}/{batch}/files/{one.target}")
        if why is None:
            moved += 1
        elif not _is_there(given.root, f"{FOLDER}/{batch}/files/{one.target}"):
            left[one.id] = f"{one.target}: {why}"
    lines = (
        [f"{moved} moved to {FOLDER}/{batch}; handoffd kit restore {batch} puts them back."] if paths else []
    )
    lines += [f"Not moved: {one}, {why}" for one, why in left.items()]
    fields = {"moved": moved, "left": len(left)}
    return Done(outcome="partial" if left else "pass", fields=fields, summary="\n".join(lines))


def _by_hand(one: Candidate) -> str:
    return f"type: git branch -d {one.target}" if one.kind == "branch" else f"look at {one.target}"


def _batch_name(given: Given) -> str:
    name = given.flow or given.today
    if not _BATCH.fullmatch(name):
        raise Refused(f"'{name[:80]}' cannot name a folder")
    return name


def _write_manifest(root: Path, batch: str, paths: Sequence[Candidate]) -> None:
    """Add to the manifest of a batch; what it has already stays first."""
    place = f"{FOLDER}/{batch}/{MANIFEST}"
    before = _read_manifest(root, batch) or []
    known = {row["target"] for row in before}
    new = [{"id": one.id, "target": one.target, "risk": one.risk} for one in paths if one.target not in known]
    write_project_file(root, place, as_json({"batch": batch, "entries": [*before, *new]}))


def _read_manifest(root: Path, batch: str) -> list[dict[str, Any]] | None:
    place = f"{FOLDER}/{batch}/{MANIFEST}"
    found = read_project_file(root, place, MAX_FILE)
    if found is None:
        return None
    rows = objects(parsed(found.content, place), place, "entries")
    for at, row in enumerate(rows):
        row["target"] = path_of(
            text_of(row, "target", place, f"entries[{at}]"), place, f"entries[{at}].target"
        )
    return rows


# --- restore ------------------------------------------------------------------------------------------
def restore(given: Given) -> Done:
    """Move the entries of a batch back to where they were, if nothing is in the way."""
    batch = given.words["batch"]
    if not _BATCH.fullmatch(batch):
        raise Refused(f"'{batch[:80]}' cannot name a batch")
    rows = _read_manifest(given.root, batch)
    if rows is None:
        raise NotFound(f"there is no {FOLDER}/{batch}", hint=f"ls {FOLDER}")
    said = given.words.get("id")
    ids = None if said is None else said.split(",")
    back, left = 0, []
    for row in rows:
        target = row["target"]
        source = f"{FOLDER}/{batch}/files/{target}"
        if (ids is not None and row.get("id") not in ids) or not _is_there(given.root, source):
            continue
        why = _moved(given.root, source, target)
        back += why is None
        left += [] if why is None else [f"Not restored: {target}, {why}"]
    outcome = "partial" if left else "pass"
    return Done(
        outcome=outcome,
        fields={"restored": back, "left": len(left)},
        summary="\n".join([f"{back} restored.", *left]),
    )


# --- one move -----------------------------------------------------------------------------------------
def _moved(root: Path, source: str, target: str) -> str | None:
    """Rename below the root, without overwriting; return why not. Raises StoreError for a full disk."""
    try:
        with open_parent(root, source) as before:
            if before is None:
                return "it is not there"
            name = source.rpartition("/")[2]
            if not _exists(before, name):
                return "it is not there"
            with open_parent(root, target, create=True) as after:
                assert after is not None
                aim = target.rpartition("/")[2]
                if _exists(after, aim):
                    return "something else is in its place"
                os.rename(name, aim, src_dir_fd=before, dst_dir_fd=after)
    except StoreError as error:
        return error.message
    except OSError as error:
        return storage_error("move", root / source, error).message
    return None


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_there(root: Path, relative: str) -> bool:
    try:
        with open_parent(root, relative) as folder:
            return folder is not None and _exists(folder, relative.rpartition("/")[2])
    except StoreError:
        return False
