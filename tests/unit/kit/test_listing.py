"""`globs`: the files that patterns name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.kit.boards import given

from handoffd.errors import InvalidFile
from handoffd.kit.sources import globs, walked


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with sources, tests, and what is not to be listed."""
    for name in (
        "src/a.py",
        "src/sub/b.py",
        "tests/c.py",
        "README.md",
        ".git/config",
        ".ai/x.md",
        "node_modules/m.js",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "src" / "link.py").symlink_to(tmp_path / "README.md")
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        (["**"], ["README.md", "src/a.py", "src/sub/b.py", "tests/c.py"]),
        (["."], ["README.md", "src/a.py", "src/sub/b.py", "tests/c.py"]),
        (["src"], ["src/a.py", "src/sub/b.py"]),
        (["./src/*.py"], ["src/a.py"]),
        (["**/*.py", "!tests/**"], ["src/a.py", "src/sub/b.py"]),
        ([".git/**"], []),
    ],
)
def test_patterns_name_files_as_in_a_gitignore(root: Path, patterns: list[str], files: list[str]) -> None:
    """Without links, and without the folders of tools."""
    done = globs(given(root, params={"paths": json.dumps(patterns)}))

    assert ("found" if files else "none") == done.outcome
    assert {"files": files, "globs": patterns} == json.loads(done.out["files.json"])


@pytest.mark.parametrize("pattern", ["/etc/**", "../x", "~/x", "a/../../b"])
def test_a_pattern_that_leaves_the_folder_is_refused(root: Path, pattern: str) -> None:
    """With its place in the list."""
    with pytest.raises(InvalidFile, match=r"HANDOFFD_PARAM_PATHS: \[1\]"):
        globs(given(root, params={"paths": json.dumps(["src", pattern])}))


def test_files_come_in_the_same_order_each_time(root: Path) -> None:
    """Whatever the disk says."""
    assert list(walked(root)) == sorted(walked(root))
