"""The named instants of a crash: nothing happens at them unless a program asks for it."""

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
    """Lend the list of what was reached while this process is armed."""
    found: list[tuple[str, str]] = []
    failpoints.arm(lambda point, subject: found.append((point, subject)))
    yield found
    failpoints.arm(None)


def test_an_armed_process_hears_what_is_reached(seen: list[tuple[str, str]]) -> None:
    """With the name of the thing it is about."""
    failpoints.reached("before_commit")
    failpoints.reached("after_rename", "STATE.json")

    assert [("before_commit", ""), ("after_rename", "STATE.json")] == seen


def test_a_disarmed_process_hears_nothing(seen: list[tuple[str, str]]) -> None:
    """As every daemon that people start."""
    failpoints.arm(None)

    failpoints.reached("before_commit")

    assert [] == seen


def sources() -> dict[str, str]:
    """Return the text of every module of the package but that of the points themselves."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "failpoints.py")
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in paths}


def test_every_point_is_reached_at_one_place() -> None:
    """One that nobody reaches would never crash anything, and look as if it were survived."""
    found = [name for text in sources().values() for name in re.findall(r'\breached\("(\w+)"', text)]

    assert sorted(failpoints.POINTS) == sorted(found)


def test_nothing_in_the_package_arms_itself() -> None:
    """No setting and no environment can make a daemon crash."""
    armed = [name for name, text in sources().items() if re.search(r"\bfailpoints\.|import arm\b", text)]

    assert [] == armed
