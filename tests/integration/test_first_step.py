"""The README's quick start in a new home: from the wheel of this checkout to an agent's first step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.benchmarks.first_step import NewUser, measure, text
from tests.support.installing import Home

pytestmark = pytest.mark.slow


@pytest.fixture
def user(home: Home) -> Iterator[NewUser]:
    """Someone who has pipx, claude, and a project with tests."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as sockets:  # pytest's folders are too deep for one
        yield NewUser(home.folder, Path(sockets))


def test_the_quick_start_of_the_readme_ends_in_a_step_that_has_passed(
    user: NewUser, home: Home, wheel: Path
) -> None:
    """Typed as it is there, without a package index; it prints what each part took, and judges none of it."""

    def install(command: str) -> None:
        assert "pipx install ." == command
        user.types(f"PIP_NO_INDEX=1 UV_OFFLINE=1 pipx install {wheel}")
        home.lend_dependencies(home.folder / ".local/share/pipx/venvs/handoffd")

    found = measure(user, install)

    run = found["run"]
    assert ("bootstrap", 1, "pass", "claude") == (run["step"], run["attempt"], run["result"], run["executor"])
    assert ["install", "daemon", "init", "start", "first step"] == [*found["seconds"]]
    assert "\nworkspace: clone" in (user.folder / ".ai/handoffd.yaml").read_text()
    print(text(found))
