"""Which projects cannot be worked on, and what of agents' work there could not be checked or taken back.

By default only programs are looked for, which takes a moment. Running the tests themselves may take long
and load the machine, so that is done for a project that a person names.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, starmap
from pathlib import Path
from shlex import join, quote
from typing import Any, Final

from msgspec import Struct

from handoffd.doctor.finding import Finding, Severity, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.engine.wording import command_for, counted, first_few, repair_command, shortened
from handoffd.errors import InvalidFile, StoreError
from handoffd.execute.checks import read_bounded
from handoffd.files.rooted import open_file
from handoffd.git.repository import repository_of
from handoffd.hooks.claude_settings import LOCAL, MAX_BYTES, SHARED, Found, commands, is_ours
from handoffd.inspection.suites import runner_missing
from handoffd.protocol.rules import REWRITTEN

PROJECTS = "projects"

_SEVERITY: Mapping[str, Severity] = {
    "not_initialized": "warning",
    "invalid_rules": "warning",  # the daemon keeps the last valid ones
    "locked": "warning",
    "unfinished_git": "warning",
}
"""Conditions of a project that is not broken; under any other condition it cannot go on."""

_WHAT: Mapping[str, str] = {
    "not_initialized": "has no STATE.json",
    "invalid_state": "has a STATE.json that cannot be read",
    "invalid_rules": "has settings or a step table that cannot be used",
    "invalid_journal": "has a record in the journal that was changed outside handoffd",
    "unfinished_git": "has a repository in the middle of a merge or the like",
    "missing": "is gone",
    "io_error": "cannot be read or written",
    "locked": "is in use by another process or handoffd",
}


def check_projects(
    projects: Sequence[Mapping[str, Any]], silent: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return a finding for each faulty project. `projects` are from `status`, `silent` do not answer."""
    found = [_silent_project(one["project"]) for one in projects if one["project"] in silent]
    found += [_unwell(one) for one in projects if one["project"] not in silent and one["condition"] != "ok"]
    well = len(projects) - len(found)
    count = counted(well, "project")
    return (*found, fine(PROJECTS, f"{count} can be worked on")) if well or not found else tuple(found)


def _unwell(project: Mapping[str, Any]) -> Finding:
    root, condition = str(project["project"]), str(project["condition"])
    return Finding(
        check=PROJECTS,
        severity=_SEVERITY.get(condition, "fault"),
        what=f"{root} {_WHAT.get(condition, condition)} ({condition})",
        why=project["detail"],
        action=repair_command(root, condition) or command_for(root, "status"),
    )


def _silent_project(root: str) -> Finding:
    why = "its disk does not answer; a network mount may have lost its server"
    what = f"{root} cannot be read (io_error)"
    return Finding(check=PROJECTS, severity="fault", what=what, why=why, action=f"stat {quote(root)}")


# --- git, which shows and undoes agents' changes -----------------------------------------------------
GIT = "git"

_ANSWER_S = 2.0
_NAMED = 3
"""Projects that are named; of more, their number says enough."""


class GitFacts(Struct, frozen=True, kw_only=True):
    """`version` is None when git is not found or silent; `loose` are roots outside of repositories.

    `kept` has the files, by root, that git keeps and handoffd rewrites; `skipped` what applies to a person's
    commits there and not to the daemon's.
    """

    version: str | None
    loose: Sequence[str] = ()
    kept: Mapping[str, Sequence[str]] = {}
    skipped: Mapping[str, Sequence[str]] = {}


def git_facts(roots: Sequence[str], environ: Mapping[str, str]) -> GitFacts:
    """Return what there is of git. Looks into the folders of `roots` and above."""
    there = [root for root in roots if os.path.isdir(root)]
    loose = tuple(root for root in there if repository_of(root) is None)
    kept = {root: _kept_by_git(root, environ) for root in there if root not in loose}
    skipped = {root: _skipped(root, environ) for root in there if root not in loose}
    return GitFacts(
        version=_said(("--version",), environ),
        loose=loose,
        kept={root: names for root, names in kept.items() if names},
        skipped={root: names for root, names in skipped.items() if names},
    )


def check_git(facts: GitFacts) -> tuple[Finding, ...]:
    """Return what of the agents' work could not be taken back."""
    if facts.version is None:
        why = "what an agent has changed can then be neither looked at nor taken back"
        return (warning(GIT, "git is not found", why, "sudo apt install git"),)
    found = (*_loose(facts.loose), *starmap(rewritten, islice(facts.kept.items(), _NAMED)))
    noted = tuple(starmap(unlike_yours, islice(facts.skipped.items(), _NAMED)))
    return (*(found or (fine(GIT, facts.version),)), *noted)


def _loose(roots: Sequence[str]) -> Iterator[Finding]:
    if roots:
        what = f"{first_few(roots, _NAMED)} {'is' if len(roots) == 1 else 'are'} in no git repository"
        why = "what an agent has changed there can be neither looked at nor taken back"
        yield warning(GIT, what, why, f"git -C {quote(roots[0])} init")


def rewritten(root: str, names: Sequence[str], *, ignored: bool = False) -> Finding:
    """Return how to take out of git what is never clean; `ignored`: `init` has written what keeps it out."""
    what = f"{root}: {first_few(names, _NAMED)} {'is' if len(names) == 1 else 'are'} kept by git"
    why = "handoffd rewrites that all the time, so that git status is never clean"
    untrack = shlex.join(["git", "-C", root, "rm", "-r", "--quiet", "--cached", *names])
    return warning(GIT, what, why, untrack if ignored else f"{command_for(root, 'init')} && {untrack}")


def unlike_yours(root: str, names: Sequence[str]) -> Finding:
    """Return what of a person's commits the daemon's are without: it runs no program that a project names."""
    return fine(GIT, f"{root}: commits and merges by handoffd are without {first_few(names, _NAMED)}")


_HOOKS = (
    "applypatch-msg", "commit-msg", "post-commit", "post-merge", "pre-commit", "pre-merge-commit",
    "prepare-commit-msg", "reference-transaction",
)  # fmt: skip


def _skipped(root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the signature and the hooks that a commit of a person's has there."""
    signs = _said(("-C", root, "config", "--type=bool", "--get", "commit.gpgSign"), environ) == "true"
    folder = _said(("-C", root, "rev-parse", "--git-path", "hooks"), environ) or ""
    hooks = [os.path.join(root, folder, name) for name in _HOOKS] if folder else []
    names = [os.path.basename(path) for path in hooks if os.access(path, os.X_OK)]
    return (*(["a signature (commit.gpgSign)"] if signs else []), *(f"the hook {name}" for name in names))


def _kept_by_git(root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what git keeps of the files that handoffd rewrites in a project, a folder for all that is in it.

    The repository's own settings are an agent's to write: none that starts a program takes effect.
    """
    words = ("-C", root, "-c", "core.fsmonitor=false", "ls-files", "-z", "--", *REWRITTEN)
    listed = (_said(words, environ) or "").split("\0")
    return tuple(name for name in REWRITTEN if any(one.startswith(name) for one in listed))


def _said(words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return what git prints; None if it is not found, fails or is silent."""
    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


# --- hooks of others, in Claude Code's settings, that write STATE.json --------------------------------
HOOKS = "hooks"
# Two writers of one STATE.json undo each other's work: handoffd holds an edit from outside, restores its own
# state, or takes the edit for the user's. Few users look for that in a settings file, or in a project's.

_SUSPECT = re.compile(r"STATE\.json|orchestrator|apply-handoff|\bdispatch\b")
_SUSPECT_SCRIPT = re.compile(r"STATE\.json|\borchestrator\b|apply-handoff")
_FOLDER = re.compile(r"\$\{?CLAUDE_PROJECT_DIR\}?/*")
_HOME = re.compile(r"^(?:~|\$HOME|\$\{HOME\})(?=/)")
_BETWEEN = re.compile(r"[;&|()`<>\n]+")
"""What ends a simple command in a shell, or a part of it that names a file."""
_AROUND = re.compile(r"[\s;&|()`<>\"'=]+")
_MOST_WORDS = 100
_SCRIPT_BYTES = 64 * 1024
_SHOWN = 120
_WHY = "it may write STATE.json, which handoffd writes: the one then undoes what the other did"


class Foreign(Struct, frozen=True):
    """One hook of others, and the settings file it is in."""

    file: str
    hook: Found


class HookFacts(Struct, frozen=True):
    """What was found in settings files.

    `unreadable` are files that could not be understood, and why; `unseen` files that were not opened.
    """

    foreign: Sequence[Foreign] = ()
    unreadable: Sequence[InvalidFile] = ()
    unseen: Sequence[str] = ()


def hook_facts(home: str, roots: Sequence[str]) -> HookFacts:
    """Return the suspect hooks of a person and of projects. Reads files below `home` and `roots`."""
    foreign, unreadable, unseen = [], [], []
    for folder in dict.fromkeys((home, *roots)):
        for name in (SHARED, LOCAL):
            try:
                foreign += list(_in_file(folder, name, home))
            except InvalidFile as invalid:
                unreadable.append(invalid)
            except StoreError:  # a link or a pipe: not one that we follow
                if os.path.lexists(file := os.path.join(folder, name)):
                    unseen.append(file)
    return HookFacts(foreign=tuple(foreign), unreadable=tuple(unreadable), unseen=tuple(unseen))


def check_hooks(facts: HookFacts) -> tuple[Finding, ...]:
    """Return a warning for each hook that gets in the way, and for each file that was not understood."""
    found = (
        *map(_invalid, facts.unreadable),
        *map(_unseen_file, facts.unseen),
        *map(_foreign, facts.foreign),
    )
    return found or (fine(HOOKS, "no hook beside handoffd's writes STATE.json"),)


def _foreign(one: Foreign) -> Finding:
    command = "".join(sign if sign.isprintable() else "?" for sign in one.hook.command)
    shown = command if len(command) <= _SHOWN else f"{command[: _SHOWN - 1]}…"
    what = f"{one.file} has a hook at {one.hook.event} that is not handoffd's: {shown}"
    return warning(HOOKS, what, _WHY, f"${{EDITOR:-vi}} {quote(one.file)}")


def _invalid(invalid: InvalidFile) -> Finding:
    problem = invalid.problems[0]
    why = "Claude Code cannot read it either: none of the hooks in it is run"
    return warning(HOOKS, str(problem), why, f"${{EDITOR:-vi}} {quote(problem.file)}")


def _unseen_file(file: str) -> Finding:
    what = f"{file} was not read: it is behind a symbolic link, or not a readable regular file"
    why = "Claude Code may run hooks from it, and doctor cannot see whether one writes STATE.json"
    return warning(HOOKS, what, why, f"ls -lL {quote(file)}")


def _in_file(folder: str, name: str, home: str) -> Iterator[Foreign]:
    text = _text(folder, name, MAX_BYTES)
    if not text.strip():
        return
    file = os.path.join(folder, name)
    for hook in commands(text, file):
        if not is_ours(hook.command) and _is_suspect(hook.command, folder, home):
            yield Foreign(file, hook)


def _is_suspect(command: str, root: str, home: str) -> bool:
    """Return whether a command, or a script that it names, mentions files of the protocol.

    A script is looked for in the project and in the home.
    """
    if any(_SUSPECT.search(part) and not _calls_us(part) for part in _BETWEEN.split(command)):
        return True
    named = dict.fromkeys((*_words(command), *_AROUND.split(command)))
    scripts = (_FOLDER.sub("", _HOME.sub(lambda _: home, word)) for word in list(named)[:_MOST_WORDS])
    return any(
        _SUSPECT_SCRIPT.search(_script(folder, script))
        for script in scripts
        for folder in ((root, home) if os.path.isabs(script) else (root,))
    )


def _calls_us(command: str) -> bool:
    words = _words(command)
    return bool(words) and os.path.basename(words[0]) == "handoffd"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _script(root: str, word: str) -> str:
    """Return the beginning of a file below `root`; empty for every other word."""
    path = os.path.relpath(word, root) if os.path.isabs(word) else word
    with suppress(StoreError, ValueError):
        return _text(root, path, _SCRIPT_BYTES)
    return ""


def _text(root: str, name: str, most: int) -> str:
    with open_file(Path(root), name) as handle:
        if handle is None:
            return ""
        with open(handle, "rb", closefd=False) as file:
            return file.read(most).decode("utf-8", errors="replace")


# --- tests: whether they can be run where the daemon runs them, with its PATH and not this terminal's -
TESTS = "tests"

PROBE_S: Final = 3.0
"""How long an interpreter may take to say whether it has a module."""
_MOST_PROBES: Final = 20
_MOST_CHARS: Final = 60
_MOST_BYTES: Final = 64 * 1024
_MODULE: Final = re.compile(r"[A-Za-z_]\w{0,50}")
_NO_MODULE: Final = re.compile(r"No module named '?(?P<name>\w+)'?")
_PACKAGES: Final = {"npm": "npm", "npx": "npm", "pnpm": "pnpm", "yarn": "yarn", "bun": "bun"}
_NOT_FOUND: Final = "(exit code 127)"
_NO_CACHE: Final = "initialize build cache"
"""What go says without a HOME to write in, which Landlock alone does not give a run."""


class Terminal(Struct, frozen=True, kw_only=True):
    """Where handoffd is typed, which may have more than the daemon has."""

    path: str

    def has(self, program: str) -> str | None:
        """Return where a program is found on this terminal's PATH."""
        return None if "/" in program else shutil.which(program, path=self.path)


class Lack(Struct, frozen=True, kw_only=True):
    """What the tests of some projects need and the daemon does not find.

    A program; a module of it, if it is a Python; or the `runner` that it starts, if it is npm or the like.
    """

    program: str
    projects: tuple[str, ...]
    path: str
    module: str | None = None
    runner: str | None = None


def missing_for_tests(commands: Mapping[str, Sequence[str]], path: str) -> tuple[Lack, ...]:
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


def check_tests(
    lacks: Sequence[Lack], count: int, terminal: Terminal, service: Service
) -> tuple[Finding, ...]:
    """Return what keeps tests from being run; `count` projects name a command for theirs."""
    if lacks:
        return tuple(_missing(lack, terminal, service) for lack in lacks)
    return (
        (fine(TESTS, f"what the tests of {counted(count, 'project')} need is in the daemon's PATH"),)
        if count
        else ()
    )


def judge_tests(tried: Mapping[str, Any], terminal: Terminal, service: Service) -> Finding:
    """Return what came of running a project's tests once; `tried` is what the daemon answers."""
    root, command = str(tried["project"]), tried["command"]
    name = tried.get("called") or root
    if command is None and tried.get("held"):
        why = "someone edited .ai/handoffd.yaml; its commands run once you trust them"
        return warning(TESTS, f"the test command of {name} waits for you", why, command_for(name, "trust"))
    if command is None:
        why = "an agent's word counts, since no tests are measured"
        action = f"{_edit(root, name)}  # test.command"
        return warning(TESTS, f"{name} has no test command", why, action)
    if tried["fault"] is not None:
        return _fault(tried, terminal, service)
    ran, took = shown(command), f"{tried['seconds']:g} s"
    if tried["timed_out"]:
        return fine(TESTS, f"{ran} can be started; it was ended after {took}, checks may take longer")
    tests = tried["tests"]
    if tests is not None:
        counts = f"{tests['pass']} pass, {tests['fail']} fail, {tests['skip']} skipped"
        known = "; today's failures are known ones from then on" if tests["fail"] else ""
        return fine(TESTS, f"{ran} works in the daemon's environment: {counts} (in {took}){known}")
    if tried["passed"]:
        return fine(TESTS, f"{ran} works in the daemon's environment: exit code 0 (in {took})")
    what = f"in the daemon's environment, {', '.join(tried['failing'])}"
    why = (
        tried["line"]
        or "it printed nothing, and an exit code alone cannot tell a new failure from an old one"
    )
    return warning(TESTS, what, why, _by_hand(root, command))


def shown(command: Sequence[str]) -> str:
    """Return a test command without the options that are there for its report."""
    words = list(command)
    end = next((at for at, word in enumerate(words) if at and word.startswith("-") and word != "-m"), None)
    return shortened(join(words[:end]), _MOST_CHARS)


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
        return fault(TESTS, what, tried["line"], f"cd {quote(root)} && {manager} install")
    if command[0] == "go" and _NO_CACHE in (tried["line"] or ""):
        edit = _edit(root, tried.get("called") or root)
        return fault(TESTS, what, tried["line"], f"{edit}  # sandbox: {{let_in: [go]}}")
    return fault(TESTS, what, tried["line"], _by_hand(root, command))


def _edit(root: str, name: str) -> str:
    """Return what changes the settings of a project that commands call `name`."""
    return f"${{EDITOR:-vi}} {quote(root)}/.ai/handoffd.yaml && {command_for(name, 'trust')}"


def _missing(lack: Lack, terminal: Terminal, service: Service) -> Finding:
    users = lack.projects[0] if len(lack.projects) == 1 else counted(len(lack.projects), "project")
    first = lack.projects[0]
    edit = _edit(first, first)
    here = terminal.has(lack.program)
    if lack.runner is not None:
        why = f"its tests are run with it, and neither node_modules nor the PATH has it: {lack.path}"
        install = f"cd {quote(first)} && {_PACKAGES[lack.program]} install"
        return fault(TESTS, f"{lack.runner} is not installed in {first}", why, install)
    if lack.module is not None:
        return _no_module(
            lack, lack.module, users, edit, here if here and terminal.path != lack.path else None
        )
    needed = f"the tests of {users} are run with it"
    if "/" in lack.program:
        why = f"{needed}, and it is not there or not executable"
        return fault(TESTS, f"{lack.program} cannot be run", why, f"{edit}  # test.command")
    what = f"{lack.program} is not in the daemon's PATH"
    if here is not None:
        why = f"{needed}; it is {here} in this terminal; the daemon gives checks the PATH {lack.path}"
        return fault(TESTS, what, why, service.mend_path)
    action = f"command -v {quote(lack.program)} || {edit}  # install it, or name another test.command"
    return fault(TESTS, what, f"{needed}; no folder of the PATH has it: {lack.path}", action)


_RUNNERS: Final = frozenset({"pytest", "tox", "nox", "nose2"})
"""Modules that run tests, and that pip may be advised to install."""


def _no_module(lack: Lack, module: str, users: str, edit: str, here: str | None) -> Finding:
    found = _found(lack.program, lack.path) or lack.program
    what = f"{found} has no module {module}"
    install = f"{quote(found)} -m pip install {module}"
    if module not in _RUNNERS:  # perhaps a typing error: installing it would run a stranger's package
        install = f"{edit}  # test.command; if its name is right: {install}"
    if "/" in lack.program:  # the project's own
        return fault(TESTS, what, f"the tests of {users} are run with it", install)
    what = f"{module} is not in the daemon's PATH: {what}"
    why = f"the tests of {users} are run with it; the daemon gives checks the PATH {lack.path}"
    if here is not None and here != found and _has_module(here, module, lack.path):
        why = f"{why}; {here}, the {lack.program} of this terminal, has it"
        return fault(TESTS, what, why, f"{edit}  # test.command: [{here}, -m, {module}, ...]")
    return fault(TESTS, what, why, install)


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
    """Return whether a Python has a module; True also if it does not answer in time."""
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
