"""`handoffd demo`: a small real project through a whole story, under the real daemon.

The executor is the rehearsal: a real program that costs no token and writes real tests and code.
"""

from __future__ import annotations

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
    from handoffd.cli.playing import Played


@click.command()
@click.option("--yes", is_flag=True, help="Approve the review instead of asking.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to make the project (default: a new folder)."
)
@json_option
def demo(yes: bool, directory: Path | None, as_json: bool) -> None:
    """Take a small real project through a whole story; costs nothing."""
    from handoffd.cli.playing import play, progress, tell
    from handoffd.cli.storyline import can_ask
    from handoffd.rehearsal import sample

    if not yes and not can_ask():
        raise HandoffdError(
            "the review asks a person, and there is no terminal",
            hint="handoffd demo --yes  # or: make demo YES=1",
        )
    base = Path(tempfile.mkdtemp(prefix="handoffd-demo-"))
    project = str(sample.create(directory.absolute() if directory else base / "shop"))
    progress.print(f"A small shop in [bold]{project}[/] gets the story [bold]{sample.STORY}[/].\n")
    settings = {
        "executor": "rehearsal", "schedule": {"poll_s": 1}, "execute": {"min_free_mb": 0},
        "scheduling": {"min_free_memory_mb": 0},
    }  # fmt: skip
    played = play(project, sample.STORY, base=base, settings=settings, yes=yes, by="demo")
    proof = tell(played, as_json=as_json, prove=_prove)
    if not as_json:
        click.echo(f"\nThe project: {project}\nIts own pytest says: {proof['pytest']}")


def _prove(played: Played) -> dict[str, object]:
    """Return what the produced project's own tests say, run as anybody would. Raises StoryFailed."""
    from handoffd.cli.playing import StoryFailed

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
