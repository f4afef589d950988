"""Which runs a stop of the daemon's unit would end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cgroups import delegated
from tests.support.runs import PYTHON, end_processes, run_spec

from handoffd.doctor import supervision
from handoffd.doctor.service import Service, Unit, membership
from handoffd.doctor.supervision import PlaceFacts, RunPlace, check_runs, run_places
from handoffd.execute.process import Launcher
from handoffd.execute.runner import launcher
from handoffd.execute.witness import Witness
from handoffd.settings.model import ExecuteSettings

PERSON, MACHINE = Service(unit="handoffd"), Service(unit="handoffd@bo", account="bo")
APPS = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"
INSIDE, BESIDE = f"{APPS}/handoffd.service\n", f"{APPS}/handoffd-launcher.service/handoffd-run-7-99\n"
FRONT = f"{APPS}/handoffd-launcher.service/handoffd-launcher\n"
STARTED = {"LoadState": "loaded", "ActiveState": "active"}
RUNS = (
    RunPlace(run="d1", project="/srv/shop", cgroup=INSIDE),
    RunPlace(run="d2", project="/srv/blog", cgroup=BESIDE),
    RunPlace(run="d3.tests", project=None, cgroup=INSIDE),
)


def facts(*runs: RunPlace, launcher: str | None = FRONT, **shown: str) -> PlaceFacts:
    """Return facts about these runs of a person's service; `shown`: how the launcher's unit is."""
    unit = Unit(name="handoffd-launcher", service=PERSON, shown=shown or STARTED)
    names = {"/srv/shop": "shop"}
    return PlaceFacts(service=PERSON, runs=runs, launcher=launcher, unit=unit, names=names)


def test_runs_that_end_with_the_daemons_unit_are_named() -> None:
    """With their projects; once the launcher's unit is there, they are only waited for."""
    (found,) = check_runs(facts(*RUNS))

    assert ("supervision", "warning") == (found.check, found.severity)
    assert "2 runs are in the daemon's own unit: d1 of shop, d3.tests" == found.what
    assert "they end when handoffd is stopped or restarted" in (found.why or "")
    assert "handoffd doctor  # and restart handoffd only when they have ended" == found.action


@pytest.mark.parametrize(
    ("launcher", "shown", "action"),
    [
        (INSIDE, {"ActiveState": "inactive"}, "systemctl --user start handoffd-launcher"),
        (None, {"ActiveState": "inactive"}, "systemctl --user start handoffd-launcher"),
        (INSIDE, {"ActiveState": "active"}, "systemctl --user reload handoffd-launcher"),
        (
            INSIDE,
            {"ActiveState": "failed", "Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "203"},
            "handoffd service install",
        ),
    ],
)
def test_first_the_launchers_unit_is_mended(launcher: str | None, shown: dict[str, str], action: str) -> None:
    """Else the next runs would be there, too."""
    (found,) = check_runs(facts(RUNS[0], launcher=launcher, **shown))

    assert "1 run is in the daemon's own unit: d1 of shop" == found.what
    assert f"{action}  # and restart handoffd only when it has ended" == found.action


def test_a_launcher_of_the_daemons_own_beside_a_unit_that_runs_is_told() -> None:
    """Nothing runs yet; what does next would end with the daemon's unit."""
    (found,) = check_runs(facts(launcher=INSIDE))
    assert "agents are started in the daemon's own unit" == found.what
    assert "systemctl --user reload handoffd-launcher" == found.action
    assert () == check_runs(facts(launcher=INSIDE, ActiveState="inactive")), (
        "a finding about the unit tells it"
    )


def test_who_runs_beside_the_daemons_unit_is_nothing_to_tell_of() -> None:
    """As most do; and a daemon in a terminal has no unit that could end anything."""
    assert () == check_runs(facts(RUNS[1]))
    assert () == check_runs(facts(launcher=None))
    assert () == check_runs(replace(facts(*RUNS), service=Service(unit=None)))
    assert () == check_runs(replace(facts(*RUNS), service=MACHINE)), "it is another daemon's unit"


def test_of_very_many_runs_the_first_are_named() -> None:
    """A line is for people."""
    many = (RunPlace(run=f"d{number}", project="/srv/shop", cgroup=INSIDE) for number in range(8))
    (found,) = check_runs(facts(*many))
    assert found.what.startswith("8 runs are in the daemon's own unit: d0 of shop, ")
    assert found.what.endswith("d4 of shop, 3 more")


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """Where a launcher listens whose control group is named as the daemon's unit."""
    with delegated() as place:
        unit, path = place / "handoffd.service", tmp_path / "run/launcher.sock"
        unit.mkdir()
        within = ("sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(unit))
        launching = [*within, PYTHON, "-I", "-S", "-E", launcher.__file__, str(path)]
        subprocess.run(launching, check=True, timeout=60)
        yield path
        end_processes(tmp_path)


async def test_a_run_is_where_the_launcher_is_that_started_it(socket: Path, tmp_path: Path) -> None:
    """In the group of the unit; one that has ended is nowhere."""
    run = await Launcher(socket).start(tmp_path / "runs/d1", run_spec(tmp_path, "d1", "sleep", "1000"))
    over = await Launcher(socket).start(tmp_path / "runs/d0", run_spec(tmp_path, "d0", "true"))
    await over.wait()

    pid = Witness(socket).listener()
    assert pid is not None
    seen = PlaceFacts(service=PERSON, runs=run_places(tmp_path / "runs"), launcher=membership(pid))
    assert [("d1", str(tmp_path))] == [(one.run, one.project) for one in seen.inside]
    assert not seen.kept
    assert PERSON.runs(pid)
    assert not MACHINE.runs(pid)

    limited = ExecuteSettings.model_validate({"memory_max": "4G"})
    assert not supervision.limit_facts(limited, pid, PERSON).launcher, (
        "that it is there is what has to be mended"
    )
    run.stop()
    await run.wait()
    assert () == run_places(tmp_path / "runs")
