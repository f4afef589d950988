"""Whether tests can be run where the daemon runs them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from handoffd.doctor.projects import Lack, Terminal, check_tests, judge_tests, missing_for_tests, shown
from handoffd.doctor.service import Service

SERVICE = Service(unit="handoffd")
HERE = Terminal(path="/usr/bin:/bin")


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> str:
    """Put a program into a folder and return the folder, which is a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)
    return str(folder)


def interpreter(folder: Path, *modules: str) -> str:
    """Put a python3 into a folder that says it has these modules and no others; return the folder."""
    cases = "".join(f"*\\'{module}\\'*) exit 0;; " for module in modules)
    return program(folder, "python3", f'#!/bin/sh\ncase "$2" in {cases}esac\nexit 7\n')


def tried(**changes: Any) -> dict[str, Any]:
    """Return what a daemon answers about tests that went well."""
    return {
        "type": "tried", "project": "/srv/a shop", "command": ["npm", "test", "--", "--x={report}"],
        "path": HERE.path, "passed": True, "verified": True, "timed_out": False, "fault": None,
        "tests": {"pass": 3, "fail": 0, "skip": 1}, "failing": [], "line": None, "tail": "", "seconds": 2.5,
        **changes,
    }  # fmt: skip


def test_programs_are_looked_for_once_for_all_projects(tmp_path: Path) -> None:
    """On the daemon's PATH; those of a project below its root."""
    path = program(tmp_path / "bin", "npm")
    program(tmp_path / "shop", "gradlew")
    commands = {
        str(tmp_path / "shop"): ["./gradlew", "test"],
        str(tmp_path / "web"): ["./gradlew", "test"],
        "/srv/a": ["npm", "test"],
        "/srv/b": ["cargo", "test"],
        "/srv/c": ["cargo", "test", "--workspace"],
    }

    assert (
        Lack(program=str(tmp_path / "web/gradlew"), projects=(str(tmp_path / "web"),), path=path),
        Lack(program="cargo", projects=("/srv/b", "/srv/c"), path=path),
    ) == missing_for_tests(commands, path)


def test_a_python_is_asked_for_its_module(tmp_path: Path) -> None:
    """The one on the PATH."""
    path = interpreter(tmp_path / "bin", "unittest")
    commands = {
        "/srv/a": ["python3", "-m", "pytest", "-q"],
        "/srv/b": ["python3", "-m", "unittest"],
        "/srv/c": ["python3", "tests.py"],
    }

    assert (Lack(program="python3", module="pytest", projects=("/srv/a",), path=path),) == missing_for_tests(
        commands, path
    )


@pytest.mark.parametrize("there", ["pytest/", "pytest.py", "include-system-site-packages = true"])
def test_the_environment_of_a_project_is_looked_into_and_not_started(tmp_path: Path, there: str) -> None:
    """It is the project's, so who asks for a look does not run it; all that lacks a module is told of."""
    roots = [tmp_path / name for name in ("shop", "blog")]
    for root in roots:
        program(root / ".venv/bin", "python3", f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (root / ".venv/pyvenv.cfg").write_text(there if root == roots[0] else "home = /usr/bin\n")
        (root / ".venv/lib/python3.11/site-packages").mkdir(parents=True)
    found = roots[0] / ".venv/lib/python3.11/site-packages" / there.partition(" ")[0]
    found.mkdir() if there.endswith("/") else found.touch()
    commands = {str(root): [".venv/bin/python3", "-m", "pytest"] for root in roots}

    (lack,) = missing_for_tests(commands, "/usr/bin:/bin")

    assert ((str(roots[1]),), "pytest") == (lack.projects, lack.module)
    (told,) = check_tests((lack,), 2, HERE, SERVICE)
    assert f"{roots[1]}/.venv/bin/python3 has no module pytest" == told.what
    assert f"{roots[1]}/.venv/bin/python3 -m pip install pytest" == told.action
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["npm", "test", "--", "--json"], "jest --ci"),
        (["npx", "--no-install", "jest", "--json"], None),
        (["pnpm", "exec", "jest"], None),
        (["yarn", "run", "test"], "cross-env A=1 jest"),
    ],
)
def test_a_runner_that_a_package_names_is_looked_for(
    tmp_path: Path, command: list[str], script: str | None
) -> None:
    """Where npm puts it, beside the package or above; what one has says nothing of another."""
    package = {"scripts": {"test": script} if script else {}, "devDependencies": {"jest": "29"}}
    roots = [tmp_path / name for name in ("shop", "mono/packages/web", "blog")]
    for root in roots:
        root.mkdir(parents=True)
        (root / "package.json").write_text(json.dumps(package))
    for has in ("shop", "mono"):
        program(tmp_path / has / "node_modules/.bin", "jest")
    path = program(tmp_path / "bin", command[0])

    (lack,) = missing_for_tests({str(root): command for root in roots}, path)

    assert ((str(roots[2]),), command[0], "jest") == (lack.projects, lack.program, lack.runner)
    (told,) = check_tests((lack,), 3, HERE, SERVICE)
    assert f"jest is not installed in {roots[2]}" == told.what
    assert f"cd {roots[2]} && {'npm' if command[0] == 'npx' else command[0]} install" == told.action


def test_what_a_package_does_not_depend_on_is_not_missed(tmp_path: Path) -> None:
    """A script may begin with anything; and Plug'n'Play keeps no node_modules."""
    path = program(tmp_path / "bin", "npm")
    for name, package in (
        ("a", {"scripts": {"test": "make check"}}),
        ("b", {"scripts": {"test": "jest"}, "devDependencies": {"jest": "29"}}),
        ("c", []),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "package.json").write_text(json.dumps(package))
    (tmp_path / "b/.pnp.cjs").touch()

    assert () == missing_for_tests({str(tmp_path / name): ["npm", "test"] for name in "abcd"}, path)


def test_the_real_interpreter_answers() -> None:
    """A module that every Python has, and one that none has."""
    folder, name = os.path.split(sys.executable)
    path = f"{folder}:/usr/bin:/bin"

    assert () == missing_for_tests({"/srv/a": [name, "-m", "unittest"]}, path)
    assert ("no_such_module",) == tuple(
        lack.module for lack in missing_for_tests({"/srv/a": [name, "-m", "no_such_module"]}, path)
    )


def test_what_is_not_the_daemons_is_told_with_what_this_terminal_has(tmp_path: Path) -> None:
    """The command gives the daemon the PATH of this terminal."""
    terminal = Terminal(path=program(tmp_path / "node", "npm"))
    lack = Lack(program="npm", projects=("/srv/a", "/srv/b"), path="/usr/bin:/bin")

    (found,) = check_tests((lack,), 2, terminal, SERVICE)

    assert ("fault", "npm is not in the daemon's PATH") == (found.severity, found.what)
    assert (
        f"the tests of 2 projects are run with it; it is {tmp_path}/node/npm in this terminal;"
        " the daemon gives checks the PATH /usr/bin:/bin"
    ) == found.why
    assert 'handoffd service install --path "$PATH"' == found.action


def test_what_is_nowhere_is_installed_or_not_asked_for(tmp_path: Path) -> None:
    """Either way is a command."""
    lack = Lack(program="cargo", projects=("/srv/a shop",), path="/bin")

    (found,) = check_tests((lack,), 1, Terminal(path=str(tmp_path)), SERVICE)

    assert "the tests of /srv/a shop are run with it; no folder of the PATH has it: /bin" == found.why
    assert (
        "command -v cargo || ${EDITOR:-vi} '/srv/a shop'/.ai/handoffd.yaml && handoffd trust '/srv/a shop'"
        "  # install it, or name another test.command"
    ) == found.action


def test_a_module_that_only_this_terminals_python_has(tmp_path: Path) -> None:
    """As in an activated environment: its interpreter is what the settings are to name."""
    path, terminal = interpreter(tmp_path / "bin"), interpreter(tmp_path / "venv", "pytest")
    lack = Lack(program="python3", module="pytest", projects=("/srv/a",), path=path)

    (found,) = check_tests((lack,), 1, Terminal(path=terminal), SERVICE)
    (without,) = check_tests((lack,), 1, Terminal(path=path), SERVICE)

    assert f"pytest is not in the daemon's PATH: {path}/python3 has no module pytest" == found.what
    assert (found.why or "").endswith(f"{terminal}/python3, the python3 of this terminal, has it")
    assert (found.action or "").endswith(f"# test.command: [{terminal}/python3, -m, pytest, ...]")
    assert f"{path}/python3 -m pip install pytest" == without.action


def test_a_program_of_the_project_that_is_gone() -> None:
    """A virtual environment that was removed, for one."""
    lack = Lack(program="/srv/a/.venv/bin/python", projects=("/srv/a",), path="/bin")

    (found,) = check_tests((lack,), 1, HERE, SERVICE)

    assert "/srv/a/.venv/bin/python cannot be run" == found.what
    assert "${EDITOR:-vi} /srv/a/.ai/handoffd.yaml && handoffd trust /srv/a  # test.command" == found.action


def test_all_is_well() -> None:
    """In a line; without a project that has tests, in none."""
    assert ["what the tests of 2 projects need is in the daemon's PATH"] == [
        one.what for one in check_tests((), 2, HERE, SERVICE)
    ]
    assert () == check_tests((), 0, HERE, SERVICE)


@pytest.mark.parametrize(
    ("changes", "severity", "what"),
    [
        ({}, "ok", "npm test works in the daemon's environment: 3 pass, 0 fail, 1 skipped (in 2.5 s)"),
        (
            {"passed": False, "tests": {"pass": 1, "fail": 2, "skip": 0}}, "ok",
            "npm test works in the daemon's environment: 1 pass, 2 fail, 0 skipped (in 2.5 s);"
            " those that fail now are known failures from then on",
        ),
        ({"tests": None}, "ok", "npm test works in the daemon's environment: exit code 0 (in 2.5 s)"),
        (
            {"passed": None, "tests": None, "timed_out": True, "seconds": 40.0}, "ok",
            "npm test can be started; it was ended after 40 s, checks may take longer",
        ),
        (
            {"passed": False, "tests": None, "failing": ["exit code 2"], "line": "1 failing"}, "warning",
            "npm test fails in the daemon's environment: exit code 2",
        ),
        ({"command": None}, "warning", "/srv/a shop has no test command"),
    ],
)  # fmt: skip
def test_what_came_of_a_run_is_one_line(changes: dict[str, Any], severity: str, what: str) -> None:
    """Failures that are counted are known ones from then on; an exit code excuses none."""
    found = judge_tests(tried(**changes), HERE, SERVICE)

    assert (severity, what) == (found.severity, found.what)
    assert (severity == "ok") == (found.action is None)


def test_the_interpreter_of_the_project_is_told_by_its_path(tmp_path: Path) -> None:
    """Its PATH has nothing to do with it."""
    own = interpreter(tmp_path / ".venv/bin") + "/python3"

    found = judge_tests(
        tried(
            project=str(tmp_path), command=[".venv/bin/python3", "-m", "pytest"],
            line=f"{own}: No module named pytest",
            fault="the test command left no report (exit code 1)",
        ),
        HERE, SERVICE,
    )  # fmt: skip

    assert (f"{own} has no module pytest", f"{own} -m pip install pytest") == (found.what, found.action)


def test_what_could_not_be_run_says_what_it_lacks(tmp_path: Path) -> None:
    """The program, the module, or the packages of the project; else the command itself is to be tried."""
    empty, python = str(tmp_path / "empty"), interpreter(tmp_path / "bin")
    npm = program(tmp_path / "node", "npm")

    gone = judge_tests(tried(fault="the command could not be started: ENOENT", path=empty), HERE, SERVICE)
    module = judge_tests(
        tried(
            command=["python3", "-m", "pytest", "--junitxml={report}"], path=python,
            fault="the test command left no report", line="/bin/python3: No module named pytest",
        ),
        Terminal(path=python), SERVICE,
    )  # fmt: skip
    not_found = "the test command cannot be run: it was not found (exit code 127)"
    packages = judge_tests(tried(fault=not_found, path=npm, line="jest: not found"), HERE, SERVICE)
    other = judge_tests(tried(fault="the report is empty", path=npm), HERE, SERVICE)

    assert ["fault"] * 4 == [one.severity for one in (gone, module, packages, other)]
    assert "npm is not in the daemon's PATH" == gone.what
    assert f"pytest is not in the daemon's PATH: {python}/python3 has no module pytest" == module.what
    assert ("jest: not found", "cd '/srv/a shop' && npm install") == (packages.why, packages.action)
    assert "npm test proves nothing in the daemon's environment: the report is empty" == other.what
    assert "cd '/srv/a shop' && npm test -- --x=/dev/null" == other.action


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["python3", "-m", "pytest", "-q", "x"], "python3 -m pytest"),
        (["go", "test", "-json", "./..."], "go test"),
        (["make", "test"], "make test"),
        (["sh", "-c", "x"], "sh"),
        (["a" * 100], "a" * 59 + "…"),
    ],
)
def test_a_command_is_shown_without_its_options(command: list[str], text: str) -> None:
    """Most are there for the report."""
    assert text == shown(command)
