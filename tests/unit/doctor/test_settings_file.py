"""The settings."""

from __future__ import annotations

from pathlib import Path

from handoffd.doctor.installation import check_settings
from handoffd.errors import InvalidFile, Problem


def test_what_can_be_used() -> None:
    """A file, or none."""
    assert ["/etc/h.yaml can be used"] == [found.what for found in check_settings(Path("/etc/h.yaml"), [])]
    (found,) = check_settings(None, [])
    assert ("ok", "there is no settings file; the defaults hold") == (found.severity, found.what)


def test_every_problem_is_a_fault() -> None:
    """With its place, and what opens the file."""
    problems = (
        Problem(file="/h.yaml", line=2, key="log.level", message="must be loud", allowed=("a", "b")),
        Problem(file="/h.yaml", message="cannot be read"),
    )
    found = check_settings(
        Path("/h.yaml"), [InvalidFile(problems, hint="vi /h.yaml"), InvalidFile(problems[:1])]
    )

    assert {"fault"} == {one.severity for one in found}
    loud = "/h.yaml:2: log.level: must be loud (allowed: a, b)"
    assert [loud, "/h.yaml: cannot be read", loud] == [one.what for one in found]
    assert ["vi /h.yaml", "vi /h.yaml", None] == [one.action for one in found]


def test_secrets_that_others_may_read_are_a_warning() -> None:
    """With what to type."""
    (found,) = check_settings(Path("/etc/h.yaml"), [], open_files=["/etc/key"])

    assert ("warning", "chmod 600 /etc/key") == (found.severity, found.action)


def test_what_the_daemon_says_of_them_is_a_warning() -> None:
    """Unless it is what is wrong with the file, which is told already."""
    problem = Problem(file="/h.yaml", line=2, key="log.level", message="must be loud")
    warnings = (f"the settings cannot be used: {problem}", "projects: /x is no folder")

    found = check_settings(Path("/h.yaml"), [InvalidFile((problem,))], warnings)

    assert [("fault", str(problem)), ("warning", warnings[1])] == [(one.severity, one.what) for one in found]
    assert "handoffd reload" == found[1].action
