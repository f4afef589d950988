"""`handoffd demo`: a small real project through a whole story, under the real daemon.

The executor is the rehearsal: a real program that costs no token and writes real tests and code.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from handoffd.errors import HandoffdError


@click.command()
@click.option("--yes", is_flag=True, help="Approve the review instead of asking.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to make the project (default: a new folder)."
)
def demo(yes: bool, directory: Path | None) -> None:
    """Take a small real project through a whole story; costs nothing."""
    from rich.console import Console

    from handoffd.cli.private_daemon import private_daemon
    from handoffd.cli.storyline import Storyline, approve_always, ask_at_terminal, can_ask
    from handoffd.rehearsal import sample

    if not yes and not can_ask():
        raise HandoffdError(
            "the review asks a person, and there is no terminal",
            hint="make demo YES=1   or   handoffd demo --yes",
        )
    console = Console()
    base = Path(tempfile.mkdtemp(prefix="handoffd-demo-"))
    project = str(sample.create(directory.absolute() if directory else base / "shop"))
    console.print(f"A small shop in [bold]{project}[/] gets the story [bold]{sample.STORY}[/].\n")
    ask = approve_always(console) if yes else ask_at_terminal(console, project)
    with private_daemon(base, {"executor": "rehearsal", "schedule": {"poll_s": 1}}) as client:
        client.post("/v1/verbs/start", {"project": project, "story": sample.STORY, "by": "demo"})
        storyline = Storyline(client, project, console, ask)
        track = storyline.follow()
        console.print(storyline.table())
    if track["step"] != "done":
        raise HandoffdError(
            f"the story stopped at {track['step']}: {track['last_error']}", hint=f"less {base}/daemon.log"
        )
    _prove(project)


def _prove(project: str) -> None:
    """Run the produced project's own tests, as anybody would."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=120)
    last = (tests.stdout.strip().splitlines() or ["no output"])[-1]
    click.echo(f"\nThe project: {project}\nIts own pytest says: {last}")
    if tests.returncode != 0:
        raise HandoffdError("the produced project's tests fail", hint=f"cd {project} && {' '.join(command)}")
