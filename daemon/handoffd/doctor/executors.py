"""Whether chosen executors are installed, answer and have a login, and programs of post_checks are there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote, shlex
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.engine.wording import command_for, counted
from handoffd.errors import NotFound
from handoffd.execute.environment import child_environment
from handoffd.execute.executor import Executor
from handoffd.execute.registry import (
    AUTO,
    ExecutorBook,
    Installation,
    candidates_of,
    found_at,
    look,
    names_in,
    no_agent,
    program_of,
)
from handoffd.settings.model import ExecutorChoice

EXECUTORS = "executors"


class Chosen(Struct, frozen=True, kw_only=True):
    """An executor by name: its program and where that is found on `path`, the PATH that it would get.

    `here` is where this terminal finds the program. `unknown` says why there is no executor of that name.
    `install` is what a person types to have the program, where that is known.
    `state` is what one that was found says of itself, where it has answered in time.
    """

    name: str
    projects: Sequence[str] = ()
    program: str = ""
    found: str | None = None
    here: str | None = None
    path: str = ""
    unknown: str | None = None
    install: str | None = None
    state: tuple[Finding, ...] = ()


def users_of(default: ExecutorChoice, projects: Iterable[Mapping[str, object]]) -> dict[str, list[str]]:
    """Return the roots of the projects by the executor that they use; the default ones are always there.

    `projects` come from `status`; an older daemon does not send the choices of their own settings.
    """
    users: dict[str, list[str]] = {name: [] for name in names_in(default)}
    for project in projects:
        for name in _choice_of(default, project):
            users.setdefault(name, []).append(str(project["project"]))
    return users


def choices_of(
    default: ExecutorChoice, projects: Iterable[Mapping[str, object]]
) -> frozenset[tuple[str, ...]]:
    """Return the executors that each project, and the default, can choose from."""
    return frozenset({names_in(default), *(_choice_of(default, project) for project in projects)})


def _choice_of(default: ExecutorChoice, project: Mapping[str, object]) -> tuple[str, ...]:
    own = str(project.get("executor") or "")
    return tuple(own.split(", ")) if own else names_in(default)


def look_for(
    name: str,
    projects: Sequence[str],
    book: ExecutorBook,
    allowed: Sequence[str],
    environments: tuple[Mapping[str, str], Mapping[str, str]],
) -> Chosen:
    """Return whether an executor's program is there. `environments`: the daemon's, and this terminal's."""
    try:
        executor = _any_agent(book, environments[0], allowed) if name == AUTO else book.get(name)
    except NotFound as error:
        return Chosen(name=name, projects=projects, unknown=error.message)
    found, here = (found_at(executor, one, allowed) for one in environments)
    environment = child_environment(environments[0], allowed, executor.env)
    return Chosen(
        name=name,
        projects=projects,
        program=program_of(executor),
        found=found,
        here=here,
        path=environment["PATH"],
        install=executor.install,
        state=check_executor(executor, look(executor, environment)) if found is not None else (),
    )


def _any_agent(book: ExecutorBook, environment: Mapping[str, str], allowed: Sequence[str]) -> Executor:
    """Return what `auto` chooses; raises NotFound without any agent."""
    found = candidates_of((AUTO,), book, lambda one: found_at(one, environment, allowed) is not None)
    agent = next((one for one in found if isinstance(one, Executor)), None)
    if agent is None:
        raise no_agent(book)
    return agent


def environment_of(pid: int | None) -> Mapping[str, str]:
    """Return the environment that the daemon of process `pid` was started with, else our own."""
    if pid is None:
        return os.environ
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return os.environ
    pairs = (os.fsdecode(word).partition("=") for word in raw.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def check_executors(
    chosen: Sequence[Chosen], service: Service, choices: Collection[Sequence[str]] = ()
) -> tuple[Finding, ...]:
    """Return which executors cannot be started, or have something amiss; nothing of none at all.

    An executor that no project uses is not a fault if there are projects; nor is a missing executor if
    each of its `choices` has another one that is installed.
    """
    used = any(one.projects for one in chosen)
    there = {one.name for one in chosen if one.found is not None}
    needed = {name for choice in choices if there.isdisjoint(choice) for name in choice}
    spare = {name for choice in choices for name in choice} - needed
    missing = [
        _missing(one, service, serious=_stops_work(one, spare, used=used))
        for one in chosen
        if one.found is None
    ]
    amiss = [_amiss(state) for one in chosen for state in one.state if state.severity != "ok"]
    names = ", ".join(f"{one.name} ({_where(one)})" for one in chosen)
    return (*missing, *amiss) or ((fine(EXECUTORS, names),) if chosen else ())


def silent_executor(name: str) -> Finding:
    """Return the finding for an executor whose check timed out."""
    why = "its program, or a disk that it is on, does not answer"
    return warning(
        EXECUTORS, f"{name}: nothing could be found out", why, f"handoffd executors check {quote(name)}"
    )


def _amiss(state: Finding) -> Finding:
    """Return a finding of an executor's own check as a finding of this check."""
    return replace(state, check=EXECUTORS, what=f"{state.check}: {state.what}")


def _where(one: Chosen) -> str:
    return next((state.what for state in one.state if state.severity == "ok"), str(one.found))


def _stops_work(one: Chosen, spare: Container[str], *, used: bool) -> bool:
    """Return whether a missing executor prevents work; an unknown name always does."""
    return bool(one.projects or not used) and (one.unknown is not None or one.name not in spare)


def _missing(one: Chosen, service: Service, *, serious: bool) -> Finding:
    tell = fault if serious else warning
    users = f", which {_count(one.projects)}" if one.projects else ""
    if one.unknown is not None:
        return tell(EXECUTORS, f"there is no executor {one.name}{users}", one.unknown, "handoffd config show")
    what = f"{one.program}, the program of the executor {one.name}{users}, is not found"
    if one.here is not None:
        why = f"it is {one.here} in this terminal; the daemon gives executors the PATH {one.path}"
        return tell(EXECUTORS, what, why, service.mend_path)
    why = f"no folder of the PATH that executors get has it: {one.path}"
    look = f"command -v {one.program} || handoffd config show  # install it, or choose another executor"
    return tell(EXECUTORS, what, why, one.install or look)


def _count(projects: Sequence[str]) -> str:
    return (
        f"{projects[0]} uses"
        if len(projects) == 1
        else counted(len(projects), "project uses", "projects use")
    )


# --- one executor on this machine ---------------------------------------------------------------------
def check_executor(executor: Executor, installation: Installation) -> tuple[Finding, ...]:
    """Return what was found about one executor, under its name; one finding when all is well."""
    found = tuple(_findings(executor, installation))
    version = f" {installation.version}" if installation.version else ""
    return found or (fine(executor.name, f"{installation.found}{version}"),)


def _findings(executor: Executor, installation: Installation) -> Iterator[Finding]:
    name, program = executor.name, installation.program
    if installation.found is None:
        why = f"no folder of the PATH that it gets has it: {installation.path}"
        yield fault(name, f"{program} is not found", why, executor.install or f"command -v {quote(program)}")
        return
    if installation.version_error is not None:
        call = " ".join(map(quote, executor.version or ()))
        yield fault(name, f"`{call}` fails", installation.version_error, executor.install or call)
    if installation.logged_in is False and executor.login is not None:
        login = executor.login
        why = f"none of these is there: {', '.join((*login.env, *login.files))}"
        yield warning(name, "no login was found", why, login.command or f"{quote(program)} --help")
    for path in installation.unwritable:
        why = "it keeps its sessions and settings there"
        yield fault(name, f"{path} cannot be written", why, f"ls -ld {_shown(path)}")
    for variable in installation.empty:
        why = "an agent may take that for a key, or for an address"
        yield warning(name, f"{variable} is set, but empty", why, f"unset {variable}")


def _shown(path: str) -> str:
    """Return the folder that is written for a shell, which fills in its variables."""
    folder = path.rpartition("/")[0] if path.endswith("*") else path
    # Between quotes a shell takes ~ for itself.
    return folder if folder.startswith("~") else '"' + folder.replace(":-~", ":-$HOME") + '"'


# --- post_check: whether the programs that a step table starts after a step are there for the daemon --
# One that is missing fails every attempt of the step, all night. The text of a command is read as a shell
# would split it, and nothing is run: it may be an agent's. Where the text does not tell, nothing is reported.
_MOST_STARTED: Final = 20
"""Programs of one command that are looked up."""
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_GOES_ON: Final = frozenset({"!", "do", "elif", "else", "exec", "if", "then", "time", "until", "while", "{"})
_CHANGES_PATH: Final = frozenset({".", "case", "eval", "export", "for", "function", "source"})
"""After these, the text does not tell any more which program is meant, or on which PATH."""
_OF_THE_SHELL: Final = frozenset(
    {"cd", "command", "done", "exit", "fi", "read", "set", "trap", "ulimit", "umask", "unset", "wait", "}"}
)  # fmt: skip


def programs_of(command: str) -> tuple[str, ...]:
    """Return the programs that a shell would look up on its PATH for a command, without repetitions."""
    words = shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    try:
        return tuple(dict.fromkeys(_started(list(words))))[:_MOST_STARTED]
    except ValueError:
        return ()  # of quotes that do not end


def _started(words: list[str]) -> Iterator[str]:
    begins = True
    for word in words:
        if set(word) <= set("();<>|&"):
            begins = not set(word) & set("<>")
        elif begins and (word in _CHANGES_PATH or word.startswith("PATH=")):
            return
        elif begins and word not in _GOES_ON and "=" not in word:
            begins = False
            if _PROGRAM.fullmatch(word) and word not in _OF_THE_SHELL:
                yield word


def check_post_checks(checks: Mapping[str, Mapping[str, str]], path: str) -> tuple[Finding, ...]:
    """Return which programs are not on the daemon's `path`; `checks`: the commands of steps, by root."""
    return tuple(one for root, steps in checks.items() for one in _not_started(root, steps, path))


def _not_started(root: str, steps: Mapping[str, str], path: str) -> Iterator[Finding]:
    users: dict[str, list[str]] = {}
    for step, command in steps.items():
        for program in programs_of(command):
            users.setdefault(program, []).append(step)
    for program, of in users.items():
        if shutil.which(program, path=path) is None:
            yield _no_program(root, program, of, path)


def _no_program(root: str, program: str, steps: list[str], path: str) -> Finding:
    step = steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
    why = f"the post_check of {step} in {root} starts it, so each attempt fails; it gets the PATH {path}"
    local = Path(root, "node_modules/.bin", program).exists()
    remedy = f"npx {program}, as node_modules has it" if local else f"another command, or install {program}"
    edit = f"${{EDITOR:-vi}} {quote(root)}/.ai/step-rules.yaml && {command_for(root, 'trust')}"
    return fault(
        "post_check", f"{program} is not in the daemon's PATH", why, f"{edit}  # post_check: {remedy}"
    )
