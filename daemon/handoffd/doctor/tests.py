"""Whether the tests of projects can be run where the daemon runs them: with its PATH, not this terminal's.

By default only programs are looked for, which takes a moment. Running the tests themselves may take long
and load the machine, so that is done for a project that a person names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import Any, Final

from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.engine.commands import command_for
from handoffd.engine.usage import counted
from handoffd.execute.checks import read_bounded
from handoffd.inspection.suites import runner_missing

CHECK = "tests"

PROBE_S: Final = 3.0
"""How long an interpreter may take to say whether it has a module."""
_MOST_PROBES: Final = 20
_MOST_CHARS: Final = 60
_MOST_BYTES: Final = 64 * 1024
_MODULE: Final = re.compile(r"[A-Za-z_]\w{0,50}")
_NO_MODULE: Final = re.compile(r"No module named '?(?P<name>\w+)'?")
_PACKAGES: Final = {"npm": "npm", "npx": "npm", "pnpm": "pnpm", "yarn": "yarn", "bun": "bun"}
_NOT_FOUND: Final = "(exit code 127)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Where handoffd is typed, which may have more than the daemon has."""

    path: str

    def has(self, program: str) -> str | None:
        """Return where a program is found on this terminal's PATH."""
        return None if "/" in program else shutil.which(program, path=self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What the tests of some projects need and the daemon does not find.

    A program; a module of it, if it is a Python; or the `runner` that it starts, if it is npm or the like.
    """

    program: str
    projects: tuple[str, ...]
    path: str
    module: str | None = None
    runner: str | None = None


def gather(commands: Mapping[str, Sequence[str]], path: str) -> tuple[Lack, ...]:
    """Return what is missing on the daemon's `path` for the test commands of projects, by root."""
    users: dict[tuple[str, str | None], list[str]] = {}
    for root, command in commands.items():
        users.setdefault(_need(root, command), []).append(root)
    lacks, probes = [], 0
    for (program, module), roots in users.items():
        found = _found(program, path)
        if found is None:
            lacks.append(Lack(program=program, projects=tuple(roots), path=path))
        elif program in _PACKAGES:
            lacks += _without_runner(program, {root: commands[root] for root in roots}, path)
        elif module is not None and "/" in program:
            if not _environment_has(Path(program), module):
                lacks.append(Lack(program=program, module=module, projects=tuple(roots), path=path))
        elif module is not None and probes < _MOST_PROBES:
            probes += 1
            if not _has_module(found, module, path):
                lacks.append(Lack(program=program, module=module, projects=tuple(roots), path=path))
    return tuple(lacks)


def _without_runner(program: str, commands: Mapping[str, Sequence[str]], path: str) -> Iterator[Lack]:
    """Yield the packages that lack what their tests are run with."""
    for root, command in commands.items():
        runner = runner_missing(Path(root), command)
        if runner is not None and _found(runner, path) is None:
            yield Lack(program=program, runner=runner, projects=(root,), path=path)


def check(lacks: Sequence[Lack], count: int, terminal: Terminal, service: Service) -> tuple[Finding, ...]:
    """Return what keeps tests from being run; `count` projects name a command for theirs."""
    if lacks:
        return tuple(_missing(lack, terminal, service) for lack in lacks)
    return (
        (fine(CHECK, f"what the tests of {counted(count, 'project')} need is in the daemon's PATH"),)
        if count
        else ()
    )


def judge(tried: Mapping[str, Any], terminal: Terminal, service: Service) -> Finding:
    """Return what came of running a project's tests once; `tried` is what the daemon answers."""
    root, command = str(tried["project"]), tried["command"]
    if command is None:
        action = (
            f"${{EDITOR:-vi}} {quote(root)}/.ai/handoffd.yaml && {command_for(root, 'trust')}  # test.command"
        )
        why = "an agent's word counts, since no tests are measured"
        return warning(CHECK, f"{root} has no test command", why, action)
    if tried["fault"] is not None:
        return _fault(tried, terminal, service)
    ran, took = shown(command), f"{tried['seconds']:g} s"
    if tried["timed_out"]:
        return fine(CHECK, f"{ran} can be started; it was ended after {took}, checks may take longer")
    tests = tried["tests"]
    if tests is not None:
        counts = f"{tests['pass']} pass, {tests['fail']} fail, {tests['skip']} skipped"
        known = "; those that fail now are known failures from then on" if tests["fail"] else ""
        return fine(CHECK, f"{ran} works in the daemon's environment: {counts} (in {took}){known}")
    if tried["passed"]:
        return fine(CHECK, f"{ran} works in the daemon's environment: exit code 0 (in {took})")
    what = f"{ran} fails in the daemon's environment: {', '.join(tried['failing'])}"
    why = (
        tried["line"]
        or "it printed nothing; from an exit code alone no failure can be told from an older one"
    )
    return warning(CHECK, what, why, _by_hand(root, command))


def shown(command: Sequence[str]) -> str:
    """Return a test command without the options that are there for its report."""
    words = list(command)
    end = next((at for at, word in enumerate(words) if at and word.startswith("-") and word != "-m"), None)
    text = join(words[:end])
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def _fault(tried: Mapping[str, Any], terminal: Terminal, service: Service) -> Finding:
    root, command, path = str(tried["project"]), list(tried["command"]), str(tried["path"])
    program, module = _need(root, command)
    if _found(program, path) is None:
        return _missing(Lack(program=program, projects=(root,), path=path), terminal, service)
    named = _NO_MODULE.search(tried["line"] or "")
    if module is not None and named is not None and named["name"] == module:
        return _missing(Lack(program=program, module=module, projects=(root,), path=path), terminal, service)
    what = f"{shown(command)} proves nothing in the daemon's environment: {tried['fault']}"
    manager = _PACKAGES.get(command[0])
    if manager is not None and _NOT_FOUND in tried["fault"] and not Path(root, "node_modules").exists():
        return fault(CHECK, what, tried["line"], f"cd {quote(root)} && {manager} install")
    return fault(CHECK, what, tried["line"], _by_hand(root, command))


def _missing(lack: Lack, terminal: Terminal, service: Service) -> Finding:
    users = lack.projects[0] if len(lack.projects) == 1 else counted(len(lack.projects), "project")
    first = lack.projects[0]
    edit = f"${{EDITOR:-vi}} {quote(first)}/.ai/handoffd.yaml && {command_for(first, 'trust')}"
    here = terminal.has(lack.program)
    if lack.runner is not None:
        why = f"its tests are run with it, and neither node_modules nor the PATH has it: {lack.path}"
        install = f"cd {quote(first)} && {_PACKAGES[lack.program]} install"
        return fault(CHECK, f"{lack.runner} is not installed in {first}", why, install)
    if lack.module is not None:
        return _no_module(
            lack, lack.module, users, edit, here if here and terminal.path != lack.path else None
        )
    needed = f"the tests of {users} are run with it"
    if "/" in lack.program:
        why = f"{needed}, and it is not there or not executable"
        return fault(CHECK, f"{lack.program} cannot be run", why, f"{edit}  # test.command")
    what = f"{lack.program} is not in the daemon's PATH"
    if here is not None:
        why = f"{needed}; it is {here} in this terminal; the daemon gives checks the PATH {lack.path}"
        return fault(CHECK, what, why, service.mend_path)
    action = f"command -v {quote(lack.program)} || {edit}  # install it, or name another test.command"
    return fault(CHECK, what, f"{needed}; no folder of the PATH has it: {lack.path}", action)


def _no_module(lack: Lack, module: str, users: str, edit: str, here: str | None) -> Finding:
    found = _found(lack.program, lack.path) or lack.program
    what = f"{found} has no module {module}"
    if "/" in lack.program:  # the project's own
        why = f"the tests of {users} are run with it"
        return fault(CHECK, what, why, f"{quote(found)} -m pip install {module}")
    what = f"{module} is not in the daemon's PATH: {what}"
    why = f"the tests of {users} are run with it; the daemon gives checks the PATH {lack.path}"
    if here is not None and here != found and _has_module(here, module, lack.path):
        why = f"{why}; {here}, the {lack.program} of this terminal, has it"
        return fault(CHECK, what, why, f"{edit}  # test.command: [{here}, -m, {module}, ...]")
    return fault(CHECK, what, why, f"{quote(found)} -m pip install {module}")


def _need(root: str, command: Sequence[str]) -> tuple[str, str | None]:
    """Return the program of a command as it is started, and the module that it runs if it is a Python."""
    program = str(Path(root, command[0])) if "/" in command[0] else command[0]
    is_python = os.path.basename(program).startswith("python")
    module = command[2] if is_python and len(command) > 2 and command[1] == "-m" else None
    return program, module if module is not None and _MODULE.fullmatch(module) else None


def _found(program: str, path: str) -> str | None:
    return shutil.which(program, path=path)


def _environment_has(python: Path, module: str) -> bool:
    """Return whether a project's virtual environment has a module, by its files; also when they do not say.

    Its interpreter is the project's own, and who asks for a look starts nothing of a project.
    """
    environment = python.parent.parent
    text = read_bounded(environment / "pyvenv.cfg", _MOST_BYTES)
    if text is None or re.search(rb"include-system-site-packages\s*=\s*true", text, re.IGNORECASE):
        return True
    folders = [*environment.glob("lib*/python3*/site-packages")][:_MOST_PROBES]
    names = (module, f"{module}.py")
    return not folders or any((folder / name).exists() for folder in folders for name in names)


def _has_module(python: str, module: str, path: str) -> bool:
    """Return whether a Python has a module; also when it does not say so in time."""
    look = f"import importlib.util, sys; sys.exit(7 * (importlib.util.find_spec({module!r}) is None))"
    try:
        ended = subprocess.run(
            [python, "-c", look], env={"PATH": path, "HOME": os.environ.get("HOME", "/")}, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return True
    return ended.returncode != 7


def _by_hand(root: str, command: Sequence[str]) -> str:
    """Return what runs the tests in a terminal; their report goes nowhere."""
    return f"cd {quote(root)} && {join(word.replace('{report}', '/dev/null') for word in command)}"
