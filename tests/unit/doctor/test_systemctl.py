"""Programs that succeed, fail, complain and are missing."""

from __future__ import annotations

import pytest

from handoffd.doctor.service import Commands, Completed, Systemctl
from handoffd.errors import Refused


def test_a_program_runs_with_the_environment_it_is_given() -> None:
    """Nothing of this process's own environment gets in."""
    done = Commands({"PATH": "/usr/bin:/bin", "COLOUR": "blue"}).run(("env",))

    assert 0 == done.code
    assert ["COLOUR=blue", "PATH=/usr/bin:/bin"] == sorted(done.output.split())


def test_a_failure_is_told_in_the_programs_last_words() -> None:
    """The last line of stderr, else of stdout, else the exit code."""
    commands = Commands({"PATH": "/usr/bin:/bin"})

    assert "denied" == commands.run(("sh", "-c", "echo first >&2; echo denied >&2; exit 3")).why
    assert "out" == commands.run(("sh", "-c", "echo out; exit 3")).why
    assert "exit code 3" == commands.run(("sh", "-c", "exit 3")).why


def test_a_missing_program_is_a_failure_and_no_exception() -> None:
    """Exit code 127, as a shell would say."""
    assert (127, "systemctl: not found") == (
        (done := Commands({"PATH": "/nowhere"}).run(("systemctl",))).code, done.why,
    )  # fmt: skip


def test_a_manager_that_cannot_be_asked_is_refused() -> None:
    """`show` never answers with nothing."""
    with pytest.raises(Refused, match="systemd does not answer"):
        Systemctl(Commands({"PATH": "/nowhere"}), user=True).show(("handoffd.service",))


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("Failed to connect to bus: No medium found", "XDG_RUNTIME_DIR"),
        ("Failed to enable unit: Access denied", "sudo systemctl start x"),
        ("Interactive authentication required.", "sudo systemctl start x"),
        ("Unit not found", None),
    ],
)
def test_a_complaint_gets_the_hint_that_fits(complaint: str, hint: str | None) -> None:
    """A shell without a session, a lack of rights, and everything else."""
    failed = Completed(argv=("systemctl", "start", "x"), code=1, error=complaint)
    found = Systemctl(Commands({}), user=False).hint(failed)

    assert (found is None) if hint is None else (found is not None and hint in found)


def test_ones_own_manager_is_not_asked_as_root() -> None:
    """It would be another one."""
    failed = Completed(argv=("systemctl", "--user", "start", "x"), code=1, error="Access denied")

    assert Systemctl(Commands({}), user=True).hint(failed) is None
