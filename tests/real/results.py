"""The table of results in docs/reference/executors.md, written by a complete run of `make test-executors`."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.real.agents import AGENTS
from tests.real.installing import TOOLS
from tests.support.markdown import table

DOCUMENT = Path(__file__).parents[2] / "docs/reference/executors.md"
_BLOCK = re.compile(
    r"^(<!-- measured: real-executors -->\n).*?^(<!-- end measured -->)$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Row:
    """One test that drove a CLI."""

    executor: str
    driven: str
    passed: bool


@dataclass
class Table:
    """Collects what the tests tell, and writes it down in the end."""

    rows: list[Row] = field(default_factory=list)
    partial: bool = False

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """A run of some tests only must not replace the whole table."""
        self.partial = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a row for each test that named its executor."""
        said = dict(report.user_properties)
        if report.when == "call" and "executor" in said:
            row = Row(str(said["executor"]), str(said["driven"]), report.passed)
            self.rows.append(row)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the table, unless only some tests ran."""
        asked_for = [
            argument for argument in session.config.args if not argument.rstrip("/").endswith("tests/real")
        ]
        if self.partial or asked_for or not self.rows or session.shouldstop or session.shouldfail:
            return
        text = DOCUMENT.read_text("utf-8")
        DOCUMENT.write_text(
            _BLOCK.sub(lambda found: f"{found[1]}\n{self._text()}\n\n{found[2]}", text), "utf-8"
        )

    def _text(self) -> str:
        head = ("Executor", "Version", "Passed", "Failed")
        cells = [_cells(name, [row for row in self.rows if row.executor == name]) for name in AGENTS]
        where = f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}."
        return f"{table(head, cells).rstrip()}\n\n{where}"


def _cells(name: str, rows: list[Row]) -> tuple[str, ...]:
    """Return one line for an executor, with the cases that failed."""
    failed = "; ".join(row.driven for row in rows if not row.passed) or "–"
    return (f"`{name}`", _version(name), f"{sum(row.passed for row in rows)} of {len(rows)}", failed)


def _version(name: str) -> str:
    folder = os.environ[TOOLS]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    said = subprocess.run(
        AGENTS[name].version, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    found = re.search(r"\d+\.\d+[\w.]*", said.stdout)
    return found[0] if found else "?"
