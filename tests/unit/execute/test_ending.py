"""Classes of ends, recognised in the output of the real programs and of any other."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.engine.run import End, Footprint
from handoffd.execute.base import By, ExitRecord
from handoffd.execute.ending import Ended, Ending, ending_of, footprint_of
from handoffd.execute.executor import Executor
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.reader import Seen, StreamReader

RECORDED = Path(__file__).resolve().parents[2] / "data/streams"
NOW = datetime(2026, 11, 22, 4, 16, tzinfo=UTC)
BOOK = load_book(shipped_layer())

CLASSES = {
    "success": End.CLEAN,
    "resume": End.CLEAN,
    "no-handoff": End.CLEAN,
    "read-only": End.CLEAN,
    "denied": End.CLEAN,
    "logged-out": End.LOGGED_OUT,
    "unauthorised": End.LOGGED_OUT,
    "no-credit": End.NO_CREDIT,
    "usage-limit": End.LIMIT,
    "usage-limit-soon": End.LIMIT,
    "usage-limit-weekly": End.LIMIT,
    "usage-limit-subscription": End.LIMIT,
    "usage-limit-delay": End.LIMIT,
    "rate-limit": End.LIMIT,
    "overload": End.OVERLOAD,
    "resume-unknown": End.SESSION_GONE,
    "resume-none": End.SESSION_GONE,
    "unknown-flag": End.BAD_CALL,
    "unknown-model": End.BAD_CALL,
}

LESS_IS_KNOWN = {
    "aider/no-credit": End.LIMIT,  # it takes an account without credit for one that asks too often
    "opencode/denied": End.FAILED,
    "opencode/unknown-model": End.FAILED,  # "Unexpected server error. Check server logs for details."
}
"""Where a program reports something else, or nothing."""

RETRY_AT = {
    "claude/usage-limit-soon": "2026-11-22T05:46:42+00:00",
    "claude/usage-limit-weekly": "2026-11-24T11:49:59+00:00",
    "claude/usage-limit-subscription": "2030-01-01T00:00:00+00:00",
    "codex/usage-limit": "2030-01-01T00:01:00+00:00",
    "codex/usage-limit-soon": "2026-11-22T05:47:00+00:00",
    "gemini/usage-limit": "2026-11-22T16:50:56.789000+00:00",
    "gemini/usage-limit-delay": "2026-11-22T16:50:56.789000+00:00",
}
"""From the programs' output; the end of another limit is not known."""

RETRY = b'{"type":"system","subtype":"api_retry","attempt":%d,%s}\n'

RECORDINGS = sorted(path for suffix in ("jsonl", "txt") for path in RECORDED.glob(f"*/*.{suffix}"))


def seen_in(executor: Executor, output: bytes) -> Seen:
    """Return the reading of a whole output."""
    reader = StreamReader(executor)
    reader.feed(output)
    reader.end()
    return reader.seen


def ended(
    executor: Executor, output: bytes, *, code: int | None = 0, signum: int | None = None, by: By = "itself",
    out_of_memory: bool = False, at_own_limit: bool = False,
) -> Ended:  # fmt: skip
    """Return a run that is over, with this output."""
    record = ExitRecord(
        run_id="r", code=code, signal=signum, by=by, out_of_memory=out_of_memory, at_own_limit=at_own_limit
    )
    return Ended(record=record, seen=seen_in(executor, output), last=output)


def of(executor: Executor, output: bytes, **how: object) -> Ending:
    """Return the class of a run with this output."""
    return ending_of(executor, ended(executor, output, **how), NOW, UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_output_of_the_real_programs_is_understood(path: Path) -> None:
    """Each reports the same trouble in its own words."""
    executor = BOOK.executors[path.parent.name]
    code = path.with_suffix(".rc").read_text("utf-8").strip()
    # Without a code: it was ended, because it would have tried again for ever.
    by: By = "itself" if code.isdigit() else "deadline"
    output = path.read_bytes() + path.with_suffix(".err").read_bytes()

    ending = of(executor, output, code=int(code) if code.isdigit() else None, by=by)

    name = f"{path.parent.name}/{path.stem}"
    assert LESS_IS_KNOWN.get(name, CLASSES[path.stem]) is ending.end
    retry_at = RETRY_AT.get(name)
    if retry_at is not None:
        assert datetime.fromisoformat(retry_at) == ending.retry_at
    elif ending.end is not End.LIMIT:
        assert ending.retry_at is None


def test_there_is_a_recording_of_each_class_for_each_program() -> None:
    """Without a recording it is not known to be understood."""
    for name in ("claude", "codex", "gemini", "opencode", "aider"):
        recorded = {CLASSES[path.stem] for path in RECORDINGS if path.parent.name == name}
        expected = {End.CLEAN, End.LOGGED_OUT, End.LIMIT, End.OVERLOAD, End.BAD_CALL}
        assert expected <= recorded, name


def test_the_agents_own_words_are_not_an_error() -> None:
    """An agent that works on a rate limiter is not limited; nor is one whose tool printed the words."""
    said = (
        b'{"type":"assistant","message":{"content":[{"type":"text",'
        b'"text":"You\'ve hit your limit, resets 3pm"}]}}\n'
        b'{"type":"user","message":{"content":[{"type":"tool_result","content":"Not logged in"}]}}\n'
    )
    result = b'{"type":"result","is_error":%s,"result":"%s"}\n'
    claude = BOOK.executors["claude"]

    assert Ending(end=End.CLEAN) == of(claude, said + result % (b"false", b"Done"))
    assert Ending(end=End.FAILED) == of(claude, said + result % (b"true", b"Out of ideas"), code=1)


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ({"code": 0}, End.CLEAN),
        ({"code": 3}, End.FAILED),
        ({"code": None, "signum": signal.SIGSEGV}, End.CRASH),
        ({"code": None, "signum": signal.SIGKILL}, End.CRASH),
        ({"code": 128 + signal.SIGABRT}, End.CRASH),
        ({"code": 173}, End.FAILED),
        ({"code": None, "signum": signal.SIGKILL, "out_of_memory": True}, End.OUT_OF_MEMORY),
        (
            {"code": None, "signum": signal.SIGKILL, "out_of_memory": True, "at_own_limit": True},
            End.MEMORY_LIMIT,
        ),
        ({"code": None, "by": "stop"}, None),
        ({"code": None, "by": "deadline"}, None),
        ({"code": None, "by": "lost"}, None),
    ],
)
def test_without_words_the_exit_code_and_the_signal_decide(how: dict[str, object], end: End | None) -> None:
    """A code above 128 need not be a signal: some programs end with a request's status, cut to a byte."""
    executor = Executor(name="any", argv=("any",))
    assert Ending(end=end) == of(executor, b"some lines\nof text\n", **how)


def test_a_program_that_was_ended_while_it_met_its_limit_met_its_limit() -> None:
    """It had spent its time on retries; one that went on after the limit had not."""
    claude = BOOK.executors["claude"]
    limited = (
        b'{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text",'
        b'"text":"You\'ve hit your limit \xc2\xb7 resets 5:46am (UTC)"}]}}\n'
    )
    went_on = b'{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"Next."}]}}\n'

    assert End.LIMIT is of(claude, limited, code=None, by="deadline").end
    assert Ending(end=None) == of(claude, limited + went_on, code=None, by="deadline")


@pytest.mark.parametrize(
    ("clock", "now", "retry_at"),
    [
        ("5:46 AM", NOW, NOW.replace(hour=5, minute=47)),
        # It ends within this minute, which is already over when its message is read.
        ("7:18 AM", NOW.replace(hour=7, minute=18, second=27), NOW.replace(hour=7, minute=19)),
    ],
)
def test_a_time_of_day_is_meant_to_the_end_of_its_minute(
    clock: str, now: datetime, retry_at: datetime
) -> None:
    """Programs leave the seconds out, and a minute too early is one limit more."""
    codex = BOOK.executors["codex"]
    message = f"You've hit your usage limit. try again at {clock}."
    line = json.dumps({"type": "turn.failed", "error": {"message": message}}).encode() + b"\n"

    assert retry_at == ending_of(codex, ended(codex, line, code=1), now, UTC).retry_at


@given(st.binary(max_size=300), st.integers(0, 255), st.sampled_from(sorted(BOOK.names)))
def test_any_output_has_a_class(output: bytes, code: int, name: str) -> None:
    """No output breaks its reader."""
    assert of(BOOK.executors[name], output, code=code).end in set(End)


@pytest.mark.parametrize(
    "word", ["hit your limit ", "hit your usage limit", "limit ", "retry in 1.", "resets "]
)
def test_words_that_almost_mean_a_limit_are_searched_fast(word: str) -> None:
    """However many they are: the search for an expression blocks everything else."""
    output = (word * (256 * 1024 // len(word))).encode()
    for name in BOOK.names:
        assert of(BOOK.executors[name], output, code=1).end in set(End)
        assert of(BOOK.executors[name], output.replace(b" ", b" \n", 2000), code=1).end in set(End)


def test_the_cut_end_of_a_line_of_the_stream_is_no_error() -> None:
    """It may be the output of a tool."""
    cut = b"You've hit your limit, resets 3pm\"}]}}\n"
    assert Ending(end=End.FAILED) == of(BOOK.executors["claude"], cut, code=1)


@pytest.mark.parametrize("by", ["deadline", "stop"])
@pytest.mark.parametrize(
    "error", ['"error_status":529,"error":"overloaded"', '"api_error_type":"overloaded_error"']
)
def test_a_program_that_was_ended_while_its_provider_was_overloaded_met_an_overload(
    by: By, error: str
) -> None:
    """Some retry for longer than a step may take; the error may have a name or words."""
    output = b"".join(RETRY % (attempt, error.encode()) for attempt in range(8))
    assert Ending(end=End.OVERLOAD) == of(BOOK.executors["claude"], output, code=None, by=by)


# --- refusals, and errors that have a name ---------------------------------------------------------
REFUSALS = {
    "claude": '{"type":"result","is_error":true,"api_error_status":403,"result":"The zebra is not amused"}',
    "codex": '{"type":"turn.failed","error":{"message":"unexpected status 403 Forbidden: no zebras"}}',
    "gemini": '{"type":"result","status":"error","error":{"message":"[API Error: no zebras]"}}',
    "opencode": '{"type":"error","error":{"name":"APIError","data":{"message":"no","statusCode":403}}}',
    "aider": "litellm.APIError: APIError: no zebras",
    "command": "API Error: 403 no zebras",
}
WORK = {
    "claude": '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{}}]}}',
    "codex": '{"type":"item.started","item":{"type":"command_execution","command":"ls"}}',
    "gemini": '{"type":"tool_use","tool_name":"ls","parameters":{}}',
    "opencode": '{"type":"tool_use","part":{"tool":"bash","state":{"input":{}}}}',
    "aider": "Applied edit to shop.py",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_of_the_provider_in_unknown_words_is_a_refusal(name: str) -> None:
    """Unless the agent had done some work; an end without a word is a failure."""
    executor, code = BOOK.executors[name], 0 if name == "aider" else 1
    refusal = f"{REFUSALS[name]}\n"

    assert Ending(end=End.REFUSED) == of(executor, refusal.encode(), code=code)
    assert Ending(end=End.FAILED) == of(executor, b"", code=1)
    if name in WORK:
        assert Ending(end=End.FAILED) == of(executor, f"{WORK[name]}\n{refusal}".encode(), code=code)


@pytest.mark.parametrize(
    ("named", "end"),
    [
        ("authentication_error", End.LOGGED_OUT),
        ("billing_error", End.NO_CREDIT),
        ("rate_limit_error", End.LIMIT),
        ("overloaded_error", End.OVERLOAD),
        ("api_error", End.OVERLOAD),
        ("permission_error", End.REFUSED),
        ("invalid_request_error", End.REFUSED),
        ("a_name_of_tomorrow", End.REFUSED),
    ],
)
@pytest.mark.parametrize("kind", ["result", "assistant", "system"])
def test_the_name_of_an_error_goes_before_its_words(named: str, end: End, kind: str) -> None:
    """In whichever line it comes; a text that no expression knows changes nothing."""
    lines = {
        "result": '{"type":"result","is_error":true,"api_error_type":"%s","result":"zebras"}\n',
        "assistant": '{"type":"assistant","api_error_type":"%s","message":{"model":"<synthetic>"}}\n',
        "system": '{"type":"system","subtype":"api_retry","api_error_type":"%s","error":"zebras"}\n',
    }
    result = b'{"type":"result","is_error":true,"result":"zebras"}\n'
    output = (lines[kind] % named).encode() + result
    assert Ending(end=end) == of(BOOK.executors["claude"], output, code=1)


def test_the_name_of_an_error_that_the_agent_overcame_does_not_count() -> None:
    """It went on, and failed by something else."""
    output = (
        b'{"type":"system","subtype":"api_retry","api_error_type":"overloaded_error","error":"zebras"}\n'
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"On with it."}]}}\n'
        b'{"type":"result","is_error":true,"result":"Out of ideas"}\n'
    )
    assert Ending(end=End.FAILED) == of(BOOK.executors["claude"], output, code=1)


def test_words_that_are_more_precise_than_a_vague_name_count() -> None:
    """A lack of credit is an invalid request to the provider."""
    line = (
        b'{"type":"result","is_error":true,"api_error_type":"invalid_request_error","api_error_status":400,'
        b'"result":"Credit balance is too low"}\n'
    )
    assert Ending(end=End.NO_CREDIT) == of(BOOK.executors["claude"], line, code=1)


def test_a_run_has_a_footprint_only_if_the_machine_counts() -> None:
    """Most machines do: there it has one also without a limit."""
    assert footprint_of(ExitRecord(run_id="r", code=0)) is None
    record = ExitRecord(run_id="r", code=1, memory_peak=7, memory_max=9, memory_kills=1, tasks_peak=2)
    assert Footprint(memory_peak=7, memory_max=9, memory_kills=1, tasks_peak=2) == footprint_of(record)
