"""Gathers the facts, each kind within a few seconds, and has them checked.

It changes nothing and takes no lock. While a daemon runs, doctor asks it about the projects; only without one
does doctor read the folders itself, and then only folders that answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

import handoffd
from handoffd.doctor import executors, finding, installation, machine, projects, supervision
from handoffd.doctor.finding import Begun, Finding
from handoffd.doctor.installation import open_to_others
from handoffd.doctor.service import (
    Service,
    Unit,
    elsewhere,
    ends_at_logout,
    installed,
    membership,
    path_in,
    service_of,
    unit_file_of,
    units_of,
)
from handoffd.errors import InvalidFile, Json, NoAnswer, NoDaemon, StoreError
from handoffd.execute.environment import child_environment
from handoffd.execute.registry import VERSION_S, ExecutorBook, Layer, load_book, shipped_layer
from handoffd.execute.witness import Witness
from handoffd.files.locks import daemon_lock_path, holder_of
from handoffd.settings.model import Settings
from handoffd.settings.paths import home as default_home
from handoffd.watch.backend import demand

ANSWER_S = 5.0
"""Limit for an answer of the daemon or of a disk."""
FOLDER_S = 2.0
"""How long a project's folder may take, while no daemon runs."""
_GRACE_S = 2.0
"""Extra time before doctor abandons all checks: a silent check should be reported by its name instead."""

Look = Callable[[Settings, frozenset[str]], Json]
"""Returns the status without a daemon; folders of the roots that are named do not answer."""


class Subject(Struct, frozen=True, kw_only=True):
    """What doctor examines. `settings` is None if they cannot be read; `invalid` has the errors then.

    `socket` is None when it cannot be known.
    """

    settings: Settings | None
    file: Path | None
    invalid: InvalidFile | None
    socket: Path | None
    environ: Mapping[str, str]
    look: Look
    config: str | None = None
    """The settings file, if it was named."""
    secret_files: tuple[Path, ...] = ()
    """The files that the settings name as `{file: PATH}`."""
    answer_s: float = ANSWER_S


class _Seen(Struct, frozen=True, kw_only=True):
    """The projects by status, and the projects whose folders do not answer."""

    projects: Sequence[Json] = ()
    silent: frozenset[str] = frozenset()
    known: bool = True


class _Looks(Struct, frozen=True, kw_only=True):
    """Checks that run concurrently: program versions, sinks, git, foreign hooks."""

    executors: Begun[executors.Chosen]
    notices: Begun[installation.SinkFacts]
    git: Begun[projects.GitFacts]
    hooks: Begun[projects.HookFacts]
    sandbox: Begun[machine.SandboxFacts]
    tests: Begun[tuple[projects.Lack, ...]]
    post_checks: Begun[tuple[Finding, ...]]


def examine(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings, with the checks in the order in which a user should fix them."""
    asked, facts = _first_looks(subject)
    there = installed(subject.environ, subject.config)
    service = service_of(asked.pid, there)
    units = units_of(there, subject.environ)
    return (
        *_settings(subject, asked),
        *_daemon(subject, asked, service, units),
        *_rest(subject, asked, facts, service),
        *supervision.check_supervision(
            supervision.supervision_facts(
                asked.pid, service, there, units, fleeting=ends_at_logout(there, subject.environ)
            )
        ),
        *_runs(subject, asked, service, units),
    )


def _settings(subject: Subject, asked: supervision.Asked) -> tuple[Finding, ...]:
    invalid = [subject.invalid] if subject.invalid else []
    told = () if asked.status is None else asked.status.get("warnings", ())
    looks = {"secrets": partial(open_to_others, subject.secret_files)}
    found = finding.answers(looks, FOLDER_S).get("secrets", ())
    return installation.check_settings(subject.file, invalid, told, found)


def _book(settings: Settings) -> ExecutorBook:
    return load_book(shipped_layer(), Layer(file="handoffd.yaml", definitions=settings.executors))


def _first_looks(subject: Subject) -> tuple[supervision.Asked, machine.StateFacts | OSError | None]:
    """Return what the daemon says, and how the state directory is (None: it is silent), asked at once."""
    looks: dict[str, Callable[[], Any]] = {}
    if subject.socket is not None:
        looks["daemon"] = partial(supervision.ask_daemon, subject.socket, subject.answer_s)
    if subject.settings is not None:
        looks["state"] = partial(_state_facts, subject.settings)
    found = finding.answers(looks, subject.answer_s + _GRACE_S)
    late = NoAnswer("the daemon does not answer", hint="handoffd status")
    return found.get("daemon", supervision.Asked(error=late)), found.get("state")


def _state_facts(settings: Settings) -> machine.StateFacts | OSError:
    try:
        return machine.state_facts(settings.state_dir, settings.journal)
    except OSError as error:
        return error


def _daemon(
    subject: Subject, asked: supervision.Asked, service: Service, units: tuple[Unit, Unit] | None
) -> tuple[Finding, ...]:
    if subject.socket is None:
        return ()
    settings = subject.settings
    facts = supervision.DaemonFacts(
        socket=str(subject.socket),
        asked=asked,
        own_version=handoffd.__version__,
        service=service,
        entries=supervision.socket_entries(subject.socket),
        holder=None if settings is None else _holder(settings),
        unit=None if units is None else units[0],
        others=() if service.unit is not None else elsewhere(subject.environ),
    )
    return supervision.check_daemon(facts)


def _holder(settings: Settings) -> int | None:
    path = daemon_lock_path(settings.state_dir)
    found = finding.answers({"lock": partial(holder_of, path)}, FOLDER_S).get("lock")
    return None if found is None else found.pid


def _rest(
    subject: Subject, asked: supervision.Asked, facts: machine.StateFacts | OSError | None, service: Service
) -> Iterator[Finding]:
    settings = subject.settings
    if settings is None:
        yield from projects.check_projects(asked.status["projects"]) if asked.status else ()
        return
    yield from _state(settings, facts)
    seen = _seen(subject, settings, asked, facts)
    begun = _begin(subject, settings, seen, asked.pid)
    if seen.known:
        yield from projects.check_projects(seen.projects, seen.silent)
    yield from machine.check_watches(_watch_facts(settings, seen, asked.pid))
    slots, most = settings.execute.slots, machine.most_files(asked.pid)
    yield from machine.check_descriptors(
        machine.FileFacts(projects=len(seen.projects), slots=slots, most=most, service=service, pid=asked.pid)
    )
    yield from _executors(begun, settings, seen, service)
    yield from _tests(begun, subject, seen, service)
    yield from begun.post_checks.within(subject.answer_s).get("post_checks", ())
    yield from _notices(begun, settings)
    yield from _surroundings(begun, subject, asked.pid, service)


def _runs(
    subject: Subject, asked: supervision.Asked, service: Service, units: tuple[Unit, Unit] | None
) -> Iterator[Finding]:
    """Yield what was found about limits of runs, and about what would end them."""
    settings = subject.settings
    if settings is None:
        return
    launcher = Witness(settings.launcher_socket, FOLDER_S).listener()
    yield from supervision.check_limits(supervision.limit_facts(settings.execute, launcher, service))
    if service.unit is None:
        return
    told = () if asked.status is None else asked.status["projects"]
    looks = {"runs": partial(supervision.run_places, settings.runs_dir)}
    facts = supervision.PlaceFacts(
        service=service,
        runs=finding.answers(looks, FOLDER_S).get("runs", ()),
        launcher=None if launcher is None else membership(launcher),
        unit=None if units is None else units[1],
        names={one["project"]: one.get("called") or one["project"] for one in told},
    )
    yield from supervision.check_runs(facts)


def _begin(subject: Subject, settings: Settings, seen: _Seen, pid: int | None) -> _Looks:
    """Start every check that waits for a program or a disk, so that they wait concurrently."""
    there = subject.environ if pid is None else executors.environment_of(pid)
    sinks = settings.notify.named()
    roots = [one["project"] for one in seen.projects if one["project"] not in seen.silent]
    home, path = default_home(subject.environ), path_of_checks(subject.environ, settings, pid)
    return _Looks(
        executors=Begun(_executor_looks(subject, settings, seen, pid)),
        notices=Begun(
            {name: partial(installation.sink_facts, name, sink, there) for name, sink in sinks.items()}
        ),
        git=Begun({"git": partial(projects.git_facts, roots, subject.environ)}),
        hooks=Begun({"hooks": partial(projects.hook_facts, home, roots)}),
        sandbox=Begun({"sandbox": partial(machine.sandbox_facts, settings.sandbox)}),
        tests=Begun({"tests": partial(projects.missing_for_tests, _test_commands(seen), path)}),
        post_checks=Begun({"post_checks": partial(executors.check_post_checks, _post_checks(seen), path)}),
    )


def _test_commands(seen: _Seen) -> dict[str, list[str]]:
    """Return what the tests of projects are run with, by root."""
    there = (one for one in seen.projects if one["project"] not in seen.silent)
    return {one["project"]: one["test_command"] for one in there if one.get("test_command")}


def _post_checks(seen: _Seen) -> dict[str, dict[str, str]]:
    there = (one for one in seen.projects if one["project"] not in seen.silent)
    return {one["project"]: one["post_checks"] for one in there if one.get("post_checks")}


def path_of_checks(environ: Mapping[str, str], settings: Settings, pid: int | None) -> str:
    """Return the PATH that the daemon gives checks; while none runs, that its service would give them."""
    of_unit = path_in(unit_file_of(environ)) if pid is None else None
    source = {"PATH": of_unit} if of_unit is not None else executors.environment_of(pid)
    return child_environment(source, settings.execute.env_allow)["PATH"]


def _tests(begun: _Looks, subject: Subject, seen: _Seen, service: Service) -> tuple[Finding, ...]:
    lacks = begun.tests.within(subject.answer_s).get("tests")
    terminal = projects.Terminal(path=subject.environ.get("PATH", ""))
    return () if lacks is None else projects.check_tests(lacks, len(_test_commands(seen)), terminal, service)


def _notices(begun: _Looks, settings: Settings) -> tuple[Finding, ...]:
    found = begun.notices.within(installation.APPRISE_S + _GRACE_S)
    facts = (found.get(name) or installation.silent_sink(name) for name in settings.notify.named())
    return installation.check_notices(settings.notify, tuple(facts))


def _surroundings(begun: _Looks, subject: Subject, pid: int | None, service: Service) -> Iterator[Finding]:
    """Yield what was found about the machine and the account, and what agents could do to projects."""
    seen = begun.git.within(subject.answer_s).get("git")
    yield from projects.check_git(seen) if seen is not None else ()
    scan = begun.hooks.within(FOLDER_S).get("hooks")
    yield from projects.check_hooks(scan) if scan is not None else ()
    if pid is not None and subject.settings is not None:
        yield from supervision.boots(pid, Witness(subject.settings.launcher_socket, FOLDER_S))
    yield from installation.check_account(installation.account_facts(pid, service))
    found = begun.sandbox.within(machine.TRY_S + _GRACE_S).get("sandbox")
    yield from machine.check_sandbox(found) if found is not None else ()


def _state(settings: Settings, facts: machine.StateFacts | OSError | None) -> tuple[Finding, ...]:
    folder = str(settings.state_dir)
    if facts is None:
        return (machine.silent_state(folder),)
    if isinstance(facts, OSError):
        return (machine.unseen_state(folder, facts),)
    return machine.check_state(facts, settings.execute.min_free_mb)


def _seen(
    subject: Subject, settings: Settings, asked: supervision.Asked, facts: machine.StateFacts | OSError | None
) -> _Seen:
    """Return the projects, from the daemon, else from the journal; `known` is false when neither tells."""
    if asked.status is not None:
        return _Seen(projects=asked.status["projects"])
    if not isinstance(facts, machine.StateFacts) or facts.error is not None:
        return _Seen(known=False)
    if not facts.roots:
        return _Seen(known=isinstance(asked.error, NoDaemon))
    listed = [{"project": root} for root in facts.roots]
    if not isinstance(asked.error, NoDaemon):
        return _Seen(projects=listed, known=False)
    answered = finding.answers({root: partial(_touch, root) for root in facts.roots}, FOLDER_S)
    silent = frozenset(facts.roots) - answered.keys()
    look = {"status": partial(subject.look, settings, silent)}
    try:
        status = finding.answers(look, subject.answer_s).get("status")
    except StoreError:
        status = None
    if status is None:
        return _Seen(projects=listed, silent=silent, known=False)
    return _Seen(projects=status["projects"], silent=silent)


def _touch(root: str) -> bool:
    """Have a folder answer, whatever it says."""
    return os.path.lexists(os.path.join(root, ".ai", "STATE.json"))


def _watch_facts(settings: Settings, seen: _Seen, pid: int | None) -> machine.WatchFacts:
    held = finding.answers({"held": partial(machine.watch_holders, os.geteuid())}, FOLDER_S).get("held")
    swept = {one["project"]: one["swept"] for one in seen.projects if one.get("swept")}
    return machine.WatchFacts(
        projects=len(seen.projects),
        demand=demand(len(seen.projects), settings.watch),
        limits=machine.watch_limits(),
        others=None if held is None else tuple(one for one in held if one.pid != pid),
        swept=swept,
        sweep_s=settings.watch.sweep_s,
    )


def _executor_looks(
    subject: Subject, settings: Settings, seen: _Seen, pid: int | None
) -> dict[str, Callable[[], executors.Chosen]]:
    try:
        book = _book(settings)
    except InvalidFile:
        return {}  # the findings about the settings name it
    keys = dict.fromkeys(settings.execute.keys, "given by the settings")
    environments = ({**executors.environment_of(pid), **keys}, subject.environ)
    users = executors.users_of(settings.executor, seen.projects)
    return {
        name: partial(executors.look_for, name, roots, book, settings.execute.env_allow, environments)
        for name, roots in users.items()
    }


def _executors(begun: _Looks, settings: Settings, seen: _Seen, service: Service) -> tuple[Finding, ...]:
    chosen = begun.executors.within(VERSION_S + _GRACE_S)
    silent = tuple(executors.silent_executor(name) for name in begun.executors.names if name not in chosen)
    choices = executors.choices_of(settings.executor, seen.projects)
    return (*executors.check_executors(tuple(chosen.values()), service, choices), *silent)
