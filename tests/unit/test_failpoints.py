"""The named instants of a crash: they have no effect unless a program arms them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import handoffd
from handoffd import failpoints

PACKAGE = Path(handoffd.__file__).parent


@pytest.fixture
def seen() -> Iterator[list[tuple[str, str]]]:
    """Lend the list of points that were reached while this process is armed."""
    found: list[tuple[str, str]] = []
    failpoints.arm(lambda point, subject: found.append((point, subject)))
    yield found
    failpoints.arm(None)


def test_only_an_armed_process_acts_at_a_point(seen: list[tuple[str, str]]) -> None:
    """The action gets the point's name and subject; daemons that people start are not armed."""
    failpoints.reached("before_commit")
    failpoints.reached("after_rename", "STATE.json")
    failpoints.arm(None)
    failpoints.reached("before_commit")

    assert [("before_commit", ""), ("after_rename", "STATE.json")] == seen


def sources() -> dict[str, str]:
    """Return the text of every module of the package except `failpoints` itself."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "failpoints.py")
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in paths}


def test_every_point_is_reached_at_one_place() -> None:
    """A point that no code reaches would never crash anything, and look survived."""
    found = [name for text in sources().values() for name in re.findall(r'\breached\("(\w+)"', text)]

    assert sorted(failpoints.POINTS) == sorted(found)


def test_nothing_in_the_package_arms_itself() -> None:
    """No setting and no environment can make a daemon crash."""
    armed = [name for name, text in sources().items() if re.search(r"\bfailpoints\.|import arm\b", text)]

    assert [] == armed
