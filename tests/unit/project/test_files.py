"""A project's settings and step table: taken over, refused, or held until a person trusts them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.house import SHORT, House, at, house, make_project

from handoffd.errors import InvalidFile, StoreError
from handoffd.inspection.own_files import RULES, SETTINGS, shipped_layers
from handoffd.project.files import ProjectFiles


async def trusted(here: House, root: str) -> ProjectFiles:
    """Return the files of a project that a person has just added."""
    files = ProjectFiles(root, here.journal, here.clock)
    await files.trust()
    return files


def write(root: str, name: str, text: str) -> None:
    """Write one of the project's own files."""
    at(root, name).write_text(text)


async def test_without_files_of_its_own_the_shipped_table_is_in_force(tmp_path: Path) -> None:
    """And the default settings."""
    async with house(tmp_path) as here:
        files = await trusted(here, make_project(tmp_path, rules=None))

        assert ("sdd-delta", None) == (files.rules.steps["bdd"].next_on_pass, files.settings.executor)
        assert ((), ()) == (files.problems, files.held)


async def test_what_a_person_adds_is_in_force_as_it_is(tmp_path: Path) -> None:
    """Commands included; it is remembered that somebody looked."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="test: {command: [make, test]}\n")
        files = ProjectFiles(root, here.journal, here.clock)

        assert () == await files.trust()

        assert {SETTINGS, RULES} == (await here.journal.trusted())[root].keys()
        assert (("make", "test"), "review") == (
            files.settings.test.command, files.rules.steps["bdd"].next_on_pass
        )  # fmt: skip


async def test_what_was_held_is_told_though_nobody_has_looked_yet(tmp_path: Path) -> None:
    """As of a project that was at rest, or that is trusted without a daemon."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="language: en\n")
        await trusted(here, root)
        write(root, SETTINGS, "language: en\ntest: {command: [make]}\n")

        assert ("test.command",) == await ProjectFiles(root, here.journal, here.clock).trust()


async def test_a_later_edit_of_a_command_or_a_limit_is_held(tmp_path: Path) -> None:
    """An agent can write these files; what it may not decide waits for `handoffd trust`."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="language: en\n")
        files = await trusted(here, root)
        write(root, SETTINGS, "language: zh-TW\ntest: {command: [curl, evil]}\n")
        write(root, RULES, "steps: {bdd: {next_on_pass: review, timeout_min: 99, claude_reads: [a.md]}}\n")

        assert await files.refresh()

        assert ("zh-TW", None) == (files.settings.language, files.settings.test.command)
        rule = files.rules.steps["bdd"]
        assert (1, ("a.md",)) == (rule.timeout_min, rule.claude_reads)
        assert ["test.command", "steps.bdd.timeout_min", "steps.review.next_on_pass"] == list(files.held)


async def test_what_was_held_is_in_force_once_a_person_trusts_it(tmp_path: Path) -> None:
    """All of it, and it is told what that was."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        files = await trusted(here, root)
        write(root, RULES, f"{SHORT.replace('timeout_min: 1', 'timeout_min: 99')}")
        await files.refresh()

        assert ("steps.bdd.timeout_min",) == await files.trust()

        assert (99, ()) == (files.rules.steps["bdd"].timeout_min, files.held)


async def test_trust_outlives_the_daemon(tmp_path: Path) -> None:
    """The next one holds the same edit: it is measured against what was trusted, not what was seen last."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        await trusted(here, root)
        write(root, RULES, "steps: {bdd: {next_on_pass: update-memory}}\n")

        later = ProjectFiles(root, here.journal, here.clock)
        await later.refresh()

        assert "review" == later.rules.steps["bdd"].next_on_pass
        assert "steps.bdd.next_on_pass" in later.held


async def test_deleted_files_stay_in_force_and_are_named(tmp_path: Path) -> None:
    """What a person trusted is not undone by an agent's `rm`."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="test: {command: [make, test]}\n")
        files = await trusted(here, root)
        at(root, SETTINGS).unlink()

        await files.refresh()
        await files.bring_back()

        assert ((SETTINGS,), ("make", "test")) == (files.gone, files.settings.test.command)
        assert not at(root, SETTINGS).exists()  # the table is there: this was somebody's edit


async def test_a_folder_that_was_deleted_whole_gets_what_was_trusted(tmp_path: Path) -> None:
    """As STATE.json is written again; with nothing trusted there is nothing to write."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="language: en\n")
        files = await trusted(here, root)
        shutil.rmtree(at(root, ".ai"))

        await files.bring_back()

        assert ("language: en\n", SHORT) == (at(root, SETTINGS).read_text(), at(root, RULES).read_text())
        await files.refresh()
        assert ((), ()) == (files.gone, files.held)


async def test_an_invalid_edit_keeps_the_last_valid_version(tmp_path: Path) -> None:
    """Each file on its own, and the problem names file, line and key."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="language: en\n")
        files = await trusted(here, root)
        write(root, RULES, "steps:\n  bdd: {next_on_pass: nowhere}\n")
        write(root, SETTINGS, "language: zh-TW\n")

        await files.refresh()

        assert ("review", "zh-TW") == (files.rules.steps["bdd"].next_on_pass, files.settings.language)
        (problem,) = files.problems
        assert str(problem).startswith(".ai/step-rules.yaml:2: steps.bdd.next_on_pass:")
        with pytest.raises(InvalidFile):
            await files.trust()


async def test_files_are_read_again_only_when_they_changed(tmp_path: Path) -> None:
    """A hint that changed nothing costs two reads."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        files = await trusted(here, root)

        assert not await files.refresh()
        at(root, RULES).unlink()
        assert await files.refresh()


async def test_an_added_step_may_have_its_instruction_as_a_template(tmp_path: Path) -> None:
    """A file in .ai/prompts is as good as a `step_instruction`, from the moment the project is added."""
    async with house(tmp_path) as here:
        rules = "steps:\n  lint: {next_on_pass: done, next_on_fail: lint}\n  bdd: {next_on_pass: lint}\n"
        root = make_project(tmp_path, rules=rules)
        steps = at(root, ".ai/prompts/en/steps")
        steps.mkdir(parents=True)
        (steps / "lint.j2").write_text("Run the linter.\n")

        files = await trusted(here, root)

        assert ("bdd", "lint") == files.rules.path("story")[1:]


async def test_a_file_that_must_not_be_read_is_an_error_of_the_store(tmp_path: Path) -> None:
    """The project is then marked; nothing outside of it is read."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, rules=None)
        at(root, RULES).symlink_to(tmp_path / "agent.sh")

        with pytest.raises(StoreError):
            await ProjectFiles(root, here.journal, here.clock).refresh()


def test_a_preset_that_is_none_names_those_that_are() -> None:
    """The problem is in the project's settings, where the name stands."""
    with pytest.raises(InvalidFile) as caught:
        shipped_layers("rust")

    assert (
        ".ai/handoffd.yaml: preset: there is no preset 'rust' (allowed: default, go, web, with-commit)"
        == str(caught.value)
    )
