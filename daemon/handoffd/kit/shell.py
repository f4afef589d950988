"""Between the environment of a task and a program: reads the one, runs the other, and writes what it made.

The variables are in docs/reference/cli/kit.md. Nothing is written outside of the workspace and of the two
places that the environment names: the folder of the files that are handed over, and the file of the result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from handoffd.clock import Clock, SystemClock
from handoffd.errors import InvalidFile, Problem
from handoffd.files.rooted import write_project_file
from handoffd.kit.given import Answer, Board, Done, Given, read_board
from handoffd.kit.programs import Program

OUT: Final = ".ai/out"
"""Where files are handed over when the environment names no folder: by hand."""
PREFIX: Final = "HANDOFFD_"
_PARAM: Final = f"{PREFIX}PARAM_"
_ANSWER: Final = f"{PREFIX}ANSWER_"
_TEXT: Final = "_TEXT"
_TEST: Final = f"{PREFIX}TEST_"


def given_by(
    environ: Mapping[str, str], root: Path, words: Mapping[str, Any], clock: Clock | None = None
) -> Given:
    """Return what the environment says a program gets. Raises InvalidFile and NotFound."""
    board, flows = environ.get(f"{PREFIX}BOARD"), environ.get(f"{PREFIX}FLOWS")
    return Given(
        root=root,
        words=words,
        params=_beginning(environ, _PARAM),
        board=read_board(Path(board)) if board else Board(),
        answers=_answers(environ),
        item=_item(environ),
        flow=environ.get(f"{PREFIX}FLOW") or None,
        pipeline=environ.get(f"{PREFIX}PIPELINE") or None,
        flows=Path(flows) if flows else None,
        today=(clock or SystemClock()).now().date().isoformat(),
        test=_beginning(environ, _TEST),
    )


def _beginning(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the variables that begin so, by the rest of their names in small letters."""
    return {name[len(prefix) :].lower(): value for name, value in environ.items() if name.startswith(prefix)}


def _answers(environ: Mapping[str, str]) -> dict[str, Answer]:
    said = {name: value for name, value in environ.items() if name.startswith(_ANSWER)}
    choices = {name: value for name, value in said.items() if not _is_text(name, said)}
    return {
        name[len(_ANSWER) :].lower(): Answer(value, said.get(f"{name}{_TEXT}", ""))
        for name, value in choices.items()
    }


def _is_text(name: str, said: Mapping[str, str]) -> bool:
    return name.endswith(_TEXT) and name.removesuffix(_TEXT) in said


def _item(environ: Mapping[str, str]) -> Any:
    """Return the item: an object as it is, a text as a text, whether it is quoted or not."""
    said = environ.get(f"{PREFIX}ITEM")
    if said is None:
        return None
    try:
        return json.loads(said)
    except ValueError:
        return said


# --- running ------------------------------------------------------------------------------------------
def run(program: Program, given: Given, environ: Mapping[str, str]) -> Done:
    """Run a program, write what it made, and return it. Raises what the program raises."""
    module, _, name = program.function.partition(":")
    function: Callable[[Given], Done] = getattr(import_module(module), name)
    done = function(given)
    for path, content in done.writes.items():
        write_project_file(given.root, path, content)
    _hand_over(done, given.root, environ)
    return done


def _hand_over(done: Done, root: Path, environ: Mapping[str, str]) -> None:
    folder = environ.get(f"{PREFIX}OUT")
    for name, content in done.out.items():
        if folder:
            write_project_file(Path(folder), name, content)
        else:
            write_project_file(root, f"{OUT}/{name}", content)
    result = environ.get(f"{PREFIX}RESULT")
    if result:
        where = Path(result)
        if not where.is_absolute():
            raise InvalidFile((Problem(file=f"{PREFIX}RESULT", message="must be an absolute path"),))
        write_project_file(where.parent, where.name, json.dumps(as_data(done), ensure_ascii=False) + "\n")


def as_data(done: Done) -> dict[str, Any]:
    """Return the report of a program as the file of the result has it."""
    return {"outcome": done.outcome, "fields": dict(done.fields), "summary": done.summary}


def current(environ: Mapping[str, str] | None = None) -> tuple[Path, Mapping[str, str]]:
    """Return the workspace and the environment of this process."""
    return Path.cwd(), os.environ if environ is None else environ
