"""`handoffd rehearse`: a story on a copy of a project, with the rehearsal in place of an agent.

People try their own rules, checks and notifications with it before they pay for a run. The project
itself is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from handoffd.errors import HandoffdError, NotFound

_LEFT_OUT = ("STATE.json", "HANDOFF.md", "executor-result", "states", "runs", "CHECKLIST.md")
"""Of `.ai`: what belongs to the story in flight, which the rehearsal does not take up."""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--story", default="US-001", show_default=True, help="The story's id.")
@click.option(
    "--script",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON that tells the rehearsal how to misbehave (docs/operations.md).",
)
@click.option("--yes", is_flag=True, help="Approve at human steps instead of asking.")
def rehearse(path: Path, story: str, script: Path | None, yes: bool) -> None:
    """Run a story on a copy of PATH without an agent: no token is spent."""
    from rich.console import Console

    from handoffd.cli.private_daemon import private_daemon
    from handoffd.cli.storyline import Storyline, approve_always, ask_at_terminal, can_ask
    from handoffd.protocol.story import check_story_id

    check_story_id(story)
    if not yes and not can_ask():
        raise HandoffdError(
            "human steps ask a person, and there is no terminal", hint=f"handoffd rehearse {path} --yes"
        )
    if not path.is_dir():
        raise NotFound(f"{path} is no folder", hint="handoffd rehearse PATH")
    console = Console()
    base = Path(tempfile.mkdtemp(prefix="handoffd-rehearsal-"))
    project = str(copy_project(path.resolve(), base / path.resolve().name, script))
    console.print(f"Rehearsing [bold]{story}[/] in a copy: {project}\n")
    ask = approve_always(console) if yes else ask_at_terminal(console, project)
    with private_daemon(base, _settings()) as client:
        client.post("/v1/verbs/start", {"project": project, "story": story, "by": "rehearse"})
        storyline = Storyline(client, project, console, ask)
        track = storyline.follow()
        console.print(storyline.table())
    console.print(f"\nThe copy: {project}\nThe daemon's log: {base}/daemon.log")
    if track["step"] != "done":
        why = track["last_error"] or track["reason"]
        raise HandoffdError(
            f"the story stopped at {track['step']} ({track['status']}): {why}", hint=f"less {base}/daemon.log"
        )


def copy_project(source: Path, target: Path, script: Path | None) -> Path:
    """Return a copy of a project that rehearses: no story in flight, the rehearsal as its executor."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return set(names) & set(_LEFT_OUT) if Path(folder) == source / ".ai" else set()

    shutil.copytree(source, target, symlinks=True, ignore=left_out)
    folder = target / ".ai"
    folder.mkdir(exist_ok=True)
    _choose_rehearsal(folder / "handoffd.yaml")
    if script is not None:
        shutil.copyfile(script, folder / "rehearsal.json")
    return target


def _choose_rehearsal(file: Path) -> None:
    """Set `executor: rehearsal` in a project's settings, leaving everything else as it is."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    document: Any = yaml.load(file.read_text("utf-8")) if file.is_file() else None
    if not isinstance(document, dict):
        document = {}
    document["executor"] = "rehearsal"
    with file.open("w", encoding="utf-8") as output:
        yaml.dump(document, output)


def _settings() -> dict[str, Any]:
    """Return the person's own settings, as far as they matter here: who is told, in which language."""
    from handoffd.configure import load

    settings = load().settings
    wanted = settings.model_dump(mode="json", include={"notify", "language", "execute"})
    return {**wanted, "executor": "rehearsal", "schedule": {"poll_s": 1}}
