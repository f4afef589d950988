"""The rehearsal as its callers start it: a process, a prompt on stdin, a rebuilt environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml
from tests.support.children import ending

from handoffd.rehearsal.__main__ import Voice, perform
from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.script import Act
from handoffd.rehearsal.workspace import Workspace

PROMPT = """# {step} of {story}, attempt {attempt} of 3

Read PROJECT_CONTEXT.md first. 完成後請停止。

---
story: {story}
step: {step}
attempt: {attempt}
dispatch: {dispatch}
status: pass | failing | needs_human
---
"""
LIMIT_S = 60
PASSED_ON = ("PATH", "HOME", "LANG", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


@dataclass
class Rehearsal:
    """One project and the sessions that are started in it."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def session(
        self,
        step: str,
        *,
        story: str = "US-001",
        attempt: int = 1,
        through: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a session, with its prompt on stdin and pipes for its output; it is over afterwards.

        `through` is the start of an argv, of a program that replaces itself by the session; `arguments` are
        the end of it.
        """
        allowed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        with (
            tempfile.TemporaryFile() as prompt,
            ending(
                subprocess.Popen(
                    [*through, sys.executable, "-I", "-m", "handoffd.rehearsal", *arguments],
                    cwd=self.root,
                    env={**allowed, **self.environ},
                    stdin=_filled(
                        prompt, step=step, story=story, attempt=attempt, dispatch=f"d-{step}-{attempt}"
                    ),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()  # does nothing to one that is over; a failed test must not wait for a hang

    def run(
        self, step: str, *, story: str = "US-001", attempt: int = 1, arguments: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run one session to its end."""
        with self.session(step, story=story, attempt=attempt, arguments=arguments) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    def passes(self, *steps: str, story: str = "US-001") -> None:
        """Run sessions of which each must hand over a pass."""
        for step in steps:
            ended = self.run(step, story=story)
            assert (0, "pass", "") == (ended.returncode, self.handoff()["status"], ended.stderr), step

    def performs(self, *steps: str, story: str = "US-001") -> None:
        """Do these steps in this process, each with a pass; verify claims its counts and runs no tests."""
        for step in steps:
            assignment = Assignment(step, story, 1, f"d-{step}-1", "")
            perform([Act("claim")], Workspace(str(self.root)), assignment, Voice())
            assert "pass" == self.handoff()["status"], step

    def handoff(self) -> Mapping[str, Any]:
        """Return the front matter that was handed over."""
        match = re.match(r"---\n(.*?\n)---\n", self.text(".ai/HANDOFF.md"), re.DOTALL)
        assert match
        loaded: Mapping[str, Any] = yaml.safe_load(match[1])
        return loaded

    def tests(self) -> tuple[int, int]:
        """Run the project's tests as a person would and return how many pass and fail."""
        plain = ("-q", "--disable-plugin-autoload", "-p", "no:cacheprovider")
        ended = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", *plain],
            cwd=self.root,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        found = re.findall(r"(\d+) (passed|failed)", ended.stdout)
        counts = {word: int(number) for number, word in found}
        assert ended.returncode in (0, 1), ended.stdout
        return counts.get("passed", 0), counts.get("failed", 0)

    def text(self, name: str) -> str:
        """Return the text of one of the project's files."""
        return (self.root / name).read_text(encoding="utf-8")

    def files(self) -> dict[str, bytes]:
        """Return every file of the project, but for git's own and Python's caches."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and not {".git", "__pycache__"} & set(path.parts)
        }


def _filled(file: IO[bytes], **values: object) -> IO[bytes]:
    file.write(PROMPT.format(**values).encode())
    file.seek(0)
    return file
