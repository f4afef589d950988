"""Runs the sample's tests as pytest would, in a twentieth of its time, and leaves the same JUnit report.

For stories whose subject is not the test runner. `quick_tests.py REPORT` runs each `test_*` function below
`tests/`. A file that needs more of pytest than `raises`, or that cannot be imported, is pytest's: it runs
in place of this program.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

PYTEST = ["-m", "pytest", "-q", "--continue-on-collection-errors"]


class Raises:
    """`pytest.raises`, as a `with` statement uses it."""

    def __init__(self, expected: type[BaseException], match: str = "") -> None:
        self.expected, self.pattern = expected, match

    def __enter__(self) -> None:
        """Expect the exception from here on."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        """Accept the exception, pass another one on, or fail for want of one."""
        assert error is not None, f"DID NOT RAISE {self.expected}"
        return isinstance(error, self.expected) and re.search(self.pattern, str(error)) is not None


def cases(file: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and function of each test of a file. Raises what importing it raises."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, function in vars(module).items():
        if name.startswith("test_"):
            assert not function.__code__.co_argcount, "it takes fixtures"
            yield name, function


def failure(function: Callable[[], object]) -> str:
    """Run a test; return the traceback of its failure, or nothing."""
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return ""


def main(report: str) -> int:
    """Run all tests of the current folder; return pytest's exit code."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.getcwd())
    stub = types.ModuleType("pytest")
    stub.raises = Raises  # type: ignore[attr-defined]
    sys.modules["pytest"] = stub
    try:
        files = sorted(Path("tests").glob("test_*.py"))
        found = [(file.stem, name, run) for file in files for name, run in cases(file)]
    except Exception:
        os.execv(sys.executable, [sys.executable, *PYTEST, f"--junitxml={report}"])
    rows, failed = [], 0
    for module, name, run in found:
        trouble = failure(run)
        failed += bool(trouble)
        inside = f"<failure message={quoteattr(trouble.splitlines()[-1])}/>" if trouble else ""
        rows.append(f'<testcase classname="tests.{module}" name="{name}" time="0">{inside}</testcase>')
        print(f"tests/{module}.py::{name}: {trouble or 'passed'}")
    Path(report).write_text(f'<testsuite name="pytest" tests="{len(rows)}">{"".join(rows)}</testsuite>')
    print(f"{failed} failed, {len(rows) - failed} passed")
    return 1 if failed else 0 if rows else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
