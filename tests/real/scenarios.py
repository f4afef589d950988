"""Everything that a CLI is recorded in: one function a scenario, from a bench to what happened on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.real.agents import Run, Write
from tests.real.bench import NONE, PROMPT, Bench, Ended, Variables
from tests.real.provider.server import Provider, serving
from tests.real.provider.turns import Asked, Model
from tests.real.scripts import acting, handoff, limited, refusing

Scenario = Callable[[Bench], tuple[Provider, Ended]]


def _plain(bench: Bench, model: Model, *words: str) -> tuple[Provider, Ended]:
    with serving(model) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, with_words(bench.agent.argv, *words))


def with_words(argv: tuple[str, ...], *words: str) -> tuple[str, ...]:
    """Return `argv` with further options, before a `-` at its end."""
    return (*argv[:-1], *words, "-") if argv[-1] == "-" else (*argv, *words)


def working(bench: Bench) -> Model:
    """Return a model that writes a file, lists it and hands over."""

    def actions(asked: Asked) -> list[Write | Run]:
        work: list[Write | Run] = [Write("src/greeting.py", 'GREETING = "hello"\n')]
        if bench.agent.translate is not None:
            work.append(Run("ls -l src"))
        return [*work, handoff(asked)]

    return acting(bench.agent, bench.project, actions)


def _success(bench: Bench) -> tuple[Provider, Ended]:
    return _plain(bench, working(bench))


def _no_handoff(bench: Bench) -> tuple[Provider, Ended]:
    return _plain(bench, acting(bench.agent, bench.project, lambda asked: []))


def _resume(bench: Bench) -> tuple[Provider, Ended]:
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        first = bench.run(provider.url, bench.agent.argv)
        session = session_of(first.out)
        (bench.project / ".ai/HANDOFF.md").unlink(missing_ok=True)
        second = PROMPT.replace("d-0001", "d-0002")
        return provider, bench.run(provider.url, bench.agent.resume(bench.agent.argv, session), prompt=second)


def session_of(out: bytes) -> str:
    """Return the session id that a stream names."""
    found = re.search(rb'"(?:session_id|thread_id|sessionID)": ?"([^"]+)"', out)
    return found[1].decode() if found else ""


def _resume_unknown(bench: Bench, *, others: bool = True) -> tuple[Provider, Ended]:
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        if others:
            bench.run(provider.url, bench.agent.argv)
            (bench.project / ".ai/HANDOFF.md").unlink(missing_ok=True)
            provider.requests.clear()
        unknown = "ses_000000000000000000000000" if bench.agent.name == "opencode" else _NOBODY
        return provider, bench.run(provider.url, bench.agent.resume(bench.agent.argv, unknown))


_NOBODY = "00000000-0000-4000-8000-000000000000"


def _unknown_model(bench: Bench) -> tuple[Provider, Ended]:
    argv = bench.agent.argv
    prefix = {"opencode": "scripted/", "aider": "openai/"}.get(bench.agent.name, "")
    name = f"{prefix}no-such-model"
    if "--model" in argv:
        argv = (*argv[: argv.index("--model") + 1], name)
    else:
        argv = with_words(argv, "--model", name)
    with serving(refusing("unknown-model")) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, argv)


def _logged_out(bench: Bench) -> tuple[Provider, Ended]:
    keys = ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "SCRIPTED_API_KEY", "OPENAI_API_KEY")
    variables: Variables = dict.fromkeys(keys)
    with serving(refusing("unauthorised")) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, bench.agent.argv, variables=variables)


def _denied(bench: Bench) -> tuple[Provider, Ended]:
    """The tool that would write the hand-off is not allowed."""
    argv, variables = bench.agent.argv, NONE
    match bench.agent.name:
        case "claude":
            argv = argv[:5]
        case "gemini":
            argv = tuple("default" if word == "yolo" else word for word in argv)
        case "opencode":
            variables = {"OPENCODE_PERMISSION": '{"edit": "deny", "bash": "ask"}'}
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, argv, variables=variables)


def _read_only(bench: Bench) -> tuple[Provider, Ended]:
    argv = tuple("read-only" if word == "workspace-write" else word for word in bench.agent.argv)
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, argv)


def _usage_limit_subscription(
    bench: Bench, claim: str = "five_hour", in_s: float | None = None
) -> tuple[Provider, Ended]:
    login: Variables = {"ANTHROPIC_API_KEY": None, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}
    with serving(limited(claim, in_s)) as provider:
        bench.furnish(provider.url)
        return provider, bench.run(provider.url, bench.agent.argv, variables=login)


def _usage_limit_soon(bench: Bench) -> tuple[Provider, Ended]:
    """The limit ends today; the message has only a clock time."""
    if bench.agent.name == "claude":
        return _usage_limit_subscription(bench, in_s=5400)
    return _plain(bench, limited(in_s=5400))


SCENARIOS: Mapping[str, Scenario] = {
    "success": _success,
    "no-handoff": _no_handoff,
    "resume": _resume,
    "resume-unknown": _resume_unknown,
    "resume-none": lambda bench: _resume_unknown(bench, others=False),
    "unknown-flag": lambda bench: _plain(bench, working(bench), "--no-such-flag"),
    "logged-out": _logged_out,
    "unknown-model": _unknown_model,
    "usage-limit": lambda bench: _plain(bench, refusing("usage-limit")),
    "usage-limit-subscription": _usage_limit_subscription,
    "usage-limit-weekly": lambda bench: _usage_limit_subscription(bench, claim="seven_day", in_s=200_000),
    "usage-limit-soon": _usage_limit_soon,
    "usage-limit-delay": lambda bench: _plain(bench, refusing("usage-limit-delay")),
    "no-credit": lambda bench: _plain(bench, refusing("no-credit")),
    "denied": _denied,
    "read-only": _read_only,
    "unauthorised": lambda bench: _plain(bench, refusing("unauthorised")),
    "rate-limit": lambda bench: _plain(bench, refusing("rate-limit")),
    "overload": lambda bench: _plain(bench, refusing("overload")),
}

FITTING: Mapping[str, tuple[str, ...]] = {
    "usage-limit-subscription": ("claude",),
    "usage-limit-weekly": ("claude",),
    "usage-limit-soon": ("claude", "codex"),
    "usage-limit-delay": ("gemini",),
    "no-credit": ("claude", "codex", "aider"),
    "denied": ("claude", "gemini", "opencode"),
    "read-only": ("codex",),
    "resume-unknown": ("claude", "codex", "gemini", "opencode"),
    "resume-none": ("codex", "gemini", "opencode"),
}
"""The agents that a scenario says something about, where these are not all."""
