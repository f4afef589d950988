"""`handoffd demo`: a small real project through a whole story, under the real daemon.

The executor is the rehearsal: a real program that costs no token and writes real tests and code.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING

import click

from handoffd.cli.asking import json_option
from handoffd.errors import HandoffdError

if TYPE_CHECKING:
    from handoffd.cli.story.player import Played


@click.command()
@click.option("--yes", is_flag=True, help="Let the review approve itself instead of asking.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to make the project (default: a new folder)."
)
@json_option
def demo(yes: bool, directory: Path | None, as_json: bool) -> None:
    """Take a small real project through a whole story; costs nothing.

    At a terminal the review asks you; where there is none, it approves itself and says so.
    """
    from handoffd.cli.story.player import play, progress, tell
    from handoffd.rehearsal import sample

    _require(directory)
    base = Path(tempfile.mkdtemp(prefix="handoffd-demo-"))
    project = str(sample.create(directory.absolute() if directory else base / "shop"))
    progress.print(
        f"A small shop, made in [bold]{project}[/] for this, gets the story [bold]{sample.STORY}[/], "
        "discount codes.\nA script takes the agent's place and costs nothing; daemon and tests are real.",
        soft_wrap=True,
    )
    settings = {
        "executor": "rehearsal", "schedule": {"poll_s": 1}, "execute": {"min_free_mb": 0},
        "scheduling": {"min_free_memory_mb": 0},
    }  # fmt: skip
    played = play(
        project, sample.STORY, base=base, settings=settings, approved_by=_approved_by(yes=yes), by="demo"
    )
    proof = tell(played, as_json=as_json, prove=_prove)
    if not as_json:
        click.echo("\n".join(_next_steps(project, str(proof["pytest"]))))


def _require(directory: Path | None) -> None:
    """Refuse what the demo cannot do before anything is made. Raises HandoffdError."""
    if importlib.util.find_spec("pytest") is None:
        raise HandoffdError(
            "the shop's tests are run by pytest, which is not installed beside handoffd",
            code="NO_PYTEST", hint=f"{quote(sys.executable)} -m pip install pytest",
        )  # fmt: skip
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise HandoffdError(
            f"{directory} is no empty folder: the demo makes a project of its own",
            code="NOT_EMPTY", hint="handoffd demo  # makes a folder itself",
        )  # fmt: skip


def _approved_by(*, yes: bool) -> str | None:
    """Return what approves the review in a person's place, in words; None where a person is asked."""
    from handoffd.cli.story.reviewer import can_ask

    if yes:
        return "--yes was given"
    return None if can_ask() else "there is no terminal at which a person could be asked"


def _next_steps(project: str, tests: str) -> list[str]:
    """Return where the result is to be seen, and what to type next."""
    program = "handoffd" if shutil.which("handoffd") else quote(os.path.abspath(sys.argv[0]))
    return [
        "",
        f"The project: {project}",
        f"Its own pytest says: {tests}",
        "",
        "Look at it:",
        f"  cd {quote(project)}",
        "  git status --short && git diff        # what the story changed",
        "  cat .ai/HANDOFF.md .ai/history.md     # what the last step handed over; the stories that are done",
        "Next, in a project of yours:",
        f"  {program} rehearse     # the same on a copy of it, without an agent",
        f"  {program} init         # then with an agent: README.md, In a minute",
    ]


def _prove(played: Played) -> dict[str, object]:
    """Return what the produced project's own tests say, run as anybody would. Raises StoryFailed."""
    from handoffd.cli.story.player import StoryFailed

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = subprocess.run(
        command, cwd=played.project, capture_output=True, text=True, check=False, timeout=120
    )
    last = (tests.stdout.strip().splitlines() or ["no output"])[-1]
    if tests.returncode != 0:
        hint = f"cd {quote(played.project)} && {join(command)}"
        message = f"the produced project's tests fail: {last}"
        raise StoryFailed(message, hint=hint, details={**played.json, "pytest": last}, code="TESTS_FAIL")
    return {"pytest": last}
