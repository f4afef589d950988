"""Hooks of ours in the real Claude Code: its events, its settings, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.real.agents import Action, Write
from tests.real.bench import Bench
from tests.real.conftest import Told
from tests.real.provider.server import serving
from tests.real.provider.turns import Asked
from tests.real.scripts import acting
from tests.support.commands import program
from tests.support.hooking import state_in

Benches = Callable[[str], Bench]

_HANDOFF = "---\nstory: US-001\nstep: bdd\nstatus: pass\n---\n\n{}\n"
_RULES = {"steps": {"bdd": {"post_check": "test -e good.txt || { echo it is bad; exit 1; }"}}}


def _mending(asked: Asked) -> Sequence[Action]:
    """Hand over, and put right what a hook complains of."""
    if "is failing: post_check failed" in asked.prompt:
        return [Write("good.txt", "good\n"), Write(".ai/HANDOFF.md", _HANDOFF.format("Fixed."))]
    return [Write(".ai/HANDOFF.md", _HANDOFF.format("Done."))]


def _taken(root: Path, env: dict[str, str]) -> str:
    """Have a step of the project taken, with hooks in its settings; return its prompt."""
    (root / ".ai/step-rules.yaml").write_text(json.dumps(_RULES))
    (root / "PROJECT_CONTEXT.md").write_text("a sample")
    said = [
        program(*words, env=env)
        for words in (
            ("start", "--manual", str(root), "US-001"),
            ("hooks", "install", "--project", str(root)),
            ("dispatch", str(root)),
        )
    ]
    assert [0, 0, 0] == [one.code for one in said], said
    return said[-1].out


def test_a_stop_hook_applies_sends_back_and_lets_go(bench: Benches, told: Told) -> None:
    """Without a daemon: the first hand-off fails its check, the agent hears why, and the second passes."""
    told("claude", "our hooks: Stop applies a hand-off, exit code 2 sends the agent back with the reason")
    claude = bench("claude")
    with serving(acting(claude.agent, claude.project, _mending)) as provider:
        prompt = _taken(claude.project, claude.environment(provider.url))
        claude.furnish(provider.url)
        ended = claude.run(provider.url, claude.agent.argv, prompt=prompt)

    asked = json.dumps(provider.requests)
    assert 0 == ended.code, ended.err
    assert "bdd attempt 1 of US-001 is failing: post_check failed: it is bad" in asked
    assert ("pass", 2, True) == tuple(
        state_in(claude.project)[name] for name in ("status", "attempt", "lint_pass")
    )
