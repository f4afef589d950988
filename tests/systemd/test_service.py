"""The service in both forms: what happens to an agent that works when something happens to the service.

What docs/explanation/survival.md promises, under a systemd that does what it does.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.eventually import eventually_sync
from tests.systemd.box import Mode
from tests.systemd.service import SECRET, Form, Service, Story


def killed(service: Service, unit: str, kill: Callable[[int], object]) -> None:
    """Kill the main process of a unit, and wait for the next one."""
    before, restarts = service.main_pid(unit), int(service.show(unit, "NRestarts"))
    kill(before)
    eventually_sync(lambda: int(service.show(unit, "NRestarts")) > restarts)
    eventually_sync(lambda: service.main_pid(unit) not in (0, before))
    eventually_sync(lambda: service.show(unit, "ActiveState") == "active")


def test_units(service: Service) -> None:
    """systemd accepts them; the exposure is at most 2.2, of an account's 1.7."""
    verified = service.analyze(
        f"verify {service.units}/{service.daemon}.service {service.units}/{service.launcher}.service"
    )
    assert ("", 0) == (verified.stderr, verified.returncode)

    if service.box.mode is Mode.MACHINE:
        assert service.exposure <= {Form.USER: 2.2, Form.SYSTEM: 1.7}[service.form]


def test_what_the_machine_cannot_do(service: Service) -> None:
    """`install` comments only that out; `doctor` finds no fault."""
    text = service.box.path(f"{service.units}/{service.daemon}.service").read_text(encoding="utf-8")
    doctor = service.types("handoffd doctor").stdout

    container, user = service.box.mode is Mode.CONTAINER, service.form is Form.USER
    assert (container and user) == bool(
        re.search("^#.*cannot do.*ProtectKernelLogs=yes$", text, re.MULTILINE)
    ), text
    assert (container and not user) == ("reads the boot id of the machine" in doctor), doctor
    assert "0 faults" in doctor, doctor


@pytest.mark.form(Form.SYSTEM)
def test_root_asks(service: Service, story: Story) -> None:
    """root's verbs name the command for the account's daemon."""
    answers = {
        "status": Path(story.path).name,
        "doctor": "1 project can be worked on",
        "service status": f"{service.daemon}.service: active",
    }
    for verb, answer in answers.items():
        said = service.administers(f"{service.program} {verb}")
        asked = re.search(r"next: +(sudo .*handoffd .*)", said.stdout + said.stderr)
        assert asked, f"{verb}: {said.stdout}{said.stderr}"
        # As it is typed where the program is on sudo's own PATH.
        told = service.administers(f"cd /; {asked[1].replace(' handoffd ', f' {service.program} ')}")
        assert answer in told.stdout, f"{asked[1]}: {told.stdout}{told.stderr}"


def test_restart(service: Service, story: Story) -> None:
    """The agent continues, its result counts, nothing starts twice."""
    before = service.main_pid(service.daemon)
    assert 0 == service.systemctl(f"restart {service.daemon}").returncode

    assert before != service.main_pid(service.daemon)
    story.goes_on()


def test_stop(service: Service, story: Story) -> None:
    """The agent continues; its hand-off counts at the next start."""
    assert 0 == service.systemctl(f"stop {service.daemon}").returncode
    assert "inactive" == service.show(service.daemon, "ActiveState")
    assert story.works
    story.finish()
    eventually_sync(lambda: not story.works)

    assert 0 == service.systemctl(f"start {service.daemon}").returncode
    assert "bdd" == story.after(1).step
    assert "pass" == story.runs[1]["result"]
    assert 2 == len(story.begun)


def test_reload(service: Service, story: Story) -> None:
    """New settings apply; with invalid ones reload fails and the old ones stay."""
    file = service.box.path(service.settings)
    good = file.read_text(encoding="utf-8")
    before, limit = service.main_pid(service.daemon), limit_of_claude(service)

    try:
        file.write_text(f"{good}scheduling: {{per_executor: {{claude: 3}}}}\n", encoding="utf-8")
        assert 0 == service.systemctl(f"reload {service.daemon}").returncode
        assert (None, 3) == (limit, limit_of_claude(service))
        file.write_text(f"{good}scheduling: {{per_executor: {{claude: many}}}}\n", encoding="utf-8")
        assert 0 != service.systemctl(f"reload {service.daemon}").returncode
        assert "per_executor" in service.log(service.daemon)
        assert 3 == limit_of_claude(service)
    finally:
        file.write_text(good, encoding="utf-8")

    assert "active" == service.show(service.daemon, "ActiveState")
    assert before == service.main_pid(service.daemon)
    assert 0 == service.systemctl(f"reload {service.daemon}").returncode
    assert limit_of_claude(service) is None
    story.goes_on()


def limit_of_claude(service: Service) -> int | None:
    """Return how many of it may run at a time, by the daemon's word."""
    limits = service.json("slots")["limits"]
    return next(
        (one["limit"] for one in limits if ["executor", "claude"] == [one["kind"], one["name"]]), None
    )


def test_watchdog(service: Service, story: Story) -> None:
    """It restarts a daemon that hangs (SIGSTOP); the agent continues."""
    with service.drop_in(service.daemon, "[Service]\nWatchdogSec=5\n"):
        killed(service, service.daemon, lambda pid: service.box.must(f"kill -STOP {pid}"))

    assert "Watchdog timeout" in service.log(service.daemon)
    story.goes_on()


def test_reload_of_the_launcher(service: Service, story: Story) -> None:
    """Another takes over, the agent continues, systemd warns of nothing."""
    pid, log = service.main_pid(service.launcher), service.log(service.launcher)
    before = children(service, pid)
    assert 0 == service.systemctl(f"reload {service.launcher}").returncode

    eventually_sync(lambda: children(service, pid) - before)
    assert pid == service.main_pid(service.launcher)
    story.goes_on()
    told = service.log(service.launcher).removeprefix(log)
    assert "Reloaded" in told
    assert "left-over process" not in told


def children(service: Service, pid: int) -> set[str]:
    """Return the children of a process of the box."""
    return set(service.box.must(f"ps -o pid= --ppid {pid}").split())


def test_two_reloads_of_the_launcher(service: Service, story: Story) -> None:
    """At once: the unit stays up, the agent continues."""
    pid, restarts = service.main_pid(service.launcher), service.show(service.launcher, "NRestarts")
    reload = f"{service.manager} reload {service.launcher}"
    assert 0 == service.administers(f"{reload} && {reload}").returncode

    story.goes_on()
    assert ("active", pid, restarts) == (
        service.show(service.launcher, "ActiveState"),
        service.main_pid(service.launcher),
        service.show(service.launcher, "NRestarts"),
    )


def test_restart_of_the_launcher(service: Service, story: Story) -> None:
    """The agent continues; the next launcher starts the next step."""
    before = service.main_pid(service.launcher)
    assert 0 == service.systemctl(f"restart {service.launcher}").returncode

    assert before != service.main_pid(service.launcher)
    story.goes_on()


def test_no_launcher(service: Service, story: Story) -> None:
    """The next agent ends with the daemon's unit; `doctor` reports it."""
    assert 0 == service.systemctl(f"stop {service.launcher}").returncode
    story.finish()
    agent = story.after(1)
    inside = f"1 run is in the daemon's own unit: {agent.run} of "
    hold = f" # and restart {service.daemon} only when it has ended"
    doctor = service.types("handoffd doctor").stdout
    assert inside in doctor, doctor
    (start,) = re.findall(f"next: (.*){re.escape(hold)}$", doctor, re.MULTILINE)
    assert f"    next: {start}\n" in doctor, "the same repairs the launcher"
    assert 0 == service.administers(start).returncode

    doctor = service.types("handoffd doctor").stdout
    assert inside in doctor
    assert f"next: handoffd doctor{hold}" in doctor
    assert 0 == service.systemctl(f"restart {service.daemon}").returncode
    again = story.after(2)
    assert (agent.step, True) == (again.step, agent.run != again.run)
    assert "the daemon's own unit" not in service.types("handoffd doctor").stdout


def test_kill_of_the_daemon(service: Service, story: Story) -> None:
    """systemd starts it again; the agent continues."""
    killed(service, service.daemon, lambda pid: service.box.must(f"kill -9 {pid}"))

    story.goes_on()


def test_kill_of_the_launcher(service: Service, story: Story) -> None:
    """The agent continues; the next launcher starts the next step."""
    killed(service, service.launcher, lambda pid: service.box.must(f"kill -9 {pid} $(pgrep -P {pid})"))

    story.goes_on()


def test_kill_of_the_shim(service: Service, story: Story) -> None:
    """The launcher ends the run's rest; the step repeats at no cost."""
    service.box.must(f"kill -9 $(ps -o ppid= -p {story.agent.pid})")

    story.is_begun_again()


def test_kill_of_all_three(service: Service, story: Story) -> None:
    """Of daemon, launcher and shim: the run's rest ends, the step repeats."""
    launcher = service.main_pid(service.launcher)
    service.box.must(
        f"kill -9 {service.main_pid(service.daemon)} {launcher} $(pgrep -P {launcher})"
        f" $(ps -o ppid= -p {story.agent.pid})"
    )

    story.is_begun_again()


def test_upgrade(service: Service, story: Story) -> None:
    """The agent continues, and hands over to the new daemon."""
    version = f"0.1.0+{service.form}"
    module = service.box.path("/opt/checkout/daemon/handoffd/__init__.py")
    text = module.read_text(encoding="utf-8")
    module.write_text(re.sub("(?m)^__version__ = .*", f'__version__ = "{version}"', text), encoding="utf-8")
    service.box.must("/opt/tested/bin/pip install --quiet --force-reinstall --no-deps /opt/checkout")
    assert 0 == service.systemctl(f"reload-or-restart {service.launcher}").returncode
    assert 0 == service.systemctl(f"restart {service.daemon}").returncode

    assert version in service.types("handoffd doctor").stdout
    story.goes_on()


def test_reboot(service: Service, story: Story) -> None:
    """The service starts by itself; the step repeats at no cost."""
    service.box.reboot()
    service.answers()

    story.is_begun_again()


def test_reboot_with_agents_that_leave_by_themselves(service: Service) -> None:
    """Agents exit on SIGTERM; their steps repeat at no cost."""
    with contextlib.ExitStack() as stories:
        begun = [
            stories.enter_context(contextlib.closing(Story(service, f"leaves-{code}", leaves=code)))
            for code in (143, 0)
        ]
        service.box.reboot()
        service.answers()

        for story in begun:
            story.is_begun_again()
            story.finish()
            assert "bdd" == story.after(2).step


@pytest.mark.form(Form.USER)
def test_last_logout(service: Service, story: Story) -> None:
    """`doctor` reports missing lingering; the agent ends, the next login repeats the step."""
    service.box.must(f"loginctl disable-linger {service.account}")
    try:
        assert "lingering is off" in service.service("status").stdout
        assert "lingering is off" in service.must("handoffd doctor")
        eventually_sync(lambda: service.account not in service.box.must("loginctl list-users --no-legend"))
        assert not story.works

        service.answers()
        story.is_begun_again()
    finally:
        service.box.must(f"loginctl enable-linger {service.account}")


def test_power_cut(service: Service, story: Story) -> None:
    """The service starts by itself; the step repeats at no cost."""
    service.box.cut_power()
    service.answers()

    story.is_begun_again()


def test_credentials(service: Service, story: Story) -> None:
    """The agent has the key; daemon, launcher and journal do not."""
    assert SECRET == story.key.strip()

    for unit in (service.daemon, service.launcher):
        environment = service.box.environment(service.main_pid(unit))
        assert environment
        assert SECRET not in "".join(environment)
        assert SECRET not in service.log(unit)


def test_purge(service: Service, story: Story) -> None:
    """Refused while an agent works; afterwards only the project is left."""
    refused = service.service("uninstall --purge")
    assert 1 == refused.returncode, refused.stdout
    assert story.works

    service.must("handoffd stop --executors")
    assert not story.works
    done = service.service("uninstall --purge")

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "" == service.systemctl("list-units --all --plain --no-legend 'handoffd*.service'").stdout
    assert [] == list(service.box.path(service.units).glob("handoffd*"))
    assert not service.box.path(service.state_dir).exists()
    assert service.box.path(f"{story.path}/.ai/STATE.json").exists()
