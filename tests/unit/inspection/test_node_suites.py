"""The tests of a JavaScript project."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from handoffd.inspection.suites import Tests, suite_of_package


def found(root: Path, package: Any, **files: str) -> Tests | None:
    """Return what is found for a package with further files beside it (`_` in a name is a dot)."""
    if package is not None:
        (root / "package.json").write_text(json.dumps(package), encoding="utf-8")
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return suite_of_package(root, frozenset(os.listdir(root)))


def script(text: str, **more: Any) -> dict[str, Any]:
    """Return a package with that test script."""
    return {"name": "shop", "scripts": {"test": text}, **more}


JEST = ("--passWithNoTests", "--json", "--outputFile={report}")
VITEST = ("--passWithNoTests", "--reporter=junit", "--outputFile={report}")
NODE = ("--test-reporter=tap", "--test-reporter-destination={report}")


@pytest.mark.parametrize(
    ("text", "command", "report"),
    [
        ("jest", ("npm", "test", "--", *JEST), "jest"),
        ("NODE_ENV=test npx jest --coverage", ("npm", "test", "--", *JEST), "jest"),
        ("cross-env CI=1 jest", ("npm", "test", "--", *JEST), "jest"),
        ("node --experimental-vm-modules node_modules/.bin/jest", ("npm", "test", "--", *JEST), "jest"),
        ("node --x node_modules/jest/bin/jest.js", ("npm", "test", "--", *JEST), "jest"),
        ("react-scripts test", ("npm", "test", "--", "--watchAll=false", *JEST), "jest"),
        ("vitest", ("npm", "test", "--", "--run", *VITEST), "junit"),
        ("vitest run --coverage", ("npm", "test", "--", *VITEST), "junit"),
        ("vitest --run", ("npm", "test", "--", *VITEST), "junit"),
        ("node --test", ("npm", "test", "--", *NODE), "tap"),
        ("node --import tsx --test", ("node", "--import", "tsx", "--test", *NODE), "tap"),
        ("node --test test/a.js", ("node", "--test", *NODE, "test/a.js"), "tap"),
        ("X=1 node --test test/a.js", ("npm", "test"), "exit"),
        ("node --test test/*.js", ("npm", "test"), "exit"),
        ("tsc && vitest run", ("npm", "test"), "exit"),
        ("jest | tee log", ("npm", "test"), "exit"),
        ("mocha", ("npm", "test"), "exit"),
        ("echo go && turbo run test", ("npm", "test"), "exit"),
        ("'", ("npm", "test"), "exit"),
    ],
)
def test_a_script_is_run_and_reports_if_it_can(
    tmp_path: Path, text: str, command: tuple[str, ...], report: str
) -> None:
    """Arguments are added only where they reach the runner, and no build before it can fail."""
    tests = found(tmp_path, script(text))

    assert tests is not None
    assert (("npm", "test"), command, report) == (tests[0], tests[1].command, tests[1].report)


def test_a_script_before_the_tests_leaves_the_exit_code_alone(tmp_path: Path) -> None:
    """When the build fails, no report comes, and that is not the runner's fault."""
    tests = found(tmp_path, {"scripts": {"pretest": "tsc", "test": "vitest run"}})

    assert tests is not None
    assert (("npm", "test"), "exit") == (tests[1].command, tests[1].report)


@pytest.mark.parametrize(
    "text",
    [
        'echo "Error: no test specified" && exit 1',
        "echo none",
        "exit 0",
        "true",
        ":",
        "",
        "  ",
        'echo "later"; exit 1',
    ],
)
def test_a_script_that_tests_nothing_is_none(tmp_path: Path, text: str) -> None:
    """Such as the one that `npm init` writes, which fails besides."""
    assert found(tmp_path, script(text)) is None


@pytest.mark.parametrize(
    ("package", "files", "typed", "asked"),
    [
        ({}, {}, "npm test", ("npm", "test", "--")),
        ({}, {"package-lock_json": ""}, "npm test", ("npm", "test", "--")),
        ({}, {"pnpm-lock_yaml": ""}, "pnpm test", ("pnpm", "run", "test")),
        ({}, {"yarn_lock": ""}, "yarn test", ("yarn", "run", "test")),
        ({}, {"bun_lockb": ""}, "bun run test", ("bun", "run", "test")),
        ({"packageManager": "pnpm@9.1.0+sha512.x"}, {"yarn_lock": ""}, "pnpm test", ("pnpm", "run", "test")),
        ({"packageManager": "rm -rf"}, {"yarn_lock": ""}, "yarn test", ("yarn", "run", "test")),
        ({"packageManager": ["pnpm"]}, {}, "npm test", ("npm", "test", "--")),
    ],
)
def test_the_package_says_which_program_runs_its_scripts(
    tmp_path: Path, package: dict[str, Any], files: dict[str, str], typed: str, asked: tuple[str, ...]
) -> None:
    """By name, else by its lock file."""
    tests = found(tmp_path, script("jest", **package), **files)

    assert tests is not None
    assert (typed, asked) == (" ".join(tests[0]), (tests[1].command or ())[: len(asked)])


@pytest.mark.parametrize(
    ("package", "lock", "typed"),
    [
        ({"devDependencies": {"vitest": "^4"}}, "package-lock_json", "npx --no-install vitest run"),
        ({"dependencies": {"jest": "^30"}}, "pnpm-lock_yaml", "pnpm exec jest"),
        ({"devDependencies": {"jest": "^30"}}, "yarn_lock", "yarn run jest"),
    ],
)
def test_without_a_script_the_runner_that_is_installed_counts(
    tmp_path: Path, package: dict[str, Any], lock: str, typed: str
) -> None:
    """It is a dependency of nothing else."""
    tests = found(tmp_path, package, **{lock: ""})

    assert tests is not None
    assert typed == " ".join(tests[0])
    assert tests[1].report in {"jest", "junit"}


def test_node_s_own_tests_need_no_package(tmp_path: Path) -> None:
    """They are told by what they ask for."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test/cart.mjs").write_text("import test from 'node:test'", encoding="utf-8")

    tests = found(tmp_path, None)

    assert tests is not None
    assert (("node", "--test", *NODE), "tap") == (tests[1].command, tests[1].report)
    assert found(tmp_path / "test", None, other_test_js="import 'ava'") is None


@pytest.mark.parametrize(
    ("manager", "typed"),
    [("npm", "npm test --workspaces --if-present"), ("pnpm", "pnpm --recursive run test"), ("yarn", None)],
)
def test_all_members_of_a_workspace_are_tested(tmp_path: Path, manager: str, typed: str | None) -> None:
    """Where its root has no script; yarn has no command for it that all versions share."""
    for name, member in {"a": script("jest"), "b": {}}.items():
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "package.json").write_text(json.dumps(member), encoding="utf-8")
    files = {"pnpm-workspace_yaml": "packages:\n  - 'packages/*'\n"} if manager == "pnpm" else {}

    tests = found(tmp_path, {"workspaces": ["packages/*"], "packageManager": f"{manager}@1"}, **files)

    assert typed == (None if tests is None else " ".join(tests[0]))
    assert tests is None or tests[1].report == "exit"


@pytest.mark.parametrize(
    ("workspaces", "member"),
    [
        (["packages/*"], {}),
        (["packages/*"], script('echo "Error: no test specified" && exit 1')),
        (["packages/*"], {"scripts": {"test": 5}}),
        (["../*", "/etc", "!packages/*", 7], script("jest")),
        ({"packages": 7}, script("jest")),
        ("packages/*", script("jest")),
        (["others-*"], script("jest")),
    ],
)
def test_a_workspace_without_tests_of_its_own_proposes_none(
    tmp_path: Path, workspaces: Any, member: Any
) -> None:
    """A command that tests nothing would always pass, and one with a placeholder in it always fail."""
    (tmp_path / "packages/a").mkdir(parents=True)
    (tmp_path / "packages/a/package.json").write_text(json.dumps(member), encoding="utf-8")

    assert found(tmp_path, {"workspaces": workspaces}) is None


def test_the_script_of_the_root_comes_first(tmp_path: Path) -> None:
    """It mostly runs those of the members, by a tool of its own."""
    (tmp_path / "packages/a").mkdir(parents=True)
    (tmp_path / "packages/a/package.json").write_text(json.dumps(script("jest")), encoding="utf-8")

    tests = found(tmp_path, script("turbo run test", workspaces={"packages": ["packages/**"]}))

    assert tests is not None
    assert ("npm", "test") == tests[1].command


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 300_000, '{"scripts": []}', '{"scripts": {"test": {}}}', "5", "\x00"]
)
def test_a_manifest_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    """It is somebody else's, and may be anything."""
    (tmp_path / "package.json").write_text(text, encoding="utf-8")

    assert suite_of_package(tmp_path, frozenset({"package.json", "pnpm-lock.yaml"})) is None
