"""The `handoffd` command: finds the verb, and alone turns errors into text and an exit code.

Verbs are loaded when they are given. What is imported on the way to the daemon's socket is what
every `handoffd status` waits for, so that is click and the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

import handoffd
from handoffd.api.verbs import VERBS
from handoffd.entrance.place import Place
from handoffd.errors import HandoffdError, InvalidFile, NoDaemon

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAMS: Final = ("handoffd",)
"""The names under which this command line is installed. (`orchestrator` is a program of its own.)"""

USAGE = 2
INTERRUPTED = 130

LAZY: Final[Mapping[str, tuple[str, str]]] = {
    "status": ("handoffd.cli.status:status", "Show every project: where it stands and what it waits for."),
    "projects": ("handoffd.cli.projects:projects", "List the supervised projects."),
    "scan": ("handoffd.cli.projects:scan", "List the projects below a folder; supervise them with --add."),
    "reload": (
        "handoffd.cli.daemon:reload",
        "Have the daemon read settings, projects and their files again.",
    ),
    "auto": ("handoffd.cli.backlog:auto", "Do what a message means, in English or Chinese, as in a chat."),
    "peek": (
        "handoffd.cli.inspecting:peek",
        "Show what the next turn of a project would do, with its prompt.",
    ),
    "query": (
        "handoffd.cli.inspecting:query",
        "Say where any project stands by its files, supervised or not.",
    ),
    "detect": (
        "handoffd.cli.inspecting:detect",
        "Say how much of the protocol a folder has: level 0, 1 or 2.",
    ),
    "list-projects": (
        "handoffd.cli.inspecting:list_projects",
        "List the projects that lie in a folder, supervised or not.",
    ),
    "check-prereqs": (
        "handoffd.cli.inspecting:check_prereqs",
        "Name the files that the step in hand reads and that are missing.",
    ),
    "review": (
        "handoffd.cli.inspecting:review",
        "Print a prompt that has a project examined; pipe it to an agent.",
    ),
    "triage": (
        "handoffd.cli.inspecting:triage",
        "Print a prompt that has a project's open issues sorted; pipe it to an agent.",
    ),
    "backlog": ("handoffd.cli.backlog:backlog", "Show the stories that wait; move, edit or remove them."),
    "schedule": ("handoffd.cli.slots:schedule", "Show what the clock starts, next and last."),
    "log": ("handoffd.cli.log:log", "Print the output of a project's latest run, or of one named."),
    "events": ("handoffd.cli.log:events", "Print what happened, and why; follow it with -f."),
    "runs": ("handoffd.cli.runs:runs", "List the latest dispatches and how they ended."),
    "metrics": ("handoffd.cli.daemon:metrics", "Print the daemon's series for Prometheus, or a dashboard."),
    "limits": ("handoffd.cli.slots:limits", "List the accounts at their limit; lift one that is not."),
    "slots": ("handoffd.cli.slots:slots", "Show who may run, who does, and why each of the others waits."),
    "notices": ("handoffd.cli.notices:notices", "Show what waits for people, and what they were not told."),
    "notify": ("handoffd.cli.notices:notify", "Send a sample through the ways in which people are told."),
    "usage": ("handoffd.cli.runs:usage", "Sum up tokens and cost by step, story, project, day or executor."),
    "rules": ("handoffd.cli.config:rules", "Check or show a project's step table."),
    "config": ("handoffd.cli.config:config", "Check or show the settings, and where each comes from."),
    "executors": ("handoffd.cli.doctor:executors", "Show what each agent CLI can do here, or check one."),
    "doctor": ("handoffd.cli.doctor:doctor", "Say what will go wrong on this machine, and what to type."),
    "token": ("handoffd.cli.daemon:token", "Print the token of the loopback port, or make a new one."),
    "journal": ("handoffd.cli.journal:journal", "Verify the journal, back it up, or restore a backup."),
    "hook": ("handoffd.cli.hooks:hook", "Answer a hook of Claude Code; `hooks install` puts it there."),
    "hooks": ("handoffd.cli.hooks:hooks", "Install, remove or show the hooks in Claude Code's settings."),
    "gc": (
        "handoffd.cli.journal:gc",
        "Remove what nobody needs any more; or say what, and what takes how much.",
    ),
    "run": ("handoffd.cli.daemon:run", "Be the daemon, in the foreground."),
    "stop": ("handoffd.cli.daemon:stop", "End the daemon; executors go on unless asked otherwise."),
    "service": (
        "handoffd.cli.service.commands:service",
        "Install, remove or show the daemon as a systemd service.",
    ),
    "mcp": ("handoffd.cli.hooks:mcp", "Be an MCP server: reads and verbs as tools of a chat agent."),
    "skill": ("handoffd.cli.skill:skill", "Teach a chat agent how to use handoffd."),
    "completion": (
        "handoffd.cli.asking:completion",
        "Print what makes bash, zsh or fish complete verbs and projects.",
    ),
    "demo": (
        "handoffd.cli.story.commands:demo",
        "Watch one story go through all its steps, without any model.",
    ),
    "rehearse": (
        "handoffd.cli.story.commands:rehearse",
        "Try a project's pipeline out on a copy, without any model.",
    ),
}
"""Every command that is no verb of the vocabulary: where it is, and its line in the help."""

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Projects": ("init", "add", "remove", "scan", "projects", "trust", "rules"),
    "Work": (
        "start", "custom", "continue", "backlog", "approve", "reject", "retry", "skip", "abort", "pause",
        "resume", "note", "use", "budget", "rollback", "reopen", "confirm", "level",
    ),
    "Chat": ("auto",),
    "Work by hand": ("dispatch", "apply", "check", "hook", "hooks"),
    "Looking": (
        "status", "peek", "schedule", "log", "events", "runs", "usage", "limits", "slots",
        "notices",
    ),
    "Any folder": ("detect", "query", "list-projects", "check-prereqs", "review", "triage"),
    "The daemon": (
        "run", "stop", "reload", "service", "doctor", "config", "executors", "journal", "gc", "token",
        "metrics", "notify",
    ),
    "For agents": ("mcp", "skill"),
    "Your shell": ("completion",),
    "Trying it out": ("demo", "rehearse"),
}  # fmt: skip


class LazyGroup(click.Group):
    """Commands that are imported when they are given; their help lines need no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command, in the order of the help."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now."""
        if cmd_name in VERBS and VERBS[cmd_name].typed == cmd_name:
            from handoffd.cli.verbs import verb_command

            return verb_command(VERBS[cmd_name])
        if cmd_name not in LAZY:
            return None
        module, _, attribute = LAZY[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was typed; the error for an unknown one names those it may mean."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=3)
            if not near:
                raise
            meant = f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?"
            raise click.UsageError(meant, ctx) from unknown

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was given. A daemon that it needs and that is not there is told in full."""
        try:
            return super().invoke(ctx)
        except NoDaemon as none:
            from handoffd.entrance.requests import explained

            raise explained(none, ctx.obj) from none

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing one of them."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_help_line(name)) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, _help_line(name)) for name in names])


def _help_line(name: str) -> str:
    return VERBS[name].help if name in VERBS else LAZY[name][1]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(handoffd.__version__, message="handoffd %(version)s")
@click.option("--config", metavar="FILE", envvar="HANDOFFD_CONFIG", help="The settings file to read.")
@click.pass_context
def cli(context: click.Context, config: str | None) -> None:
    """Supervise coding agents over many projects, one verified step at a time.

    PROJECT is a name or a path; left out, it is the current folder. Exit codes: 0 done, 1 refused
    or failed, 2 wrong usage, 3 no daemon, 4 not found.
    """
    if context.obj is None:
        context.obj = Place(config=config, environ=os.environ)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(args=words, prog_name=_program(), standalone_mode=False)
        _flush()
    except HandoffdError as error:
        _tell(words, error.code, error.message, _next(error), **error.details)
        code = error.exit_code
    except click.ClickException as error:
        code = _tell_usage(words, error)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has enough; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _program() -> str:
    """Return the name we were called by, for the help; as a module or by a link it is our own."""
    called = os.path.basename(sys.argv[0])
    return called if called in PROGRAMS else PROGRAMS[0]


def _next(error: HandoffdError) -> str | None:
    """Return what to type next; a file that is wrong is opened, also where nobody said how."""
    if error.hint is not None or not isinstance(error, InvalidFile):
        return error.hint
    from handoffd.errors import with_remedy

    return with_remedy(error, os.getcwd()).hint


def _tell(words: Sequence[str], code: str, message: str, hint: str | None, **details: object) -> None:
    """Print an error: text on stderr for people, or JSON with all its details on stdout for programs."""
    if _wants_json(words):
        answer: dict[str, Any] = {"type": "error", "code": code, "message": message, "hint": hint, **details}
        click.echo(json.dumps(answer, ensure_ascii=False))
        return
    from handoffd.cli.wording import plain

    click.echo(f"handoffd: {plain(message, lines=True)}", err=True)
    if hint:
        click.echo(f"  next: {plain(hint)}", err=True)


def _tell_usage(words: Sequence[str], error: click.ClickException) -> int:
    if _wants_json(words):
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else PROGRAMS[0]
        _tell(words, "USAGE", error.format_message(), f"{command} --help")
    else:
        error.show()
    return USAGE


def _wants_json(words: Sequence[str]) -> bool:
    return "--json" in words[: words.index("--") if "--" in words else len(words)]


def _flush() -> None:
    """Have a broken pipe show here, not when the interpreter ends."""
    sys.stdout.flush()
