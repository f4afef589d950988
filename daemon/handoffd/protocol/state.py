"""STATE.json, the public face of a track: as a value, and as text read and written.

Other tools read and write the same file, so what is not ours to change stays as it was: unknown keys and
the order of all keys. What comes in is normalised where it nearly fits, each time with a warning; a
status that means nothing is refused, never guessed. The order of keys travels with the state (its
layout), so that it survives the journal; keys inside `tests` are in it as `tests`, NUL, key.
The file is written by `files/state_file.py`, for `track/committed_state.py`.

The standard JSON parser accepts what would hurt later: duplicate keys (the last wins, silently), NaN,
numbers beyond a float, half surrogate pairs that no UTF-8 file can hold, and nesting that breaks the
writer. All of that is refused here, before a model sees it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum, StrEnum
from json.encoder import encode_basestring
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Struct
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import ErrorDetails

from handoffd.clock import rfc3339
from handoffd.errors import InvalidFile, Json, Problem
from handoffd.protocol.story import is_story_id

# --- times and numbers --------------------------------------------------------------------------------
MAX_NUMBER = 1_000_000_000
"""No count and no number of minutes is larger: what is would break dates and the journal's columns."""


def _moment(value: object) -> datetime:
    """Return a moment in UTC; a text without an offset is taken as UTC, as tools' `date -u` means it."""
    if not isinstance(value, str | datetime):
        raise ValueError("must be a date and time such as 2026-01-31T22:15:09Z")  # noqa: TRY004
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time such as 2026-01-31T22:15:09Z") from None


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
"""A moment in UTC, RFC 3339 in files."""

_Count = Annotated[int, Field(strict=True, ge=0, le=MAX_NUMBER)]
_Names = Annotated[tuple[str, ...], FailFast()]
"""Of many wrong items only the first is reported: half a million in one file would take seconds."""
_Ordinal = Annotated[int, Field(strict=True, ge=1, le=MAX_NUMBER)]


def _as_written(value: object, check: ValidatorFunctionWrapHandler) -> object:
    checked = check(value)
    return value if isinstance(value, int) else checked


Minutes = Annotated[
    float,
    Field(strict=True, ge=0, le=MAX_NUMBER, allow_inf_nan=False),
    WrapValidator(_as_written),
    PlainSerializer(lambda minutes: minutes, return_type=int | float),
]
"""A number of minutes, kept as it was written: 5 stays 5."""


# --- words, and how people misspell them --------------------------------------------------------------
class Status(StrEnum):
    """How far the current attempt of the current step is."""

    PENDING = "pending"
    RUNNING = "running"
    PASS = "pass"  # noqa: S105
    FAILING = "failing"
    NEEDS_HUMAN = "needs_human"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """Why an attempt failed or needs a person; selects the route in the step table."""

    CONSTITUTION_VIOLATION = "constitution_violation"
    NEEDS_CLARIFICATION = "needs_clarification"
    NFR_MISSING = "nfr_missing"
    SCOPE_WARNING = "scope_warning"
    TEST_TIMEOUT = "test_timeout"


NEAR_STATUS: Mapping[str, Status] = {
    **dict.fromkeys(("passing", "passed", "done", "complete", "completed"), Status.PASS),
    **dict.fromkeys(("failed", "fail", "failure"), Status.FAILING),
    **dict.fromkeys(("timed_out", "timedout"), Status.TIMEOUT),
    **dict.fromkeys(("human", "blocked"), Status.NEEDS_HUMAN),
}
"""Other words for a status that the protocol accepts, with a warning."""

STEP_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("api-contract", "api_contract", "contract-update", "api-contract-update"), "contract"),
    **dict.fromkeys(("test-scaffolding", "test_scaffolding", "scaffolding", "test-scaffold"), "scaffold"),
    **dict.fromkeys(("sdd_delta", "sdd", "delta", "delta-spec"), "sdd-delta"),
    **dict.fromkeys(("quality-gate", "quality_gate"), "verify"),
    **dict.fromkeys(("update_memory", "memory-update"), "update-memory"),
    "implementation": "impl",
    "commit-changes": "commit",
}
"""Other names under which hand-offs may speak of a step; none of them can be a step's own name."""


def near_status(word: str) -> Status | None:
    """Return the status that `word` means, whatever its case and separators; None for no status."""
    spelt = _spelt(word)
    return Status(spelt) if spelt in set(Status) else NEAR_STATUS.get(spelt)


def near_reason(word: str) -> Reason | None:
    """Return the reason that `word` means, whatever its case and separators; None for no reason."""
    spelt = _spelt(word)
    return Reason(spelt) if spelt in set(Reason) else None


def canonical_step(word: str) -> str:
    """Return the step that `word` names, aliases resolved; another name is only respelt."""
    spelt = "-".join(word.strip().lower().split())
    hyphened = spelt.replace("_", "-")
    return STEP_ALIASES.get(spelt) or STEP_ALIASES.get(hyphened) or hyphened


def same_step(one: str, other: str) -> bool:
    """Tell whether two names mean one step, aliases and spelling aside."""
    return canonical_step(one) == canonical_step(other)


def _spelt(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


# --- the values ---------------------------------------------------------------------------------------
class TestCounts(BaseModel):
    """Numbers of test results."""

    __test__ = False  # not a test class, whatever its name says to pytest

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, serialize_by_alias=True)

    passed: _Count = Field(0, alias="pass", description="Tests that passed.")
    failed: _Count = Field(0, alias="fail", description="Tests that failed or could not run.")
    skipped: _Count = Field(0, alias="skip", description="Tests that were skipped.")


class TestChanges(Struct, frozen=True, kw_only=True):
    """The tests that a story has changed, by their ids: the first of each kind, and how many there are."""

    __test__ = False

    new: tuple[str, ...] = ()
    """Tests that the story has added, the failing ones first; older releases kept only these."""
    fixed: tuple[str, ...] = ()
    """Tests that failed before the story, and pass."""
    fixed_count: int | None = None
    """None, as for `gone_count`: of a release that did not count them."""
    gone: tuple[str, ...] = ()
    """Tests that passed before the story, and are missing: removed, or under another name."""
    gone_count: int | None = None


class State(BaseModel):
    """One STATE.json: the step and status of a track. Unknown keys are kept.

    Two states are equal when their values are; the order of keys is presentation. `with_` copies
    share their document's key order.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    project: str = Field(min_length=1, description="Name of the project.")
    story: str | None = Field(None, description="Id of the story or custom task, such as US-005.")
    step: str = Field("bootstrap", min_length=1, description="The current step of the pipeline.")
    attempt: _Ordinal = Field(1, description="Attempt of this step; rises only on a retry.")
    max_attempts: _Ordinal = Field(1, description="Attempts the step may take, copied from its rule.")
    status: Status = Field(Status.PENDING, description="How the attempt is going, or ended.")
    reason: Reason | None = Field(None, description="Why the attempt failed or needs a person.")
    dispatched_at: Moment | None = Field(None, description="When the attempt began (RFC 3339, UTC).")
    completed_at: Moment | None = Field(None, description="When the attempt ended (RFC 3339, UTC).")
    timeout_min: Minutes = Field(5, description="Minutes an attempt may take; 0 for no limit.")
    tests: TestCounts | None = Field(None, description="Test results of the attempt.")
    failing_tests: _Names = Field((), description="Names of the tests that fail.")
    lint_pass: bool | None = Field(None, strict=True, description="Result of the rule's post_check.")
    files_changed: _Names = Field((), description="Files the step changed.")
    blocked_by: _Names = Field(
        (), description="Stories that must be done first; max_attempts_exceeded is reserved."
    )
    human_note: str | None = Field(None, description="A person's note for the next prompt.")
    last_error: str | None = Field(None, description="What went wrong last, in one line.")
    task_type: str = Field("story", min_length=1, description="Which pipeline: story, custom or another.")
    agent_teams: bool = Field(False, strict=True, description="Ask the executor to lead a team of agents.")
    reopened_from: str | None = Field(None, description="The step at which a finished story was reopened.")

    _layout: tuple[str, ...] = PrivateAttr(())
    """The keys of the document this came from, in their order (see `_layout_of`)."""

    def with_(self, **changes: Any) -> State:
        """Return a copy with `changes`; values are trusted, as the engine is the only caller."""
        assert changes.keys() <= self.__dict__.keys(), f"no such field in {sorted(changes)}"
        return self.model_copy(update=changes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self.__dict__ == other.__dict__ and self.__pydantic_extra__ == other.__pydantic_extra__

    def __hash__(self) -> int:
        return hash((self.project, self.story, self.step, self.attempt, self.status))


# --- text to state, and back --------------------------------------------------------------------------
STATE_FILE = ".ai/STATE.json"
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_PROBLEMS = 20
"""More do not help, and each one costs a walk through the text."""

_REQUIRED = ("project", "step", "status")
_LISTS = ("failing_tests", "files_changed", "blocked_by")
_NULLABLE_WHEN_BLANK = ("story", "reason", "dispatched_at", "completed_at", "reopened_from")
_COUNTS = {"passed": "pass", "failed": "fail", "skipped": "skip"}
_NESTED = "tests\0"
_PLAIN = frozenset({str, int, bool, type(None)})


class ParsedState(Struct, frozen=True):
    """A STATE.json as a value; `warnings` say what was normalised, one sentence each."""

    state: State
    warnings: tuple[str, ...] = ()


def parse_state(text: str | bytes, *, file: str = STATE_FILE) -> ParsedState:
    """Return the state that `text` describes. Raises InvalidFile with the problems of its values."""
    raw = load_object(text, file)
    values = dict(raw.data)
    warnings = tuple(_normalise(values))
    flaws = [_Flaw((key,), "is missing") for key in _REQUIRED if key not in values]
    story = values.get("story")
    if isinstance(story, str) and not is_story_id(story):
        flaws.append(_Flaw(("story",), "is not a story id (A-Z a-z 0-9 . _ -, at most 64)"))
    try:
        state = State.model_validate(values)
    except ValidationError as error:
        found = [item for item in error.errors(include_url=False) if item["type"] != "missing"]
        flaws += [_Flaw(item["loc"], _message(item)) for item in found[:MAX_PROBLEMS]]
        raise _invalid(flaws, file, raw) from None
    if flaws:
        raise _invalid(flaws, file, raw)
    state._layout = _layout_of(values)  # noqa: SLF001  (the order of keys is this module's business)
    return ParsedState(state, warnings)


def render_state(state: State) -> str:
    """Return the text of STATE.json: 2-space JSON with a final newline, keys in their document's order."""
    layout = state._layout  # noqa: SLF001
    values = {name: _plain(value) for name, value in vars(state).items()} | (state.model_extra or {})
    if state.tests is not None:
        nested = tuple(key.removeprefix(_NESTED) for key in layout if key.startswith(_NESTED))
        values["tests"] = _ordered(_counts(state.tests), nested)
    return _document(_ordered(values, layout))


def _document(values: dict[str, Any]) -> str:
    """Return what `json.dumps` makes of `values` with an indent of 2, and a newline.

    It does that in Python for each value, as soon as there is an indent: too long for every commit.
    """
    pairs = ",\n  ".join(f"{encode_basestring(key)}: {_value(value)}" for key, value in values.items())
    return f"{{\n  {pairs}\n}}\n"


def _value(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if value is None:
        return "null"
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is list and not value:
        return "[]"
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")


# --- what nearly fits ---------------------------------------------------------------------------------
def _normalise(values: dict[str, Any]) -> Iterator[str]:
    """Change near-misses in place; yield a warning for each."""
    for key in _NULLABLE_WHEN_BLANK:
        if isinstance(values.get(key), str) and not values[key].strip():
            values[key] = None
            yield f"{key} was blank and is read as null"
    for key in _LISTS:
        if key in values and values[key] is None:
            values[key] = []
            yield f"{key} was null and is read as an empty list"
    yield from _normalise_counts(values)
    yield from _normalise_status(values)
    yield from _normalise_reason(values)
    for key in ("dispatched_at", "completed_at"):
        if _lacks_offset(values.get(key)):
            yield f"{key} has no offset and is read as UTC"


def _normalise_counts(values: dict[str, Any]) -> Iterator[str]:
    tests = values.get("tests")
    if not isinstance(tests, dict):
        return
    names = {wrong: right for wrong, right in _COUNTS.items() if wrong in tests and right not in tests}
    values["tests"] = {names.get(key, key): count for key, count in tests.items()}
    for wrong, right in names.items():
        yield f"tests.{wrong} is read as tests.{right}"


def _normalise_status(values: dict[str, Any]) -> Iterator[str]:
    written = values.get("status")
    near = near_status(written) if isinstance(written, str) else None
    if near is not None and near.value != written:
        values["status"] = near.value
        yield f"status {written!r} is read as {near.value!r}"


def _normalise_reason(values: dict[str, Any]) -> Iterator[str]:
    written = values.get("reason")
    if not isinstance(written, str) or written in set(Reason):
        return
    near = near_reason(written)
    values["reason"] = near
    if near is not None:
        yield f"reason {written!r} is read as {near.value!r}"
        return
    remark = f"unknown reason {written[:200]!r}"
    earlier = values.get("last_error")
    if earlier is None or isinstance(earlier, str):
        values["last_error"] = f"{earlier}; {remark}" if earlier else remark
    yield f"reason {written[:200]!r} is not known and is read as null"


def _lacks_offset(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None
    except ValueError:
        return False


# --- problems -----------------------------------------------------------------------------------------
class _Flaw(NamedTuple):
    path: Path
    message: str


def _invalid(flaws: list[_Flaw], file: str, raw: JsonText) -> InvalidFile:
    lines = raw.lines_of({flaw.path for flaw in flaws} | {flaw.path[:1] for flaw in flaws})
    return InvalidFile(
        tuple(
            Problem(
                file=file,
                line=lines.get(flaw.path) or lines.get(flaw.path[:1]),
                key=".".join(map(str, flaw.path)),
                message=flaw.message,
                allowed=_allowed(flaw.path),
            )
            for flaw in flaws
        )
    )


def _message(details: ErrorDetails) -> str:
    if details["type"] == "enum":
        message = "must be one of the allowed values"
    else:
        message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    given = details["input"]
    return message if isinstance(given, dict | list) else f"{message}, not {_shown(given)}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _allowed(path: Path) -> tuple[str, ...]:
    kinds: dict[str | int, type[Enum]] = {"status": Status, "reason": Reason}
    return tuple(member.value for member in kinds[path[0]]) if path[0] in kinds else ()


# --- layout -------------------------------------------------------------------------------------------
def _layout_of(raw: dict[str, Any]) -> tuple[str, ...]:
    nested = raw.get("tests")
    inner = tuple(_NESTED + key for key in nested) if isinstance(nested, dict) else ()
    return (*raw, *inner)


def _ordered(values: dict[str, Any], layout: tuple[str, ...]) -> dict[str, Any]:
    """Return `values` in the order of `layout`; keys that are new follow in the order of the schema."""
    return {key: values[key] for key in (*dict.fromkeys(layout), *values) if key in values}


def _counts(tests: TestCounts) -> dict[str, Any]:
    known = {"pass": tests.passed, "fail": tests.failed, "skip": tests.skipped}
    return known | (tests.model_extra or {})


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return rfc3339(value)
    return list(value) if isinstance(value, tuple) else value


# --- JSON that others wrote: strict, bounded, and with the line of every key --------------------------
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\],]')
_BLANK = re.compile(r"\s*")
Path = tuple[str | int, ...]
"""The place of a value: keys of objects and indices of lists, from the outside in."""


class JsonText(Struct, frozen=True):
    """A JSON object (`data`) and the text it was read from."""

    data: dict[str, Any]
    text: str

    def lines_of(self, paths: Collection[Path]) -> dict[Path, int]:
        """Return the lines, from 1, of the values under `paths`; what is not there is left out."""
        wanted = set(paths)
        found: dict[Path, int] = {}
        at: list[str | int] = []
        for token in _TOKEN.finditer(self.text):
            match token[0][0]:
                case "{":
                    at.append("")
                case "[":
                    at.append(0)
                case "}" | "]":
                    at.pop()
                case ",":
                    at[-1] = at[-1] + 1 if isinstance(at[-1], int) else ""
                case _ if token[1] is not None:
                    at[-1] = str(json.loads(token[0].rstrip(": \t\r\n")))
                case _:
                    continue
            path = tuple(at)
            if path in wanted and path not in found:
                value = _BLANK.match(self.text, token.end())
                found[path] = self.text.count("\n", 0, value.end() if value else token.end()) + 1
        return found


def load_object(text: str | bytes, file: str) -> JsonText:
    """Return the JSON object in `text`. Raises InvalidFile."""
    content = _decode(text, file)
    try:
        data = json.loads(
            content, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        message = "is empty" if not content.strip() else f"is not valid JSON ({error.msg})"
        raise _unreadable(file, message, line=error.lineno) from None
    except _DuplicateKeyError as error:
        last = content.rfind(json.dumps(error.key, ensure_ascii=False))
        line = content.count("\n", 0, last) + 1 if last >= 0 else None
        raise _unreadable(file, "the key is given twice", line=line, key=error.key) from None
    except ValueError as error:
        raise _unreadable(file, f"holds a number that cannot be kept ({error})") from None
    except RecursionError:
        raise _unreadable(file, f"is nested more than {MAX_DEPTH} levels deep") from None
    if not isinstance(data, dict):
        raise _unreadable(file, "must be a JSON object", line=1)
    _check_whole(data, file)
    return JsonText(data, content)


def _check_whole(data: dict[str, Any], file: str) -> None:
    if _deeper_than(data, MAX_DEPTH):
        raise _unreadable(file, f"is nested more than {MAX_DEPTH} levels deep")
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _unreadable(file, "holds half of a surrogate pair, which is not a character") from None


def _decode(text: str | bytes, file: str) -> str:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_BYTES:
        raise _unreadable(file, f"is larger than {MAX_BYTES // 1024} KiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(file, "is not UTF-8", line=content.count(b"\n", 0, error.start) + 1) from None


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is out of range")
    return number


def _deeper_than(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(item, levels - 1) for item in items)


def _unreadable(file: str, message: str, *, line: int | None = None, key: str | None = None) -> InvalidFile:
    return InvalidFile((Problem(file=file, line=line, key=key, message=message),))


# --- structs that hold models -------------------------------------------------------------------------
def encoded(value: object) -> bytes:
    """Return a struct as JSON; a model in it, such as a State, by the names it has in files.

    A number that is not finite is null.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_dumped)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        text = json.dumps(msgspec.to_builtins(value, enc_hook=_dumped))
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def plain(value: object) -> Json:
    """Return a struct, and models in it, as JSON values."""
    values: Json = json.loads(encoded(value))
    return values


def _dumped(model: object) -> object:
    if isinstance(model, BaseModel):
        return model.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(model).__name__} has no JSON form")


def revived(kind: Any, value: Any) -> Any:
    """Return the model of type `kind` that JSON values stand for: what msgspec asks for in a struct.

    Raises ValueError when they are none.
    """
    return kind.model_validate(value)
