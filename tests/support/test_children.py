"""A failed assertion ends what its test has started."""

from __future__ import annotations

import ast
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.children import ending

TESTS = Path(__file__).parents[1]


def test_a_block_that_fails_kills_its_process() -> None:
    """And waits for it, as it does for one that has ended by itself."""
    with (
        pytest.raises(AssertionError, match="for no reason"),
        ending(subprocess.Popen(["sleep", "600"])) as child,
    ):
        raise AssertionError("for no reason")
    with ending(subprocess.Popen(["true"])) as other:
        pass

    assert (-signal.SIGKILL, 0) == (child.returncode, other.returncode)


def test_no_test_waits_for_a_process_after_it_has_failed() -> None:
    """Each block is one of `ending`."""
    found = [
        f"{path.relative_to(TESTS)}:{line}" for path in sorted(TESTS.rglob("*.py")) for line in _blocks(path)
    ]

    assert [] == found


def _blocks(path: Path) -> Iterator[int]:
    """Yield the lines of a module with a `with subprocess.Popen(...)`."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "Popen" in text else ():
        if isinstance(node, ast.With):
            yield from (item.context_expr.lineno for item in node.items if _starts(item.context_expr))


def _starts(expression: ast.expr) -> bool:
    called = expression.func if isinstance(expression, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == subprocess.Popen.__name__
