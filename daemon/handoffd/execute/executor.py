"""One agent CLI as a value: how to start, end and read it, how to check its definition, what it can do.

Nothing here goes through a shell, and the prompt never becomes part of an argv: every account on the
machine can read an argv, and the kernel limits each argument to 128 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from handoffd.engine.run import LIMITS, End
from handoffd.errors import ConfigurationError
from handoffd.execute.base import Rung, SignalName
from handoffd.execute.environment import is_variable_name
from handoffd.execute.stream.format import LineRule, StreamFormat, UsageRule

PLACEHOLDERS = ("{model}", "{prompt_file}", "{python}", "{session}")
PERMISSIONS = "{permissions}"
"""The word of an argv that is replaced by the words of the chosen permission."""

AT = "@"
"""A permission `work@commit` replaces `work` at the step commit."""

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")

Word = str | tuple[str, ...]
"""One argument, or several that are left out together if a placeholder has no value."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LadderRung(_Model):
    """One step of a stop: a signal to the whole process tree, then a wait."""

    signal: SignalName
    grace_s: float = Field(5, ge=0, le=600)


class Login(_Model):
    """How to see without a request that the CLI is logged in: one of these variables or files exists."""

    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """May begin with `~` or hold $VARIABLES."""
    also: tuple[str, ...] = ()
    """Further files with logins, at MCP servers for example: shared like these, but no proof."""
    share: Literal["file", "folder"] = "file"
    """What all projects share of a login in a file: that alone, or its folder, where the program replaces the
    file instead of writing it, or locks it by others beside it."""
    command: str | None = None
    """The command that a person types to log in."""


class EndRule(_Model):
    """The class of an end if `match` is found in an error or in the last lines, or by its exit code.

    For executors whose stream has a machine-readable cause of errors, `cause` is searched for in it.
    """

    match: re.Pattern[str] | None = None
    cause: re.Pattern[str] | None = None
    code: int | None = None
    end: End = Field(alias="is")


class Idle(_Model):
    """Activity per second of its processes while it waits for an answer. Only more is a sign of life."""

    cpu: float = Field(0.01, ge=0)
    """Of one core. Node with ten timers a second and some garbage uses 0.0027, Python's event loop 0.003."""
    written: float = Field(1024, ge=0)
    """Bytes. Node's threads wake each other with 8 bytes a time, some 300 bytes a second when idle."""
    stored: float = Field(0, ge=0)
    """Bytes, on a disk."""
    ping: int = Field(64, ge=0)
    """The largest ping of its provider in bytes, encryption and framing included."""


class Executor(_Model):
    """One agent CLI. With an empty argv it is a pattern that other executors extend."""

    name: str
    argv: tuple[Word, ...] = ()
    prompt: Literal["stdin", "file"] = "stdin"
    output: Literal["text", "stream-json"] = "text"
    stream: StreamFormat | None = None
    session: Literal["fresh", "resume"] = "fresh"
    model: str | None = Field(None, min_length=1)
    permissions: dict[str, tuple[str, ...]] = {}
    permission: str | None = None
    inside: dict[str, tuple[str, ...]] = {}
    """Words that replace a permission's in handoffd's sandbox, where the program's own cannot work."""
    account: str = ""
    """The account whose quota it uses: that of a startable executor that it extends, else its own name."""
    limits: tuple[re.Pattern[str], ...] = ()
    """A match in an error means a limit; group `reset` is the moment it ends, group `wait` the time left."""
    ends: tuple[EndRule, ...] = ()
    ladder: tuple[LadderRung, ...] = (LadderRung(signal="TERM"), LadderRung(signal="KILL"))
    idle: Idle = Idle()
    env: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Folders outside the project, or path prefixes with a `*` at the end; may begin with `~` or hold
    $VARIABLES."""
    own: tuple[str, ...] = ()
    """Folders in place of which each project has its own, in handoffd's sandbox."""
    reads: tuple[str, ...] = ()
    """What of the person's is in these and cannot be changed: settings. A folder ends with a slash."""
    login: Login | None = None
    install: str | None = None
    """The command that a person types to install it."""
    version: tuple[str, ...] | None = Field(None, min_length=1)
    notes: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The permissions that a setting can choose; the replacements for single steps are not among them."""
        return tuple(name for name in self.permissions if AT not in name)

    @property
    def overloads(self) -> tuple[re.Pattern[str], ...]:
        """An error that matches one of these means that the provider is overloaded."""
        return tuple(rule.match for rule in self.ends if rule.end is End.OVERLOAD and rule.match is not None)

    @property
    def waits(self) -> tuple[re.Pattern[str], ...]:
        """A cause that matches one of these means that the account has met a limit or an overload."""
        return tuple(rule.cause for rule in self.ends if rule.end in LIMITS and rule.cause is not None)

    @property
    def can_resume(self) -> bool:
        """Whether a session can be continued: the stream reports its id, and argv has a place for it."""
        reported = self.stream is not None and bool(self.stream.session)
        return reported and any("{session}" in text for text in words_of(self.argv))


def words_of(argv: Iterable[Word]) -> tuple[str, ...]:
    """Return every text of an argv, lists flattened."""
    return tuple(text for word in argv for text in ((word,) if isinstance(word, str) else word))


class InvocationContext(Struct, frozen=True, kw_only=True):
    """The values of one start. `python` is an interpreter that can import handoffd."""

    python: str
    prompt_file: str
    session: str | None = None
    """The agent's session to continue; None: a new one."""
    step: str = ""
    sandboxed: bool = False
    """Whether handoffd's own sandbox holds the run."""


class Invocation(Struct, frozen=True, kw_only=True):
    """How to start an executor once: its part of a `RunSpec`."""

    argv: tuple[str, ...]
    env: tuple[str, ...]
    """Names of the environment variables that it gets in addition to the daemon's allow-list."""
    ladder: tuple[Rung, ...]
    prompt: Literal["stdin", "file"]
    partial: tuple[str, ...] = ()
    """Beginnings of output lines that are not kept."""


def invocation(executor: Executor, context: InvocationContext) -> Invocation:
    """Return how to start `executor` once; raises ConfigurationError if it is only a pattern."""
    if not executor.argv:
        message = f"executor {executor.name!r} has no argv: choose one that says `extends: {executor.name}`"
        raise ConfigurationError(message, hint="handoffd config show")
    return Invocation(
        argv=_filled(executor.argv, executor, context),
        env=executor.env,
        ladder=tuple(Rung(signal=rung.signal, grace_s=rung.grace_s) for rung in executor.ladder),
        prompt=executor.prompt,
        partial=executor.stream.partial if executor.stream is not None else (),
    )


def version_call(executor: Executor, context: InvocationContext) -> tuple[str, ...]:
    """Return the argv that prints the version of the program; empty if the definition has none."""
    return _filled(executor.version or (), executor, context)


def _permitted(executor: Executor, context: InvocationContext) -> tuple[str, ...]:
    name, given = executor.permission or "", executor.permissions
    if context.sandboxed and name in executor.inside:
        return executor.inside[name]
    return given.get(f"{name}{AT}{context.step}", given.get(name, ()))


def _filled(words: tuple[Word, ...], executor: Executor, context: InvocationContext) -> tuple[str, ...]:
    values = {
        "{model}": executor.model,
        "{prompt_file}": context.prompt_file,
        "{python}": context.python,
        "{session}": context.session,
    }
    argv: list[str] = []
    for word in words:
        if word == PERMISSIONS:
            argv += _permitted(executor, context)
            continue
        group = (word,) if isinstance(word, str) else word
        if all(values.get(token, token) for text in group for token in PLACEHOLDER.findall(text)):
            argv += [PLACEHOLDER.sub(lambda token: values.get(token[0]) or token[0], text) for text in group]
    return tuple(argv)


# --- checks across fields, after each value has passed its own ---------------------------------------
_OPTIONAL = ("{model}", "{session}")
_LIMIT_GROUPS = ("reset", "wait")


class Contradiction(NamedTuple):
    """One problem at `key`, a dotted path relative to the executor."""

    key: str
    message: str
    allowed: tuple[str, ...] = ()


def contradictions(executor: Executor) -> Iterator[Contradiction]:
    """Yield every contradiction in `executor`."""
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
                message = f"{name[:80]!r} is not the name of an environment variable"
                yield Contradiction(f"{part}.{index}", message)


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys that a section of the settings file may have, sorted."""
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
        message = "needs a place for {session} in argv, and `stream.session`, the id's path in the stream"
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
                message = f'{name} is optional: write it as a list, [--{name}, "{named}"]'
                yield Contradiction(place, message)


def _permissions(executor: Executor) -> Iterator[Contradiction]:
    known = executor.choices
    for name in executor.permissions:
        if (base := name.partition(AT)[0]) not in known:
            message = f"replaces a permission that does not exist: {base[:80]!r}"
            yield Contradiction(f"permissions.{name[:80]}", message, known)
    for name in executor.inside:
        if name not in known:
            yield Contradiction(f"inside.{name[:80]}", f"there is no permission {name[:80]!r}", known)
    if executor.permission is not None and executor.permission not in known:
        yield Contradiction("permission", f"there is no permission {executor.permission[:80]!r}", known)
    asked = PERMISSIONS in executor.argv
    if asked and executor.permission is None:
        yield Contradiction("permission", f"is required with {PERMISSIONS} in argv", known)


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
            message = f"unknown group {group!r}"
            yield Contradiction(f"limits.{index}", message, _LIMIT_GROUPS)
    for index, rule in enumerate(executor.ends):
        if rule.match is None and rule.code is None and rule.cause is None:
            yield Contradiction(f"ends.{index}", "must have `match`, `cause` or `code`")
        elif rule.cause is not None and (rule.match is not None or rule.code is not None):
            yield Contradiction(f"ends.{index}", "`cause` excludes `match` and `code`")
        elif rule.end is End.REFUSED and rule.cause is None and rule.match is None:
            yield Contradiction(f"ends.{index}", "an exit code alone does not show that a provider refused")
        if rule.end is End.CLEAN:
            allowed = tuple(end for end in End if end is not End.CLEAN)
            yield Contradiction(f"ends.{index}.is", "an error never means a clean end", allowed)


# --- capabilities, for the matrix of all executors ---------------------------------------------------
Tokens = Literal["live", "at the end", "no"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """One row of the matrix."""

    name: str
    prompt: str
    """How it gets the prompt: `stdin` or `file`."""
    output: str
    resume: bool
    """Whether its sessions can be continued."""
    session: str
    """Whether another attempt continues one: `fresh` or `resume`."""
    tokens: Tokens
    cost: bool
    """Whether it reports its cost; otherwise the price table gives it."""
    limits: bool
    """Whether the daemon can distinguish a usage limit from other errors."""
    permission: str | None
    permissions: tuple[str, ...]
    account: str
    writes: tuple[str, ...]
    own: tuple[str, ...]


def capabilities(executor: Executor) -> Capabilities:
    """Return what `executor` can do."""
    rules = [rule.usage for rule in (executor.stream or StreamFormat()).lines if rule.usage is not None]
    return Capabilities(
        name=executor.name,
        prompt=executor.prompt,
        output=executor.output,
        resume=executor.can_resume,
        session=executor.session,
        tokens=_tokens(rules),
        cost=any(rule.cost for rule in rules),
        limits=bool(executor.limits),
        permission=executor.permission,
        permissions=executor.choices,
        account=executor.account,
        writes=executor.writes,
        own=executor.own,
    )


def _tokens(rules: list[UsageRule]) -> Tokens:
    if not rules:
        return "no"
    return "live" if any(rule.mode == "add" for rule in rules) else "at the end"
