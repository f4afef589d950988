"""What is known of codex, gemini, opencode and aider, measured on the binaries themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.real.agents import Run
from tests.real.bench import Bench
from tests.real.conftest import Told
from tests.real.provider.server import serving
from tests.real.provider.turns import Turn
from tests.real.scenarios import SCENARIOS, working
from tests.real.scripts import acting

from handoffd.execute.executor import InvocationContext, invocation
from handoffd.execute.registry import load_book, shipped_layer

Benches = Callable[[str], Bench]
Json = dict[str, Any]


def lines(out: bytes) -> list[Json]:
    """Return the lines of a stream."""
    return [json.loads(line) for line in out.splitlines()]


def of_type(out: bytes, kind: str) -> list[Json]:
    """Return the lines of one type."""
    return [line for line in lines(out) if line["type"] == kind]


# --- codex --------------------------------------------------------------------------------------------
def test_codex_tells_turns_and_items_and_no_cost(bench: Benches, told: Told) -> None:
    """The thread's id comes first, the usage last; there is no cost."""
    told("codex", "the stream: thread, turn, items, usage, no cost")
    _, ended = SCENARIOS["success"](bench("codex"))

    kinds = [line["type"] for line in lines(ended.out)]
    assert ("thread.started", "turn.started", "turn.completed") == (kinds[0], kinds[1], kinds[-1])
    assert {"item.started", "item.completed"} == set(kinds[2:-1])
    assert (0, False) == (ended.code, b"cost" in ended.out)


def test_codex_in_a_read_only_sandbox_ends_well_without_a_handoff(bench: Benches, told: Told) -> None:
    """Exit code 0, the turn completed, and nothing was written."""
    told("codex", "a read-only sandbox: exit code 0, no hand-off")
    codex = bench("codex")
    _, ended = SCENARIOS["read-only"](codex)

    assert (0, 1) == (ended.code, len(of_type(ended.out, "turn.completed")))
    assert not (codex.project / ".ai/HANDOFF.md").exists()
    assert b"writing is blocked by read-only sandbox" in ended.err


def test_codex_at_a_commit_writes_to_git_and_to_neither_hooks_nor_settings(
    bench: Benches, told: Told
) -> None:
    """At other steps to none of it; what hooks and settings name would be run outside its sandbox later."""
    told("codex", "what its sandbox lets a commit write in .git")
    codex = bench("codex")
    probe = "for f in index.new hooks/new config; do (: >> .git/$f) 2> /dev/null && echo wrote $f; done; true"
    wrote = []
    for step in ("impl", "commit"):
        shipped = load_book(shipped_layer()).get("codex")
        call = invocation(shipped, InvocationContext(python="python", prompt_file="", step=step))
        with serving(acting(codex.agent, codex.project, lambda asked: [Run(probe)])) as provider:
            codex.furnish(provider.url)
            out = codex.run(provider.url, call.argv).out
        (ran,) = [
            line["item"]["aggregated_output"]
            for line in of_type(out, "item.completed")
            if line["item"]["type"] == "command_execution"
        ]
        wrote.append(ran.split())

    assert [[], ["wrote", "index.new"]] == wrote


def test_codex_counts_the_whole_thread_when_it_resumes(bench: Benches, told: Told) -> None:
    """The usage of a resumed run holds that of the runs before."""
    told("codex", "resume: the usage is that of the whole thread")
    provider, ended = SCENARIOS["resume"](bench("codex"))

    (turn,) = of_type(ended.out, "turn.completed")
    assert 8 == len(provider.asked)
    assert (0, 8 * 2000, 8 * 60) == (
        ended.code,
        turn["usage"]["input_tokens"],
        turn["usage"]["output_tokens"],
    )


def test_codex_names_a_thread_that_is_gone(bench: Benches, told: Told) -> None:
    """Exit code 1 and standard error alone."""
    told("codex", "resume of an unknown thread")
    _, ended = SCENARIOS["resume-unknown"](bench("codex"))

    assert (1, b"") == (ended.code, ended.out)
    assert b"no rollout found for thread id" in ended.err


def test_codex_says_when_a_limit_ends(bench: Benches, told: Told) -> None:
    """A date and a clock time, without a zone."""
    told("codex", "a usage limit, with its reset time")
    _, ended = SCENARIOS["usage-limit"](bench("codex"))

    (failed,) = of_type(ended.out, "turn.failed")
    assert 1 == ended.code
    assert failed["error"]["message"].endswith("try again at Jan 1st, 2030 12:00 AM.")


def test_codex_refuses_a_bad_flag(bench: Benches, told: Told) -> None:
    """Exit code 2."""
    told("codex", "an unknown flag")
    _, ended = SCENARIOS["unknown-flag"](bench("codex"))

    assert (2, b"") == (ended.code, ended.out)
    assert b"unexpected argument '--no-such-flag'" in ended.err


# --- sessions -----------------------------------------------------------------------------------------
GONE = {"gemini": (42, b"Invalid session identifier"), "opencode": (1, b"Session not found")}
"""Exit code, and what standard error says of a session that is not there."""


@pytest.mark.parametrize("name", GONE)
def test_a_session_that_is_gone_is_named_on_standard_error_alone(
    name: str, bench: Benches, told: Told
) -> None:
    """With an exit code that says something else elsewhere."""
    told(name, "resume of an unknown session")
    _, ended = SCENARIOS["resume-unknown"](bench(name))

    code, words = GONE[name]
    assert (code, b"") == (ended.code, ended.out)
    assert words in ended.err


@pytest.mark.parametrize("name", GONE)
def test_a_session_is_gone_on_with_by_the_id_that_the_stream_named(
    name: str, bench: Benches, told: Told
) -> None:
    """The model gets the earlier messages again."""
    told(name, "resume of a session")
    provider, ended = SCENARIOS["resume"](bench(name))

    assert 0 == ended.code
    assert "dispatch: d-0001" in json.dumps(provider.requests[-1][2])


# --- gemini -------------------------------------------------------------------------------------------
def test_gemini_needs_the_kind_of_its_login_in_its_settings(bench: Benches, told: Told) -> None:
    """A key alone is not enough."""
    told("gemini", "no auth type in its settings: exit code 41")
    gemini = bench("gemini")
    with serving(lambda _: Turn("Done.")) as provider:
        ended = gemini.run(provider.url, gemini.agent.argv)

    assert (41, b"", []) == (ended.code, ended.out, provider.asked)


def test_gemini_refuses_command_substitution(bench: Benches, told: Told) -> None:
    """Its shell tool runs no `$(...)`, and calls that a success."""
    told("gemini", "its shell tool refuses $(...)")
    gemini = bench("gemini")
    model = acting(gemini.agent, gemini.project, lambda asked: [Run("touch $(echo made)")])
    with serving(model) as provider:
        gemini.furnish(provider.url)
        ended = gemini.run(provider.url, gemini.agent.argv)

    (done,) = of_type(ended.out, "tool_result")
    assert "Blocked: command substitution detected in shell command." == done["output"]
    assert (0, "success") == (ended.code, done["status"])
    assert not (gemini.project / "made").exists()


def test_gemini_ends_with_the_rest_of_the_http_status(bench: Benches, told: Told) -> None:
    """429 becomes exit code 173: an exit code has eight bits."""
    told("gemini", "a daily quota used up: exit code 173")
    _, ended = SCENARIOS["usage-limit"](bench("gemini"))

    assert 429 % 256 == ended.code
    assert "exhausted your daily quota" in of_type(ended.out, "result")[0]["error"]["message"]


def test_gemini_without_a_tool_ends_well_without_a_handoff(bench: Benches, told: Told) -> None:
    """What is not approved beforehand is not offered to the model at all."""
    told("gemini", "tools not approved: exit code 0, no hand-off")
    gemini = bench("gemini")
    _, ended = SCENARIOS["denied"](gemini)

    assert (0, "success") == (ended.code, of_type(ended.out, "result")[0]["status"])
    assert not (gemini.project / ".ai/HANDOFF.md").exists()


# --- opencode -----------------------------------------------------------------------------------------
def test_opencode_states_what_each_request_used(bench: Benches, told: Told) -> None:
    """There is no line for the whole run: the steps have to be added up."""
    told("opencode", "the stream: usage and cost per request, no result line")
    _, ended = SCENARIOS["success"](bench("opencode"))

    steps = of_type(ended.out, "step_finish")
    assert (0, [60] * 4) == (ended.code, [step["part"]["tokens"]["output"] for step in steps])
    assert "stop" == steps[-1]["part"]["reason"]


def test_opencode_ends_after_a_refused_tool(bench: Benches, told: Told) -> None:
    """A tool that would ask is refused, and the run is over, with exit code 0 and no hand-off."""
    told("opencode", "a refused tool: exit code 0, no hand-off")
    opencode = bench("opencode")
    _, ended = SCENARIOS["denied"](opencode)

    assert (0, True) == (ended.code, b"auto-rejecting" in ended.err)
    assert not (opencode.project / ".ai/HANDOFF.md").exists()


# --- aider --------------------------------------------------------------------------------------------
def test_aider_ends_well_whatever_happened(bench: Benches, told: Told) -> None:
    """Only its text reports a rejected key."""
    told("aider", "a rejected key: exit code 0")
    _, ended = SCENARIOS["unauthorised"](bench("aider"))

    assert (0, True) == (ended.code, b"litellm.AuthenticationError" in ended.out)


def test_aider_says_what_it_used(bench: Benches, told: Told) -> None:
    """Tokens and cost stand in one line of text."""
    told("aider", "tokens and cost in its text")
    _, ended = SCENARIOS["success"](bench("aider"))

    assert b"Tokens: 2.0k sent, 60 received. Cost: $0.0046 message, $0.0046 session." in ended.out


def test_aider_leaves_ignored_files_alone(bench: Benches, told: Told) -> None:
    """Where `.ai/` is ignored by git, it can hand over with --no-git only."""
    told("aider", "in a git repository that ignores .ai/: no hand-off")
    aider = bench("aider")
    (aider.project / ".gitignore").write_text(".ai/\n")
    argv = tuple(word for word in aider.agent.argv if word != "--no-git")
    with serving(working(aider)) as provider:
        aider.furnish(provider.url)
        ended = aider.run(provider.url, argv)

    assert (0, True) == (ended.code, b"Skipping edits to .ai/HANDOFF.md" in ended.out)
    assert not (aider.project / ".ai/HANDOFF.md").exists()
