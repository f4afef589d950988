"""Where the CLIs write outside of the project, held against the `writes` of their definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.real.agents import AGENTS
from tests.real.bench import Bench
from tests.real.conftest import Told
from tests.real.provider.server import serving
from tests.real.scenarios import working
from tests.support.layout import undeclared

from handoffd.execute.registry import load_book, shipped_layer

BOOK = load_book(shipped_layer())


def written(bench: Bench, **variables: str) -> list[str]:
    """Return the files that a run makes or changes in its HOME, and below what `variables` name."""
    with serving(working(bench)) as provider:
        bench.furnish(provider.url)
        before = _files(bench.base)
        ended = bench.run(provider.url, bench.agent.argv, variables=variables)
        assert 0 == ended.code, ended.err
    found = _files(bench.base)
    changed = [path for path, seen in found.items() if before.get(path) != seen]
    return [str(path) for path in changed if not path.is_relative_to(bench.project)]


def _files(base: Path) -> dict[Path, tuple[int, int]]:
    paths = (path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


@pytest.mark.parametrize("name", AGENTS)
def test_a_cli_writes_where_its_definition_says(name: str, bench: Callable[[str], Bench], told: Told) -> None:
    """Else a sandbox, or a HOME that is closed, would break it."""
    told(name, "what it writes outside of the project is declared")
    one = bench(name)
    paths = written(one)

    assert paths, "it keeps no session?"
    assert () == undeclared(BOOK.get(name), one.environment(""), paths)


@pytest.mark.parametrize(("name", "variable"), [("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")])
def test_a_variable_moves_all_of_it(
    name: str, variable: str, bench: Callable[[str], Bench], told: Told
) -> None:
    """Nothing is written in HOME any more."""
    told(name, f"{variable} moves all that it writes")
    one = bench(name)
    moved = one.base / "moved"
    moved.mkdir()
    config = one.home / ".codex"
    with serving(working(one)) as provider:
        one.furnish(provider.url)
        if config.exists():
            config.rename(moved / "codex")
        folder = moved / name
        before = _files(one.home)
        ended = one.run(provider.url, one.agent.argv, variables={variable: str(folder)})

    assert (0, before) == (ended.code, _files(one.home))
    assert () == undeclared(BOOK.get(name), {variable: str(folder)}, map(str, _files(folder)))
    assert (one.project / ".ai/HANDOFF.md").exists()
