"""What the machine offers, and whether it is used."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.namespaces import reading_boot_id
from tests.support.runs import PYTHON, end_processes

from handoffd.doctor.service import Service, Unit
from handoffd.doctor.supervision import SupervisionFacts, boots, check_supervision, supervision_facts
from handoffd.execute.runner import launcher, proc
from handoffd.execute.witness import Witness

TERMINAL, UNIT = Service(unit=None), Service(unit="handoffd")
WELL = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}


def facts(daemon: dict[str, str], launcher: dict[str, str], service: Service = UNIT) -> SupervisionFacts:
    """Return facts about a daemon that runs, where both units are installed."""
    units = (
        Unit(name="handoffd", service=UNIT, shown=daemon),
        Unit(name="handoffd-launcher", service=UNIT, shown=launcher),
    )
    return SupervisionFacts(
        systemd=True, unified=True, runs=True, service=service, installed=UNIT, units=units
    )


@pytest.mark.parametrize(
    ("facts", "severity", "what", "action"),
    [
        ((False, True, True, TERMINAL), "ok", "no systemd: nothing restarts the daemon", None),
        (
            (True, True, True, TERMINAL),
            "warning",
            "the daemon does not run as a systemd unit",
            "handoffd service install",
        ),
        ((True, True, False, TERMINAL), "ok", "systemd; runs are kept together by descent", None),
        ((True, False, True, UNIT), "warning", "control groups are of version 1", "cat /proc/cmdline"),
        (
            (True, True, True, UNIT),
            "ok",
            "systemd; each run of the launcher's unit has a control group of its own",
            None,
        ),
    ],
)
def test_what_could_be_had_is_said_with_the_way_to_it(
    facts: tuple[bool, bool, bool, Service], severity: str, what: str, action: str | None
) -> None:
    """Nothing is asked for that the machine does not have."""
    systemd, unified, runs, service = facts
    (found,) = check_supervision(
        SupervisionFacts(systemd=systemd, unified=unified, runs=runs, service=service, installed=TERMINAL)
    )
    assert severity == found.severity
    assert found.what.startswith(what)
    assert action is None if found.action is None else found.action.startswith(action or "-")


def test_two_ids_of_one_boot_are_named(tmp_path: Path) -> None:
    """In a container a unit may read the machine's; runs live on all the same, so it is no fault."""
    (tmp_path / "boot_id").write_text("b2\n", encoding="ascii")
    socket = tmp_path / "run/launcher.sock"
    program = (PYTHON, "-I", "-S", "-E", launcher.__file__, str(socket))
    subprocess.run([*reading_boot_id(tmp_path / "boot_id"), *program], check=True, timeout=60)
    try:
        (found,) = boots(os.getpid(), Witness(socket))
    finally:
        end_processes(tmp_path)

    assert "ok" == found.severity
    assert f"the machine ({proc.boot_id()}), the launcher another (b2)" in found.what
    assert () == boots(os.getpid(), Witness(socket))


def test_the_facts_are_those_of_this_machine() -> None:
    """Where systemd itself says that it is there."""
    facts = supervision_facts(None, TERMINAL, TERMINAL, None, fleeting=False)
    assert os.path.isdir("/run/systemd/system") is facts.systemd
    assert not facts.runs


def test_a_daemon_in_a_terminal_makes_way_for_the_service_that_is_there() -> None:
    """Installing it again would not help."""
    (found,) = check_supervision(facts(WELL, WELL, service=TERMINAL))
    assert "handoffd stop && systemctl --user start handoffd" == found.action


def test_units_that_are_well_are_nothing_to_tell_of() -> None:
    """But for the control groups that they bring."""
    assert ["ok"] == [found.severity for found in check_supervision(facts(WELL, WELL))]


def test_a_launcher_that_was_stopped_is_told_of_beside_a_daemon_that_runs() -> None:
    """To systemd it is as a person wished; the agents would end with the daemon."""
    (found,) = check_supervision(facts(WELL, {**WELL, "ActiveState": "inactive"}))

    assert ("warning", "handoffd-launcher does not run") == (found.severity, found.what)
    assert "systemctl --user start handoffd-launcher" == found.action
    assert ["ok"] == [
        found.severity for found in check_supervision(facts({**WELL, "ActiveState": "inactive"}, WELL))
    ]


def test_a_launcher_that_failed_is_told_with_what_that_means_for_agents() -> None:
    """The daemon goes on without it."""
    failed = {**WELL, "ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "203"}
    (found,) = check_supervision(facts(WELL, failed))
    assert ("warning", "handoffd-launcher failed") == (found.severity, found.what)
    assert "end with it" in (found.why or "")
    assert "handoffd service install" == found.action


def test_a_daemon_that_could_not_be_started_again_is_told_of_while_it_runs() -> None:
    """Its unit was changed; of a launcher, too, which has agents as before."""
    changed = {**WELL, "LoadState": "bad-setting", "DropInPaths": "/u/handoffd.service.d/override.conf"}
    (found,) = check_supervision(facts(changed, WELL))
    assert ("warning", "handoffd runs, and cannot be started again") == (found.severity, found.what)
    assert (found.why or "").endswith("; when this daemon ends, none comes after it")
    assert (found.action or "").startswith("systemd-analyze --user verify handoffd.service")

    (found,) = check_supervision(facts(WELL, changed))
    assert "handoffd-launcher runs, and cannot be started again" == found.what
    assert "end with it" not in (found.why or "")


def test_a_logout_that_would_end_agents_is_told_of_before() -> None:
    """The units are well, until then."""
    (found,) = check_supervision(replace(facts(WELL, WELL), fleeting=True))
    assert ("warning", "lingering is off") == (found.severity, found.what)
    assert "loginctl enable-linger" == found.action


def test_units_that_a_reboot_does_not_bring_back_are_named() -> None:
    """`start` alone enables nothing."""
    (found,) = check_supervision(facts({**WELL, "UnitFileState": "disabled"}, WELL))
    assert ("not enabled: handoffd", "systemctl --user enable handoffd") == (found.what, found.action)
