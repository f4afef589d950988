"""Executors as data: how each agent CLI is called, stopped and understood.

What ships is `config/executors.yaml`; the daemon's settings may change single keys of it and add
executors of their own. A project's files can only choose among the names: the argv of a program that
runs unattended is never the project's to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from handoffd.errors import InvalidFile, NotFound, Problem
from handoffd.execute.environment import is_variable_name
from handoffd.execute.executor import PLACEHOLDER, PLACEHOLDERS, Executor, LadderRung, ResultLine, Word
from handoffd.protocol import yamltext
from handoffd.resources import shared

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MESSAGES = {
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
_QUOTED = re.compile(r"'([^']*)'")


@dataclass(frozen=True, slots=True)
class ExecutorBook:
    """Every executor there is, by name, validated."""

    executors: Mapping[str, Executor]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be chosen, sorted."""
        return tuple(sorted(name for name, executor in self.executors.items() if executor.argv))

    def get(self, name: str) -> Executor:
        """Return the executor `name`; raises NotFound, with the names there are."""
        if name in self.names:
            return self.executors[name]
        pattern = " (it is a pattern: extend it)" if name in self.executors else ""
        raise NotFound(
            f"there is no executor {name[:80]!r}{pattern}; allowed: {', '.join(self.names)}",
            code="UNKNOWN_EXECUTOR",
            hint="handoffd config show",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Definitions from one place, as plain data, and how to find a dotted key's line in it."""

    file: str
    definitions: object
    line_of: Callable[[str], int | None] = lambda _: None

    def problem(self, key: str, message: str, allowed: tuple[str, ...] = ()) -> Problem:
        """Return a problem with the value at `key`."""
        return Problem(file=self.file, line=self.line_of(key), key=key, message=message, allowed=allowed)


def shipped_layer() -> Layer:
    """Return the executors that come with handoffd."""
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
    """Yield names so that what extends another of the same layer comes after it, where that is possible."""
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
    """Return the definition with what it extends filled in."""
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
    return {**known.get(base, {}), **{part: value for part, value in body.items() if part != "extends"}}


def _validated(
    layer: Layer, name: str, definition: dict[str, Any], problems: list[Problem]
) -> Executor | None:
    key = f"executors.{name}"
    if "name" in definition:
        problems.append(layer.problem(f"{key}.name", "unknown key", _keys(Executor)))
        return None
    try:
        executor = Executor.model_validate({**definition, "name": name})
    except ValidationError as error:
        problems += _translated(layer, key, error)
        return None
    found = list(_contradictions(layer, key, executor))
    problems += found
    return None if found else executor


def _translated(layer: Layer, key: str, error: ValidationError) -> list[Problem]:
    found: dict[str, Problem] = {}
    for detail in error.errors():
        # Which member of a union was tried is no place that a person wrote.
        parts = detail["loc"][:2] if detail["loc"][:1] == ("argv",) else detail["loc"]
        place = ".".join([key, *map(str, parts)])
        found.setdefault(place, layer.problem(place, *_explained(detail)))
    return list(found.values())


def _explained(detail: ErrorDetails) -> tuple[str, tuple[str, ...]]:
    if detail["type"] == "extra_forbidden":
        inner: dict[str, type[BaseModel]] = {"ladder": LadderRung, "result": ResultLine}
        owner = inner.get(str(detail["loc"][0]), Executor) if len(detail["loc"]) > 1 else Executor
        return "unknown key", _keys(owner)
    if detail["type"] == "literal_error":
        return f"must not be {detail['input']!r:.80}", tuple(_QUOTED.findall(detail["ctx"]["expected"]))
    if detail["loc"][0] == "argv" and len(detail["loc"]) > 1:
        return "must be text, or a list of texts", ()
    return _MESSAGES.get(detail["type"]) or detail["msg"][:1].lower() + detail["msg"][1:], ()


def _contradictions(layer: Layer, key: str, executor: Executor) -> Iterator[Problem]:
    for part, words in (("argv", executor.argv), ("version", executor.version or ())):
        for index, word in enumerate(words):
            yield from _bad_words(layer, f"{key}.{part}.{index}", word)
    if executor.argv and not isinstance(executor.argv[0], str):
        yield layer.problem(f"{key}.argv.0", "the program itself cannot be left out")
    texts = [text for word in executor.argv for text in ((word,) if isinstance(word, str) else word)]
    if executor.prompt == "file" and texts and not any("{prompt_file}" in text for text in texts):
        yield layer.problem(f"{key}.argv", "with `prompt: file` it must hold {prompt_file}")
    if executor.output == "stream-json" and executor.result is None:
        yield layer.problem(f"{key}.result", "is needed with `output: stream-json`", _keys(ResultLine))
    for index, name in enumerate(executor.env):
        if not is_variable_name(name):
            yield layer.problem(f"{key}.env.{index}", f"{name[:80]!r} is no name of an environment variable")


def _bad_words(layer: Layer, place: str, word: Word) -> Iterator[Problem]:
    for text in (word,) if isinstance(word, str) else word:
        if "\0" in text or not text:
            yield layer.problem(place, "must be text that is not empty")
        for named in PLACEHOLDER.findall(text):
            if named == "{prompt}":
                yield layer.problem(
                    place, "the prompt is given on stdin or as {prompt_file}, never in argv", PLACEHOLDERS
                )
            elif named not in PLACEHOLDERS:
                yield layer.problem(place, f"there is no placeholder {named}", PLACEHOLDERS)
            elif named == "{model}" and isinstance(word, str):
                yield layer.problem(place, 'there may be no model: write it as a list, [--model, "{model}"]')


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    extra = ("extends",) if model is Executor else ()
    return tuple(sorted({*model.model_fields, *extra} - {"name"}))
