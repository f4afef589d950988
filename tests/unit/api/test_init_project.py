"""What `init` writes and refuses."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from handoffd.api.folders import BEGIN, END, check_project, prepare_project, settings_text
from handoffd.api.reads import is_bootstrapped
from handoffd.errors import Refused
from handoffd.inspection.suites import Suites
from handoffd.settings.loading import load_project


def test_files_of_people_are_kept(tmp_path: Path) -> None:
    """Settings stay as they are; CLAUDE.md keeps its text and gets one block, once."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/handoffd.yaml").write_text("auto: true\n", encoding="utf-8")
    (tmp_path / "CLAUDE.md").write_text("# Ours\n\nBe kind.\n", encoding="utf-8")

    first, second = prepare_project(str(tmp_path)), prepare_project(str(tmp_path))

    assert (("CLAUDE.md",), ()) == (first.created, second.created)
    assert "auto: true\n" == (tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8")
    text = (tmp_path / "CLAUDE.md").read_text(encoding="utf-8")
    assert text.startswith("# Ours\n\nBe kind.\n\n" + BEGIN)
    assert (1, 1) == (text.count(BEGIN), text.count(END))


@pytest.mark.parametrize(
    ("root", "name", "allowed"),
    [
        ("/", None, False),
        ("/proc", "all", False),
        ("/srv/shop", "", False),
        ("/srv/shop", " ", False),
        ("/srv/shop", None, True),
        ("/srv/shop", "The Shop", True),
    ],
)
def test_a_folder_of_the_system_cannot_be_a_project(root: str, name: str | None, allowed: bool) -> None:
    """Under any name; any other folder can, unless its name is blank."""
    with nullcontext() if allowed else pytest.raises(Refused) as caught:
        check_project(root, Path("/var/lib/handoffd"), name)

    if caught is not None:
        assert ("BAD_ARGUMENT", "handoffd init PROJECT") == (caught.value.code, caught.value.hint)


def test_an_older_block_is_replaced(tmp_path: Path) -> None:
    """The text around it stays."""
    (tmp_path / "CLAUDE.md").write_text(f"above\n\n{BEGIN}\nold words\n{END}\n\nbelow\n", encoding="utf-8")

    prepare_project(str(tmp_path))

    text = (tmp_path / "CLAUDE.md").read_text(encoding="utf-8")
    assert "old words" not in text
    assert 1 == text.count(BEGIN)
    assert text.index("above") < text.index("below")


def test_a_link_is_left_alone(tmp_path: Path) -> None:
    """CLAUDE.md is often a link to the file of another tool; the rest is done all the same."""
    (tmp_path / "AGENTS.md").write_text("shared", encoding="utf-8")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")

    prepared = prepare_project(str(tmp_path))

    assert (".ai/handoffd.yaml",) == prepared.created
    assert "shared" == (tmp_path / "AGENTS.md").read_text(encoding="utf-8")


def test_a_test_command_that_is_found_is_written_down(tmp_path: Path) -> None:
    """The settings are valid and say what was found."""
    (tmp_path / "go.mod").write_text("module x\n", encoding="utf-8")

    prepared = prepare_project(str(tmp_path))

    written = load_project((tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8"), "handoffd.yaml")
    assert prepared.test_command == written.test.command
    assert ("go", "gotest") == (written.test.command and written.test.command[0], written.test.report)


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "", "test_a.py": ""},
        {"setup.py": "", "test_x.py": ""},
        {"shop_test.py": ""},
        {"pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['checks']\n"},
        {"pyproject.toml": "[tool.pytest]\n"},
    ],
)
def test_tests_are_found_by_their_names_and_by_their_tool(tmp_path: Path, files: dict[str, str]) -> None:
    """Not every project keeps them in a folder called tests."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert "pytest" in (prepare_project(str(tmp_path)).test_command or ())


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pyproject.toml": "[tool.ruff]\n", "contest_a.py": "", "test.txt": ""},
        {"pyproject.toml": "[tool.pytest\n"},
        {"pyproject.toml": "tool = 5\n"},
    ],
)
def test_without_tests_there_is_no_test_command(tmp_path: Path, files: dict[str, str]) -> None:
    """A broken manifest does not matter."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert prepare_project(str(tmp_path)).test_command is None


def test_tests_below_the_root_are_offered_and_not_run(tmp_path: Path) -> None:
    """A person decides which of them count; the settings have one command for all, as a comment."""
    for folder in ("back end", "web"):
        (tmp_path / folder).mkdir()
    (tmp_path / "back end/conftest.py").touch()
    (tmp_path / "web/package.json").write_text('{"scripts": {"test": "jest"}}', encoding="utf-8")

    prepared = prepare_project(str(tmp_path))

    assert (None, ["back end", "web"]) == (prepared.test_command, [one.folder for one in prepared.others])
    text = (tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8")
    assert load_project(None, "x") == load_project(text, "x")
    offered = load_project(text.replace("# test:", "test:").replace("#   ", "  "), "x").test.command
    assert ("sh", "-c", "(cd 'back end' && python3 -m pytest) && (cd web && npm test)") == offered


def test_tests_of_another_language_are_listed(tmp_path: Path) -> None:
    """One command of two is written; the answer names the other, unless a person wrote the settings."""
    (tmp_path / "conftest.py").touch()
    (tmp_path / "package.json").write_text('{"scripts": {"test": "jest"}}', encoding="utf-8")

    first, second = prepare_project(str(tmp_path)), prepare_project(str(tmp_path))

    assert "pytest" in (first.test_command or ())
    assert [("npm", "test")] == [one.typed for one in first.others]
    assert ((), first.test_command) == (second.others, second.test_command)


def test_the_test_command_of_existing_settings_stays(tmp_path: Path) -> None:
    """Or is missing, as a person left it."""
    (tmp_path / "go.mod").write_text("module x\n", encoding="utf-8")
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/handoffd.yaml").write_text("test: {command: [make, check]}\n", encoding="utf-8")
    assert ("make", "check") == prepare_project(str(tmp_path)).test_command

    (tmp_path / ".ai/handoffd.yaml").write_text("auto: false\n", encoding="utf-8")
    prepared = prepare_project(str(tmp_path))
    assert (None, [("go", "test", "./...")]) == (
        prepared.test_command,
        [one.typed for one in prepared.others],
    )


def test_settings_without_a_test_command_are_valid(tmp_path: Path) -> None:
    """Everything in them is a comment."""
    assert load_project(None, "x") == load_project(settings_text(Suites()), "x")
    assert prepare_project(str(tmp_path)).test_command is None


def test_missing_documents_are_named(tmp_path: Path) -> None:
    """Here one of two, and with the other no bootstrap is needed."""
    assert not is_bootstrapped(str(tmp_path))
    (tmp_path / "PROJECT_CONTEXT.md").write_text("x", encoding="utf-8")

    assert ("PROJECT_MEMORY.md",) == prepare_project(str(tmp_path)).missing
    assert is_bootstrapped(str(tmp_path))


@pytest.mark.parametrize("entry", ["## US-007\n\nUS-007 is done\n", "### Reopen — US-007 → impl\n"])
def test_a_project_whose_archive_has_a_story_needs_no_bootstrap(tmp_path: Path, entry: str) -> None:
    """A story that is done, or was reopened since."""
    history = tmp_path / ".ai" / "history.md"
    history.parent.mkdir()
    history.write_text("# History\n\nnothing yet\n", encoding="utf-8")
    assert not is_bootstrapped(str(tmp_path))

    history.write_text(f"# History\n\n{entry}", encoding="utf-8")
    assert is_bootstrapped(str(tmp_path))
