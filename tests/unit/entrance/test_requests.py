"""Requests to the daemon, the answers without one, and the reasons why no daemon answers."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import pytest
from tests.support.commands import environment
from tests.support.controlled import Controlled
from tests.support.hooking import daemon_saying
from tests.support.refusals import refused
from tests.unit.inspection.making import write_state

from handoffd.api.client import Client
from handoffd.doctor.service import Trouble, unit_file_of
from handoffd.engine.events import Noted
from handoffd.entrance.absence import absences, closing, explained
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, account, ask, either, give, say
from handoffd.errors import InvalidFile, Json, Locked, NoDaemon, NotFound
from handoffd.files.locks import acquire, daemon_lock_path


def _at(runtime: Path) -> Place:
    return Place(config=None, environ=environment(runtime))


def test_a_verb_goes_to_the_daemon(control: Controlled) -> None:
    """In the name of the account, as `id -un` prints it."""
    answer = give(_at(control.runtime), "note", "/srv/shop", {"text": "x"})

    assert answer.daemon
    assert pwd.getpwuid(os.getuid()).pw_name == account()
    assert [("/srv/shop", Noted(text="x", by=account()))] == control.supervision.given


def test_a_verb_is_asked_again_until_its_checks_have_ended() -> None:
    """The daemon answers before long ones have."""
    running, ended = ({"type": "applied", "checking": checking} for checking in (True, False))
    with daemon_saying(running, ended) as runtime:
        assert Answer(ended, daemon=True) == give(_at(runtime), "apply", "/srv/shop", {})


def test_without_a_daemon_this_process_answers(tmp_path: Path) -> None:
    """The answer tells that no daemon gave it."""
    answer = either(_at(tmp_path), lambda client: client.get("/v1/health"), lambda: {"type": "x"})

    assert Answer({"type": "x"}, daemon=False) == answer


def test_a_daemon_that_starts_meanwhile_is_asked(tmp_path: Path) -> None:
    """It takes the lock before it answers; a request waits for both."""
    answers: list[Json | Exception] = [NoDaemon("not yet"), NoDaemon("not yet"), {"type": "from the daemon"}]

    def ask(_: Client) -> Json:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def without() -> Json:
        raise Locked("a daemon starts")

    assert Answer({"type": "from the daemon"}, daemon=True) == either(_at(tmp_path), ask, without)


def test_other_errors_are_not_tried_again(tmp_path: Path) -> None:
    """An error without a daemon is raised at once."""
    tries = []

    def without() -> Json:
        tries.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  (any will do)
        either(_at(tmp_path), lambda client: client.get("/v1/health"), without)
    assert [1] == tries


def test_a_message_goes_to_the_daemon(control: Controlled) -> None:
    """The answer has what it meant."""
    answer = say(_at(control.runtime), "/srv/shop", "status?")

    assert (True, "query") == (answer.daemon, answer.json["action"])


def test_a_question_needs_no_daemon_and_leaves_nothing(alone: Path, tmp_path: Path) -> None:
    """Not even the folders of a journal."""
    (tmp_path / "shop").mkdir()
    answer = say(_at(alone), str(tmp_path / "shop"), "目前進度？")

    assert (False, "query") == (answer.daemon, answer.json["action"])
    assert not (alone / "state").exists()


def _query(runtime: Path, project: str) -> tuple[bool, Json]:
    answer = ask(_at(runtime), "query", project=project)
    return answer.daemon, answer.json


def test_the_daemon_inspects_a_folder(control: Controlled) -> None:
    """It knows the names of its projects."""
    daemon, told = _query(control.runtime, "shop")

    assert (True, "/srv/shop") == (daemon, told["root"])


def test_files_are_enough_to_inspect_a_folder(alone: Path) -> None:
    """By its path, and without leaving anything."""
    write_state(alone / "shop")
    before = sorted(alone.rglob("*"))

    daemon, told = _query(alone, str(alone / "shop"))

    assert (False, "US-005", False) == (daemon, told["story"], told["supervised"])
    with pytest.raises(NotFound):
        _query(alone, "shop")
    assert before == sorted(alone.rglob("*"))


@pytest.mark.parametrize(
    ("question", "given", "message"),
    [
        ("runs", {"limit": -1}, "limit must be a whole number from 0"),
        ("events", {"after": -5}, "after must be a whole number from 0"),
        ("usage", {"by": "month"}, "unknown by 'month' (allowed: step, "),
        ("peek", {}, "project is missing: "),
        (
            "runs",
            {"projct": "shop"},
            "unknown parameter 'projct' (allowed: flow, limit, project, since, step, story, until)",
        ),
        ("review", {"project": "shop", "language": "fr"}, "unknown language 'fr' (allowed: en, zh-TW)"),
    ],
)
def test_a_wrong_parameter_is_refused_alike_with_a_daemon_and_without(
    control: Controlled, alone: Path, question: str, given: Json, message: str
) -> None:
    """By the table of questions, in the same words."""
    for runtime in (control.runtime, alone):
        with refused("BAD_ARGUMENT", match=re.escape(message)):
            ask(_at(runtime), question, **given)


def test_a_parameter_that_is_empty_counts_as_left_out_in_both(control: Controlled, alone: Path) -> None:
    """As over HTTP."""
    assert "step" == ask(_at(control.runtime), "usage", by="").json["by"]
    assert "step" == ask(_at(alone), "usage", by="").json["by"]


# --- why no daemon answers ---------------------------------------------------------------------------
@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The place of a person whose service is installed; its systemctl prints the file `answer`."""
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    unit_file_of(environ).parent.mkdir(parents=True)
    unit_file_of(environ).touch()
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n", encoding="utf-8")
    (tmp_path / "systemctl").chmod(0o755)
    return Place(config=None, environ=environ)


def answers(place: Place, **shown: str) -> None:
    """Have systemctl print this about the daemon's unit."""
    lines = {"Id": "handoffd.service", "LoadState": "loaded", **shown}
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    Path(place.environ["HOME"], "answer").write_text(text, encoding="utf-8")


def test_without_a_service_the_program_is_started(tmp_path: Path) -> None:
    """In the terminal."""
    nowhere = Place(config=None, environ={"HOME": str(tmp_path)})
    assert "No daemon runs: `handoffd run` goes on from here." == closing(nowhere)


def test_settings_that_cannot_be_used_are_told_before_a_start_is_advised(tmp_path: Path) -> None:
    """The start would be refused; only a daemon's own checks know which names exist."""
    file = tmp_path / "own.yaml"
    file.write_text("executor: rehersal\n")
    place = Place(config=str(file), environ={"HOME": str(tmp_path)})
    broken = "No daemon runs: its settings cannot be used.\n  next: handoffd config check"
    assert broken == closing(place)

    file.write_text("executor: rehearsal\n")
    assert "No daemon runs: `handoffd run` goes on from here." == closing(place)


SILENT = "The daemon does not answer here"
STOPPED = Trouble(what="No daemon runs", why="", action="systemctl --user start handoffd")
WITHIN = {"XDG_RUNTIME_DIR": "/run/user/7"}


@pytest.mark.parametrize(
    ("shown", "environ", "absence"),
    [
        (None, {}, STOPPED),
        (
            {"ActiveState": "inactive"},
            {},
            STOPPED,
        ),
        (
            {"ActiveState": "activating", "NRestarts": "0"},
            {},
            Trouble(
                what="The daemon is not ready yet", why="handoffd is being started", action="handoffd status"
            ),
        ),
        (
            {"ActiveState": "active"},
            WITHIN,
            Trouble(what=SILENT, why="handoffd runs", action="handoffd doctor"),
        ),
        (
            {"ActiveState": "active"},
            {},
            Trouble(
                what=SILENT,
                why="handoffd runs, and this shell has no session of its own that would lead there",
                action="export XDG_RUNTIME_DIR=/run/user/$(id -u)",
            ),
        ),
    ],
    ids=["systemctl is silent", "stopped", "starting", "silent", "silent for a shell without a session"],
)
def test_the_next_command_follows_from_the_service(
    place: Place, shown: dict[str, str] | None, environ: dict[str, str], absence: Trouble
) -> None:
    """It never starts a second daemon beside an installed service."""
    if shown is not None:
        answers(place, **shown)

    assert (absence,) == absences(Place(config=None, environ={**place.environ, **environ}))


def test_a_service_that_failed_says_why(place: Place) -> None:
    """The next command is on a line of its own."""
    answers(place, ActiveState="failed", Result="exit-code", ExecMainStatus="203")
    first, second = closing(place).split("\n")
    assert first.startswith("No daemon runs: handoffd failed: its program cannot be executed")
    assert "  next: handoffd service install" == second


def test_settings_that_a_service_failed_for_name_its_start(place: Place) -> None:
    """At every request; a service that runs with earlier settings is not mentioned."""
    settings = Path(place.environ["HOME"], ".config/handoffd/handoffd.yaml")
    settings.parent.mkdir()
    settings.write_text("nonsense: 1\n", encoding="utf-8")

    def asked() -> InvalidFile:
        with pytest.raises(InvalidFile) as told:
            either(
                place,
                lambda client: client.get("/v1/status"),
                lambda: {"journal": str(place.settings().journal)},
            )
        return told.value

    answers(place, ActiveState="failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="78")
    failed = asked()
    answers(place, ActiveState="active")
    unaffected = asked()

    assert "handoffd failed because of its settings" in failed.message
    assert (failed.hint or "").endswith("# then: systemctl --user start handoffd")
    assert "handoffd failed" not in unaffected.message


def test_a_service_whose_socket_was_removed_is_started_again(place: Place) -> None:
    """Its main process holds the state directory, so the request did mean that daemon."""
    answers(place, ActiveState="active", MainPID=str(os.getpid()))
    within = Place(config=None, environ={**place.environ, **WITHIN})
    with acquire(daemon_lock_path(within.settings().state_dir), "the state directory"):
        silent, restart = closing(within).splitlines()

    socket = "/run/user/7/handoffd/control.sock"
    assert silent.endswith(f"handoffd runs, and nothing answers at {socket}, as after that was removed.")
    launcher = "systemctl --user reload-or-restart handoffd-launcher"
    assert f"  next: {launcher} && systemctl --user restart handoffd" == restart


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the services of other accounts")
def test_root_sees_each_service_of_the_machine(place: Place, tmp_path: Path) -> None:
    """With its state by systemd; the command for one that runs asks it, as its account."""
    unit_file_of(place.environ).unlink()
    units = {"failed": "bin", "active": "root"}
    for name in units.values():
        (tmp_path / f"handoffd@{name}.service").touch()
    answer = "".join(
        f"Id=handoffd@{name}.service\nLoadState=loaded\nActiveState={state}\nResult=start-limit-hit\n\n"
        for state, name in units.items()
    )
    (tmp_path / "answer").write_text(answer, encoding="utf-8")

    failed, start, runs, ask = closing(place, tmp_path).splitlines()
    assert failed.startswith("No daemon runs: handoffd@bin failed: it was started too often")
    unit = "handoffd@bin"
    assert f"  next: sudo systemctl reset-failed {unit} && sudo systemctl start {unit}" == start
    assert runs.startswith("The daemon does not answer here: handoffd@root is the service of root")
    assert ask.endswith(" handoffd status")


def test_an_error_gets_the_reason_and_the_command(place: Place) -> None:
    """Its code stays."""
    answers(place, ActiveState="failed", Result="exit-code", ExecMainStatus="78")
    error = explained(NoDaemon("no daemon answers at /x", hint="handoffd run"), place)
    assert error.message.startswith("no daemon answers at /x: handoffd failed: its settings cannot be used")
    assert (error.hint or "").endswith("  # then: systemctl --user start handoffd")
    assert "NO_DAEMON" == error.code
