"""Projects: their condition, git, hooks of other programs, and their tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from handoffd.doctor.finding import is_sound
from handoffd.doctor.projects import (
    GitFacts,
    Lack,
    Terminal,
    check_git,
    check_hooks,
    check_projects,
    check_tests,
    git_facts,
    hook_facts,
    judge_tests,
    missing_for_tests,
    shown,
)
from handoffd.doctor.service import Service
from handoffd.engine.views import Condition
from handoffd.hooks.claude_settings import with_ours
from handoffd.hooks.event import EVENTS


# --- condition --------------------------------------------------------------------------------------
def project(root: str, condition: str = "ok", detail: str | None = None) -> dict[str, object]:
    """Return a project as in an answer of `status`."""
    return {"project": root, "condition": condition, "detail": detail}


def test_sound_projects_are_counted() -> None:
    """Having none is not a fault, either."""
    assert [("ok", "2 projects can be worked on")] == [
        (found.severity, found.what) for found in check_projects([project("/a"), project("/b")])
    ]
    assert ["1 project can be worked on"] == [found.what for found in check_projects([project("/a")])]
    assert ["0 projects can be worked on"] == [found.what for found in check_projects([])]


@pytest.mark.parametrize(
    ("condition", "severity", "action"),
    [
        ("not_initialized", "warning", "handoffd init '/srv/a b'"),
        ("invalid_rules", "warning", "handoffd rules check '/srv/a b'"),
        (
            "locked",
            "warning",
            "handoffd remove '/srv/a b'  # leaves it to the other one; "
            "or end that one, and have it here: handoffd add '/srv/a b' --take",
        ),
        ("invalid_state", "fault", "${EDITOR:-vi} '/srv/a b/.ai/STATE.json'"),
        (
            "missing",
            "fault",
            "ls -ld '/srv/a b'  # mount it or move it back; or: handoffd remove '/srv/a b'",
        ),
        ("io_error", "fault", "ls -ld '/srv/a b' '/srv/a b/.ai'; df -h '/srv/a b'"),
        ("of_the_future", "fault", "handoffd status '/srv/a b'"),
    ],
)
def test_each_condition(condition: str, severity: str, action: str) -> None:
    """With its detail and a command; a warning where something still works."""
    found, rest = check_projects([project("/srv/a b", condition, "because"), project("/c")])

    assert (severity, "because", action) == (found.severity, found.why, found.action)
    assert found.what.startswith("/srv/a b ")
    assert condition in found.what
    assert "1 project can be worked on" == rest.what


def test_every_condition_has_words() -> None:
    """Not only its name."""
    for condition in set(get_args(Condition)) - {"ok"}:
        (found,) = check_projects([project("/a", condition)])
        assert found.what != f"/a {condition} ({condition})"


def test_a_folder_that_does_not_answer_is_a_fault() -> None:
    """Whatever the journal has about it."""
    (found,) = check_projects([project("/mnt/a b")], {"/mnt/a b"})
    assert ("fault", "stat '/mnt/a b'") == (found.severity, found.action)
    assert "does not answer" in (found.why or "")


# --- git --------------------------------------------------------------------------------------------
def test_a_project_in_a_repository_is_fine(tmp_path: Path) -> None:
    """As its root, as a folder below that, or as a worktree, whose .git is a file."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "whole")], check=True)
    below = tmp_path / "whole/part"
    below.mkdir()
    worktree = tmp_path / "tree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: elsewhere")
    roots = [str(tmp_path / "whole"), str(below), str(worktree), str(tmp_path / "gone")]

    facts = git_facts(roots, os.environ)

    assert () == facts.loose
    (found,) = check_git(facts)
    assert "ok" == found.severity
    assert found.what.startswith("git version ")


def test_projects_outside_of_repositories_are_named(tmp_path: Path) -> None:
    """A few of them, with the command for the first."""
    roots = [str(tmp_path / name) for name in ("a b", "c", "d", "e")]

    (found,) = check_git(GitFacts(version="git version 2", loose=roots))

    assert "warning" == found.severity
    assert f"{roots[0]}, {roots[1]}, {roots[2]} and 1 more are in no git repository" == found.what
    assert f"git -C '{roots[0]}' init" == found.action


def test_files_that_git_keeps_and_handoffd_rewrites(tmp_path: Path) -> None:
    """They are named with the command that takes them out of git. What a team shares is none of them."""
    shop = tmp_path / "the shop"
    for name in (".ai/STATE.json", ".ai/states/US-1.json", ".ai/handoffd.yaml", ".ai/history.md"):
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text("")
    for words in (("init", "--quiet"), ("add", "-A")):
        subprocess.run(["git", "-C", str(shop), *words], check=True)
    trap = tmp_path / "trap"
    subprocess.run(["git", "-C", str(shop), "config", "core.fsmonitor", f"touch '{trap}'"], check=True)

    facts = git_facts([str(shop)], os.environ)
    (found,) = check_git(facts)

    assert not trap.exists()
    assert ("warning", f"{shop}: .ai/STATE.json, .ai/states/ are kept by git") == (found.severity, found.what)
    first, _, untrack = (found.action or "").partition(" && ")
    assert f"handoffd init '{shop}'" == first
    subprocess.run(untrack, shell=True, check=True)
    assert {} == git_facts([str(shop)], os.environ).kept
    assert (shop / ".ai/STATE.json").exists()


def test_what_a_persons_commits_have_and_the_daemons_not(tmp_path: Path) -> None:
    """A signature, and hooks that would run; a sample is none."""
    shop = tmp_path / "shop"
    for words in (("init", "--quiet", str(shop)), ("-C", str(shop), "config", "commit.gpgSign", "true")):
        subprocess.run(["git", *words], check=True)
    hook = shop / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    assert ("a signature (commit.gpgSign)",) == git_facts([str(shop)], os.environ).skipped[str(shop)]
    hook.chmod(0o755)

    fine, noted = check_git(git_facts([str(shop)], os.environ))
    assert fine.what.startswith("git version ")
    unlike = "a signature (commit.gpgSign), the hook pre-commit"
    assert f"{shop}: commits and merges by handoffd are without {unlike}" == noted.what
    assert "ok" == noted.severity


def test_a_machine_without_git(tmp_path: Path) -> None:
    """A program of that name that fails does not count."""
    assert None is git_facts([], {"PATH": str(tmp_path)}).version
    broken = tmp_path / "git"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert None is git_facts([], {"PATH": str(tmp_path)}).version

    (found,) = check_git(GitFacts(version=None))
    assert ("warning", "git is not found") == (found.severity, found.what)


# --- hooks ------------------------------------------------------------------------------------------
def _settings(root: Path, *commands: str, name: str = "settings.json") -> Path:
    """Write a settings file with these commands at the end of each turn."""
    hooks = [{"hooks": [{"type": "command", "command": command}]} for command in commands]
    path = root / ".claude" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {"Stop": hooks}}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("jq '.status = \"pass\"' .ai/STATE.json > x", True),
        ("npx @agentic-coding-framework/orchestrator-core apply-handoff .", True),
        ("orchestrator dispatch .", True),
        ("/opt/bin/my-dispatch .", True),
        ("python3 $CLAUDE_PROJECT_DIR/.claude/hooks/stop.py", True),
        ('"${CLAUDE_PROJECT_DIR}"/.claude/hooks/stop.py', True),
        (".claude/hooks/stop.py", True),
        (".claude/hooks/harmless.sh", False),
        ("$CLAUDE_PROJECT_DIR/a.sh; .claude/hooks/stop.py", True),
        ("handoffd dispatch .", False),
        ("handoffd dispatch . 2>/dev/null || true", False),
        ("handoffd hook && orchestrator apply-handoff .", True),
        ("handoffd hook; .claude/hooks/stop.py", True),
        ("handoffd query . > .ai/STATE.json", True),
        ("/usr/bin/python3 -I -m handoffd hook", False),
        ("say done", False),
        ("prettier --write 'unclosed", False),
        ("", False),
    ],
)
def test_a_hook_that_may_write_state_is_reported(tmp_path: Path, command: str, foreign: bool) -> None:
    """Because of its command, or of the project's script that it calls."""
    file = _settings(tmp_path, command)
    (tmp_path / ".claude/hooks").mkdir()
    (tmp_path / ".claude/hooks/stop.py").write_text("open('.ai/STATE.json', 'w')", encoding="utf-8")
    (tmp_path / ".claude/hooks/harmless.sh").write_text("echo done", encoding="utf-8")
    found = check_hooks(hook_facts("/nowhere", [str(tmp_path)]))

    assert ["warning" if foreign else "ok"] == [one.severity for one in found]
    assert is_sound(found)
    if foreign:
        assert f"{file} has a hook at Stop that is not handoffd's: {command}" == found[0].what
        assert f"${{EDITOR:-vi}} {file}" == found[0].action


def test_the_settings_of_the_user_and_of_each_project_are_read(tmp_path: Path) -> None:
    """Shared and local ones; a project that is the home is reported once."""
    home, shop = tmp_path / "home", tmp_path / "shop"
    files = [
        _settings(home, "orchestrator auto", name="settings.local.json"),
        _settings(shop, "orchestrator auto", "orchestrator dispatch"),
    ]
    facts = hook_facts(str(home), [str(home), str(shop), str(tmp_path / "none")])

    assert [str(files[0]), str(files[1]), str(files[1])] == [one.file for one in facts.foreign]


def test_our_own_hooks_are_fine(tmp_path: Path) -> None:
    """Whichever program installed them."""
    file = _settings(tmp_path, "say done")
    file.write_text(with_ours(file.read_text("utf-8"), "f", "/x/bin/handoffd hook", EVENTS), encoding="utf-8")

    assert ["ok"] == [one.severity for one in check_hooks(hook_facts(str(tmp_path), []))]


def test_settings_that_claude_code_cannot_read_are_reported(tmp_path: Path) -> None:
    """It runs none of their hooks, ours neither."""
    file = _settings(tmp_path)
    file.write_text('{\n"hooks": [],\n}', encoding="utf-8")
    (finding,) = check_hooks(hook_facts(str(tmp_path), []))

    assert ("warning", True) == (finding.severity, f"{file}:3" in finding.what)


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    """A pipe would never answer."""
    (tmp_path / "shop/.claude").mkdir(parents=True)
    os.mkfifo(tmp_path / "shop/.claude/settings.json")
    (tmp_path / "shop/.claude/settings.local.json").symlink_to(_settings(tmp_path, "orchestrator auto"))

    found = check_hooks(hook_facts("/nowhere", [str(tmp_path / "shop")]))
    assert ["warning"] * 2 == [one.severity for one in found]
    for finding, name in zip(found, ("settings.json", "settings.local.json"), strict=True):
        assert finding.what.startswith(f"{tmp_path}/shop/.claude/{name} was not read")


def test_a_folder_that_is_a_link_is_reported(tmp_path: Path) -> None:
    """Some people keep their settings elsewhere; a link to nothing is fine."""
    _settings(tmp_path / "dotfiles", "orchestrator auto")
    for name in ("home", "gone"):
        (tmp_path / name).mkdir()
    (tmp_path / "home/.claude").symlink_to(tmp_path / "dotfiles/.claude")
    (tmp_path / "gone/.claude").symlink_to(tmp_path / "nowhere")
    (finding,) = check_hooks(hook_facts(str(tmp_path / "home"), [str(tmp_path / "gone")]))

    assert f"{tmp_path}/home/.claude/settings.json was not read" in finding.what


@pytest.mark.parametrize(
    "command",
    [
        "~/.claude/hooks/a.sh", "$HOME/.claude/hooks/a.sh", '"${HOME}"/.claude/hooks/a.sh',
        "bash ~/.claude/hooks/a.sh", 'bash -c "~/.claude/hooks/a.sh"',
        "bash -c 'cd /; $HOME/.claude/hooks/a.sh'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("whose", ["home", "shop"])
def test_a_script_in_the_home_is_read(tmp_path: Path, command: str, whose: str) -> None:
    """However its path is written, for the settings of the user and of a project."""
    _settings(tmp_path / whose, command)
    script = tmp_path / "home/.claude/hooks/a.sh"
    script.parent.mkdir(parents=True)
    (tmp_path / "shop").mkdir(exist_ok=True)
    facts = str(tmp_path / "home"), [str(tmp_path / "shop")]

    script.write_text("echo done", encoding="utf-8")
    assert ["ok"] == [one.severity for one in check_hooks(hook_facts(*facts))]
    script.write_text("jq . > .ai/STATE.json", encoding="utf-8")
    assert ["warning"] == [one.severity for one in check_hooks(hook_facts(*facts))]


def test_a_command_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """A project's text is hostile."""
    _settings(tmp_path, "orchestrator \x1b[2J" + "x" * 500)
    (finding,) = check_hooks(hook_facts(str(tmp_path), []))

    assert "\x1b" not in finding.what
    assert len(finding.what) < 300


# --- tests ------------------------------------------------------------------------------------------
SERVICE = Service(unit="handoffd")
HERE = Terminal(path="/usr/bin:/bin")


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> str:
    """Put a program into a folder and return the folder, which is a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)
    return str(folder)


def interpreter(folder: Path, *modules: str) -> str:
    """Put a python3 into a folder that has only these modules; return the folder."""
    cases = "".join(f"*\\'{module}\\'*) exit 0;; " for module in modules)
    return program(folder, "python3", f'#!/bin/sh\ncase "$2" in {cases}esac\nexit 7\n')


def tried(**changes: Any) -> dict[str, Any]:
    """Return what a daemon answers about tests that passed."""
    return {
        "type": "tried", "project": "/srv/a shop", "command": ["npm", "test", "--", "--x={report}"],
        "path": HERE.path, "passed": True, "verified": True, "timed_out": False, "fault": None,
        "tests": {"pass": 3, "fail": 0, "skip": 1}, "failing": [], "line": None, "tail": "", "seconds": 2.5,
        **changes,
    }  # fmt: skip


def test_each_program_is_looked_up_once_for_all_projects(tmp_path: Path) -> None:
    """On the daemon's PATH; a project's own below its root."""
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


def test_python_is_asked_for_its_module(tmp_path: Path) -> None:
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
def test_the_python_of_a_project_is_not_run(tmp_path: Path, there: str) -> None:
    """The project is hostile, so its folders are read; the one without the module is reported."""
    roots = [tmp_path / name for name in ("shop", "blog")]
    for root in roots:
        program(root / ".venv/bin", "python3", f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (root / ".venv/pyvenv.cfg").write_text(there if root == roots[0] else "home = /usr/bin\n")
        (root / ".venv/lib/python3.11/site-packages").mkdir(parents=True)
    module = roots[0] / ".venv/lib/python3.11/site-packages" / there.partition(" ")[0]
    module.mkdir() if there.endswith("/") else module.touch()
    commands = {str(root): [".venv/bin/python3", "-m", "pytest"] for root in roots}

    (lack,) = missing_for_tests(commands, "/usr/bin:/bin")

    assert ((str(roots[1]),), "pytest") == (lack.projects, lack.module)
    (found,) = check_tests((lack,), 2, HERE, SERVICE)
    assert f"{roots[1]}/.venv/bin/python3 has no module pytest" == found.what
    assert f"{roots[1]}/.venv/bin/python3 -m pip install pytest" == found.action
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
def test_the_runner_of_a_package_is_looked_up(tmp_path: Path, command: list[str], script: str | None) -> None:
    """Where npm puts it, beside the package or above; for each package."""
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
    (found,) = check_tests((lack,), 3, HERE, SERVICE)
    assert f"jest is not installed in {roots[2]}" == found.what
    assert f"cd {roots[2]} && {'npm' if command[0] == 'npx' else command[0]} install" == found.action


def test_a_runner_that_is_not_a_dependency_is_not_missing(tmp_path: Path) -> None:
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


def test_a_real_python_answers() -> None:
    """A module that every Python has, and one that none has."""
    folder, name = os.path.split(sys.executable)
    path = f"{folder}:/usr/bin:/bin"

    assert () == missing_for_tests({"/srv/a": [name, "-m", "unittest"]}, path)
    assert ("no_such_module",) == tuple(
        lack.module for lack in missing_for_tests({"/srv/a": [name, "-m", "no_such_module"]}, path)
    )


def test_a_program_that_only_this_terminal_has_is_reported(tmp_path: Path) -> None:
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


def test_a_missing_program_is_installed_or_replaced(tmp_path: Path) -> None:
    """The command does either."""
    lack = Lack(program="cargo", projects=("/srv/a shop",), path="/bin")

    (found,) = check_tests((lack,), 1, Terminal(path=str(tmp_path)), SERVICE)

    assert "the tests of /srv/a shop are run with it; no folder of the PATH has it: /bin" == found.why
    assert (
        "command -v cargo || ${EDITOR:-vi} '/srv/a shop'/.ai/handoffd.yaml && handoffd trust '/srv/a shop'"
        "  # install it, or name another test.command"
    ) == found.action


def test_a_module_that_only_this_terminals_python_has(tmp_path: Path) -> None:
    """As in an activated environment: the settings must name its interpreter."""
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


def test_tests_that_can_be_run_are_fine() -> None:
    """In one line; without a project that has tests, in none."""
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
            " today's failures are known ones from then on",
        ),
        ({"tests": None}, "ok", "npm test works in the daemon's environment: exit code 0 (in 2.5 s)"),
        (
            {"passed": None, "tests": None, "timed_out": True, "seconds": 40.0}, "ok",
            "npm test can be started; it was ended after 40 s, checks may take longer",
        ),
        (
            {"passed": False, "tests": None, "failing": ["npm test: exit code 2"], "line": "1 failing"},
            "warning",
            "in the daemon's environment, npm test: exit code 2",
        ),
        ({"command": None}, "warning", "/srv/a shop has no test command"),
        ({"command": None, "held": True}, "warning", "the test command of /srv/a shop waits for you"),
    ],
)  # fmt: skip
def test_the_result_of_a_trial_is_one_line(changes: dict[str, Any], severity: str, what: str) -> None:
    """Failures that are counted are known ones from then on; of an exit code none are known."""
    found = judge_tests(tried(**changes), HERE, SERVICE)

    assert (severity, what) == (found.severity, found.what)
    assert (severity == "ok") == (found.action is None)


def test_the_python_of_the_project_is_named_by_its_path(tmp_path: Path) -> None:
    """The PATH does not matter for it."""
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


def test_tests_that_could_not_be_run_name_what_is_missing(tmp_path: Path) -> None:
    """The program, the module, or the project's packages; otherwise the next command runs the tests."""
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


def test_a_go_without_a_place_for_its_cache_comes_with_the_setting(tmp_path: Path) -> None:
    """Landlock alone gives a run no HOME of its own; in a terminal the same command works."""
    path = program(tmp_path, "go")
    line = (
        "failed to initialize build cache at /home/a/.cache/go-build: mkdir /home/a/.cache: permission denied"
    )

    found = judge_tests(
        tried(command=["go", "test", "-json", "./..."], path=path, fault="no event", line=line), HERE, SERVICE
    )

    assert (found.action or "").endswith(" trust '/srv/a shop'  # sandbox: {let_in: [go]}")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["python3", "-m", "pytest", "-q", "x"], "python3 -m pytest"),
        (["go", "test", "-json", "-count=1", "./..."], "go test"),
        (["make", "test"], "make test"),
        (["sh", "-c", "x"], "sh"),
        (["a" * 100], "a" * 59 + "…"),
    ],
)
def test_a_command_is_shown_without_its_options(command: list[str], text: str) -> None:
    """Most are there for the report."""
    assert text == shown(command)
