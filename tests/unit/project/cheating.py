"""A story whose agent may cheat: real tests, written by a red step, that a green step must make pass."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.support import golang, javascript
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, house, make_project
from tests.support.repositories import git
from tests.unit.project.living import living, shown

from handoffd.engine.events import Initialised, Started

PYTEST = ["{python}", "-m", "pytest", "-q", "--junitxml={report}"]
NODE = ["npm", "test", "--", "--test-reporter=tap", "--test-reporter-destination={report}"]

STEPS = """\
pipelines: {story: {first: scaffold}}
steps:
  scaffold: {next_on_pass: impl, timeout_min: 2, tests: red, max_attempts: 1}
  impl: {next_on_pass: update-memory, timeout_min: 2, tests: green, max_attempts: ATTEMPTS}
"""

STUB = "def total(items):\n    return None\n"
DONE = "def total(items):\n    return sum(items)\n"
TESTS = """\
import pytest

from cart import total


def test_sum():
    assert total([1, 2]) == 3


@pytest.mark.parametrize("price", [4, 5])
def test_one(price):
    assert total([price]) == price
"""
OLD = "def test_old():\n    assert True\n"
PYTHON = {"cart.py": STUB, "tests/test_old.py": OLD, "pyproject.toml": '[project]\nname = "shop"\n'}

PACKAGE: dict[str, Any] = {"name": "shop", "type": "module", "scripts": {"test": "node --test"}}
JS_TESTS = """\
import test from "node:test";
import assert from "node:assert";
import { total } from "../cart.js";

test("sum", () => assert.equal(total([1, 2]), 3));
test("empty", () => assert.equal(total([]), 0));
"""
JS_DONE = "export const total = (items) => items.reduce((one, other) => one + other, 0);\n"
JAVASCRIPT = {
    "cart.js": "export const total = () => null;\n",
    "test/old.test.js": 'import test from "node:test";\ntest("old", () => {});\n',
    "package.json": json.dumps(PACKAGE),
}

GO_TESTS = """\
package shop

import "testing"

func TestSum(t *testing.T) {
	if Total([]int{1, 2}) != 3 {
		t.Fatal("not the sum")
	}
}
"""
GO_DONE = """\
package shop

func Total(items []int) int {
	sum := 0
	for _, item := range items {
		sum += item
	}
	return sum
}
"""
GO = {
    "go.mod": "module example.com/shop\n\ngo 1.24\n",
    "cart.go": "package shop\n\nfunc Total(items []int) int { return -1 }\n",
    "old_test.go": 'package shop\n\nimport "testing"\n\nfunc TestOld(t *testing.T) {}\n',
}


class Language(Struct, frozen=True, kw_only=True):
    """A project: its files, its test command, what the red step writes, and an honest solution."""

    files: dict[str, str]
    command: list[str]
    report: str
    reports: tuple[str, ...] = ()
    red: dict[str, str]
    solved: dict[str, str]
    environment: dict[str, str] = {}
    """What the daemon has beside a HOME; in it `{root}` is the project's folder."""
    let_in: tuple[str, ...] = ()


IN_PYTHON = Language(
    files=PYTHON, command=PYTEST, report="junit", red={"tests/test_cart.py": TESTS}, solved={"cart.py": DONE}
)
IN_JAVASCRIPT = Language(
    files=JAVASCRIPT, command=NODE, report="tap", red={"test/cart.test.js": JS_TESTS},
    solved={"cart.js": JS_DONE}, environment=javascript.ENVIRONMENT,
)  # fmt: skip
IN_GO = Language(
    files=GO, command=["go", "test", "-json", "-count=1", "./..."], report="gotest",
    red={"cart_test.go": GO_TESTS}, solved={"cart.go": GO_DONE},
    environment=golang.ENVIRONMENT, let_in=("go",),
)  # fmt: skip


class Played(Struct, frozen=True, kw_only=True):
    """How a story ended: the step and status of its STATE, its last error, and the verdicts by step.

    `attempts` are the verdicts of impl, in their order.
    """

    step: object
    status: object
    error: str
    verdicts: dict[str, str]
    attempts: tuple[str, ...]


class Stage(Struct, frozen=True, kw_only=True):
    """Where stories are played: a folder, and a Python with pytest."""

    base: Path
    python: str

    async def play(
        self,
        cheat: str,
        language: Language = IN_PYTHON,
        *,
        repository: bool = True,
        attempts: int = 1,
        red: str = "",
        prepare: str = "",
        sandbox: dict[str, object] | None = None,
        **settings: object,
    ) -> Played:
        """Play a story whose agent runs the shell script `cheat` at impl; return how it ended.

        At scaffold it writes the tests, and runs `red`; `prepare` runs in the project before the story.
        """
        root, agent = _project(self, language, attempts, settings), self.base / "agent"
        if repository:
            for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Begin")):
                git(Path(root), *words)
        for folder, files in (("red", language.red), ("solved", language.solved)):
            for name, text in files.items():
                place = agent / folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
        (agent / "scaffold").write_text(f"cp -r {agent}/red/. .\n{red}")
        (agent / "impl").write_text(cheat)
        variables = {"SOLVED": f"{agent}/solved", "PYTHON": self.python}
        given = "".join(f"export {name}={value}\n" for name, value in variables.items())
        script = f"{given}test -e {agent}/$HANDOFFD_STEP && . {agent}/$HANDOFFD_STEP\n{HAND_OVER}"
        _run(prepare, root, variables)
        seen = {
            "visible": [sys.prefix, os.path.dirname(os.path.dirname(self.python))], "let_in": language.let_in
        }  # fmt: skip
        has = {name: text.replace("{root}", root) for name, text in language.environment.items()}
        async with house(self.base, script, sandbox=seen | (sandbox or {}), environment=has) as here:
            return await _told(here, root)


def prepare_go(folder: Path) -> None:
    """Have go compile what its tests need of the standard library, in a project below a folder."""
    for name, text in GO.items():
        (folder / name).write_text(text)
    golang.tested(folder)


def plain_python(home: Path) -> str:
    """Return a Python in an environment of its own, which has pytest and none of its plugins."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in ("_pytest", "pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        place = Path(found.origin)
        place = place.parent if place.name == "__init__.py" else place
        (site / place.name).symlink_to(place)
    return str(home / "bin/python")


def _run(script: str, root: str, environment: dict[str, str]) -> None:
    if script:
        subprocess.run(["/bin/sh", "-ec", script], cwd=root, env=os.environ | environment, check=True)


def _project(stage: Stage, language: Language, attempts: int, settings: dict[str, object]) -> str:
    command = [word.replace("{python}", stage.python) for word in language.command]
    test = {"command": command, "report": language.report, "reports": language.reports}
    rules = STEPS.replace("ATTEMPTS", str(attempts))
    root = make_project(stage.base, rules=rules, settings=json.dumps({"test": test} | settings))
    for name, text in language.files.items():
        at(root, name).parent.mkdir(parents=True, exist_ok=True)
        at(root, name).write_text(text)
    return root


def _is_over(state: dict[str, object]) -> bool:
    return state["step"] == "done" or state["status"] in {"needs_human", "timeout"}


async def _told(here: House, root: str) -> Played:
    async with living(here, root) as project:
        await project.main.give(Initialised(project="shop", done=("US-000",)))
        await project.main.give(Started(story="US-001", automatic=True))
        await eventually(lambda: _is_over(shown(project)), within_s=120)
        state = shown(project)
        runs = await here.journal.runs()
    return Played(
        step=state["step"],
        status=state["status"],
        error=str(state["last_error"] or ""),
        verdicts={run.step: run.why or "" for run in runs},
        attempts=tuple(
            run.why or "" for run in sorted(runs, key=lambda run: run.attempt) if run.step == "impl"
        ),
    )
