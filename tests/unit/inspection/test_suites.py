"""Which tests a project has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from handoffd.inspection.suites import (
    MOST_FOLDERS,
    Suite,
    Suites,
    Tests,
    command_for_all,
    find_suites,
    suite_of_package,
)


def laid_out(root: Path, files: dict[str, str]) -> Suites:
    """Return the suites of a project with these files; a name that ends in / is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_suites(root)


def chosen(root: Path, files: dict[str, str]) -> Suite:
    """Return the suite that is proposed for a project with these files."""
    suite = laid_out(root, files).chosen
    assert suite is not None
    return suite


def typed(found: Suites) -> str | None:
    """Return the command of the proposed tests."""
    return None if found.chosen is None else " ".join(found.chosen.typed)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"pyproject.toml": "", "tests/": ""}, "python3 -m pytest"),
        ({"pytest.ini": "", ".venv/": ""}, ".venv/bin/python -m pytest"),
        ({"setup.py": "", "test/": "", "venv/": ""}, "venv/bin/python -m pytest"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"tests/test_a.py": ""}, "python3 -m pytest"),
        ({"shop_test.py": ""}, "python3 -m pytest"),
        ({"go.mod": "", "pyproject.toml": "", "tests/": ""}, "go test ./..."),
        ({"go.mod": "", "test_a.py": ""}, "go test ./..."),
        (
            {"go.work": "go 1.22\nuse (\n\t./api // the server\n\tcmd/tool\n)\n"},
            "go test ./api/... ./cmd/tool/...",
        ),
        ({"go.work": 'use "./one"\nuse ./two\nuse ../out\nuse /etc\n'}, "go test ./one/... ./two/..."),
        ({"Cargo.toml": "[package]\nname = 'x'\n"}, "cargo test"),
        ({"Cargo.toml": "[workspace]\nmembers = ['a']\n"}, "cargo test --workspace"),
        ({"pom.xml": "<project/>"}, "mvn --batch-mode --fail-at-end test"),
        (
            {"build.gradle.kts": ""},
            "gradle --no-daemon --console=plain --no-build-cache --continue cleanTest test",
        ),
        ({"Makefile": "all:\n\ttrue\n\nlint test: all\n\ttrue\n"}, "make test"),
        ({"makefile": "check::\n\ttrue\n"}, "make check"),
        ({"Makefile": "check:\ntest: a \\\n b\n"}, "make test"),
        ({"package.json": '{"scripts": {"test": "jest"}}', "Makefile": "test:\n"}, "npm test"),
    ],
)
def test_the_manifests_of_the_root_give_the_command(
    tmp_path: Path, files: dict[str, str], command: str
) -> None:
    """Their names and their content count."""
    assert command == typed(laid_out(tmp_path, files))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pyproject.toml": "[tool.ruff]\n", "contest_a.py": "", "test.txt": ""},
        {"pyproject.toml": "[tool.pytest\n"},
        {"pyproject.toml": "tool = 5\n"},
        {"go.work": "use (\n"},
        {"Cargo.toml": "package"},
        {"Cargo.toml": "[dependencies]\n"},
        {"Makefile": ".PHONY: test\nall:\n\tmake test: x\n"},
        {"Makefile": "test := 1\ntest ?= 2\ntest ::= 3\n# test:\nlatest:\ntests:\n"},
        {"package.json": "{}"},
    ],
)
def test_without_tests_in_a_manifest_no_command_is_proposed(tmp_path: Path, files: dict[str, str]) -> None:
    """A wrong command is worse than none; an invalid manifest is ignored."""
    assert Suites() == laid_out(tmp_path, files)


@pytest.mark.parametrize(("wrapper", "manifest"), [("mvnw", "pom.xml"), ("gradlew", "settings.gradle")])
def test_a_wrapper_is_preferred_if_it_can_be_run(tmp_path: Path, wrapper: str, manifest: str) -> None:
    """It has the version that the project wants."""
    found = laid_out(tmp_path, {manifest: "", wrapper: "#!/bin/sh\n"})
    assert not (typed(found) or "").startswith("./")

    (tmp_path / wrapper).chmod(0o755)

    assert (typed(find_suites(tmp_path)) or "").startswith(f"./{wrapper} ")


def test_pytest_is_run_so_that_files_can_be_left_out(tmp_path: Path) -> None:
    """Its command has a report, continues after load errors, and can exclude files."""
    found = chosen(tmp_path, {"conftest.py": ""})

    assert {"--junitxml={report}", "--continue-on-collection-errors"} <= set(found.settings.command or ())
    assert ("junit", "--ignore={file}") == (found.settings.report, found.settings.exclude_argument)


def test_go_measures_anew(tmp_path: Path) -> None:
    """A result out of its cache says nothing about this run."""
    command = chosen(tmp_path, {"go.mod": ""}).settings.command

    assert ("go", "test", "-json", "-count=1", "./...") == command


@pytest.mark.parametrize(
    ("files", "report"),
    [
        ({"go.mod": ""}, "gotest"),
        ({"Cargo.toml": "[package]"}, "cargo"),
        ({"pom.xml": ""}, "junit"),
        ({"build.gradle": ""}, "junit"),
        ({"Makefile": "test:"}, "exit"),
    ],
)
def test_runners_with_counts_have_their_report(tmp_path: Path, files: dict[str, str], report: str) -> None:
    """For others the exit code counts."""
    found = chosen(tmp_path, files)

    assert report == found.settings.report


def test_several_languages_are_all_found(tmp_path: Path) -> None:
    """One is proposed, the others are listed; the Makefile mostly runs them."""
    found = laid_out(
        tmp_path,
        {"Cargo.toml": "[package]", "package.json": '{"scripts": {"test": "jest"}}', "Makefile": "test:"},
    )

    assert ("npm test", [("cargo", "test")]) == (typed(found), [one.typed for one in found.others])


def test_tests_below_the_root_are_named_by_their_folders(tmp_path: Path) -> None:
    """Two levels deep, none inside another, and not in folders of tools."""
    found = laid_out(
        tmp_path,
        {
            "web/package.json": '{"scripts": {"test": "vitest"}}',
            "web/inner/conftest.py": "",
            "services/a b/go.mod": "",
            "services/deep/er/go.mod": "",
            "node_modules/x/package.json": '{"scripts": {"test": "jest"}}',
            ".hidden/go.mod": "",
        },
    )

    assert found.chosen is None
    assert ["web", "services/a b"] == [one.folder for one in found.others]
    command = command_for_all(found.others)
    assert ("sh", "-c", "(cd web && npm test) && (cd 'services/a b' && go test ./...)") == command


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    """Pipes, links and folders in place of manifests; a folder that links back; one without end."""
    os.mkfifo(tmp_path / "package.json")
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "Cargo.toml").symlink_to("/dev/zero")
    (tmp_path / "go.work").mkdir()
    (tmp_path / "pyproject.toml").write_bytes(b"[" * 500_000)
    (tmp_path / "round").symlink_to(".")

    assert Suites() == find_suites(tmp_path)


def test_a_manifest_that_is_too_long_is_ignored(tmp_path: Path) -> None:
    """No manifest has a megabyte."""
    long = '{"scripts": {"test": "jest"}, "x": "' + "x" * 1024 * 1024 + '"}'

    assert Suites() == laid_out(tmp_path, {"package.json": long, "Makefile": "test:\n" + "#" * 1024 * 1024})


def test_a_look_below_the_root_ends(tmp_path: Path) -> None:
    """Of thousands of folders only the first by name are read."""
    for number in range(MOST_FOLDERS + 5):
        (tmp_path / f"d{number:04}").mkdir()
    (tmp_path / f"d{MOST_FOLDERS + 4:04}/go.mod").touch()

    assert Suites() == find_suites(tmp_path)


def test_a_root_that_cannot_be_listed_has_none(tmp_path: Path) -> None:
    """Other checks report it."""
    assert Suites() == find_suites(tmp_path / "gone")


def found(root: Path, package: Any, **files: str) -> Tests | None:
    """Return the tests of a package with further files beside it (`_` in a name is a dot)."""
    if package is not None:
        (root / "package.json").write_text(json.dumps(package), encoding="utf-8")
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return suite_of_package(root, frozenset(os.listdir(root)))


def suite_in(root: Path, package: Any, **files: str) -> Tests:
    """Return what `found` returns, which must be something."""
    tests = found(root, package, **files)
    assert tests is not None
    return tests


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
    """Arguments are added only if they reach the runner, and no build before it can fail."""
    tests = suite_in(tmp_path, script(text))

    assert (("npm", "test"), command, report) == (tests[0], tests[1].command, tests[1].report)


def test_a_script_before_the_tests_leaves_the_exit_code_alone(tmp_path: Path) -> None:
    """If the build fails, there is no report."""
    tests = suite_in(tmp_path, {"scripts": {"pretest": "tsc", "test": "vitest run"}})

    assert (("npm", "test"), "exit") == (tests[1].command, tests[1].report)


NONE = 'echo "Error: no test specified" && exit 1'
"""What `npm init` writes."""


@pytest.mark.parametrize("text", [NONE, "echo none", "exit 0", "true", ":", "", "  ", 'echo "later"; exit 1'])
def test_a_script_without_tests_does_not_count(tmp_path: Path, text: str) -> None:
    """It would always pass, or always fail."""
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
def test_the_package_names_the_program_that_runs_its_scripts(
    tmp_path: Path, package: dict[str, Any], files: dict[str, str], typed: str, asked: tuple[str, ...]
) -> None:
    """It names it, or has its lock file."""
    tests = suite_in(tmp_path, script("jest", **package), **files)

    assert (typed, asked) == (" ".join(tests[0]), (tests[1].command or ())[: len(asked)])


@pytest.mark.parametrize(
    ("package", "lock", "typed"),
    [
        ({"devDependencies": {"vitest": "^4"}}, "package-lock_json", "npx --no-install vitest run"),
        ({"dependencies": {"jest": "^30"}}, "pnpm-lock_yaml", "pnpm exec jest"),
        ({"devDependencies": {"jest": "^30"}}, "yarn_lock", "yarn run jest"),
    ],
)
def test_without_a_script_the_installed_runner_counts(
    tmp_path: Path, package: dict[str, Any], lock: str, typed: str
) -> None:
    """It is a dependency of the package."""
    tests = suite_in(tmp_path, package, **{lock: ""})

    assert typed == " ".join(tests[0])
    assert tests[1].report in {"jest", "junit"}


def test_node_s_own_tests_need_no_package(tmp_path: Path) -> None:
    """Their imports show that they are."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test/cart.mjs").write_text("import test from 'node:test'", encoding="utf-8")

    tests = suite_in(tmp_path, None)

    assert (("node", "--test", *NODE), "tap") == (tests[1].command, tests[1].report)
    assert found(tmp_path / "test", None, other_test_js="import 'ava'") is None


@pytest.mark.parametrize(
    ("manager", "typed"),
    [("npm", "npm test --workspaces --if-present"), ("pnpm", "pnpm --recursive run test"), ("yarn", None)],
)
def test_all_members_of_a_workspace_are_tested(tmp_path: Path, manager: str, typed: str | None) -> None:
    """If its root has no script; yarn has no command for it that all versions share."""
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
        (["packages/*"], script(NONE)),
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
    """A command without tests would always pass, or always fail."""
    (tmp_path / "packages/a").mkdir(parents=True)
    (tmp_path / "packages/a/package.json").write_text(json.dumps(member), encoding="utf-8")

    assert found(tmp_path, {"workspaces": workspaces}) is None


def test_the_script_of_the_root_comes_first(tmp_path: Path) -> None:
    """It mostly runs the members' tests by its own tool."""
    (tmp_path / "packages/a").mkdir(parents=True)
    (tmp_path / "packages/a/package.json").write_text(json.dumps(script("jest")), encoding="utf-8")

    tests = suite_in(tmp_path, script("turbo run test", workspaces={"packages": ["packages/**"]}))

    assert ("npm", "test") == tests[1].command


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 300_000, '{"scripts": []}', '{"scripts": {"test": {}}}', "5", "\x00"]
)
def test_an_invalid_manifest_is_ignored(tmp_path: Path, text: str) -> None:
    """It may have any content."""
    (tmp_path / "package.json").write_text(text, encoding="utf-8")

    assert suite_of_package(tmp_path, frozenset({"package.json", "pnpm-lock.yaml"})) is None
