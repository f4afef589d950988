"""Projects that are not well."""

from __future__ import annotations

from typing import get_args

import pytest

from handoffd.doctor.projects import check_projects
from handoffd.engine.views import Condition


def project(root: str, condition: str = "ok", detail: str | None = None) -> dict[str, object]:
    """Return a project as `status` tells it."""
    return {"project": root, "condition": condition, "detail": detail}


def test_those_that_are_well_are_counted() -> None:
    """None is no fault, either."""
    assert [("ok", "2 projects can be worked on")] == [
        (found.severity, found.what) for found in check_projects([project("/a"), project("/b")])
    ]
    assert ["1 project can be worked on"] == [found.what for found in check_projects([project("/a")])]
    assert ["0 projects can be worked on"] == [found.what for found in check_projects([])]


@pytest.mark.parametrize(
    ("condition", "severity", "action"),
    [
        ("not_initialized", "warning", "handoffd init '/srv/a b'"),
        ("invalid_rules", "warning", "handoffd rules check '/srv/a b'"),
        (
            "locked",
            "warning",
            "handoffd remove '/srv/a b'  # leaves it to the other one; "
            "or end that one, and have it here: handoffd add '/srv/a b' --take",
        ),
        ("invalid_state", "fault", "${EDITOR:-vi} '/srv/a b/.ai/STATE.json'"),
        (
            "missing",
            "fault",
            "ls -ld '/srv/a b'  # mount it or move it back; or: handoffd remove '/srv/a b'",
        ),
        ("io_error", "fault", "ls -ld '/srv/a b' '/srv/a b/.ai'; df -h '/srv/a b'"),
        ("of_the_future", "fault", "handoffd status '/srv/a b'"),
    ],
)
def test_each_condition(condition: str, severity: str, action: str) -> None:
    """With its detail and a command; those under which something goes on are warnings."""
    found, rest = check_projects([project("/srv/a b", condition, "because"), project("/c")])

    assert (severity, "because", action) == (found.severity, found.why, found.action)
    assert found.what.startswith("/srv/a b ")
    assert condition in found.what
    assert "1 project can be worked on" == rest.what


def test_every_condition_has_words() -> None:
    """None is told by its name alone."""
    for condition in set(get_args(Condition)) - {"ok"}:
        (found,) = check_projects([project("/a", condition)])
        assert found.what != f"/a {condition} ({condition})"


def test_those_that_are_silent_were_not_looked_at() -> None:
    """Whatever the journal says of them."""
    (found,) = check_projects([project("/mnt/a b")], {"/mnt/a b"})
    assert ("fault", "stat '/mnt/a b'") == (found.severity, found.action)
    assert "does not answer" in (found.why or "")
