"""`handoffd doctor` and `handoffd executors`, and tests that `init` and `doctor` try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.repositories import git
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.cli.doctor import report
from handoffd.doctor.finding import fault, fine, warning
from handoffd.engine.events import TestEvidence
from handoffd.engine.views import Tried
from handoffd.errors import Refused
from handoffd.protocol.state import TestCounts
from handoffd.watch.backend import LIMIT_REACHED

Configure = Callable[[str], str]


# --- doctor -----------------------------------------------------------------------------------------
@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings in which nothing is wrong: no agent that costs, and any disk will do."""
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "rehearsal")
    monkeypatch.setenv("HANDOFFD_EXECUTE__MIN_FREE_MB", "0")


@pytest.mark.usefixtures("sound")
def test_without_a_daemon_the_doctor_leaves_nothing_behind(alone: Path, handoffd: Commands) -> None:
    """It makes no folders; a daemon that does not run is a warning. JSON has stable keys."""
    said, findings = handoffd("doctor"), handoffd("doctor", "--json").json

    assert (0, "") == (said.code, said.err)
    assert "warning  daemon       no daemon runs" in said.lines
    assert "    next: handoffd run" in said.lines
    assert said.lines[-1].endswith("; nothing keeps handoffd from working.")
    assert [] == list(alone.iterdir())
    assert ({"findings", "ok"}, True) == (set(findings), findings["ok"])
    assert {frozenset({"check", "severity", "what", "why", "action"})} == {
        frozenset(found) for found in findings["findings"]
    }
    assert {"ok", "warning"} >= {found["severity"] for found in findings["findings"]}
    none = next(found for found in findings["findings"] if found["check"] == "daemon")
    assert ("warning", "handoffd run") == (none["severity"], none["action"])


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    "supervision", [MemorySupervision(project_view("/srv/b", track_view(), swept=LIMIT_REACHED))]
)
def test_with_a_daemon_it_names_the_projects_that_are_swept(control: Controlled, handoffd: Commands) -> None:
    """With the command that raises the limit, and the file that makes it lasting."""
    said = handoffd("doctor")

    assert 0 == said.code
    at = said.lines.index("warning  watches      1 of 1 project is only looked at every 30 s: /srv/b")
    assert said.lines[at + 1].startswith(f"    why:  {LIMIT_REACHED}")
    assert said.lines[at + 2].startswith("    next: sudo sysctl fs.inotify.max_user_")
    assert said.lines[at + 2].endswith("| sudo tee /etc/sysctl.d/60-handoffd.conf")


def test_a_fault_is_an_exit_code(alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a timer, or a script."""
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "no-such")

    said, as_json = handoffd("doctor"), handoffd("doctor", "--json")

    assert (1, 1, False) == (said.code, as_json.code, as_json.json["ok"])
    assert "fault    executors    there is no executor no-such" in said.lines
    assert any("HANDOFFD_EXECUTOR: executor: there is no executor 'no-such'" in line for line in said.lines)


@pytest.mark.usefixtures("sound")
def test_invalid_settings_are_a_finding(configure: Configure, handoffd: Commands) -> None:
    """Not an error of the command, which checks everything else."""
    file = configure("execute:\n  slots: none\n")

    said = handoffd("--config", file, "doctor")

    assert (1, "") == (said.code, said.err)
    assert any(line.startswith(f"fault    settings     {file}:2: execute.slots") for line in said.lines)
    assert f"    next: ${{EDITOR:-vi}} +2 {file}" in said.lines
    assert any("no daemon runs" in line for line in said.lines)


@pytest.mark.usefixtures("sound")
def test_projects_of_the_journal_are_checked(alone: Path, handoffd: Commands) -> None:
    """One that is gone is a fault; nothing is recorded about it, and its path cannot drive the terminal."""
    project = alone / "a\x1b[31mb"
    project.mkdir()
    assert 0 == handoffd("add", str(project)).code
    assert any("has no STATE.json (not_initialized)" in line for line in handoffd("doctor").lines)
    findings = handoffd("doctor", "--json").json["findings"]
    assert any(str(project) in found["what"] for found in findings)
    project.rmdir()
    before = sorted(path.name for path in (alone / "state").iterdir())

    said = handoffd("doctor")

    assert 1 == said.code
    assert any(r"a\x1b[31mb is gone (missing)" in line for line in said.lines)
    assert "\x1b[31mb" not in said.out
    assert before == sorted(path.name for path in (alone / "state").iterdir())


def test_a_sound_finding_has_one_line_and_a_bad_one_three() -> None:
    """In the order in which they were found, in colours, and on one line whatever a project contains."""
    findings = [
        fine("settings", "the defaults hold"),
        warning("watches", "few", "too many editors", "sysctl fs.inotify"),
        fault("descriptors", "\x1b[31mred\nline", None, None),
    ]

    lines = report(findings)

    assert [
        "ok       settings     the defaults hold",
        "warning  watches      few",
        "    why:  too many editors",
        "    next: sysctl fs.inotify",
        "fault    descriptors  \\x1b[31mred line",
        "",
        "1 fault, 1 warning.",
    ] == [click.unstyle(line) for line in lines]
    assert lines[4].startswith(click.style("fault  ", fg="red"))


def test_the_last_line_is_the_verdict() -> None:
    """Nothing, warnings only, or faults."""
    warned, broken = warning("a", "x", None, None), fault("a", "x", None, None)
    assert "No problems found." == report([fine("a", "x")])[-1]
    assert "0 faults, 2 warnings; nothing keeps handoffd from working." == report([warned, warned])[-1]
    assert "2 faults, 0 warnings." == report([broken, broken])[-1]


# --- executors --------------------------------------------------------------------------------------
SETTINGS = """
executor: mine
executors:
  mine: {extends: command, argv: [tool], version: [tool, --version], env: [KEY], login: {env: [KEY]}}
"""


@pytest.fixture
def tool(alone: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch) -> str:
    """A settings file with an executor whose program is installed, beside the system's own."""
    program(alone, "tool", "echo tool 1.2")
    monkeypatch.setenv("PATH", f"{alone}:/usr/bin:/bin")
    return configure(SETTINGS)


def program(folder: Path, name: str, text: str) -> None:
    """Put a program into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_the_matrix_has_every_executor(tool: str, handoffd: Commands) -> None:
    """With the version of the installed ones; patterns are not executors."""
    said = handoffd("--config", tool, "executors")
    rows = {line.split()[0]: line for line in said.lines}
    found = {one["name"]: one for one in handoffd("--config", tool, "executors", "--json").json["executors"]}

    assert (0, "EXECUTOR") == (said.code, next(iter(rows)))
    assert {"aider", "claude", "codex", "gemini", "mine", "opencode", "rehearsal"} <= set(rows)
    assert "command" not in rows
    assert "tool 1.2" in rows["mine"]
    assert ("tool 1.2", False, "no") == tuple(
        found["mine"][key] for key in ("version", "logged_in", "tokens")
    )
    assert {"program", "found", "resume", "limits", "permissions", "account", "writes"} <= set(
        found["claude"]
    )


def test_check_of_one_reports_what_is_wrong(
    tool: str, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the next command and exit code 1; exit code 0 when all is well."""
    said = handoffd("--config", tool, "executors", "check", "mine")
    monkeypatch.setenv("KEY", "secret")
    well = handoffd("--config", tool, "executors", "check", "mine", "--json")

    assert 1 == said.code
    assert "warning  mine         no login was found" in said.lines
    assert "    next: tool --help" in said.lines
    assert (0, True) == (well.code, well.json["ok"])
    assert ["ok"] == [one["severity"] for one in well.json["findings"]]


def test_check_of_all_leaves_out_what_the_settings_do_not_choose(
    tool: str, handoffd: Commands, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing program is a fault where it is chosen, also as the second of a list."""

    def faults() -> set[str]:
        found = handoffd("--config", tool, "executors", "check", "--json").json["findings"]
        assert {"mine", "rehearsal"} <= {one["check"] for one in found}
        return {one["what"] for one in found if one["severity"] == "fault"}

    assert set() == faults()
    monkeypatch.setenv("PATH", "/nowhere")
    assert {"tool is not found"} == faults()
    configure(SETTINGS.replace("executor: mine", "executor: [mine, claude]"))
    assert {"tool is not found", "claude is not found"} == faults()


def test_a_definition_that_contradicts_itself_is_reported_with_its_place(
    configure: Configure, handoffd: Commands
) -> None:
    """As by the daemon."""
    file = configure("executors:\n  mine: {argv: [x], session: resume}\n")
    said = handoffd("--config", file, "executors", "check", "mine")

    assert 1 == said.code
    assert "executors.mine.session: needs a place for {session} in argv" in said.err


def test_an_unknown_executor_is_not_found(handoffd: Commands) -> None:
    """The next command lists those that exist."""
    said = handoffd("executors", "check", "cluade")

    assert 4 == said.code
    assert "  next: handoffd executors" in said.err


# --- tests that are tried ---------------------------------------------------------------------------
COUNTED = Tried(
    command=("npm", "test"),
    path="/bin",
    evidence=TestEvidence(counts=TestCounts(passed=2), collected=2, seconds=1),
)
WORKS = "npm test works in the daemon's environment: 2 pass, 0 fail, 0 skipped (in 1 s)"


class Busy(MemorySupervision):
    """Projects in which an attempt is in flight."""

    async def try_tests(self, project: str) -> Tried:
        """Refuse."""
        raise Refused("d-1 is at work there", code="ALREADY_RUNNING", hint="handoffd status shop")


def test_init_tries_the_tests_it_found(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """It announces that first, since it may take a while, and reports the result in one line."""
    control.supervision.tried = COUNTED
    (tmp_path / "package.json").write_text('{"scripts": {"test": "mocha"}}', encoding="utf-8")

    said, as_json = handoffd("init", str(tmp_path)), handoffd("init", str(tmp_path), "--json")

    assert f"  tried: {WORKS}" in said.lines
    assert "Running the tests once as the daemon would, for at most 40 s ...\n" == said.err
    assert {"severity": "ok", "what": WORKS, "why": None, "action": None} == as_json.json["tried"]
    assert "" == as_json.err


def test_init_has_the_command_that_takes_run_time_files_out_of_git(
    handoffd: Commands, tmp_path: Path
) -> None:
    """Of a project that committed its `.ai` folder before; typed, `init` finds nothing more."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/HANDOFF.md").write_text("")
    (root / ".ai/history.md").write_text("")
    for words in (("init", "--quiet"), ("add", "--all")):
        git(root, *words)

    said = handoffd("init", str(root), "--no-tests")

    command = f"git -C {root} rm -r --quiet --cached .ai/HANDOFF.md"
    assert [f"  git: {root}: .ai/HANDOFF.md is kept by git", f"    next: {command}"] == [
        line for line in said.lines if " git: " in line or "rm -r" in line
    ]
    git(root, *command.split()[3:])
    assert None is handoffd("init", str(root), "--no-tests", "--json").json["kept_by_git"]


def test_init_names_what_the_daemons_commits_are_without(handoffd: Commands, tmp_path: Path) -> None:
    """A person who signs theirs would look for that."""
    root = tmp_path / "shop"
    root.mkdir()
    for words in (("init", "--quiet"), ("config", "commit.gpgSign", "true")):
        git(root, *words)
    said = handoffd("init", str(root), "--no-tests")
    unlike = "commits and merges by handoffd are without a signature (commit.gpgSign)"
    assert f"  git: {root}: {unlike}" in said.lines


@pytest.mark.parametrize(
    ("makefile", "words", "command"),
    [(None, (), None), ("test:\n\ttouch ran\n", ("--no-tests",), ["make", "test"])],
)
def test_init_runs_no_tests_without_any_or_on_demand(
    handoffd: Commands,
    tmp_path: Path,
    makefile: str | None,
    words: tuple[str, ...],
    command: list[str] | None,
) -> None:
    """A person may want to read the tests of a clone first; everything else is set up."""
    root = tmp_path / "clone"
    root.mkdir()
    if makefile is not None:
        (root / "Makefile").write_text(makefile)

    said = handoffd("init", str(root), *words, "--json")

    assert (0, command, None, "") == (said.code, said.json["test_command"], said.json["tried"], said.err)
    assert not (root / "ran").exists()


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("supervision", [Busy(project_view("/srv/shop", track_view()))])
def test_where_an_agent_works_no_tests_are_tried(
    control: Controlled, handoffd: Commands, tmp_path: Path
) -> None:
    """The project is initialised all the same, and can be examined."""
    (tmp_path / "Makefile").write_text("test:\n", encoding="utf-8")

    said, examined = handoffd("init", str(tmp_path)), handoffd("doctor", "shop")

    assert 0 == said.code
    assert "  tried: handoffd could not try the tests: d-1 is at work there" in said.lines
    assert "    next: handoffd status shop" in said.lines
    assert "warning  tests        handoffd could not try the tests: d-1 is at work there" in examined.lines


@pytest.mark.parametrize("supervision", [MemorySupervision(project_view("/srv/shop", track_view()))])
def test_doctor_tries_the_tests_of_named_projects(control: Controlled, handoffd: Commands) -> None:
    """Without a name it only looks for their programs."""
    control.supervision.tried = COUNTED

    assert any(line.endswith(WORKS) for line in handoffd("doctor", "shop").lines)
    assert not any(line.endswith(WORKS) for line in handoffd("doctor").lines)
    assert 4 == handoffd("doctor", "no-such-project").code


def test_without_a_daemon_the_tests_run_as_its_service_would_run_them(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that only this terminal has is missing there."""
    program(alone / "bin", "mocha-like", "exit 0")
    monkeypatch.setenv("PATH", f"{alone}/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(alone / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(alone))
    monkeypatch.delenv("HANDOFFD_RUNTIME_DIR")
    monkeypatch.delenv("HANDOFFD_STATE_DIR")
    root = alone / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/handoffd.yaml").write_text("test: {command: [mocha-like]}\n", encoding="utf-8")

    by_terminal = handoffd("init", str(root), "--json").json["tried"]
    units = alone / "home/.config/systemd/user"
    units.mkdir(parents=True)
    (units / "handoffd.service").write_text('[Service]\nEnvironment="PATH=/usr/bin:/bin"\n', encoding="utf-8")
    by_service = handoffd("init", str(root), "--json").json["tried"]

    assert "ok" == by_terminal["severity"]
    assert by_terminal["what"].startswith("mocha-like works in the daemon's environment: exit code 0")
    assert "mocha-like is not in the daemon's PATH" == by_service["what"]
    assert 'handoffd service install --path "$PATH"' == by_service["action"]
