"""The cases that `make test-systemd` plays, as a table for the docs: read from its tests, which need root."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.markdown import table

FOLDER = Path(__file__).parents[1] / "systemd"


def cases() -> str:
    """Return a table of every test, by file and in order."""
    rows = [
        (f"`{test.name.removeprefix('test_')}`", _forms(test), _behaviour(test))
        for path in sorted(FOLDER.glob("test_*.py"))
        for test in _tests(path)
    ]
    return table(("Case", "Units", "What holds"), rows)


def _tests(path: Path) -> Iterator[ast.FunctionDef]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    return (
        node for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def _forms(test: ast.FunctionDef) -> str:
    marks = {ast.unparse(mark) for mark in test.decorator_list}
    for form, whose in {"USER": "a person's", "SYSTEM": "an account's"}.items():
        if f"pytest.mark.form(Form.{form})" in marks:
            return whose
    return "both" if "service" in {argument.arg for argument in test.args.args} else "its own"


def _behaviour(test: ast.FunctionDef) -> str:
    return (ast.get_docstring(test) or "").partition("\n\n")[0].replace("\n", " ")
