"""What is known of claude, measured on the binary itself."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.real.agents import DUMMY_KEY, Run
from tests.real.bench import PROMPT, Bench
from tests.real.conftest import Told
from tests.real.provider.server import serving
from tests.real.provider.turns import Silence, Turn
from tests.real.scenarios import SCENARIOS
from tests.real.scripts import acting, refusing

Benches = Callable[[str], Bench]
Json = dict[str, Any]


@pytest.fixture
def claude(bench: Benches) -> Bench:
    """A bench with claude on it."""
    return bench("claude")


def lines(out: bytes) -> Iterator[Json]:
    """Yield the lines of a stream."""
    return (json.loads(line) for line in out.splitlines())


def result(out: bytes) -> Json:
    """Return the line that tells how it went."""
    (found,) = [line for line in lines(out) if line["type"] == "result"]
    return found


def test_an_api_error_calls_itself_a_success(claude: Bench, told: Told) -> None:
    """Only is_error is right; the subtype is wrong."""
    told("claude", "an API error: subtype success, is_error true")

    _, ended = SCENARIOS["no-credit"](claude)

    assert (1, "success", True) == (ended.code, result(ended.out)["subtype"], result(ended.out)["is_error"])


def test_a_denied_tool_is_a_clean_end_without_a_handoff(claude: Bench, told: Told) -> None:
    """Exit code 0, no error; the denials stand in the result, and the hand-off does not stand anywhere."""
    told("claude", "a denied tool: exit code 0, denials listed, no hand-off")

    _, ended = SCENARIOS["denied"](claude)

    said = result(ended.out)
    assert (0, "success", False) == (ended.code, said["subtype"], said["is_error"])
    assert {"Write"} <= {denial["tool_name"] for denial in said["permission_denials"]}
    assert not (claude.project / ".ai/HANDOFF.md").exists()


def test_the_background_is_denied_though_bash_is_allowed(claude: Bench, told: Told) -> None:
    """A command with `&` needs an approval of its own, which is impossible without a terminal."""
    told("claude", "a shell command with &: denied though Bash is allowed")
    with serving(acting(claude.agent, claude.project, lambda asked: [Run("touch a & touch b")])) as provider:
        ended = claude.run(provider.url, claude.agent.argv)

    assert ["Bash"] == [denial["tool_name"] for denial in result(ended.out)["permission_denials"]]
    assert not (claude.project / "b").exists()


def test_a_rejected_key_is_retried_for_minutes(claude: Bench, told: Told) -> None:
    """It does not give up within the limit; each retry has a line."""
    told("claude", "HTTP 401: retried, a line for each")
    with serving(refusing("unauthorised")) as provider:
        ended = claude.run(provider.url, claude.agent.argv, limit_s=12)

    retries = [line for line in lines(ended.out) if line.get("subtype") == "api_retry"]
    assert ended.code is None
    assert len(retries) >= 2
    assert {401} == {line["error_status"] for line in retries}


def test_retries_can_be_bounded(claude: Bench, told: Told) -> None:
    """CLAUDE_CODE_MAX_RETRIES makes the same refusal a matter of seconds."""
    told("claude", "HTTP 401 with CLAUDE_CODE_MAX_RETRIES=1")
    with serving(refusing("unauthorised")) as provider:
        ended = claude.run(provider.url, claude.agent.argv, variables={"CLAUDE_CODE_MAX_RETRIES": "1"})

    assert (1, True) == (ended.code, result(ended.out)["is_error"])
    assert 2 == len(provider.asked)


def test_a_server_that_says_nothing_is_asked_again(claude: Bench, told: Told) -> None:
    """A request without an answer is dropped and repeated."""
    told("claude", "a silent server: dropped at API_TIMEOUT_MS and asked again")
    asked = iter([Silence(), Silence()])
    with serving(lambda _: next(asked, Turn("Done."))) as provider:
        ended = claude.run(provider.url, claude.agent.argv, variables={"API_TIMEOUT_MS": "2000"})

    assert (0, False) == (ended.code, result(ended.out)["is_error"])
    assert len(provider.asked) >= 3


def test_root_may_not_skip_permissions(claude: Bench, told: Told) -> None:
    """The refusal appears only on standard error."""
    assert os.geteuid() == 0, "every account is root in the namespace"
    told("claude", "--dangerously-skip-permissions as root: refused")
    with serving(refusing("unauthorised")) as provider:
        argv = (
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
        )
        ended = claude.run(provider.url, argv)

    assert (1, b"", []) == (ended.code, ended.out, provider.asked)
    assert b"cannot be used with root" in ended.err


def test_a_session_is_resumed_under_its_own_id(claude: Bench, told: Told) -> None:
    """The second run continues the first and counts its own tokens only."""
    told("claude", "--resume of a session")
    provider, ended = SCENARIOS["resume"](claude)

    said = result(ended.out)
    assert (0, False, 240) == (ended.code, said["is_error"], said["usage"]["output_tokens"])
    assert "dispatch: d-0001" in json.dumps(provider.requests[-1][2])
    assert "dispatch: d-0002" in (claude.project / ".ai/HANDOFF.md").read_text()


def test_a_session_can_be_given_its_id(claude: Bench, told: Told) -> None:
    """--session-id names a new session."""
    told("claude", "--session-id")
    wanted = str(uuid.uuid4())
    with serving(lambda _: Turn("Done.")) as provider:
        ended = claude.run(provider.url, (*claude.agent.argv, "--session-id", wanted))

    assert wanted == result(ended.out)["session_id"]


def test_a_session_that_is_gone_is_named(claude: Bench, told: Told) -> None:
    """Exit code 1, a result line with `errors`, the same on standard error; the model is not asked."""
    told("claude", "--resume of an unknown session")
    provider, ended = SCENARIOS["resume-unknown"](claude)

    said = result(ended.out)
    assert (1, True, []) == (ended.code, said["is_error"], provider.requests)
    assert said["errors"][0].startswith("No conversation found with session ID")
    assert b"No conversation found with session ID" in ended.err


def test_a_usage_limit_says_when_it_ends(claude: Bench, told: Told) -> None:
    """A subscription's limit has a line of its own, with the time in seconds since the epoch."""
    told("claude", "a subscription's usage limit, with its reset time")
    _, ended = SCENARIOS["usage-limit-subscription"](claude)

    (info,) = [line["rate_limit_info"] for line in lines(ended.out) if line["type"] == "rate_limit_event"]
    assert ("rejected", 1893456000, "five_hour") == (info["status"], info["resetsAt"], info["rateLimitType"])
    assert "You've hit your session limit · resets Jan 1, 2030, 12am (UTC)" == result(ended.out)["result"]


def test_the_cost_of_a_process_that_lives_on_adds_up(claude: Bench, told: Told) -> None:
    """With --input-format stream-json each result states the cost of everything so far."""
    told("claude", "several prompts in one process: the cost is a running total")
    said = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "Go on."}]}}
    with serving(lambda _: Turn("Done.")) as provider:
        argv = (*claude.agent.argv, "--input-format", "stream-json")
        ended = claude.run(provider.url, argv, prompt=f"{json.dumps(said)}\n{json.dumps(said)}\n")

    costs = [line["total_cost_usd"] for line in lines(ended.out) if line["type"] == "result"]
    assert 2 == len(costs)
    assert pytest.approx(2 * costs[0]) == costs[1]


def test_a_bad_flag_ends_before_anything_is_said(claude: Bench, told: Told) -> None:
    """Exit code 1, and one line on standard error."""
    told("claude", "an unknown flag")
    provider, ended = SCENARIOS["unknown-flag"](claude)

    assert (1, b"", []) == (ended.code, ended.out, provider.asked)
    assert b"error: unknown option '--no-such-flag'" in ended.err


def test_without_a_key_nothing_is_asked(claude: Bench, told: Told) -> None:
    """It reports that itself, as an error of class authentication_failed."""
    told("claude", "not logged in")
    provider, ended = SCENARIOS["logged-out"](claude)

    assert (1, "Not logged in · Please run /login") == (ended.code, result(ended.out)["result"])
    assert "authentication_failed" in [line.get("error") for line in lines(ended.out)]
    assert [] == provider.asked


def test_the_prompt_is_not_in_the_argv(claude: Bench) -> None:
    """It comes on standard input and reaches the model whole."""
    with serving(lambda _: Turn("Done.")) as provider:
        claude.run(provider.url, claude.agent.argv)

    assert PROMPT.strip() in provider.asked[-1].prompt
    assert DUMMY_KEY not in " ".join(claude.agent.argv)
