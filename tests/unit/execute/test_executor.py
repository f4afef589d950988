"""One start of an executor, its capabilities, and contradictions in its definition."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from handoffd.errors import ConfigurationError
from handoffd.execute.base import Rung
from handoffd.execute.executor import (
    Capabilities,
    EndRule,
    Executor,
    Invocation,
    InvocationContext,
    LadderRung,
    capabilities,
    contradictions,
    invocation,
    keys_of,
)
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat

HERE = InvocationContext(python="/opt/venv/bin/python", prompt_file="/state/runs/r1/prompt.md")
TOOL = Executor(
    name="tool",
    argv=("{python}", "-m", "tool", ("--model", "{model}"), "--in={prompt_file}", '{"a": {}}'),
    prompt="file",
    ladder=(LadderRung(signal="INT", grace_s=2), LadderRung(signal="KILL", grace_s=1)),
    env=("TOOL_KEY",),
)


def test_placeholders_are_filled_and_nothing_else() -> None:
    """Braces of other kinds are the tool's own."""
    assert Invocation(
        argv=("/opt/venv/bin/python", "-m", "tool", "--in=/state/runs/r1/prompt.md", '{"a": {}}'),
        env=("TOOL_KEY",),
        ladder=(Rung(signal="INT", grace_s=2), Rung(signal="KILL", grace_s=1)),
        prompt="file",
    ) == invocation(TOOL, HERE)


def test_a_model_brings_its_option_along() -> None:
    """The option is there with a model, and gone without one; a model's name is not filled in."""
    for name in ("small", "{python}"):
        own = TOOL.model_copy(update={"model": name})
        assert ("--model", name) == invocation(own, HERE).argv[3:5]


def test_a_pattern_cannot_be_started() -> None:
    """The error names the way out."""
    with pytest.raises(ConfigurationError, match="executor 'command' has no argv") as caught:
        invocation(Executor(name="command"), HERE)

    assert caught.value.message.endswith("choose one that says `extends: command`")
    assert "handoffd config show" == caught.value.hint


def test_a_session_is_continued_where_there_is_one() -> None:
    """Without one, its option is left out."""
    tool = Executor(name="tool", argv=("tool", ("--resume", "{session}"), "-"))
    again = InvocationContext(python="python", prompt_file="prompt", session="s-1")

    assert ("tool", "-") == invocation(tool, HERE).argv
    assert ("tool", "--resume", "s-1", "-") == invocation(tool, again).argv


def test_the_words_of_the_chosen_permission_are_filled_in() -> None:
    """As they are: nothing in them is a placeholder."""
    words = {"work": ("--allow", "{model}"), "none": ()}
    tool = Executor(name="tool", argv=("tool", "{permissions}", "-"), permissions=words, permission="work")

    assert ("tool", "--allow", "{model}", "-") == invocation(tool, HERE).argv
    assert ("tool", "-") == invocation(tool.model_copy(update={"permission": "none"}), HERE).argv


def test_a_permission_may_be_another_one_at_a_step() -> None:
    """Only at that step, and only instead of the chosen one."""
    words = {"work": ("--work",), "work@commit": ("--commit",), "read": ("--read",)}
    tool = Executor(name="tool", argv=("tool", "{permissions}"), permissions=words, permission="work")
    commit = replace(HERE, step="commit")

    assert ("tool", "--work") == invocation(tool, replace(HERE, step="impl")).argv
    assert ("tool", "--commit") == invocation(tool, commit).argv
    assert ("tool", "--read") == invocation(tool.model_copy(update={"permission": "read"}), commit).argv


def test_the_shim_gets_the_beginnings_of_lines_to_drop() -> None:
    """Only the shim sees these lines."""
    tool = Executor(name="tool", argv=("tool",), stream=StreamFormat(partial=('{"t":"delta"',)))

    assert ('{"t":"delta"',) == invocation(tool, HERE).partial
    assert () == invocation(tool.model_copy(update={"stream": None}), HERE).partial


def test_resuming_needs_the_session_id_in_stream_and_argv() -> None:
    """A path in the stream, and a place in argv."""
    argv = ("tool", ("--resume", "{session}"))
    stream = StreamFormat(session=("id",))

    assert Executor(name="tool", argv=argv, stream=stream).can_resume
    assert not Executor(name="tool", argv=argv).can_resume
    assert not Executor(name="tool", argv=("tool",), stream=stream).can_resume


# --- capabilities -------------------------------------------------------------------------------------
BOOK = load_book(shipped_layer())


def test_what_claude_can_do() -> None:
    """It has every capability."""
    assert Capabilities(
        name="claude", prompt="stdin", output="stream-json", resume=True, session="fresh", tokens="live",
        cost=True, limits=True, permission="work", permissions=("work", "read", "all"), account="claude",
        writes=("${CLAUDE_CONFIG_DIR:-~}/.claude.json*",), own=BOOK.get("claude").own,
    ) == capabilities(BOOK.get("claude"))  # fmt: skip


def test_a_permission_for_one_step_cannot_be_chosen() -> None:
    """codex may write elsewhere when it commits."""
    assert ("work", "read", "all") == capabilities(BOOK.get("codex")).permissions


def test_when_tokens_are_known() -> None:
    """While it runs, in the end, or never."""
    found = {name: capabilities(BOOK.get(name)).tokens for name in BOOK.names}

    assert {
        "aider": "live", "claude": "live", "codex": "at the end", "gemini": "at the end",
        "opencode": "live", "rehearsal": "no", "rehearsal-stream": "live",
    } == found  # fmt: skip


def test_a_plain_program_can_do_little() -> None:
    """It is started, and ends."""
    found = capabilities(Executor(name="x", argv=("x",), account="x"))

    assert (False, "no", False, False) == (found.resume, found.tokens, found.cost, found.limits)


# --- contradictions -----------------------------------------------------------------------------------
ALONE = "{permissions} must be a word by itself, after the program"
SESSION = "needs a place for {session} in argv, and `stream.session`, the id's path in the stream"
EITHER = "must have either `when`, for a JSON object, or `match`, for a plain line"
STREAM = {"session": "id", "lines": [{"when": {"type": "end"}, "result": {"is_error": False}}]}


def wrong(**given: Any) -> list[tuple[str, str]]:
    """Return the contradictions of an executor, each with its key."""
    executor = Executor.model_validate({"name": "x", "argv": ["x"], **given})
    return [(found.key, found.message) for found in contradictions(executor)]


@pytest.mark.parametrize("name", sorted(BOOK.executors))
def test_no_shipped_executor_contradicts_itself(name: str) -> None:
    """Patterns included."""
    assert [] == list(contradictions(BOOK.executors[name]))


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ({"argv": ["{permissions}"]}, "argv.0", ALONE),
        (
            {"argv": ["x", ["-p", "{permissions}"]], "permissions": {"a": []}, "permission": "a"},
            "argv.1",
            ALONE,
        ),
        ({"argv": ["x", "{permissions}"]}, "permission", "is required with {permissions} in argv"),
        ({"permissions": {"all": ["-y"]}, "permission": "al"}, "permission", "there is no permission 'al'"),
        ({"permissions": {"a@b": ["-y"]}, "permission": "a@b"}, "permission", "there is no permission 'a@b'"),
        (
            {"permissions": {"all": [], "al@commit": ["-y"]}, "permission": "all"},
            "permissions.al@commit",
            "replaces a permission that does not exist: 'al'",
        ),
        (
            {"argv": ["x", "{session}"]},
            "argv.1",
            'session is optional: write it as a list, [--session, "{session}"]',
        ),
        ({"session": "resume", "stream": STREAM}, "session", SESSION),
        ({"session": "resume", "argv": ["x", ["-r", "{session}"]]}, "session", SESSION),
        ({"stream": {"lines": [{"error": "x"}]}}, "stream.lines.0", EITHER),
        ({"stream": {"lines": [{"when": {}, "match": "x"}]}}, "stream.lines.0", EITHER),
        ({"limits": ["(?P<reset>.)(?P<rest>.)"]}, "limits.0", "unknown group 'rest'"),
        ({"ends": [{"is": "crash"}]}, "ends.0", "must have `match`, `cause` or `code`"),
        (
            {"ends": [{"match": "a", "cause": "b", "is": "limit"}]},
            "ends.0",
            "`cause` excludes `match` and `code`",
        ),
        (
            {"ends": [{"code": 3, "is": "refused"}]},
            "ends.0",
            "an exit code alone does not show that a provider refused",
        ),
        ({"ends": [{"code": 0, "is": "clean"}]}, "ends.0.is", "an error never means a clean end"),
        ({"login": {"env": ["A B"]}}, "login.env.0", "'A B' is not the name of an environment variable"),
    ],
)
def test_a_contradiction_is_named_with_its_key(given: dict[str, Any], key: str, message: str) -> None:
    """One for each."""
    assert (key, message) in wrong(**given)


def test_a_consistent_executor_has_no_contradiction() -> None:
    """It can continue a session, and uses one of its permissions."""
    assert [] == wrong(
        argv=["x", "{permissions}", ["-r", "{session}"]],
        permissions={"all": ["-y"]},
        permission="all",
        session="resume",
        output="stream-json",
        stream=STREAM,
        limits=["again at (?P<reset>.+)", "again in (?P<wait>.+)"],
    )


def test_the_keys_are_those_that_a_person_writes() -> None:
    """Not the names in the program."""
    assert ("cause", "code", "is", "match") == keys_of(EndRule)
    assert ("grace_s", "signal") == keys_of(LadderRung)
    assert {"extends", "stream"} <= set(keys_of(Executor))
    assert "name" not in keys_of(Executor)
