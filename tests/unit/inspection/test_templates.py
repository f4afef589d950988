"""Which templates are in force for a project, which may have anything in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.house import make_project

from handoffd.errors import StoreError
from handoffd.inspection.own_files import templates_for


def test_a_folder_of_templates_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Else a project could have us search the whole machine for templates."""
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
