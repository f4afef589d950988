"""The settings, the step table and the templates in a project's files, trusted or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.house import make_project
from tests.unit.inspection.making import write

from handoffd.errors import InvalidFile, StoreError
from handoffd.inspection.own_files import (
    book_of,
    layers_of,
    settings_in,
    settings_of,
    shipped_layers,
    table_of,
    templates_for,
    with_gates,
    with_workspace,
)
from handoffd.settings.model import StoryWorkspace


def test_a_project_without_files_shares_the_shipped_table(tmp_path: Path) -> None:
    """A thousand projects cost no more memory than one."""
    assert table_of(str(tmp_path)) is book_of(shipped_layers(None))
    assert settings_of(str(tmp_path)).preset is None


def test_the_projects_own_table_wins_over_a_preset(tmp_path: Path) -> None:
    """The settings choose the preset."""
    write(tmp_path, ".ai/handoffd.yaml", "preset: with-commit\n")
    write(tmp_path, ".ai/step-rules.yaml", "steps:\n  impl: {max_attempts: 9}\n")

    table = table_of(str(tmp_path))

    assert ("commit", 9) == (table.steps["verify"].next_on_pass, table.steps["impl"].max_attempts)
    assert ".ai/step-rules.yaml" == layers_of(str(tmp_path))[-1].file


def test_presets_are_laid_over_each_other_in_order(tmp_path: Path) -> None:
    """An unknown one among them is named with the known ones."""
    write(tmp_path, ".ai/handoffd.yaml", "preset: [with-commit, proven]\n")
    table = table_of(str(tmp_path))
    assert ("commit", {"tested": True}) == (table.steps["verify"].next_on_pass, table.steps["verify"].outputs)
    write(tmp_path, ".ai/handoffd.yaml", "preset: [proven, rust]\n")
    with pytest.raises(InvalidFile, match="there is no preset 'rust'"):
        table_of(str(tmp_path))


def test_a_step_with_a_template_of_its_own_needs_no_instruction(tmp_path: Path) -> None:
    """The daemon has the same rule."""
    write(tmp_path, ".ai/step-rules.yaml", (
        "steps:\n  polish: {next_on_pass: update-memory, next_on_fail: polish}\n"
        "  verify: {next_on_pass: polish}\n"
    ))  # fmt: skip
    with pytest.raises(InvalidFile):
        table_of(str(tmp_path))

    write(tmp_path, ".ai/prompts/en/steps/polish.j2", "Polish it.\n")

    assert "polish" in table_of(str(tmp_path)).steps


@pytest.mark.parametrize("name", ["handoffd.yaml", "step-rules.yaml"])
def test_an_invalid_file_is_named(tmp_path: Path, name: str) -> None:
    """In the first problem."""
    write(tmp_path, f".ai/{name}", "a: [")

    with pytest.raises(InvalidFile) as caught:
        table_of(str(tmp_path))
    assert f".ai/{name}" == caught.value.problems[0].file


def test_the_error_of_an_unknown_preset_lists_the_presets() -> None:
    """The project's settings chose it."""
    with pytest.raises(InvalidFile) as caught:
        shipped_layers("rust")
    assert "go" in caught.value.problems[0].allowed


def test_a_folder_of_templates_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A project could make us search the whole machine for templates."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/prompts").symlink_to("/")

    with pytest.raises(StoreError):
        templates_for(str(tmp_path))


def test_a_template_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A prompt does not quote files from outside the project."""
    root = make_project(tmp_path)
    folder = Path(root, ".ai/prompts/en")
    folder.mkdir(parents=True)
    (folder / "prompt.j2").symlink_to("/etc/hostname")

    with pytest.raises(StoreError):
        templates_for(root)


SAID = "  # where stories work: docs/how-to/clones.md\n"
BARE = StoryWorkspace(kind="clone")
CLONE = StoryWorkspace(kind="clone", link=("node_modules", ".venv"))


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", BARE, f"workspace: clone{SAID}"),
        ("# mine", StoryWorkspace(), f"# mine\nworkspace: root{SAID}"),
        (
            "auto: true\n", CLONE,
            f'auto: true\nworkspace:{SAID}  kind: clone\n  link: ["node_modules", ".venv"]\n',
        ),
        ("workspace: root\nauto: true\n", BARE, f"workspace: clone{SAID}auto: true\n"),
        (
            "workspace:\n  kind: root\n\tsetup: [x]\n".replace("\t", "  ") + "# next\nauto: true\n",
            StoryWorkspace(kind="clone", setup=("x",), setup_min=5),
            f'workspace:{SAID}  kind: clone\n  setup: ["x"]\n  setup_min: 5.0\n# next\nauto: true\n',
        ),
        ("workspace: {kind: root,\n  link: [x]}\nauto: true", CLONE, None),
        ("auto: true\nworkspace: {\nkind: root}\n", CLONE, "none"),
        ('{"auto": true}\n', CLONE, "none"),
    ],
)  # fmt: skip
def test_another_workspace_is_written_and_nothing_else(
    text: str, place: StoryWorkspace, expected: str | None
) -> None:
    """What is around it stays to the letter; None where that cannot be."""
    changed = with_workspace(text, place)

    if expected is None:
        assert changed is not None
        assert place == settings_in(changed).workspace
        assert settings_in(changed).auto
    else:
        assert (None if expected == "none" else expected) == changed


def test_other_gates_are_written_and_nothing_else() -> None:
    """As another workspace is."""
    said = "  # when you decide about a story: docs/how-to/reviews.md\n"
    assert f"auto: true\ngates: after{said}" == with_gates("auto: true", "after")
    assert f"gates: none{said}auto: true\n" == with_gates("gates: after  # mine\nauto: true\n", "none")
    assert with_gates('{"auto": true}\n', "after") is None
