"""Questions about any folder, with and without an answer of the journal; and the files of `init`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.repositories import git, said
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.inspection.making import write, write_state

from handoffd.api.folders import BEGIN, END, Inspecting, check_project, prepare_project, settings_text
from handoffd.api.reads import is_bootstrapped
from handoffd.errors import InvalidFile, NotFound, Refused, StoreError
from handoffd.inspection.suites import Suites
from handoffd.protocol.state import TestCounts
from handoffd.settings.loading import load_project


async def test_every_question_about_an_empty_folder_has_an_answer(tmp_path: Path) -> None:
    """Nothing is made in it."""
    asked, root = Inspecting(None), str(tmp_path)

    assert 0 == (await asked.detect(root)).level
    found = await asked.query(root)
    assert ("not_initialized", False, 0, f"handoffd init {root}") == (
        found.status, found.supervised, found.level, found.next_command,
    )  # fmt: skip
    assert [] == (await asked.list_projects(root)).projects
    assert "# " == (await asked.review(root)).prompt[:2]
    for read in (asked.triage, asked.check_prereqs):
        with pytest.raises(Refused):
            await read(root)
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  (one entry of an empty folder)


async def test_a_project_that_is_not_supervised_is_at_level_1_at_most(tmp_path: Path) -> None:
    """People keep its STATE.json; it could be added."""
    write_state(tmp_path, tests={"pass": 3, "fail": 0, "skip": 1})

    found = await Inspecting(MemorySupervision()).query(str(tmp_path))

    assert (1, None, f"handoffd add {tmp_path}") == (found.level, found.waits_for, found.next_command)
    assert TestCounts(passed=3, failed=0, skipped=1) == found.tests
    assert "US-005 is at impl, running" in found.caller_instruction

    write_state(tmp_path, step="done", status="pass")
    assert "US-005 is done" in (await Inspecting(None).query(str(tmp_path))).caller_instruction


async def test_the_journal_completes_the_answer_about_a_supervised_project(tmp_path: Path) -> None:
    """It waits for a decision, and has a next command; by its name or a path inside."""
    write_state(tmp_path, step="review", status="needs_human")
    waiting = track_view(next_command=f"handoffd approve {tmp_path} --story US-001")
    view = project_view(str(tmp_path), waiting)
    asked = Inspecting(MemorySupervision(view))

    for name in (view.name, str(tmp_path), str(tmp_path / "src")):
        found = await asked.query(name)
        assert ("review", "scaffold", True, 2) == (found.step, found.next_step, found.supervised, found.level)
        told = ("a person's decision", f"handoffd gate {tmp_path}")
        assert told == (found.waits_for, found.next_command)


async def test_a_broken_state_comes_with_the_command_that_repairs_it(tmp_path: Path) -> None:
    """Supervised or not."""
    write(tmp_path, ".ai/STATE.json", "{")
    view = project_view(str(tmp_path), condition="invalid_state", detail="line 1", level=1)

    for asked in (Inspecting(None), Inspecting(MemorySupervision(view))):
        found = await asked.query(str(tmp_path))
        assert "invalid_state" == found.status
        assert str(found.next_command).endswith(f"{tmp_path}/.ai/STATE.json")
        assert "STATE.json cannot be used" in found.caller_instruction


async def test_missing_files_come_with_the_command_that_makes_them(tmp_path: Path) -> None:
    """In a form that a program passes on to a person."""
    write_state(tmp_path, step="sdd-delta")

    found = await Inspecting(None).check_prereqs(str(tmp_path))

    assert (False, "bdd") == (found.ok, found.suggested_rollback)
    command = f"handoffd rollback {tmp_path} bdd"
    assert f"handoffd add {tmp_path} && {command}" == found.next_command
    supervised = Inspecting(MemorySupervision(project_view(str(tmp_path), track_view())))
    assert command == (await supervised.check_prereqs(str(tmp_path))).next_command
    assert found.caller_instruction.endswith(found.next_command)


async def test_a_prompt_is_in_the_requested_language(tmp_path: Path) -> None:
    """Else in the daemon's; the refusal of another one lists the languages."""
    write(tmp_path, "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")
    asked = Inspecting(None, "zh-TW")

    assert "健康檢查" in (await asked.review(str(tmp_path))).prompt
    sorting = await asked.triage(str(tmp_path), "en")
    assert ("Triage of", ("one",), 1) == (sorting.prompt[2:11], sorting.issues, sorting.fw_lv)
    with pytest.raises(Refused) as caught:
        await asked.review(str(tmp_path), "fr")
    assert "en, zh-TW" in caught.value.message


async def test_a_file_that_is_wrong_comes_with_the_command_that_opens_it(tmp_path: Path) -> None:
    """By the path of the file, from whatever folder the question comes."""
    write_state(tmp_path)
    write(tmp_path, ".ai/step-rules.yaml", "steps: [\n")
    write(tmp_path, ".ai/prompts/en/review_session.j2", "{{ nothing }}")

    for read in (Inspecting(None).check_prereqs, Inspecting(None).review):
        with pytest.raises(InvalidFile) as caught:
            await read(str(tmp_path))
        assert f"{tmp_path}/.ai/" in (caught.value.hint or "")


async def test_a_missing_project_is_not_found(tmp_path: Path) -> None:
    """Neither an unknown name nor a wrong path."""
    write(tmp_path, "file")
    for asked in (Inspecting(None), Inspecting(MemorySupervision())):
        for name in ("shop", str(tmp_path / "gone"), "/" + "x" * 5_000, "/a\0b", str(tmp_path / "file")):
            with pytest.raises(NotFound):
                await asked.detect(name)
            with pytest.raises((NotFound, Refused)):
                await asked.list_projects(name)


async def test_a_folder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """The answer names it, and the daemon goes on."""
    asked = Inspecting(MemorySupervision(), look_s=0)

    with pytest.raises(StoreError, match="does not answer") as caught:
        await asked.query(str(tmp_path))
    assert f"stat {tmp_path}" == caught.value.hint


# --- the files of `init` -----------------------------------------------------------------------------
def test_files_of_people_are_kept(tmp_path: Path) -> None:
    """Settings stay as they are; CLAUDE.md keeps its text and gets one block, once."""
    write(tmp_path, ".ai/handoffd.yaml", "auto: true\n")
    write(tmp_path, "CLAUDE.md", "# Ours\n\nBe kind.\n")

    first, second = prepare_project(str(tmp_path)), prepare_project(str(tmp_path))

    assert ((".ai/.gitignore", "CLAUDE.md"), ()) == (first.created, second.created)
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


def test_a_commit_of_all_has_what_a_team_shares_and_nothing_that_changes_at_night(tmp_path: Path) -> None:
    """A list of a person's own stays, a link, too."""
    shop, own, linked = (tmp_path / name for name in ("shop", "own", "linked"))
    shop.mkdir()
    write(own, ".ai/.gitignore", "/mine\n")
    write(linked, ".ai/notes", "")
    (linked / ".ai/.gitignore").symlink_to("notes")
    made = {folder: prepare_project(str(folder)).created for folder in (shop, own, linked)}
    written = {
        "STATE.json",
        "states/US-1.json",
        "HANDOFF.md",
        "executor-result",
        "CHECKLIST.md",
        "history.md",
    }
    for name in (
        *written,
        "runs/1/prompt.md",
        "rehearsal-count.json",
        ".STATE.json.00ff.tmp",
        "prompts/en/x.j2",
    ):
        write(shop, f".ai/{name}", "")

    assert 0 == git(shop, "init", "--quiet")
    assert 0 == git(shop, "add", "-A")

    kept = {".ai/.gitignore", ".ai/handoffd.yaml", ".ai/prompts/en/x.j2", "CLAUDE.md"}
    assert kept == {*said(shop, "ls-files").split()}
    assert (".ai/handoffd.yaml", ".ai/.gitignore", "CLAUDE.md") == made[shop]
    assert [False, False] == [".ai/.gitignore" in made[folder] for folder in (own, linked)]
    assert "/mine\n" == (own / ".ai/.gitignore").read_text(encoding="utf-8")
    assert "" == (linked / ".ai/notes").read_text(encoding="utf-8")


def test_an_older_block_is_replaced(tmp_path: Path) -> None:
    """The text around it stays. A link is left alone: it is often the file of another tool."""
    write(tmp_path, "CLAUDE.md", f"above\n\n{BEGIN}\nold words\n{END}\n\nbelow\n")

    prepare_project(str(tmp_path))

    text = (tmp_path / "CLAUDE.md").read_text(encoding="utf-8")
    assert "old words" not in text
    assert 1 == text.count(BEGIN)
    assert text.index("above") < text.index("below")

    (tmp_path / "CLAUDE.md").rename(tmp_path / "AGENTS.md")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    (tmp_path / ".ai/handoffd.yaml").unlink()
    write(tmp_path, "AGENTS.md", "shared")
    assert (".ai/handoffd.yaml",) == prepare_project(str(tmp_path)).created
    assert "shared" == (tmp_path / "AGENTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"pyproject.toml": "", "test_a.py": ""}, True),
        ({"setup.py": "", "test_x.py": ""}, True),
        ({"shop_test.py": ""}, True),
        ({"pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['checks']\n"}, True),
        ({"pyproject.toml": "[tool.pytest]\n"}, True),
        ({}, False),
        ({"pyproject.toml": "[tool.ruff]\n", "contest_a.py": "", "test.txt": ""}, False),
        ({"pyproject.toml": "[tool.pytest\n"}, False),
        ({"pyproject.toml": "tool = 5\n"}, False),
    ],
)
def test_tests_are_found_by_their_names_and_by_their_tool(
    tmp_path: Path, files: dict[str, str], found: bool
) -> None:
    """Not every project has them in a folder `tests`; a broken manifest does not matter."""
    for name, text in files.items():
        write(tmp_path, name, text)

    command = prepare_project(str(tmp_path)).test_command

    assert (found, found) == (command is not None, "pytest" in (command or ()))


def test_tests_below_the_root_are_offered_and_not_run(tmp_path: Path) -> None:
    """A person decides which of them count; the settings have one command for all, as a comment."""
    write(tmp_path, "back end/conftest.py")
    write(tmp_path, "web/package.json", '{"scripts": {"test": "jest"}}')

    prepared = prepare_project(str(tmp_path))

    assert (None, ["back end", "web"]) == (prepared.test_command, [one.folder for one in prepared.others])
    text = (tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8")
    assert load_project(None, "x") == load_project(text, "x") == load_project(settings_text(Suites()), "x")
    offered = load_project(text.replace("# test:", "test:").replace("#   ", "  "), "x").test.command
    assert ("sh", "-c", "(cd 'back end' && python3 -m pytest) && (cd web && npm test)") == offered


def test_tests_of_another_language_are_listed(tmp_path: Path) -> None:
    """One command of two is written; the answer names the other, unless a person wrote the settings."""
    write(tmp_path, "conftest.py")
    write(tmp_path, "package.json", '{"scripts": {"test": "jest"}}')

    first, second = prepare_project(str(tmp_path)), prepare_project(str(tmp_path))

    assert "pytest" in (first.test_command or ())
    assert [("npm", "test")] == [one.typed for one in first.others]
    assert ((), first.test_command) == (second.others, second.test_command)


def test_the_test_command_of_existing_settings_stays(tmp_path: Path) -> None:
    """Or is missing, as a person left it; new settings are valid and have the command that was found."""
    write(tmp_path, "go.mod", "module x\n")
    found = prepare_project(str(tmp_path)).test_command
    written = load_project((tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8"), "handoffd.yaml")
    assert (found, "gotest") == (written.test.command, written.test.report)
    assert "go" == (found or ("",))[0]

    write(tmp_path, ".ai/handoffd.yaml", "test: {command: [make, check]}\n")
    assert ("make", "check") == prepare_project(str(tmp_path)).test_command

    write(tmp_path, ".ai/handoffd.yaml", "auto: false\n")
    prepared = prepare_project(str(tmp_path))
    others = [one.typed for one in prepared.others]
    assert (None, [("go", "test", "./...")]) == (prepared.test_command, others)


@pytest.mark.parametrize(
    ("name", "text", "cache"),
    [("go.mod", "module x\n", "go"), ("Cargo.toml", "[package]\n", "cargo"), ("conftest.py", "", None)],
)
def test_the_cache_that_tests_could_have_is_offered(
    tmp_path: Path, name: str, text: str, cache: str | None
) -> None:
    """As a comment that is a setting without its mark: it is a person's to share."""
    write(tmp_path, name, text)
    prepare_project(str(tmp_path))
    written = (tmp_path / ".ai/handoffd.yaml").read_text(encoding="utf-8")
    taken = load_project(written.replace("# sandbox:", "sandbox:"), "handoffd.yaml")

    assert () == load_project(written, "handoffd.yaml").sandbox.let_in
    assert ((cache,) if cache else ()) == taken.sandbox.let_in


def test_missing_documents_are_named(tmp_path: Path) -> None:
    """Here one of two, and with the other no bootstrap is needed."""
    assert not is_bootstrapped(str(tmp_path))
    write(tmp_path, "PROJECT_CONTEXT.md", "x")

    assert ("PROJECT_MEMORY.md",) == prepare_project(str(tmp_path)).missing
    assert is_bootstrapped(str(tmp_path))


@pytest.mark.parametrize("entry", ["## US-007\n\nUS-007 is done\n", "### Reopen — US-007 → impl\n"])
def test_a_project_whose_archive_has_a_story_needs_no_bootstrap(tmp_path: Path, entry: str) -> None:
    """A story that is done, or was reopened since."""
    write(tmp_path, ".ai/history.md", "# History\n\nnothing yet\n")
    assert not is_bootstrapped(str(tmp_path))

    write(tmp_path, ".ai/history.md", f"# History\n\n{entry}")
    assert is_bootstrapped(str(tmp_path))
