"""Executors as data: how each agent CLI is called and understood, and whether it could be started here.

`config/executors.yaml` ships with handoffd; the daemon's settings may change single keys of it and add
executors. A project's files can only choose among the names: a project must never write the argv of a
program that runs unattended.

The check whether an executor could be started looks at its program, version, login and folders. It uses no
network and changes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, get_args

from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from handoffd.errors import InvalidFile, NotFound, Problem
from handoffd.execute.environment import child_environment, expanded
from handoffd.execute.executor import (
    Executor,
    Idle,
    InvocationContext,
    contradictions,
    invocation,
    keys_of,
    version_call,
)
from handoffd.execute.reports.report import printable
from handoffd.execute.runner.proc_probe import CHILD
from handoffd.protocol import yamltext
from handoffd.settings.model import ExecutorChoice
from handoffd.settings.paths import shared

AUTO: Final = "auto"
"""Means any installed agent, where a setting holds an executor's name."""

UNKNOWN = "UNKNOWN_EXECUTOR"
NONE_INSTALLED = "NO_EXECUTOR"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MESSAGES = {
    "model_type": "must be a mapping",
    "missing": "is missing",
    "pattern_regex": "must be a regular expression",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
_CONDITIONS = frozenset({"when", "where"})
_QUOTED = re.compile(r"'([^']*)'")


class ExecutorBook(Struct, frozen=True):
    """Every executor there is, by name, validated."""

    executors: Mapping[str, Executor]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be chosen, sorted."""
        return tuple(sorted(name for name, executor in self.executors.items() if executor.argv))

    def idle(self, name: str) -> Idle:
        """Return an executor's activity while it waits; the defaults for an unknown (removed) executor."""
        executor = self.executors.get(name)
        return Idle() if executor is None else executor.idle

    def get(self, name: str) -> Executor:
        """Return the executor `name`; raises NotFound, which lists the known names."""
        if name in self.names:
            return self.executors[name]
        pattern = " (it is a pattern: extend it)" if name in self.executors else ""
        raise NotFound(
            f"there is no executor {name[:80]!r}{pattern}; allowed: {', '.join(self.names)}",
            code=UNKNOWN,
            hint="handoffd executors",
        )


def is_unknown(error: Exception) -> bool:
    """Whether an error reports a missing executor: a fault of the settings, not of a project."""
    return isinstance(error, NotFound) and error.code in {UNKNOWN, NONE_INSTALLED}


def names_in(choice: ExecutorChoice | None) -> tuple[str, ...]:
    """Return the names in a setting, the preferred first."""
    return (choice,) if isinstance(choice, str) else tuple(choice or ())


def candidates_of(
    names: Sequence[str], book: ExecutorBook, installed: Callable[[Executor], bool]
) -> tuple[Executor | str, ...]:
    """Return the candidates in order of preference; an unknown name stays a text.

    If none of the named executors is installed, return the first one: its start then reports what is missing.
    """
    found: list[Executor | str] = []
    for name in names:
        if name == AUTO:
            agents = (one for one in book.executors.values() if one.argv and not is_own(one))
            found += [one for one in agents if installed(one)]
        elif (known := book.executors.get(name)) is None:
            found.append(name)
        elif installed(known):
            found.append(known)
    return tuple(found) or tuple(book.executors.get(name, name) for name in names[:1] if name != AUTO)


def no_agent(book: ExecutorBook) -> NotFound:
    """Return the error for `auto` on a machine without any agent."""
    agents = ", ".join(name for name, one in book.executors.items() if one.argv and not is_own(one))
    message = f"executor: auto, and none is installed of {agents}"
    return NotFound(message, code=NONE_INSTALLED, hint="handoffd doctor")


class Layer(Struct, frozen=True, kw_only=True):
    """Definitions from one file, as plain data, and a function that finds the line of a dotted key."""

    file: str
    definitions: object
    line_of: Callable[[str], int | None] = lambda _: None

    def problem(self, key: str, message: str, allowed: tuple[str, ...] = ()) -> Problem:
        """Return a problem with the value at `key`."""
        return Problem(file=self.file, line=self.line_of(key), key=key, message=message, allowed=allowed)


@cache
def shipped_layer() -> Layer:
    """Return the executors that ship with handoffd."""
    path = shared("config", "executors.yaml")
    return layer_from_yaml(path.read_bytes(), str(path))


def layer_from_yaml(text: str | bytes, file: str) -> Layer:
    """Return the layer under the key `executors` of a YAML text; raises InvalidFile."""
    document = yamltext.load(text, file)
    data = document.data if isinstance(document.data, dict) else {}
    layer = Layer(file=file, definitions=data.get("executors"), line_of=document.line_of)
    unknown = [layer.problem(key, "unknown key", ("executors",)) for key in data if key != "executors"]
    if unknown or not data:
        raise InvalidFile(tuple(unknown) or (layer.problem("executors", "is missing"),))
    return layer


def load_book(*layers: Layer) -> ExecutorBook:
    """Return the executors of all layers, later over earlier; raises InvalidFile with every problem.

    `load_book(shipped_layer(), Layer(file=…, definitions=settings.executors, line_of=…))`.
    """
    problems: list[Problem] = []
    known: dict[str, dict[str, Any]] = {}
    executors: dict[str, Executor] = {}
    for layer in layers:
        definitions = layer.definitions
        if not isinstance(definitions, Mapping):
            problems.append(layer.problem("executors", "must be a mapping of names to executors"))
            continue
        for name in _in_order(definitions):
            found = _resolve(layer, name, definitions, known)
            if isinstance(found, Problem):
                problems.append(found)
                continue
            executor = _validated(layer, name, found, problems)
            known[name] = found
            if executor is not None:
                executors[name] = executor
    if problems:
        raise InvalidFile(tuple(problems))
    return ExecutorBook(executors)


def _in_order(definitions: Mapping[str, object]) -> Iterator[str]:
    """Yield names so that an executor comes after the one of the same layer that it extends, if possible."""
    done: set[str] = set()
    for start in definitions:
        chain: list[str] = []
        name: object = start
        while isinstance(name, str) and name in definitions and name not in done and name not in chain:
            chain.append(name)
            body = definitions[name]
            name = body.get("extends") if isinstance(body, Mapping) else None
        yield from reversed(chain)
        done.update(chain)


def _resolve(
    layer: Layer, name: str, definitions: Mapping[str, object], known: Mapping[str, dict[str, Any]]
) -> dict[str, Any] | Problem:
    """Return the definition merged over the one that it extends."""
    key = f"executors.{name}"
    body = definitions[name]
    if not _NAME.fullmatch(name):
        return layer.problem(key, "an executor's name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if not isinstance(body, Mapping):
        return layer.problem(key, "must be a mapping")
    base = body.get("extends", name)
    if "extends" in body and base not in known:
        why = "extends itself, in the end" if base in definitions else "extends an executor that is not there"
        return layer.problem(f"{key}.extends", why, tuple(sorted(known)))
    own = {part: value for part, value in body.items() if part != "extends"}
    found = {**known.get(base, {}), **own}
    if found.get("argv"):
        found.setdefault("account", name)  # inherited by executors that extend this one
    return found


def _validated(
    layer: Layer, name: str, definition: dict[str, Any], problems: list[Problem]
) -> Executor | None:
    key = f"executors.{name}"
    if "name" in definition:
        problems.append(layer.problem(f"{key}.name", "unknown key", keys_of(Executor)))
        return None
    try:
        executor = Executor.model_validate({**definition, "name": name})
    except ValidationError as error:
        problems += _translated(layer, key, definition, error)
        return None
    found = [
        layer.problem(f"{key}.{wrong.key}", wrong.message, wrong.allowed)
        for wrong in contradictions(executor)
    ]
    problems += found
    return None if found else executor


def _translated(
    layer: Layer, key: str, definition: Mapping[str, Any], error: ValidationError
) -> list[Problem]:
    found: dict[str, Problem] = {}
    for detail in error.errors():
        place = ".".join([key, *_written(definition, detail)])
        found.setdefault(place, layer.problem(place, *_explained(detail)))
    return list(found.values())


def _written(definition: object, detail: ErrorDetails) -> Iterator[str]:
    """Yield the parts of a place that exist in the file, where a single value may replace a list of one."""
    value = definition
    for part in detail["loc"]:
        if isinstance(value, Mapping):
            if part not in value and detail["type"] != "missing":
                return
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return
        yield str(part)


def _explained(detail: ErrorDetails) -> tuple[str, tuple[str, ...]]:
    place = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return "unknown key", keys_of(_section_of(place[:-1]))
    if detail["type"] in ("literal_error", "enum"):
        return f"must not be {detail['input']!r:.80}", tuple(_QUOTED.findall(detail["ctx"]["expected"]))
    if place[0] == "argv" and len(place) > 1:
        return "must be text, or a list of texts", ()
    if _CONDITIONS.intersection(place):
        return "must be a text, a whole number, true, false, or a list of them", ()
    return _MESSAGES.get(detail["type"]) or detail["msg"][:1].lower() + detail["msg"][1:], ()


def _section_of(place: Iterable[int | str]) -> type[BaseModel]:
    """Return the model of the section at `place` of an executor."""
    section: type[BaseModel] = Executor
    for part in place:
        field = section.model_fields.get(str(part))
        section = (field and _model_in(field.annotation)) or section
    return section


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model in a type annotation, also inside a list or an optional type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)


# --- what is installed here --------------------------------------------------------------------------
VERSION_S: Final = 10.0
"""How long a program may take to print its version, in seconds."""
_MAX_CHARS = 100


class Installation(Struct, frozen=True, kw_only=True):
    """What was found of an executor, with the environment that it would get."""

    program: str
    path: str
    """The PATH that was searched."""
    found: str | None
    """The program's own path."""
    version: str | None = None
    version_error: str | None = None
    """Why there is none; None also if the definition has no version command."""
    logged_in: bool | None = None
    """None: unknown, because the definition has no `login`."""
    unwritable: tuple[str, ...] = ()
    """Entries of its `writes` that it could not write or create."""
    empty: tuple[str, ...] = ()
    """Variables of its `env` that are set to an empty text."""


def program_of(executor: Executor) -> str:
    """Return the program that an executor starts. Raises ConfigurationError for a pattern."""
    return invocation(executor, _here()).argv[0]


def find_program(executor: Executor, environment: Mapping[str, str]) -> str | None:
    """Return the path of the executor's program on the PATH of `environment`; None if it is not there."""
    return shutil.which(program_of(executor), path=environment.get("PATH"))


def found_at(executor: Executor, environment: Mapping[str, str], allowed: Sequence[str]) -> str | None:
    """Return the path of the executor's program, on the PATH that the daemon would give it; else None."""
    return find_program(executor, child_environment(environment, allowed, executor.env))


def is_own(executor: Executor) -> bool:
    """Return whether an executor is part of handoffd (the rehearsal): always installed, and not an agent."""
    return bool(executor.argv) and executor.argv[0] == "{python}"


def look(executor: Executor, environment: Mapping[str, str]) -> Installation:
    """Return what is installed of an executor. `environment` is the complete one that it would get."""
    found = find_program(executor, environment)
    version, error = _version(executor, environment) if found is not None else (None, None)
    own = (path for path in executor.own if os.path.dirname(path) not in executor.own)
    written = (*executor.writes, *own)
    return Installation(
        program=program_of(executor),
        path=environment.get("PATH", ""),
        found=found,
        version=version,
        version_error=error,
        logged_in=_logged_in(executor, environment),
        unwritable=tuple(path for path in written if not _writable(path, environment)),
        empty=tuple(name for name in executor.env if environment.get(name) == ""),
    )


def _here() -> InvocationContext:
    return InvocationContext(python=sys.executable, prompt_file="prompt")


def _version(executor: Executor, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the first line of the program's version output, or why there is none."""
    call = version_call(executor, _here())
    if not call:
        return None, None
    try:
        ended = subprocess.run(
            call, env={**environment, CHILD: "1"}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=VERSION_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"it took more than {VERSION_S:g} seconds"
    except OSError as error:
        return None, str(error)
    line = _first_line(ended.stdout) or _first_line(ended.stderr)
    if ended.returncode != 0:
        return None, f"exit code {ended.returncode}" + (f": {line}" if line else "")
    return (line, None) if line else (None, "it printed nothing")


def _first_line(output: bytes) -> str:
    lines = (line.strip() for line in output.decode("utf-8", "replace").splitlines())
    return printable(next((line for line in lines if line), ""))[:_MAX_CHARS]


def _logged_in(executor: Executor, environment: Mapping[str, str]) -> bool | None:
    if executor.login is None:
        return None
    files = (expanded(file, environment) for file in executor.login.files)
    by_variable = any(environment.get(name) for name in executor.login.env)
    return by_variable or any(file is not None and os.path.exists(file) for file in files)


def _writable(written: str, environment: Mapping[str, str]) -> bool:
    """Return whether a folder can be written, or created if it is missing.

    An agent replaces a file by renaming a new one over it, so for a prefix of files its folder counts.
    """
    path = expanded(written, environment)
    if path is None:
        return False
    path = os.path.dirname(path) if path.endswith("*") else path
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
