"""What a program of the kit gets, and what it returns.

A program is a function from `Given` to `Done`. It reads the files of other tasks (the *board*) and of the
workspace through `Given`, changes nothing itself, and returns in `Done` the files to write. Only programs
that move files (`trash.py`) or start the project's tests (`measuring.py`) act on their own. What an agent
wrote is never trusted: a value of another form is refused with the file, the key and what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from msgspec import Struct

from handoffd.errors import InvalidFile, NotFound, Problem, Refused, StoreError
from handoffd.files.rooted import read_project_file

MAX_FILE: Final = 16 * 1024 * 1024
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a flow, an issue, a task of a plan."""
SEVERITIES: Final = ("critical", "high", "medium", "low")
"""The gravest first."""
_ITEM: Final = re.compile(r"\[[^\]]*\]")
_INDEX: Final = "index.json"


# --- what other tasks handed over ---------------------------------------------------------------------
class Entry(Struct, frozen=True, kw_only=True):
    """One task that is over, as the index of a board has it."""

    node: str
    """Such as `issue[GH-12]/solve`."""
    visit: int = 1
    state: str = "accepted"
    outcome: str | None = None
    fields: Mapping[str, Any] = {}
    files: tuple[str, ...] = ()
    """Relative to the board."""
    summary: str = ""
    text: str = ""
    """Of a question: what came with the answer."""

    @property
    def task(self) -> str:
        """The names of the groups and of the task, without the items: `issue/solve`."""
        return _ITEM.sub("", self.node)

    @property
    def item(self) -> str | None:
        """The item that is nearest to it."""
        found = _ITEM.findall(self.node)
        return found[-1][1:-1] if found else None


class Board(Struct, frozen=True):
    """The accepted files of the tasks that a task needs, and how these ended, in the order of the plan."""

    folder: Path | None = None
    entries: tuple[Entry, ...] = ()

    def named(self, name: str) -> Iterator[tuple[Entry, str]]:
        """Yield every file of a name, with the task that handed it over."""
        for entry in self.entries:
            yield from ((entry, file) for file in entry.files if file.rpartition("/")[2] == name)

    def of(self, task: str) -> Entry | None:
        """Return the task of a name, in any group; the last one of several."""
        found = [one for one in self.entries if one.task.rpartition("/")[2] == task]
        return found[-1] if found else None

    def read(self, file: str) -> bytes:
        """Return a file. Raises NotFound and StoreError."""
        found = None if self.folder is None else read_project_file(self.folder, file, MAX_FILE)
        if found is None:
            raise NotFound(f"the board has no {file}, though its index names it")
        return found.content

    def json(self, file: str) -> Any:
        """Return what a JSON file holds. Raises InvalidFile and StoreError."""
        return parsed(self.read(file), file)


def read_board(folder: Path) -> Board:
    """Return the board in a folder. Raises InvalidFile where its index is none."""
    found = read_project_file(folder, _INDEX, MAX_FILE)
    if found is None:
        raise NotFound(f"{folder} has no {_INDEX}")
    rows = parsed(found.content, _INDEX)
    if not isinstance(rows, list):
        invalid(_INDEX, "", "must be a list")
    return Board(folder, tuple(_entry(row, f"[{at}]") for at, row in enumerate(rows)))


def _entry(row: object, key: str) -> Entry:
    if not isinstance(row, dict) or not isinstance(row.get("node"), str):
        invalid(_INDEX, key, "must be an object with a text `node`")
    files = [one for one in row.get("files") or () if isinstance(one, str)]
    return Entry(
        node=row["node"], visit=int(row.get("visit") or 1), state=str(row.get("state") or "accepted"),
        outcome=row.get("outcome"), fields=row.get("fields") or {}, files=tuple(files),
        summary=str(row.get("summary") or ""), text=str(row.get("text") or ""),
    )  # fmt: skip


# --- what a program gets ------------------------------------------------------------------------------
class Answer(Struct, frozen=True):
    """What a person answered to a question that the task needs."""

    choice: str
    text: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The parts of the text: of a JSON list its values, else what spaces and commas separate."""
        if self.text.lstrip().startswith("["):
            try:
                return tuple(map(str, json.loads(self.text)))
            except ValueError:
                pass
        return tuple(word for word in re.split(r"[\s,，、]+", self.text) if word)


class Given(Struct, frozen=True, kw_only=True):
    """Everything that a program may read."""

    root: Path
    """The workspace of the task, which is the current folder."""
    words: Mapping[str, Any] = {}
    """The words and options of the command line, by name."""
    params: Mapping[str, str] = {}
    """Of the flow, as the environment has them: texts, and lists as JSON."""
    board: Board = Board()
    answers: Mapping[str, Answer] = {}
    item: Any = None
    flow: str | None = None
    pipeline: str | None = None
    flows: Path | None = None
    """A folder that has the board of each other flow which the parameters name, by its name."""
    today: str = "1970-01-01"
    test: Mapping[str, str] = {}
    """How the project is tested: `command`, a JSON list, `report`, its form, and `reports`, globs."""

    def param(self, name: str) -> str:
        """Return a parameter; the program refuses to work without it."""
        if name not in self.params:
            raise Refused(f"the parameter '{name}' is missing", hint=f"export {_variable(name)}=…")
        return self.params[name]

    def param_list(self, name: str) -> tuple[str, ...]:
        """Return a parameter that is a list of texts. Raises InvalidFile."""
        variable = _variable(name)
        values = parsed(self.param(name).encode(), variable)
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            invalid(variable, "", "must be a JSON list of texts")
        return tuple(values)

    def find(self, name: str) -> tuple[str, Any]:
        """Return what a JSON file holds, and where it is: on the board, by its name, else in the workspace.

        The board comes first: a project may well have a `manifest.json` of its own.
        """
        of_board = [file for _, file in self.board.named(name)]
        if of_board:
            return of_board[-1], self.board.json(of_board[-1])
        found = read_project_file(self.root, name, MAX_FILE)
        if found is None:
            raise NotFound(f"there is no {name}, neither on the board nor in {self.root}")
        return name, parsed(found.content, name)

    def of_flow(self, flow: str) -> Board:
        """Return the board of another flow. Raises Refused and NotFound."""
        if not ID.fullmatch(flow):
            raise Refused(f"'{flow[:80]}' cannot name a flow")
        if self.flows is None:
            raise Refused("no other flow can be read here", hint="export HANDOFFD_FLOWS=…")
        try:
            return read_board(self.flows / flow)
        except StoreError as error:
            raise NotFound(f"there is no flow '{flow}' here") from error

    def text(self, relative: str) -> str | None:
        """Return a text file of the workspace; None where there is none. Raises StoreError."""
        found = read_project_file(self.root, relative, MAX_FILE)
        return None if found is None else found.content.decode("utf-8", "replace")


def _variable(name: str) -> str:
    return f"HANDOFFD_PARAM_{name.upper()}"


# --- what it returns ----------------------------------------------------------------------------------
class Done(Struct, frozen=True, kw_only=True):
    """How a program ended, and the files to write."""

    outcome: str = "pass"
    fields: Mapping[str, float | bool | str] = {}
    summary: str = ""
    out: Mapping[str, bytes] = {}
    """Files that the task hands over, by name."""
    writes: Mapping[str, bytes] = {}
    """Files of the workspace, by their paths below it."""


def as_json(value: object) -> bytes:
    """Return a value as the JSON of a file: always the same text for the same value."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


# --- refusals -----------------------------------------------------------------------------------------
def invalid(file: str, key: str, message: str, allowed: Iterable[str] = ()) -> NoReturn:
    """Refuse a value of a file."""
    raise InvalidFile((Problem(file=file, key=key or None, message=message, allowed=tuple(allowed)),))


def parsed(content: bytes, file: str) -> Any:
    """Return what JSON says. Raises InvalidFile with the line."""
    try:
        return json.loads(
            content, parse_constant=lambda word: invalid(file, "", f"{word} does not count as a number")
        )
    except json.JSONDecodeError as error:
        raise InvalidFile(
            (Problem(file=file, line=error.lineno, message=f"not JSON: {error.msg}"),)
        ) from None
    except (UnicodeDecodeError, RecursionError):
        invalid(file, "", "not JSON")


def objects(data: object, file: str, key: str) -> list[dict[str, Any]]:
    """Return the list of objects that a file has under a key. Raises InvalidFile."""
    rows = data.get(key) if isinstance(data, dict) else None
    if not isinstance(rows, list):
        invalid(file, key, "must be a list")
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            invalid(file, f"{key}[{at}]", "must be an object")
    return rows


def text_of(row: Mapping[str, Any], name: str, file: str, key: str, allowed: Iterable[str] = ()) -> str:
    """Return a text of an object, one of `allowed` where these are named. Raises InvalidFile."""
    value = row.get(name)
    if not isinstance(value, str) or not value:
        invalid(file, f"{key}.{name}", "must be a text", allowed)
    values = tuple(allowed)
    if values and value not in values:
        invalid(file, f"{key}.{name}", f"unknown value '{value[:80]}'", values)
    return value


def id_of(row: Mapping[str, Any], file: str, key: str) -> str:
    """Return the id of an object. Raises InvalidFile."""
    value = text_of(row, "id", file, key)
    if not ID.fullmatch(value):
        invalid(file, f"{key}.id", "must be letters, digits, '.', '_' and '-', at most 64, not first a sign")
    return value


def texts_of(row: Mapping[str, Any], name: str, file: str, key: str) -> list[str]:
    """Return a list of texts of an object; empty where it has none. Raises InvalidFile."""
    values = row.get(name) or []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        invalid(file, f"{key}.{name}", "must be a list of texts")
    return values


def path_of(path: str, file: str, key: str) -> str:
    """Return a path below the project's folder in its shortest form. Raises InvalidFile."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith(("/", "~")) or ".." in parts or not parts or not path.isprintable():
        invalid(file, key, f"must be a path below the project's folder, not '{path[:80]}'")
    return "/".join(parts)
