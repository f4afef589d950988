"""A project's settings and step table: accepted, refused, or held until a person trusts them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.house import SHORT, House, at, make_project

from handoffd.errors import InvalidFile, StoreError
from handoffd.inspection.own_files import MOST_PIPELINES, PIPELINES, RULES, SETTINGS, shipped_layers
from handoffd.project.files import ProjectFiles
from handoffd.protocol.rules import OPENED_BY


async def trusted(here: House, root: str) -> ProjectFiles:
    """Return the files of a project that a person has just added."""
    files = ProjectFiles(root, here.journal, here.clock)
    await files.trust()
    return files


async def trusting(here: House, settings: str | None = None) -> tuple[str, ProjectFiles]:
    """Return the root of a project, and its files, which a person has just trusted."""
    root = make_project(here.base, settings=settings)
    return root, await trusted(here, root)


def write(root: str, name: str, text: str) -> None:
    """Write one of the project's own files."""
    at(root, name).write_text(text)


async def test_without_own_files_the_shipped_table_applies(here: House, tmp_path: Path) -> None:
    """And the default settings."""
    files = await trusted(here, make_project(tmp_path, rules=None))

    assert ("sdd-delta", None) == (files.rules.steps["bdd"].next_on_pass, files.settings.executor)
    assert ((), ()) == (files.problems, files.held)


async def test_only_what_a_person_had_written_is_trusted(here: House) -> None:
    """Not another file, and not a new text in place of one that a person trusted and an agent deleted."""
    root, files = await trusting(here)
    write(root, RULES, "steps: {impl: {post_check: make lint}}\n")
    write(root, SETTINGS, "test: {command: [make]}\n")

    await files.trust({SETTINGS: "test: {command: [make]}\n"})
    assert ("steps.impl.post_check" in files.held, ("make",)) == (True, files.settings.test.command)

    write(root, SETTINGS, "test: {command: [evil]}\n")
    await files.trust({SETTINGS: "test: {command: [evil]}\n"})
    assert ("test.command" in files.held, ("make",)) == (True, files.settings.test.command)


async def test_a_text_that_was_changed_since_it_was_written_is_not_trusted(here: House) -> None:
    """An agent may have been quicker than the person's command."""
    root, files = await trusting(here)
    write(root, SETTINGS, "test: {command: [evil]}\n")

    await files.trust({SETTINGS: "test: {command: [tox]}\n"})
    assert ("test.command" in files.held, ("tox",)) == (True, files.settings.test.command)


async def test_files_apply_completely_when_a_person_adds_the_project(here: House, tmp_path: Path) -> None:
    """Including commands; the journal records the trust."""
    root = make_project(tmp_path, settings="test: {command: [make, test]}\n")
    files = ProjectFiles(root, here.journal, here.clock)

    assert () == await files.trust()

    assert {SETTINGS, RULES} == (await here.journal.trusted())[root].keys()
    assert (("make", "test"), "review") == (
        files.settings.test.command, files.rules.steps["bdd"].next_on_pass
    )  # fmt: skip


async def test_a_later_edit_of_a_command_or_a_limit_is_held(here: House) -> None:
    """An agent can write these files; commands and limits wait for `handoffd trust`, then apply."""
    root, files = await trusting(here, settings="language: en\n")
    write(root, SETTINGS, "language: zh-TW\ntest: {command: [curl, evil]}\n")
    write(root, RULES, "steps: {bdd: {next_on_pass: review, timeout_min: 99, claude_reads: [a.md]}}\n")

    assert await files.refresh()

    assert ("zh-TW", None) == (files.settings.language, files.settings.test.command)
    rule = files.rules.steps["bdd"]
    assert (1, ("a.md",)) == (rule.timeout_min, rule.claude_reads)
    held = ("test.command", "steps.bdd.timeout_min", "steps.review.next_on_pass")
    assert (held, held) == (tuple(files.held), await files.trust())
    assert (99, ()) == (files.rules.steps["bdd"].timeout_min, files.held)


async def test_trust_survives_a_restart(here: House) -> None:
    """An edit is compared with the trusted text, not with the last one seen; so is one before any look."""
    root, _ = await trusting(here, settings="language: en\n")
    write(root, RULES, "steps: {bdd: {next_on_pass: update-memory}}\n")
    write(root, SETTINGS, "language: en\ntest: {command: [make]}\n")

    later, without_a_look = (ProjectFiles(root, here.journal, here.clock) for _ in range(2))
    await later.refresh()

    assert "review" == later.rules.steps["bdd"].next_on_pass
    assert {"steps.bdd.next_on_pass", "test.command"} <= set(later.held)
    assert later.held == await without_a_look.trust()


PIPELINE = f"{PIPELINES}/docs.yaml"


async def test_a_pipeline_waits_whole_for_trust(here: House) -> None:
    """A new one, and any edit: it says what agents do. What a person finds when adding it is trusted."""
    root = make_project(here.base, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, PIPELINE, "language: 1\n")
    files = await trusted(here, root)
    assert [] == list(files.held)

    write(root, PIPELINE, "language: 1  # edited\n")
    write(root, f"{PIPELINES}/night.yaml", "language: 1\n")

    assert await files.refresh()
    later = ProjectFiles(root, here.journal, here.clock)
    await later.refresh()
    held = (PIPELINE, f"{PIPELINES}/night.yaml")
    assert held == files.held == later.held
    assert {PIPELINE: "language: 1\n"} == files.pipelines == later.pipelines
    assert held == await files.trust()
    assert not await files.refresh()
    assert [] == list(files.held)
    assert {
        PIPELINE: "language: 1  # edited\n",
        f"{PIPELINES}/night.yaml": "language: 1\n",
    } == files.pipelines


async def test_a_deleted_pipeline_is_gone_until_a_person_does_without_it(here: House) -> None:
    """And the same text waits again, if it comes back after that."""
    root = make_project(here.base, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, PIPELINE, "language: 1\n")
    files = await trusted(here, root)
    at(root, PIPELINE).unlink()

    await files.refresh()
    assert ((PIPELINE,), (), {PIPELINE: "language: 1\n"}) == (files.gone, files.held, files.pipelines)

    await files.trust()
    assert ((), {}, False) == (files.gone, files.pipelines, await files.refresh())
    write(root, PIPELINE, "language: 1\n")
    await files.refresh()
    assert (PIPELINE,) == files.held


async def test_a_waiting_pipeline_does_not_keep_a_person_from_the_settings(here: House) -> None:
    """It is not trusted along with them."""
    root, files = await trusting(here, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, PIPELINE, "language: 1\n")

    await files.choose_gates("none")

    assert ("none", (PIPELINE,)) == (files.settings.gates, files.held)


async def test_many_new_pipelines_put_no_trusted_one_out_of_reach(here: House) -> None:
    """Status does not have it as gone, and the next trust does not drop it."""
    root = make_project(here.base, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, f"{PIPELINES}/zebra.yaml", "language: 1\n")
    files = await trusted(here, root)
    for number in range(MOST_PIPELINES + 3):
        write(root, f"{PIPELINES}/a{number:03}.yaml", "language: 1\n")

    await files.refresh()

    assert ((), MOST_PIPELINES - 1) == (files.gone, len(files.held))
    assert files.crowd is not None
    assert files.crowd.startswith("has 204 pipelines, of which only 200 count")
    await files.trust()
    assert (True, MOST_PIPELINES) == (f"{PIPELINES}/zebra.yaml" in files.pipelines, len(files.pipelines))
    assert ((), False) == (files.held, await files.refresh())


async def test_a_trusted_pipeline_that_became_a_link_is_unread_and_not_gone(here: House) -> None:
    """It is there, and cannot be read; what a person trusted still applies."""
    root = make_project(here.base, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, PIPELINE, "language: 1\n")
    files = await trusted(here, root)
    at(root, PIPELINE).unlink()
    at(root, PIPELINE).symlink_to("elsewhere")

    await files.refresh()

    assert {PIPELINE} == files.unread
    assert {PIPELINE: "language: 1\n"} == files.pipelines
    at(root, PIPELINE).unlink()
    assert await files.refresh()
    assert (frozenset(), (PIPELINE,)) == (files.unread, files.gone)


async def test_an_empty_pipeline_waits_only_where_one_was_trusted(here: House) -> None:
    """Without a text a new file is none; an agent that empties a trusted one has edited it."""
    root = make_project(here.base, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, PIPELINE, "language: 1\n")
    files = await trusted(here, root)
    write(root, f"{PIPELINES}/night.yaml", "\n")

    await files.refresh()
    assert [] == list(files.held)
    write(root, PIPELINE, "")
    await files.refresh()
    assert [PIPELINE] == list(files.held)
    assert {PIPELINE: "language: 1\n"} == files.pipelines


async def test_a_file_that_no_command_can_name_is_no_pipeline(here: House) -> None:
    """Its name would become part of commands for a person to type."""
    root, files = await trusting(here, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    write(root, f"{PIPELINES}/a; touch OWNED.yaml", "language: 1\n")
    write(root, f"{PIPELINES}/--json.yaml", "language: 1\n")

    await files.refresh()

    assert () == files.held
    assert () == await files.trust()


async def test_a_pipeline_that_is_a_link_stops_nothing(here: House, tmp_path: Path) -> None:
    """It counts as missing, and so does a folder that is a link; the stories go on."""
    root, files = await trusting(here, settings="language: en\n")
    at(root, PIPELINES).mkdir()
    at(root, PIPELINE).symlink_to(tmp_path / "elsewhere")

    await files.refresh()
    assert ((), ()) == (files.held, files.problems)
    write(root, f"{PIPELINES}/night.yaml", "language: 1\n")
    await files.refresh()
    assert [f"{PIPELINES}/night.yaml"] == list(files.held)

    shutil.rmtree(at(root, PIPELINES))
    at(root, PIPELINES).symlink_to(tmp_path)
    await files.refresh()
    assert ((), "en") == (files.held, files.settings.language)


async def test_deleted_files_still_apply_and_are_listed(here: House) -> None:
    """An agent's `rm` does not undo a person's trust."""
    root, files = await trusting(here, settings="test: {command: [make, test]}\n")
    at(root, SETTINGS).unlink()

    await files.refresh()
    await files.bring_back()

    assert ((SETTINGS,), ("make", "test")) == (files.gone, files.settings.test.command)
    assert not at(root, SETTINGS).exists()  # the other file exists, so a person or a tool deleted this one


async def test_a_deleted_folder_gets_the_trusted_files_back(here: House) -> None:
    """Like STATE.json."""
    root, files = await trusting(here, settings="language: en\n")
    shutil.rmtree(at(root, ".ai"))

    await files.bring_back()

    assert ("language: en\n", SHORT) == (at(root, SETTINGS).read_text(), at(root, RULES).read_text())
    await files.refresh()
    assert ((), ()) == (files.gone, files.held)


async def test_an_invalid_edit_keeps_the_last_valid_version(here: House) -> None:
    """Each file by itself; the problem names file, line and key."""
    root, files = await trusting(here, settings="language: en\n")
    write(root, RULES, "steps:\n  bdd: {next_on_pass: nowhere}\n")
    write(root, SETTINGS, "language: zh-TW\n")

    await files.refresh()

    assert ("review", "zh-TW") == (files.rules.steps["bdd"].next_on_pass, files.settings.language)
    (problem,) = files.problems
    assert str(problem).startswith(".ai/step-rules.yaml:2: steps.bdd.next_on_pass:")
    with pytest.raises(InvalidFile):
        await files.trust()


async def test_unchanged_files_cause_no_refresh(here: House) -> None:
    """A hint without a change costs two reads."""
    root, files = await trusting(here)
    assert not await files.refresh()
    at(root, RULES).unlink()
    assert await files.refresh()


async def test_an_added_step_may_have_its_instruction_as_a_template(here: House, tmp_path: Path) -> None:
    """A file in .ai/prompts replaces a `step_instruction`, from the moment the project is added."""
    rules = "steps:\n  lint: {next_on_pass: done, next_on_fail: lint}\n  bdd: {next_on_pass: lint}\n"
    root = make_project(tmp_path, rules=rules)
    steps = at(root, ".ai/prompts/en/steps")
    steps.mkdir(parents=True)
    (steps / "lint.j2").write_text("Run the linter.\n")

    files = await trusted(here, root)

    assert ("bdd", "lint") == files.rules.path("story")[1:]


async def test_a_link_out_of_the_project_is_not_read(here: House, tmp_path: Path) -> None:
    """It is an error of the store."""
    root = make_project(tmp_path, rules=None)
    at(root, RULES).symlink_to(tmp_path / "agent.sh")

    with pytest.raises(StoreError):
        await ProjectFiles(root, here.journal, here.clock).refresh()


def test_an_unknown_preset_is_reported_with_the_known_ones() -> None:
    """As a problem of the project's settings."""
    with pytest.raises(InvalidFile) as caught:
        shipped_layers("rust")

    assert (
        ".ai/handoffd.yaml: preset: there is no preset 'rust'"
        " (allowed: default, go, proven, web, with-commit)" == str(caught.value)
    )


async def test_a_gate_that_an_agent_adds_counts_at_once_and_one_that_it_takes_away_waits(here: House) -> None:
    """An edit of the table under it takes none away, either."""
    root, files = await trusting(here, settings="gates: after\n")
    for edit in ("gates: none\n", "gates: before\n", ""):
        write(root, SETTINGS, edit)
        await files.refresh()
        assert (("gates",), "after") == (files.held, files.rules.gates)
        assert "acceptance" in files.rules.path("story")

    write(root, SETTINGS, "gates: both\n")
    await files.refresh()
    assert ((), "both") == (files.held, files.rules.gates)
    assert ["review", "acceptance"] == [one for one in files.rules.path("story") if one in OPENED_BY["both"]]

    write(root, SETTINGS, "gates: after\n")
    write(root, RULES, "steps: {acceptance: {requires_human: false}}\n")
    await files.refresh()
    (problem,) = files.problems
    assert "steps.acceptance.requires_human: with `gates: after` a person decides" in str(problem)
    assert files.rules.steps["acceptance"].requires_human


async def test_a_persons_choice_of_gates_is_written_and_trusted(here: House) -> None:
    """Unless the project's own table contradicts it: then nothing is written."""
    root, files = await trusting(here, settings="auto: true\n")
    await files.choose_gates("after")
    assert ((), "after") == (files.held, files.rules.gates)
    assert at(root, SETTINGS).read_text().startswith("auto: true\ngates: after")

    write(root, RULES, "steps: {bdd: {next_on_pass: update-memory}}\n")
    await files.trust()
    with pytest.raises(InvalidFile, match="a story must come to review"):
        await files.choose_gates("both")
    assert "after" == files.settings.gates
