"""The way from words to a verb, and from errors to text and exit codes; completion."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import anyio
import click
import pytest
from starlette.routing import Route
from tests.support.commands import Commands, environment, program, started
from tests.support.controlled import Controlled
from tests.support.daemon import running
from tests.support.hooking import event, hook
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

import handoffd as package
from handoffd.api.http.application import application
from handoffd.api.service import Service
from handoffd.api.verbs import VERBS
from handoffd.cli.asking import SHELLS, insisted, print_json
from handoffd.cli.main import EXAMPLES, FIRST, GROUPS, LAZY, PROGRAMS, cli
from handoffd.clock import SystemClock
from handoffd.errors import StoreError
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.protocol.state import Reason

REFERENCE = Path(__file__).parents[3] / "docs/reference"
LISTED = [name for names in GROUPS.values() for name in names]


def commands(command: click.Command = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command below one, groups before theirs, with its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield f"{path} {name}".strip(), below
            yield from commands(below, f"{path} {name}".strip())


# --- the table of commands --------------------------------------------------------------------------
def test_the_help_names_every_command_once(handoffd: Commands) -> None:
    """Groups, verbs and the lazy table agree; no verb is lost."""
    alone = [name for name, spec in VERBS.items() if spec.typed == name]
    assert sorted([*alone, *LAZY]) == sorted(LISTED)
    said = handoffd("--help")
    assert 0 == said.code
    assert all(f"\n  {name} " in said.out for name in LISTED)


@pytest.mark.parametrize("name", LAZY)
def test_every_lazy_command_exists(name: str) -> None:
    """The table points at commands of that very name."""
    module, _, attribute = LAZY[name][0].partition(":")
    command = getattr(import_module(module), attribute)

    assert isinstance(command, click.Command)
    assert name == command.name


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_command_line(example: str) -> None:
    """Its command has these options and words, and shows the example in its help."""
    words = shlex.split(re.split(r" [|<>] ", example)[0])
    context = cli.make_context("handoffd", words)
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, context, name)

    command.make_context("", words, parent=context.parent)
    assert (
        f"Example: handoffd {example}\n" in f"{command.get_help(context)}\n" or "completion bash" == example
    )


def test_a_bare_call_shows_the_ten_commands_that_matter_and_where_the_others_are(handoffd: Commands) -> None:
    """On one screen of 80 columns; as a script's verb that is an empty variable, it is wrong usage."""
    said = handoffd()

    assert (2, "") == (said.code, said.err)
    assert 10 == len({example.split()[0] for example in FIRST})
    assert [] == [example for example in FIRST if f"  handoffd {example} " not in said.out]
    assert f"all {len(LISTED)} commands, by what they do:" in said.out
    assert said.lines[-3].endswith(" handoffd --help")
    assert len(said.lines) < 24
    assert [] == [line for line in said.lines if len(line) > 80]


@pytest.mark.parametrize("example", FIRST)
def test_an_example_of_the_first_screen_is_a_valid_command_line(example: str) -> None:
    """A new user types it as it is."""
    name, *words = shlex.split(example)
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    command.make_context(name, words)


def test_every_command_has_an_example() -> None:
    """Each verb, and each one below a group; a program of the kit brings its own."""
    for path, command in commands():
        assert command.epilog, path
        has_own = isinstance(command, click.Group) or path.startswith("kit ")
        assert has_own or any(one.startswith(path) for one in EXAMPLES), path


def test_every_command_and_option_is_documented() -> None:
    """On the pages of the command line; `service` has a page elsewhere."""
    pages = [REFERENCE / "cli.md", *(REFERENCE / "cli").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    assert [] == [name for name in LISTED if f"handoffd {name}" not in text]
    options = {
        (path, option)
        for path, command in commands()
        if not path.startswith("service")
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert len(options) > 100
    assert [] == [one for one in options if one[1] not in text]


def test_every_path_of_the_api_is_documented() -> None:
    """And no other."""
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    service = Service(MemorySupervision(), None, SystemClock(), runs_dir=Path())  # type: ignore[arg-type]
    served = {
        f"{method} {route.path}".replace(":path", "")
        for route in application(service, anyio.Event()).routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }

    assert served == set(re.findall(r"^\| `((?:GET|POST) [^?`]+)", text, re.MULTILINE))


def test_options_show_their_values(handoffd: Commands) -> None:
    """People look in the help for what can be chosen."""
    shown = handoffd("start", "--help").out
    assert "--complexity S|M|L" in shown
    assert "--priority NUMBER" in shown


# --- programs ---------------------------------------------------------------------------------------
def test_the_program_is_the_command_line(alone: Path) -> None:
    """Also as a module, which is how other programs of ours start it."""
    env = environment(alone)
    said = program("--version", env=env)

    assert (0, f"handoffd {package.__version__}\n", "") == (said.code, said.out, said.err)
    assert 2 == program("frob", env=env).code
    help_of_hook = program("hook", "--help", env=env).out
    assert "Usage: handoffd hook" in help_of_hook
    assert "Exit codes: 0 the agent may stop, 2 it must go on" in " ".join(help_of_hook.split())


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_help_has_the_name_of_the_program(name: str) -> None:
    """Both console scripts, as they are installed; the same commands behind either."""
    script = Path(sysconfig.get_path("scripts"), name)

    def said(*words: str) -> str:
        return subprocess.run(
            [script, *words], capture_output=True, text=True, timeout=60, check=False
        ).stdout  # fmt: skip

    assert f"Usage: {name} [OPTIONS] COMMAND [ARGS]..." == said("--help").splitlines()[0]
    assert f"Usage: {name} rollback [OPTIONS] [PROJECT] STEP" == said("rollback", "-h").splitlines()[0]
    assert f"{name} reject --help" == json.loads(said("reject", "--json"))["hint"]


def _imports(call: str, words: list[str], env: Mapping[str, str], stdin: bytes = b"") -> tuple[str, set[str]]:
    """Return what a program prints, and the modules that it has imported at its end."""
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {call}"
    said = subprocess.run(
        [sys.executable, "-c", code, *words],
        input=stdin, env=dict(env), capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    return said.stdout.decode(), set(said.stderr.decode().split())


START = "from handoffd.cli.start import main; main()"
QUICK = {"click", "contextlib", "dataclasses", "http.client", "inspect", "socket", "typing", "urllib"}
HEAVY = {"pydantic", "structlog", "rich", "anyio", "starlette", "yaml", "asyncio", "handoffd.app"}


@pytest.mark.parametrize("words", [["status"], ["status", "shop"]])
def test_a_plain_status_imports_nothing_that_takes_milliseconds(
    control: Controlled, words: list[str]
) -> None:
    """It prints without colours into a pipe, and the same as the whole command line."""
    env = environment(control.runtime)

    quick, imported = _imports(START, words, env)
    whole, by_click = _imports("from handoffd.cli.main import main; main()", words, env)

    assert "PROJECT" in quick
    assert "\x1b" not in quick
    assert quick == whole
    assert (set(), set()) == (QUICK & imported, HEAVY & by_click)


@pytest.mark.parametrize("words", [[], ["--config", "/nowhere/handoffd.yaml"]])
def test_a_hook_is_answered_before_click_is_imported(alone: Path, words: list[str]) -> None:
    """Click alone takes as long as all the rest."""
    _, imported = _imports(START, [*words, "hook"], environment(alone), event(alone))

    assert "handoffd.entrance.hook" in imported
    assert "click" not in imported


def test_a_hook_outside_a_project_needs_no_settings(alone: Path) -> None:
    """A file that the environment names is read only where there is a project."""
    said = hook(event(alone), environment(alone, HANDOFFD_CONFIG="/nowhere/handoffd.yaml"))

    assert (0, "") == (said.code, said.err)


def test_a_reader_that_has_enough_gets_no_complaint(control: Controlled) -> None:
    """`handoffd events | head -1` ends quietly, with the code of what was not finished."""
    for _ in range(300):
        control.commit(record(why="x" * 400))

    with started("events", "--limit", "300", env=environment(control.runtime)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert (b"", 1) == (process.stderr.read(), process.wait(60))


def test_ctrl_c_ends_a_follower_quietly(control: Controlled) -> None:
    """With the code shells use for it."""
    control.commit(record())
    with started("events", "-f", "--after", "0", "--json", env=environment(control.runtime)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert 1 == json.loads(process.stdout.readline())["seq"]
        process.send_signal(signal.SIGINT)

        assert (130, b"") == (process.wait(60), process.stderr.read().strip())


def test_examples_name_executors_that_exist() -> None:
    """What is shown in a help is typed as it is."""
    lines = [line.split() for line in EXAMPLES]
    named = {
        name
        for words in lines
        if words[:1] == ["use"] or words[:2] == ["executors", "check"]
        for name in words[-1].split(",")
    }

    assert named
    assert named <= {*load_book(shipped_layer()).names, "auto", "default"}


# --- errors -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["frob"], 2),
        (["status", "--frob"], 2),
        (["start"], 2),
        (["status", "nope"], 4),
        (["approve", "nope"], 4),
        (["reject", "shop", "dunno"], 1),
    ],
)
def test_exit_codes(control: Controlled, handoffd: Commands, words: list[str], code: int) -> None:
    """Wrong usage is 2, not found 4, refused 1; all of it on stderr."""
    said = handoffd(*words)

    assert (code, "") == (said.code, said.out)
    assert "Traceback" not in said.err


def test_an_error_has_the_reason_and_the_next_command(control: Controlled, handoffd: Commands) -> None:
    """Two lines, in which another program's text cannot drive the terminal."""
    assert "handoffd: no supervised project named or located at nope\n  next: handoffd projects\n" == (
        handoffd("status", "nope").err
    )
    assert handoffd("start", "/srv/shop", "US/002").err.endswith("next: handoffd start shop STORY\n")
    assert "\x1b" not in handoffd("status", "\x1b[2Jx").err


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ("status nope", "NOT_FOUND", "handoffd projects"),
        ("status /nope", "NOT_FOUND", "handoffd add /nope"),
        ("start", "USAGE", "handoffd start --help"),
        ("config chek", "USAGE", "handoffd config --help"),
        ("frob", "USAGE", "handoffd --help"),
        ("reject shop bogus", "BAD_ARGUMENT", "handoffd reject shop REASON"),
    ],
)
def test_errors_are_json_for_programs(
    control: Controlled, handoffd: Commands, words: str, code: str, hint: str
) -> None:
    """On stdout, with nothing on stderr; the hint can be pasted and completed."""
    said = handoffd(*words.split(), "--json")

    assert ("error", code, hint, "") == (said.json["type"], said.json["code"], said.json["hint"], said.err)


def test_an_unknown_command_gets_a_suggestion(handoffd: Commands) -> None:
    """A letter is easily left out; a word like no other gets no guess."""
    assert "No such command 'aprove'. Did you mean 'approve'" in handoffd("aprove").err
    assert "Did you mean" not in handoffd("xyzzy").err


# --- what commands share ----------------------------------------------------------------------------
def test_programs_get_one_indented_object_in_any_language(capsys: pytest.CaptureFixture[str]) -> None:
    """Chinese stays readable."""
    print_json({"story": "US-001", "report": "實作完成"})

    assert '{\n  "story": "US-001",\n  "report": "實作完成"\n}\n' == capsys.readouterr().out


def test_a_busy_daemon_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    """After longer and longer pauses, with the command that shows the crowd; other errors are errors."""
    full = StoreError("64 streams are open", code="TOO_MANY_STREAMS", hint="ps -fp 7")
    answers: list[str | StoreError] = [*[full] * 7, "answer"]
    paused: list[float] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    assert "answer" == insisted(ask, paused.append)
    assert [1, 2, 4, 8, 16, 30, 30] == paused
    said = capsys.readouterr().err.splitlines()
    assert "handoffd: 64 streams are open; see: ps -fp 7; trying again in 1 s" == said[0]
    answers.append(StoreError("the disk is full"))
    with pytest.raises(StoreError, match="disk"):
        insisted(ask, paused.append)


# --- completion by the shell ------------------------------------------------------------------------
def offered(words: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return what bash is offered for the last of `words`; a blank at the end begins a new one."""
    asked = {
        "_HANDOFFD_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'handoffd'; {START}"],
        env={**os.environ, **(environ or {}), **asked},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_options_and_values_are_completed() -> None:
    """As the help has them, loaded or not; nothing is made up."""
    assert ["approve", "apply"] == offered("handoffd ap")
    assert ["completion"] == offered("handoffd comp")
    assert [] == offered("handoffd nosuch")
    assert {"--note", "--story"} <= set(offered("handoffd approve --"))
    assert ["bash"] == offered("handoffd completion b")


def test_projects_and_reasons_are_completed(tmp_path: Path) -> None:
    """The daemon knows the names; at a rejection the reasons come behind the project."""
    shop = tmp_path / "shop"
    shop.mkdir()
    with running(tmp_path) as daemon:
        daemon.verb("init", shop)
        environ = {"HANDOFFD_CONFIG": str(daemon.config)}

        assert ["shop"] == offered("handoffd status sh", environ)
        assert ["shop"] == offered("handoffd reject ", environ)
        assert list(Reason) == offered("handoffd reject shop ", environ)


def test_without_a_daemon_no_name_is_offered(tmp_path: Path) -> None:
    """And no error is printed: it would be in the middle of the line."""
    assert [] == offered("handoffd status ", {"HANDOFFD_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_accepts_its_script(alone: Path, shell: str) -> None:
    """It names the program, and a shell that is installed reads it without complaint."""
    script = program("completion", shell, env=environment(alone)).out

    assert f"_HANDOFFD_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, timeout=60, check=True)
