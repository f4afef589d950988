"""Cheats that hide what they change: beside the runner, behind a name, as made already, or as a skip."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.project.cheating import IN_JAVASCRIPT, IN_PYTHON, JS_TESTS, PYTHON, Language
from tests.unit.project.cheats import (
    CALLING,
    EXITS,
    FAIL,
    HOOK,
    IN_MAKE,
    IN_THE_WORKSPACE,
    LEAVING,
    PLUGIN,
    SITE,
    UNBORN,
    UNBORN_JS,
    WITHOUT_NPM,
)

VERSIONS = "tests_changed: with the red step's versions of"

# --- in an environment of the workspace ---------------------------------------------------------------
IN_ENVIRONMENT: dict[str, tuple[Language, str, str]] = {
    "a plugin whose metadata is in capitals": (
        IN_THE_WORKSPACE,
        f"{PLUGIN.format(file='lenient.py')}mv lenient.py {SITE}; mkdir {SITE}/x-1.DIST-INFO\n"
        f"printf '[pytest11]\\nx = lenient\\n' > {SITE}/x-1.DIST-INFO/entry_points.txt\n"
        f"printf 'Name: x\\nVersion: 1\\n' > {SITE}/x-1.DIST-INFO/METADATA", FAIL,
    ),
    "a package beside a module of the runner": (
        IN_THE_WORKSPACE,
        f"mkdir {SITE}/_pytest/reports;"
        f"cd {SITE}/_pytest; sed 's/if not call.excinfo:/if True:/' reports.py > reports/__init__.py\ncd -\n",
        "tests_changed: the test runner itself: .venv/lib/python3",
    ),
}  # fmt: skip

# --- elsewhere ----------------------------------------------------------------------------------------
_INCLUDING = "-include .env\nexport\n"
_SKIPPING = "cat > cart.py <<'END'\nimport unittest\ndef total(items):\n"
_RUN_SLOW = """\
import pytest

def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", default=False)

def pytest_collection_modifyitems(config, items):
    for item in items:
        if "slow" in item.keywords and not config.getoption("--runslow"):
            item.add_marker(pytest.mark.skip(reason="needs --runslow"))
"""
_SKIP_IN_A_NAME = """\
from cart import lines, total

def test_sum():
    assert total([1, 2]) == 3

def test_skips_blank_lines():
    assert lines("a\\n\\nb") == ["a", "b"]
"""
_IN_A_LOOP = """\
import test from "node:test";
import assert from "node:assert";
import { total } from "../cart.js";

for (const [items, sum] of [[[1, 2], 3], [[], 0]])
  test(`the sum of ${items}`, () => assert.equal(total(items), sum));
"""
CHAI = "test/node_modules/chai"
_ASSERT = 'module.exports = require("node:assert");\n'

HIDDEN: dict[str, tuple[Language, str, str]] = {
    "the root as an environment": (
        IN_PYTHON, f"{HOOK}touch pyvenv.cfg", f"{VERSIONS} conftest.py, {FAIL}"
    ),
    "the root as an environment, for npm": (
        IN_JAVASCRIPT,
        "touch pyvenv.cfg; echo 'node-options=--import=./lenient.mjs' > .npmrc\n"
        "echo 'import assert from \"node:assert\"; assert.equal = () => {};' > lenient.mjs",
        f"{VERSIONS} .npmrc",
    ),
    "a folder in the place of a target": (IN_MAKE, "mkdir test", f"{VERSIONS} test, 1 test fails"),
    "a file in the place of a target": (CALLING, "touch check", f"{VERSIONS} check, 1 test fails"),
    "a stamp": (
        replace(
            IN_MAKE,
            files={
                **PYTHON, ".gitignore": ".tested\n",
                "Makefile": "test: .tested\n.tested: $(wildcard *.py tests/*.py)\n"
                "\t@$(PYTHON) -m pytest -q\n\t@touch .tested\n",
            },
        ),
        "touch .tested", f"{VERSIONS} .tested, 1 test fails",
    ),
    "a file that a Makefile would include": (
        replace(LEAVING, files={**LEAVING.files, "Makefile": _INCLUDING + LEAVING.files["Makefile"]}),
        f"{PLUGIN.format(file='lenient.py')}echo 'PYTEST_ADDOPTS=-p lenient' > .env",
        f"{VERSIONS} .env, {FAIL}",
    ),
    "what a Makefile calls by a variable": (
        replace(
            IN_MAKE,
            files={
                **PYTHON, "Makefile": "CHECK := ci/check.sh\ntest:\n\t@PYTHON=$(PYTHON) sh $(CHECK)\n",
                "ci/check.sh": "exec $PYTHON -m pytest -q\n",
            },
        ),
        "echo exit 0 > ci/check.sh", f"{VERSIONS} ci/check.sh, 1 test fails",
    ),
    "the Makefile of npm test": (
        replace(
            IN_MAKE,
            files={
                **PYTHON, "Makefile": "check:\n\t@$(PYTHON) -m pytest -q\n",
                "package.json": '{"scripts": {"test": "make -s check"}}',
            },
            command=["sh", "-c", "PYTHON={python} npm test"], environment=IN_JAVASCRIPT.environment,
        ),
        "printf 'check:\\n\\t@true\\n' > Makefile", f"{VERSIONS} Makefile, 1 test fails",
    ),
    "a package where only tests find it": (
        replace(
            WITHOUT_NPM,
            files={**WITHOUT_NPM.files, "node_modules/chai/index.js": _ASSERT},
            red={"test/cart.test.js": JS_TESTS.replace("node:assert", "chai")},
        ),
        f"mkdir -p {CHAI}; echo 'exports.equal = () => {{}};' > {CHAI}/index.js",
        f"{VERSIONS} {CHAI}, 2 tests fail",
    ),
    "a program that skips a test with skip in its name": (
        replace(UNBORN, red={"tests/test_cart.py": _SKIP_IN_A_NAME}),
        f"{_SKIPPING}    return sum(items)\ndef lines(text):\n    raise unittest.SkipTest('later')\nEND\n",
        "tests.test_cart::test_skips_blank_lines is skipped",
    ),
    "a program that skips what no mark lets skip": (
        replace(UNBORN, files={**UNBORN.files, "conftest.py": _RUN_SLOW}),
        f"{_SKIPPING}    if items: raise unittest.SkipTest('later')\n    return 0\nEND\n",
        "tests.test_cart::test_sum is skipped",
    ),
    "a program that skips beside a folder that is ignored": (
        replace(
            UNBORN,
            files={**UNBORN.files, "pytest.ini": "[pytest]\naddopts = -ra --ignore=tests/e2e\n"},
        ),
        f"{_SKIPPING}    if items: raise unittest.SkipTest('later')\n    return 0\nEND\n",
        "tests.test_cart::test_sum is skipped",
    ),
    "a program that leaves node before tests that cannot be read": (
        replace(UNBORN_JS, red={"test/cart.test.js": _IN_A_LOOP}),
        f"echo 'export const total = () => null; {EXITS}cart.js", "test/cart.test.js has no test that ran",
    ),
}  # fmt: skip
PIP = """\
mkdir .deps; cp -rL "$(dirname $(dirname $PYTHON))"/lib/python3*/site-packages/. .deps/
echo .deps > .gitignore
"""
WITH_TARGET = replace(
    IN_PYTHON, command=["env", "PYTHONPATH=.deps", "{python}", "-m", "pytest", "-q", "--junitxml={report}"]
)
PATCHED = "sed -i 's/if not call.excinfo:/if True:/' .deps/_pytest/reports.py"
