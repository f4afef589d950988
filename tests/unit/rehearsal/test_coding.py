"""Tests and code in the project's own language, beside its files and never over them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support import golang, javascript
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.coding import (
    Plan,
    ids_of_tests,
    impl,
    names_of_tests,
    plan_for,
    scaffold,
    story_tests,
)
from handoffd.rehearsal.workspace import MARK, Workspace

SCAFFOLD = Assignment("scaffold", "US-001", 1, "d-1", "")
IMPL = SCAFFOLD._replace(step="impl")


@pytest.fixture
def python_project(tmp_path: Path) -> Rehearsal:
    """A Python project with another layout than the sample."""
    for name, text in {
        "pyproject.toml": '[project]\nname = "theirs"\nversion = "1"\n[tool.pytest.ini_options]\n',
        "src/theirs/__init__.py": "",
        "test/test_theirs.py": "def test_it():\n    assert True\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Rehearsal(tmp_path)


def test_another_python_project_gets_two_files_of_its_own(python_project: Rehearsal) -> None:
    """Red and green for real, also without the project on the path; its own files stay."""
    before = python_project.files()
    workspace = Workspace(str(python_project.root))

    red = scaffold(workspace, SCAFFOLD)
    assert (1, 2) == python_project.tests()
    green = impl(workspace, IMPL)
    assert (3, 0) == python_project.tests()

    after = python_project.files()
    assert {"test/test_us_001_rehearsal.py", "rehearsal_us_001.py"} == after.keys() - before.keys()
    assert before.items() <= after.items()
    assert (2, 0, 2) == (red.tests.failed, red.tests.passed, green.tests.passed)


def test_an_unsupported_language_gets_a_page(foreign: Rehearsal) -> None:
    """No source is written, and the pages give the reason."""
    before = foreign.files()
    workspace = Workspace(str(foreign.root))

    reports = [scaffold(workspace, SCAFFOLD), impl(workspace, IMPL)]

    after = foreign.files()
    expected = {"docs/rehearsal/US-001-tests.md", "docs/rehearsal/US-001-code.md"}
    assert expected == after.keys() - before.keys() == {name for report in reports for name in report.files}
    assert before.items() <= after.items()
    assert ["pass", "pass"] == [report.status for report in reports]
    assert () == story_tests(workspace, IMPL)
    assert all("nothing shows that this project has such" in report.summary for report in reports)
    assert (
        "wrote no tests of its own: the rehearsal writes tests in Python, Go"
        in after["docs/rehearsal/US-001-tests.md"].decode()
    )


def test_another_language_gets_two_files_that_name_their_tests(tmp_path: Path) -> None:
    """The hand-off names the failing ones; a person's files are left alone."""
    (tmp_path / "go.mod").write_text("module example\n")
    workspace = Workspace(str(tmp_path))

    red, green = scaffold(workspace, SCAFFOLD), impl(workspace, IMPL)

    test = "rehearsal_us_001/story_test.go"
    assert ((test,), ("rehearsal_us_001/story.go",)) == (red.files, green.files)
    ids = (f"{test}::TestUs001IsThere", f"{test}::TestUs001RefusesAnotherStory")
    assert (ids, 2, 2) == (red.failing, red.tests.failed, green.tests.passed)
    (tmp_path / test).write_text("package mine\n")
    assert "failing" == scaffold(workspace, SCAFFOLD).status


def test_source_that_a_person_changed_is_not_overwritten(shop: Rehearsal) -> None:
    """The step fails and names the file."""
    shop.performs("scaffold")
    theirs = shop.text("shop/pricing.py") + "\n\nEXTRA = 1\n"
    (shop.root / "shop/pricing.py").write_text(theirs)

    report = impl(Workspace(str(shop.root)), IMPL)

    assert ("failing", theirs) == (report.status, shop.text("shop/pricing.py"))
    assert report.summary.startswith("shop/pricing.py was changed by a person")


def test_tests_that_a_person_wrote_are_not_overwritten(python_project: Rehearsal) -> None:
    """Also when they have the name of the rehearsal's own."""
    mine = python_project.root / "test/test_us_001_rehearsal.py"
    mine.write_text("def test_mine():\n    assert True\n")

    report = scaffold(Workspace(str(python_project.root)), SCAFFOLD)

    assert ("failing", "def test_mine():\n    assert True\n") == (report.status, mine.read_text())


def test_the_failing_tests_are_named(shop: Rehearsal) -> None:
    """By the ids of pytest."""
    report = scaffold(Workspace(str(shop.root)), SCAFFOLD)

    assert (6, 6) == (len(report.failing), report.tests.failed)
    assert "tests/test_discounts.py::test_a_valid_code_lowers_the_total" == report.failing[0]
    assert report.failing == ids_of_tests(Workspace(str(shop.root)), ("tests/test_discounts.py",))


STORY = Assignment("scaffold", "US-001", 1, "d-1", "")


def planned(root: Path, files: dict[str, str]) -> Plan | str:
    """Return the plan for a project with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return plan_for(Workspace(str(root)), STORY)


def package(script: str | None, **more: object) -> str:
    """Return a package.json with that test script."""
    return json.dumps({"scripts": {} if script is None else {"test": script}, **more})


def settings(command: str) -> str:
    """Return settings with that test command."""
    return f"auto: false   # go\ntest:\n  command: {command}\n  report: exit\npriority: 1\n"


@pytest.mark.parametrize(
    ("files", "test", "code"),
    [
        ({"pyproject.toml": ""}, "tests/test_us_001_rehearsal.py", "rehearsal_us_001.py"),
        ({"go.mod": ""}, "rehearsal_us_001/story_test.go", "rehearsal_us_001/story.go"),
        ({"Cargo.toml": "[package]\n"}, "tests/rehearsal_us_001.rs", "rehearsal_us_001.rs"),
        ({"package.json": package("jest")}, "rehearsal_us_001.test.js", "rehearsal_us_001.js"),
        (
            {"package.json": package("node --test"), "test/a.js": ""},
            "test/rehearsal_us_001.test.js", "rehearsal_us_001.js",
        ),
        (
            {"package.json": package("vitest run"), "src/x/a.spec.ts": ""},
            "src/x/rehearsal_us_001.test.ts", "rehearsal_us_001.ts",
        ),
        (
            {"package.json": package("node --test 'test/**/*.test.js'"), "test/a.test.js": ""},
            "test/rehearsal_us_001.test.js", "rehearsal_us_001.js",
        ),
        # Of a workspace, the first member whose runner is known.
        (
            {
                "package.json": package(None, workspaces=["packages/*"]), "a/package.json": package("jest"),
                "packages/b/package.json": package("mocha"), "packages/c/package.json": package("jest"),
                "packages/c/src/x.test.js": "",
                ".ai/handoffd.yaml": settings('["npm", "test", "--workspaces", "--if-present"]'),
            },
            "packages/c/src/rehearsal_us_001.test.js", "packages/c/rehearsal_us_001.js",
        ),
        (
            {
                "package.json": package(None), "pnpm-workspace.yaml": "packages: [apps/*]\n",
                "apps/web/package.json": package("vitest run"),
            },
            "apps/web/rehearsal_us_001.test.js", "apps/web/rehearsal_us_001.js",
        ),
        (
            {
                "package.json": package("npm test --workspaces", workspaces={"packages": ["./lib"]}),
                "lib/package.json": package("node --test"),
            },
            "lib/rehearsal_us_001.test.js", "lib/rehearsal_us_001.js",
        ),
        # The test command counts more than other files.
        (
            {
                "pyproject.toml": "[tool.ruff]\n", "package.json": package("jest"),
                ".ai/handoffd.yaml": settings('["npm", "test", "--", "--json"]'),
            },
            "rehearsal_us_001.test.js", "rehearsal_us_001.js",
        ),
        (
            {"package.json": package(None), ".ai/handoffd.yaml": "test: {command: [npx, vitest, run]}\n"},
            "rehearsal_us_001.test.js", "rehearsal_us_001.js",
        ),
        (
            {"requirements.txt": "", ".ai/handoffd.yaml": settings("[make, test]")},
            "tests/test_us_001_rehearsal.py", "rehearsal_us_001.py",
        ),
    ],
)  # fmt: skip
def test_two_files_in_the_project_s_own_language(
    tmp_path: Path, files: dict[str, str], test: str, code: str
) -> None:
    """Its test command finds them; they have the mark of the rehearsal, and two tests."""
    plan = planned(tmp_path, files)

    assert isinstance(plan, Plan)
    assert (test, code) == (plan.test, plan.code)
    assert MARK in plan.test_text
    assert MARK in plan.code_text
    assert 2 == len(names_of_tests(plan.test, plan.test_text))
    assert plan.by_pytest == plan.test.endswith(".py")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "nothing shows that this project has such"),
        ({"Gemfile": ""}, "nothing shows"),
        ({"pom.xml": "", ".ai/handoffd.yaml": settings("[mvn, --batch-mode, test]")}, "are run with mvn"),
        (
            {"package.json": package("jest"), ".ai/handoffd.yaml": settings("[./gradlew, test]")},
            "with gradlew",
        ),
        ({"go.mod": "", ".ai/handoffd.yaml": settings('[sh, -c, "(cd a && go test)"]')}, "are run with cd"),
        ({"Cargo.toml": "[workspace]\n"}, "cargo finds no test by its name"),
        ({"Cargo.toml": "[package]\nautotests = false\n"}, "cargo finds no test by its name"),
        (
            {
                "package.json": package(None, workspaces=["packages/*"]),
                "packages/a/package.json": package("mocha"),
            },
            "it is a workspace, and the tests of none of its packages are run by node:test, jest or vitest",
        ),
        ({"package.json": package("mocha")}, "neither node:test, jest nor vitest"),
        ({"package.json": "["}, "neither node:test, jest nor vitest"),
        ({"package.json": package("jest"), "src/a.test.ts": ""}, "in TypeScript, and run by jest"),
        ({"package.json": package("node --test lib/a.js")}, r"names what it tests (lib/a.js)"),
    ],
)
def test_without_files_there_is_a_reason(tmp_path: Path, files: dict[str, str], why: str) -> None:
    """It is text for a person."""
    plan = planned(tmp_path, files)

    assert isinstance(plan, str)
    assert why in plan


def failures(root: Path, plan: Plan | str, *command: str) -> tuple[bool, bool]:
    """Return whether a command fails with the tests alone, and with the code beside them."""
    assert isinstance(plan, Plan)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}

    def fails() -> bool:
        return bool(
            subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False).returncode
        )

    (root / plan.test).parent.mkdir(exist_ok=True)
    (root / plan.test).write_text(plan.test_text, encoding="utf-8")
    red = fails()
    (root / plan.code).write_text(plan.code_text, encoding="utf-8")
    return red, fails()


@pytest.mark.parametrize("kind", ["commonjs", "module"])
@pytest.mark.parametrize("folder", ["", "test"])
def test_node_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, folder: str) -> None:
    """Red and green for real, in both forms of JavaScript."""
    javascript.laid_out()
    monkeypatch.setenv("PATH", javascript.ENVIRONMENT["PATH"])
    (tmp_path / folder).mkdir(exist_ok=True)
    plan = planned(tmp_path, {"package.json": package("node --test", type=kind)})

    assert isinstance(plan, Plan)
    assert folder == plan.test.rpartition("/")[0]
    assert (True, False) == failures(tmp_path, plan, "node", "--test")


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_cargo_runs_them(tmp_path: Path) -> None:
    """Red and green for real."""
    manifest = '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n'
    plan = planned(tmp_path, {"Cargo.toml": manifest, "src/lib.rs": ""})

    assert (True, False) == failures(tmp_path, plan, "cargo", "test", "--offline")


def test_go_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red and green for real."""
    for name, value in golang.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    plan = planned(tmp_path, {"go.mod": "module example\n\ngo 1.21\n"})

    assert (True, False) == failures(tmp_path, plan, "go", "test", "./...")
