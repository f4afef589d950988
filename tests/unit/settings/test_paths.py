"""Where things are kept when nobody says otherwise."""

from __future__ import annotations

import pytest

from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir

HOME = {"HOME": "/home/ann"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/home/ann/.local/state/handoffd"),
        ({"XDG_STATE_HOME": "/data/state"}, "/data/state/handoffd"),
        ({"XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/handoffd"),
        ({"XDG_STATE_HOME": "/data", "STATE_DIRECTORY": "/var/lib/handoffd"}, "/var/lib/handoffd"),
        ({"STATE_DIRECTORY": "/var/lib/one:/var/lib/two"}, "/var/lib/one"),
    ],
)
def test_the_state_directory(environ: dict[str, str], expected: str) -> None:
    """systemd's choice comes before XDG's, and XDG's before the home folder."""
    assert expected == default_state_dir(HOME | environ)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/state/run"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/handoffd"),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "RUNTIME_DIRECTORY": "/run/handoffd"}, "/run/handoffd"),
    ],
)
def test_the_runtime_directory(environ: dict[str, str], expected: str) -> None:
    """Without a runtime folder of its own, it is a folder of the state directory."""
    assert expected == default_runtime_dir(HOME | environ, "/state")


def test_the_files_that_are_looked_for() -> None:
    """A person's own file comes before the machine's."""
    own = "/home/ann/.config/handoffd/handoffd.yaml"
    system = "/etc/handoffd/handoffd.yaml"

    assert (own, system) == default_files(HOME)
    assert "/cfg/handoffd/handoffd.yaml" == default_files({**HOME, "XDG_CONFIG_HOME": "/cfg"})[0]
