"""What is wrong with an executor although each of its values has the right form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel

from handoffd.engine.ends import End
from handoffd.execute.environment import is_variable_name
from handoffd.execute.executor import AT, PERMISSIONS, PLACEHOLDER, PLACEHOLDERS, Executor, Word, words_of
from handoffd.execute.stream.format import LineRule, StreamFormat

_OPTIONAL = ("{model}", "{session}")
_LIMIT_GROUPS = ("reset", "wait")


class Contradiction(NamedTuple):
    """One thing that is wrong at `key`, which is dotted and begins below the executor."""

    key: str
    message: str
    allowed: tuple[str, ...] = ()


def contradictions(executor: Executor) -> Iterator[Contradiction]:
    """Yield everything that is wrong with `executor`."""
    yield from _calls(executor)
    yield from _permissions(executor)
    yield from _stream(executor)
    yield from _patterns(executor)
    named = [("env", executor.env)]
    if executor.login is not None:
        named.append(("login.env", executor.login.env))
    for part, names in named:
        for index, name in enumerate(names):
            if not is_variable_name(name):
                message = f"{name[:80]!r} is no name of an environment variable"
                yield Contradiction(f"{part}.{index}", message)


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys that a section may have, sorted."""
    extra = ("extends",) if model is Executor else ()
    names = [field.alias or name for name, field in model.model_fields.items()]
    return tuple(sorted({*names, *extra} - ({"name"} if model is Executor else set())))


def _calls(executor: Executor) -> Iterator[Contradiction]:
    for part, words in (("argv", executor.argv), ("version", executor.version or ())):
        for index, word in enumerate(words):
            yield from _bad_words(f"{part}.{index}", word)
    if executor.argv and not isinstance(executor.argv[0], str):
        yield Contradiction("argv.0", "the program itself cannot be left out")
    texts = words_of(executor.argv)
    if executor.prompt == "file" and texts and not any("{prompt_file}" in text for text in texts):
        yield Contradiction("argv", "with `prompt: file` it must hold {prompt_file}")
    if executor.session == "resume" and executor.argv and not executor.can_resume:
        message = "needs a place for {session} in argv, and `stream.session`, which says where the id is told"
        yield Contradiction("session", message)


def _bad_words(place: str, word: Word) -> Iterator[Contradiction]:
    if word == PERMISSIONS and place != "argv.0":
        return
    for text in words_of((word,)):
        if "\0" in text or not text:
            yield Contradiction(place, "must be text that is not empty")
        for named in PLACEHOLDER.findall(text):
            if named == "{prompt}":
                message = "the prompt is given on stdin or as {prompt_file}, never in argv"
                yield Contradiction(place, message, PLACEHOLDERS)
            elif named == PERMISSIONS:
                yield Contradiction(place, f"{PERMISSIONS} must be a word by itself, after the program")
            elif named not in PLACEHOLDERS:
                yield Contradiction(place, f"there is no placeholder {named}", PLACEHOLDERS)
            elif named in _OPTIONAL and isinstance(word, str):
                name = named.strip("{}")
                message = f'there may be no {name}: write it as a list, [--{name}, "{named}"]'
                yield Contradiction(place, message)


def _permissions(executor: Executor) -> Iterator[Contradiction]:
    known = executor.choices
    for name in executor.permissions:
        if (base := name.partition(AT)[0]) not in known:
            message = f"stands in the place of a permission that there is not: {base[:80]!r}"
            yield Contradiction(f"permissions.{name[:80]}", message, known)
    if executor.permission is not None and executor.permission not in known:
        yield Contradiction("permission", f"there is no permission {executor.permission[:80]!r}", known)
    asked = PERMISSIONS in executor.argv
    if asked and executor.permission is None:
        yield Contradiction("permission", f"is needed with {PERMISSIONS} in argv", known)


def _stream(executor: Executor) -> Iterator[Contradiction]:
    stream = executor.stream or StreamFormat()
    if executor.output == "stream-json" and not any(rule.result for rule in stream.lines):
        message = "with `output: stream-json` one of them must have a `result`"
        yield Contradiction("stream.lines", message, keys_of(LineRule))
    for index, rule in enumerate(stream.lines):
        if (rule.when is None) == (rule.match is None):
            message = "must have either `when`, for a JSON object, or `match`, for a plain line"
            yield Contradiction(f"stream.lines.{index}", message)


def _patterns(executor: Executor) -> Iterator[Contradiction]:
    for index, limit in enumerate(executor.limits):
        for group in sorted(set(limit.groupindex) - set(_LIMIT_GROUPS)):
            message = f"there is no use for a group named {group!r}"
            yield Contradiction(f"limits.{index}", message, _LIMIT_GROUPS)
    for index, rule in enumerate(executor.ends):
        if rule.match is None and rule.code is None and rule.cause is None:
            yield Contradiction(f"ends.{index}", "must have `match`, `cause` or `code`")
        elif rule.cause is not None and (rule.match is not None or rule.code is not None):
            yield Contradiction(f"ends.{index}", "`cause` stands alone")
        elif rule.end is End.REFUSED and rule.cause is None and rule.match is None:
            yield Contradiction(f"ends.{index}", "an exit code alone tells of no provider")
        if rule.end is End.CLEAN:
            allowed = tuple(end for end in End if end is not End.CLEAN)
            yield Contradiction(f"ends.{index}.is", "no error tells of a clean end", allowed)
