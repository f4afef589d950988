"""The line of `systemctl status`."""

from __future__ import annotations

import pytest

from handoffd.app.service_manager import Overview, status_line


@pytest.mark.parametrize(
    ("overview", "line"),
    [
        (Overview(projects=0, running=0), "0 projects, 0 executors running"),
        (Overview(projects=1, running=1), "1 project, 1 executor running"),
        (
            Overview(projects=1000, running=12, queued=3, gates=2, unusable=1),
            "1000 projects, 12 executors running, 3 waiting, 2 for people to decide, 1 in trouble",
        ),
        (
            Overview(projects=1, running=0, trouble="the journal cannot be written (disk full)"),
            "nothing is started: the journal cannot be written (disk full); 1 project, 0 executors running",
        ),
        (
            Overview(projects=1, running=0, settings="handoffd.yaml:3: slots", trouble="x"),
            "nothing is started: x; the settings were not taken: handoffd.yaml:3: slots;"
            " 1 project, 0 executors running",
        ),
    ],
)
def test_it_says_how_everything_is(overview: Overview, line: str) -> None:
    """What needs a person first, and nothing of what there is none of."""
    assert line == status_line(overview)
