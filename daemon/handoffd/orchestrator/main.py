"""The `orchestrator` command: finds the verb and writes its output.

It imports a verb when the verb is given: scripts ask for `status` again and again, and that needs the
standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import handoffd
from handoffd.errors import HandoffdError
from handoffd.orchestrator.console import FAILED, Said, UsageError, Words, broken

SPEAKS: Final = "0.8.3"
"""The version of the reference whose verbs, arguments and output these are; scripts compare it."""

INTERRUPTED = 130

Verb = Callable[[Words, Mapping[str, str]], Said]

VERBS: Final[Mapping[str, tuple[str, str, str]]] = {
    "auto": (
        "auto:auto",
        "<project-root> <message...>",
        "Take a message, find out what it asks for, do it",
    ),
    "init": ("verbs:init", "<project-root> <project-name>", "Give the project its first .ai/STATE.json"),
    "start-story": ("verbs:start_story", "<project-root> <story-id> [--force]", "Start a story"),
    "start-custom": (
        "verbs:start_custom",
        "<project-root> <instruction> [label] [--agent-teams]",
        "Start a task of your own words",
    ),
    "dispatch": ("verbs:dispatch", "<project-root>", "Take the next turn; its prompt goes to stdout"),
    "peek": ("verbs:peek", "<project-root>", "Show that prompt and change nothing"),
    "apply-handoff": ("verbs:apply_handoff", "<project-root>", "Take what the agent left in HANDOFF.md"),
    "post-check": ("verbs:post_check", "<project-root>", "Run the post_check of the step"),
    "approve": ("verbs:approve", "<project-root> [note]", "Pass the review"),
    "reject": ("verbs:reject", "<project-root> <reason> [note]", "Send the story back from the review"),
    "status": ("reads:status", "<project-root>", "Print STATE.json"),
    "rollback": ("verbs:rollback", "<project-root> <target-step> [--force]", "Go back to an earlier step"),
    "check-prereqs": ("reads:check_prereqs", "<project-root>", "Look for the files the step reads"),
    "query": ("reads:query", "<project-root>", "Sum the project up for a chat layer"),
    "detect": ("reads:detect", "<project-root>", "Say how far the project has adopted the protocol"),
    "list-projects": ("reads:list_projects", "<workspace-root>", "List the projects of a folder"),
    "reopen": (
        "verbs:reopen",
        "<project-root> <target-step> [note]",
        "Take a story that is done up again",
    ),
    "review": ("reads:review", "<project-root>", "Print the prompt for a health check"),
    "triage": ("reads:triage", "<project-root>", "Print the prompt for a plan from the open issues"),
    "report-error": ("verbs:report_error", "<project-root> <error-message>", "Fail the attempt that crashed"),
}
"""Every verb: where it is, its arguments, and its line in the help."""


def run(words: Sequence[str], environ: Mapping[str, str]) -> Said:
    """Return the output of the verb in `words`; errors are output, too."""
    name, given = (words[0], Words.of(words[1:])) if words else ("", Words(()))
    if name in {"--version", "-v"}:
        return Said((SPEAKS,), (f"handoffd {handoffd.__version__}, with the verbs of that version",))
    if name not in VERBS:
        return Said(err=((f"Unknown command: {name}",) if name else ()) + usage(), code=FAILED)
    module, _, attribute = VERBS[name][0].partition(":")
    try:
        verb: Verb = getattr(import_module(f"handoffd.orchestrator.{module}"), attribute)
        return verb(given, environ)
    except UsageError as error:
        return Said(err=error.lines, code=FAILED)
    except HandoffdError as error:
        return broken(error.message, error.hint)


def usage() -> tuple[str, ...]:
    """Return the help."""
    lines = (f"  {f'{name} {words}':<62} {help_}" for name, (_, words, help_) in VERBS.items())
    return ("Usage: orchestrator <command> [args]", "", "Commands:", *lines, "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        said = run(words, os.environ)
        _write(sys.stdout, said.out)
        _write(sys.stderr, said.err)
        code = said.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed the pipe; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def _write(stream: Any, lines: Sequence[str]) -> None:
    if lines and hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="replace")
    for line in lines:
        stream.write(f"{line}\n")
    stream.flush()
