"""A child's environment."""

from __future__ import annotations

import pytest

from handoffd.execute.environment import (
    DEFAULT_PATH,
    child_environment,
    expanded,
    is_variable_name,
    run_variables,
)

SOURCE = {
    "HOME": "/home/me",
    "PATH": "/opt/bin:/usr/bin",
    "SINK_TOKEN": "secret",
    "NOTIFY_SOCKET": "/run/systemd/notify",
    "HANDOFFD_REHEARSAL": "{}",
    "API_KEY": "key",
}


def test_only_what_is_allowed_passes() -> None:
    """The daemon's secrets stay with the daemon."""
    environment = child_environment(SOURCE, ("HOME", "PATH"), ("API_KEY", "NOT_SET"))

    assert {"HOME": "/home/me", "PATH": "/opt/bin:/usr/bin", "API_KEY": "key"} == environment


def test_some_names_never_pass() -> None:
    """A child that speaks to systemd as the daemon could end the service; a project may not ask for ours."""
    assert {"PATH": DEFAULT_PATH} == child_environment(SOURCE, ("NOTIFY_SOCKET", "no name", "A=B"))
    assert "HANDOFFD_REHEARSAL" in child_environment(SOURCE, ("HANDOFFD_REHEARSAL",))
    project = child_environment(SOURCE, project=("HANDOFFD_REHEARSAL", "API_KEY"))
    assert {"PATH": DEFAULT_PATH, "API_KEY": "key"} == project


def test_what_the_daemon_sets_comes_last() -> None:
    """A variable of the run wins over one that was passed on."""
    ours = run_variables(run_id="r1", story=None, step="custom", attempt=2, workspace=3)

    environment = child_environment({"HANDOFFD_STEP": "forged"}, ("HANDOFFD_STEP",), variables=ours)

    assert {
        "PATH": DEFAULT_PATH,
        "HANDOFFD_RUN": "r1",
        "HANDOFFD_STORY": "",
        "HANDOFFD_STEP": "custom",
        "HANDOFFD_ATTEMPT": "2",
        "HANDOFFD_WORKSPACE": "3",
    } == environment


def test_names_of_variables() -> None:
    """As a shell accepts them."""
    assert [True, True, False, False, False] == [*map(is_variable_name, ("A", "_a1", "1A", "A-B", ""))]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("~/.tool", "/home/a/.tool"),
        ("~", "/home/a"),
        ("$TOOL/x", "/opt/tool/x"),
        ("${TOOL}/x", "/opt/tool/x"),
        ("${TOOL:-~/.tool}/x", "/opt/tool/x"),
        ("${EMPTY:-~/.tool}/x", "/home/a/.tool/x"),
        ("${NONE:-/srv}/x", "/srv/x"),
        ("$NONE/x", None),
        ("$NONE", None),
        ("relative", None),
        ("~other/x", None),
    ],
)
def test_a_path_is_filled_in_from_the_environment(path: str, expected: str | None) -> None:
    """As in a shell; a result that is not an absolute path is None."""
    environment = {"HOME": "/home/a", "TOOL": "/opt/tool", "EMPTY": ""}

    assert expected == expanded(path, environment)
