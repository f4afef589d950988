"""The way from words to a verb, and from errors to text and exit codes."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import anyio
import click
import pytest
from starlette.routing import Route
from tests.support.children import ending
from tests.support.commands import Commands, environment, program
from tests.support.controlled import Controlled
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

import handoffd as package
from handoffd.api.http.application import application
from handoffd.api.service import Service
from handoffd.api.verbs import VERBS
from handoffd.cli.main import EXAMPLES, LAZY, PROGRAMS, SECTIONS, cli
from handoffd.clock import SystemClock


def test_the_help_names_every_command_once(handoffd: Commands) -> None:
    """Sections, verbs and the lazy table agree."""
    listed = [name for names in SECTIONS.values() for name in names]

    alone = [name for name, spec in VERBS.items() if spec.typed == name]
    assert sorted([*alone, *LAZY]) == sorted(listed)
    said = handoffd("--help")
    assert 0 == said.code
    assert all(f"\n  {name} " in said.out for name in listed)


@pytest.mark.parametrize("name", LAZY)
def test_every_lazy_command_is_there(name: str) -> None:
    """The table points at commands of that very name."""
    module, _, attribute = LAZY[name][0].partition(":")
    command = getattr(import_module(module), attribute)

    assert isinstance(command, click.Command)
    assert name == command.name


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_command_line_that_is_understood(example: str) -> None:
    """Its options and words are those of its command, and the help of the command shows it."""
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


def test_every_command_has_an_example() -> None:
    """Each verb, and each one below a group."""

    def paths(command: click.Command, path: str) -> Iterator[str]:
        if not isinstance(command, click.Group):
            yield path
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            assert below.epilog
            yield from paths(below, f"{path} {name}".strip())

    assert [] == [path for path in paths(cli, "") if not any(one.startswith(path) for one in EXAMPLES)]


def test_the_version_is_the_packages() -> None:
    """Also as a module, which is how other programs of ours start it."""
    said = program("--version", env={})

    assert (0, f"handoffd {package.__version__}\n", "") == (said.code, said.out, said.err)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_help_calls_the_program_what_it_was_called(name: str) -> None:
    """Both console scripts, as they are installed; the same commands behind either."""
    script = Path(sysconfig.get_path("scripts"), name)

    def said(*words: str) -> str:
        return subprocess.run(
            [script, *words], capture_output=True, text=True, timeout=60, check=False
        ).stdout  # fmt: skip

    assert f"Usage: {name} [OPTIONS] COMMAND [ARGS]..." == said("--help").splitlines()[0]
    assert f"Usage: {name} rollback [OPTIONS] [PROJECT] STEP" == said("rollback", "-h").splitlines()[0]
    assert f"{name} reject --help" == json.loads(said("reject", "--json"))["hint"]


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


def test_an_error_says_what_why_and_what_next(control: Controlled, handoffd: Commands) -> None:
    """Two lines for a person."""
    assert "handoffd: no supervised project named or located at nope\n  next: handoffd projects\n" == (
        handoffd("status", "nope").err
    )


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["status", "nope", "--json"], "NOT_FOUND", "handoffd projects"),
        (["status", "/nope", "--json"], "NOT_FOUND", "handoffd add /nope"),
        (["start", "--json"], "USAGE", "handoffd start --help"),
        (["config", "chek", "--json"], "USAGE", "handoffd config --help"),
        (["frob", "--json"], "USAGE", "handoffd --help"),
    ],
)
def test_errors_are_json_for_programs(
    control: Controlled, handoffd: Commands, words: list[str], code: str, hint: str
) -> None:
    """On stdout, with nothing on stderr."""
    said = handoffd(*words)

    assert ("error", code, hint, "") == (said.json["type"], said.json["code"], said.json["hint"], said.err)


def test_a_reason_that_is_none_is_answered_with_those_there_are(
    control: Controlled, handoffd: Commands
) -> None:
    """In a command that can be pasted and completed."""
    told = handoffd("reject", "shop", "bogus", "--json").json

    reasons = "constitution_violation, needs_clarification, nfr_missing, scope_warning, test_timeout"
    assert f"handoffd reject shop REASON  # REASON: {reasons}" == told["hint"]


def test_text_of_strangers_cannot_drive_the_terminal(control: Controlled, handoffd: Commands) -> None:
    """Also not in an error."""
    assert "\x1b" not in handoffd("status", "\x1b[2Jx").err


def test_the_way_to_the_daemon_is_short(control: Controlled) -> None:
    """`status` imports nothing that takes long to import."""
    code = (
        "import sys; from handoffd.cli.main import main\ntry: main(['status'])\nfinally: print(*sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(control.runtime), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    table, _, modules = said.stdout.rstrip().rpartition("\n")

    assert "US-001" in table
    heavy = {"pydantic", "structlog", "rich", "anyio", "starlette", "yaml", "asyncio", "handoffd.app"}
    assert set() == heavy & set(modules.split())


def test_a_reader_that_has_enough_gets_no_complaint(control: Controlled) -> None:
    """`handoffd events | head -1` ends quietly, with the code of what was not finished."""
    for _ in range(300):
        control.commit(record(why="x" * 400))

    with ending(subprocess.Popen(
        [sys.executable, "-m", "handoffd", "events", "--limit", "300"],
        env=environment(control.runtime), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert (b"", 1) == (process.stderr.read(), process.wait(60))


def test_ctrl_c_ends_a_follower_quietly(control: Controlled) -> None:
    """With the code shells use for it."""
    control.commit(record())
    with ending(subprocess.Popen(
        [sys.executable, "-m", "handoffd", "events", "-f", "--after", "0", "--json"],
        env=environment(control.runtime), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert 1 == json.loads(process.stdout.readline())["seq"]
        process.send_signal(signal.SIGINT)

        assert (130, b"") == (process.wait(60), process.stderr.read().strip())


def _options(command: click.Command, path: str) -> list[tuple[str, str]]:
    found = [(path, option) for one in command.params for option in one.opts if option.startswith("--")]
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            found += _options(inner, f"{path} {name}")
    return found


def test_every_command_and_option_is_documented() -> None:
    """Only what is on the pages is promised, and all of it exists."""
    reference = Path(__file__).parents[3] / "docs/reference"
    pages = [reference / "cli.md", *(reference / "cli").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    elsewhere = ("service",)
    commands = [name for names in SECTIONS.values() for name in names]

    assert [] == [name for name in commands if f"handoffd {name}" not in text]
    ours = [name for name in commands if name not in elsewhere]
    everything = [pair for name in ours for pair in _options(_command(name), name)]
    assert [] == [(path, option) for path, option in everything if option not in text]


def test_every_path_of_the_api_is_documented() -> None:
    """And no other."""
    text = (Path(__file__).parents[3] / "docs/reference/api.md").read_text(encoding="utf-8")
    service = Service(MemorySupervision(), None, SystemClock(), runs_dir=Path())  # type: ignore[arg-type]
    routes = application(service, anyio.Event()).routes
    paths = {
        f"{method} {route.path}"
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    served = {path.replace(":path", "") for path in paths}

    assert served == set(re.findall(r"^\| `((?:GET|POST) [^?`]+)", text, re.MULTILINE))


def _command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_an_unknown_command_is_answered_with_those_it_may_mean(handoffd: Commands) -> None:
    """A letter is easily left out; a word like no other gets no guess."""
    assert "No such command 'aprove'. Did you mean 'approve'" in handoffd("aprove").err
    assert "Did you mean" not in handoffd("xyzzy").err


def test_options_show_their_values(handoffd: Commands) -> None:
    """What can be chosen is what people look for in the help."""
    told = handoffd("start", "--help").out
    assert "--complexity S|M|L" in told
    assert "--priority NUMBER" in told
