"""Tests and code go beside what is there, and never over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.coding import ids_of_tests, impl, scaffold, story_tests
from handoffd.rehearsal.workspace import Workspace

SCAFFOLD = Assignment("scaffold", "US-001", 1, "d-1", "")
IMPL = SCAFFOLD._replace(step="impl")


@pytest.fixture
def python_project(tmp_path: Path) -> Rehearsal:
    """A Python project that is not the sample and lays its code out in its own way."""
    for name, text in {
        "pyproject.toml": '[project]\nname = "theirs"\nversion = "1"\n[tool.pytest.ini_options]\n',
        "src/theirs/__init__.py": "",
        "test/test_theirs.py": "def test_it():\n    assert True\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Rehearsal(tmp_path)


def test_another_python_project_gets_two_files_of_its_own(python_project: Rehearsal) -> None:
    """Red and green for real, also without the project on the path, and nothing of theirs changed."""
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


def test_a_language_that_is_not_written_gets_a_page(foreign: Rehearsal) -> None:
    """No source is written, and the pages say why."""
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
    """The next step learns which of them it has to make pass; files that a person has are left alone."""
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
    """The session fails and names the file, and the person's text stays."""
    shop.passes("scaffold")
    theirs = shop.text("shop/pricing.py") + "\n\nEXTRA = 1\n"
    (shop.root / "shop/pricing.py").write_text(theirs)

    report = impl(Workspace(str(shop.root)), IMPL)

    assert ("failing", theirs) == (report.status, shop.text("shop/pricing.py"))
    assert report.summary.startswith("shop/pricing.py was changed by a person")


def test_tests_that_a_person_wrote_are_not_overwritten(python_project: Rehearsal) -> None:
    """Also when they happen to have the name that the rehearsal would give its own."""
    mine = python_project.root / "test/test_us_001_rehearsal.py"
    mine.write_text("def test_mine():\n    assert True\n")

    report = scaffold(Workspace(str(python_project.root)), SCAFFOLD)

    assert ("failing", "def test_mine():\n    assert True\n") == (report.status, mine.read_text())


def test_the_failing_tests_are_named(shop: Rehearsal) -> None:
    """The next step learns which tests it has to make pass, by the ids that pytest uses."""
    report = scaffold(Workspace(str(shop.root)), SCAFFOLD)

    assert (6, 6) == (len(report.failing), report.tests.failed)
    assert "tests/test_discounts.py::test_a_valid_code_lowers_the_total" == report.failing[0]
    assert report.failing == ids_of_tests(Workspace(str(shop.root)), ("tests/test_discounts.py",))
