"""Record what the CLIs print: `python -m tests.real record AGENT [SCENARIO...]`.

Each scenario becomes SCENARIO.jsonl (standard output; .txt if it is not JSON), .err and .rc in
tests/data/streams, without this machine's paths.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from tests.real.agents import AGENTS
from tests.real.bench import Bench, Ended
from tests.real.installing import CACHE, TOOLS
from tests.real.scenarios import FITTING, SCENARIOS

STREAMS = Path(__file__).parents[1] / "data" / "streams"


def record(name: str, *scenarios: str) -> None:
    """Record each of the scenarios, or all, of an agent."""
    tools = Path(os.environ[TOOLS])
    for scenario in scenarios or SCENARIOS:
        if name not in FITTING.get(scenario, (name,)):
            continue
        # Not /tmp: codex does without part of itself when its HOME is there.
        with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as base:
            bench = Bench(AGENTS[name], tools, Path(base))
            _, ended = SCENARIOS[scenario](bench)
            keep(STREAMS / name, scenario, bench, ended)
            print(f"{name:9} {scenario:24} exit code {ended.code} {ended.seconds:5.1f} s", flush=True)


def keep(folder: Path, scenario: str, bench: Bench, ended: Ended) -> None:
    """Write the recording, without this machine's paths."""

    def clean(raw: bytes) -> bytes:
        text = raw.replace(str(bench.home).encode(), b"/home/agent").replace(
            str(bench.project).encode(), b"/project"
        )
        text = text.replace(str(bench.tools).encode(), b"/usr/local/bin")
        text = text.replace(str(CACHE).encode(), b"/usr/local/lib")
        text = text.replace(str(bench.project).replace("/", "-").encode(), b"-project")  # claude's folders
        return re.sub(rb"127\.0\.0\.1:\d{4,5}", b"127.0.0.1:8080", text)

    folder.mkdir(parents=True, exist_ok=True)
    kind = "txt" if bench.agent.name == "aider" else "jsonl"
    (folder / f"{scenario}.{kind}").write_bytes(clean(ended.out))
    (folder / f"{scenario}.err").write_bytes(clean(ended.err))
    (folder / f"{scenario}.rc").write_text(f"{'none' if ended.code is None else ended.code}\n")
