"""`handoffd rehearse`: a story on a copy of a project, with the rehearsal in place of an agent.

People try their own rules, checks and notifications with it before they pay for a run. The project
itself is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from shlex import quote
from typing import Any

import click

from handoffd.cli.asking import json_option
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
@json_option
def rehearse(path: Path, story: str, script: Path | None, yes: bool, as_json: bool) -> None:
    """Run a story on a copy of PATH without an agent: no token is spent."""
    from handoffd.cli.playing import play, progress, tell

    _require(path, story, yes=yes)
    base = Path(tempfile.mkdtemp(prefix="handoffd-rehearsal-"))
    project = str(copy_project(path.resolve(), base / path.resolve().name, script))
    progress.print(f"Rehearsing [bold]{story}[/] in a copy: {project}\n")
    played = play(project, story, base=base, settings=_settings(), yes=yes, by="rehearse")
    tell(played, as_json=as_json)
    if not as_json:
        click.echo(f"\nThe copy: {project}\nThe daemon's log: {played.log}")


def _require(path: Path, story: str, *, yes: bool) -> None:
    """Refuse what cannot be rehearsed before anything is copied. Raises HandoffdError."""
    from handoffd.cli.storyline import can_ask
    from handoffd.protocol.story import check_story_id

    check_story_id(story)
    if not yes and not can_ask():
        raise HandoffdError(
            "human steps ask a person, and there is no terminal",
            hint=f"handoffd rehearse {quote(str(path))} --yes",
        )
    if not path.is_dir():
        raise NotFound(f"{path} is no folder", hint=f"ls {quote(str(path.absolute().parent))}")


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
