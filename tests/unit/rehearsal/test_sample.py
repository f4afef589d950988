"""The sample is a real project: its tests pass, its documents name the next story."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal import sample
from handoffd.settings.model import ProjectSettings


def test_it_is_created_whole_and_committed(tmp_path: Path) -> None:
    """It has every file that a story reads, and all of them are committed."""
    root = sample.create(tmp_path / "deep/shop")

    assert (tmp_path / "deep/shop").resolve() == root
    for name in (
        "pyproject.toml", "PROJECT_CONTEXT.md", "PROJECT_MEMORY.md", "docs/sdd.md", "docs/constitution.md",
        "docs/nfr.md", "docs/api/openapi.yaml", "docs/bdd/.gitkeep", ".gitignore", ".ai/handoffd.yaml",
    ):  # fmt: skip
        assert (root / name).is_file(), name
    assert [] == [str(path) for path in root.rglob("*.sample") if ".git" not in path.parts]
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "" == status.stdout
    memory = (root / "PROJECT_MEMORY.md").read_text()
    assert f"## NOW\n- {sample.STORY} " in memory


def test_plain_pytest_passes_inside(shop: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a newcomer types it, with any installed plugins and warnings as errors."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    argv = (sys.executable, "-B", "-W", "error", "-m", "pytest")
    ended = subprocess.run(argv, cwd=shop.root, capture_output=True, text=True, check=False)

    assert (0, True) == (ended.returncode, "5 passed" in ended.stdout), ended.stdout


def test_its_settings_are_valid_and_its_test_command_reports(shop: Rehearsal, tmp_path: Path) -> None:
    """The command of `.ai/handoffd.yaml` writes a JUnit report to the path it is given."""
    settings = ProjectSettings.model_validate(yaml.safe_load(shop.text(".ai/handoffd.yaml")))
    assert ("junit", "--ignore={file}") == (settings.test.report, settings.test.exclude_argument)
    assert settings.test.command is not None
    report = tmp_path / "report.xml"

    argv = [part.replace("{report}", str(report)) for part in settings.test.command]
    subprocess.run(argv, cwd=shop.root, capture_output=True, check=True)

    assert 'tests="5"' in report.read_text()


def test_an_occupied_directory_is_refused(tmp_path: Path) -> None:
    """The sample is not mixed with other files."""
    (tmp_path / "mine").write_text("mine")

    with pytest.raises(FileExistsError, match="is not empty"):
        sample.create(tmp_path)
    assert ["mine"] == [path.name for path in tmp_path.iterdir()]


def test_settings_and_git_can_be_left_out(tmp_path: Path) -> None:
    """For callers that bring their own."""
    root = sample.create(tmp_path / "shop", git=False, settings=False)

    assert (False, False) == ((root / ".git").exists(), (root / ".ai").exists())
