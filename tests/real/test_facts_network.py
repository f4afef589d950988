"""Whom the CLIs try to reach beside their model, asked through a proxy that lets nothing pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.real.agents import AGENTS, Agent
from tests.real.bench import Bench
from tests.real.conftest import Told
from tests.real.provider.server import serving
from tests.real.scenarios import with_words, working

Benches = Callable[[str], Bench]
ALWAYS = {"opencode": {"registry.npmjs.org:443"}}
"""What cannot be switched off: a package of its plugins is fetched for each of its settings folders."""


def hosts(bench: Bench, *words: str) -> set[str]:
    """Return the hosts that a run with a good end has asked the proxy for."""
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), provider.url)
        alone = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        ended = bench.run(
            provider.url, with_words(bench.agent.argv, *words), limit_s=120, variables={**proxy, **alone}
        )
    assert 0 == ended.code
    assert (bench.project / ".ai/HANDOFF.md").exists()
    asked = {path for method, path, _ in provider.requests if method == "CONNECT"}
    strangers = {path for method, path, _ in provider.requests if path.startswith("http")}
    return asked | strangers


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_nobody_but_the_model_is_asked(agent: Agent, bench: Benches, told: Told) -> None:
    """With its settings for quiet, a CLI sends its requests to the model and nothing else."""
    told(agent.name, "no other server is asked")

    assert ALWAYS.get(agent.name, set()) == hosts(bench(agent.name))


def test_codex_analyses_unless_told_not_to(bench: Benches, told: Told) -> None:
    """That is what an offline end waits for."""
    told("codex", "analytics left on: its collector is asked")

    assert {"ab.chatgpt.com:443"} == hosts(bench("codex"), "-c", "analytics.enabled=true")
