"""`handoffd rehearse`: a story on a copy of a project, with the rehearsal in place of an agent.

People try their own rules, checks and notifications with it before they pay for a run. The project
itself is not touched. What is wrong with it is said before anything is copied: afterwards the hints
would lead to the copy.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from handoffd.cli.asking import json_option
from handoffd.errors import HandoffdError, InvalidFile, NotFound, Problem, StoreError, remedies

if TYPE_CHECKING:
    from handoffd.protocol.rules import RuleBook

_MOST_BYTES = 1024 * 1024


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
    from handoffd.cli.copying import copy_project, skip_tests
    from handoffd.cli.playing import play, progress, tell

    _require(path, story, yes=yes)
    source = path.resolve()
    acts = None if script is None else _checked_script(script)
    rules, settings = _rules_of(source), _settings()
    with _new_folder() as base:
        copy_project(source, base / source.name, acts)
        skipped = skip_tests(base / source.name, story)
        unmeasured = _unmeasured(base / source.name, rules)
    project = str(base / source.name)
    progress.print(f"Rehearsing [bold]{story}[/] in a copy: {project}\n")
    if skipped is not None:
        progress.print(f"The story's tests are skipped: {skipped}\n", soft_wrap=True, markup=False)
    approved_by = "--yes was given" if yes else None
    played = play(project, story, base=base, settings=settings, approved_by=approved_by, by="rehearse")
    tell(replace(played, unmeasured=unmeasured, skipped=skipped), as_json=as_json)
    if not as_json:
        click.echo(f"\nThe copy: {project}\nThe daemon's log: {played.log}")


def _require(path: Path, story: str, *, yes: bool) -> None:
    """Refuse what cannot be rehearsed before anything is copied. Raises HandoffdError."""
    from handoffd.cli.reviewer import can_ask
    from handoffd.protocol.story import check_story_id

    check_story_id(story, hint=f"handoffd rehearse {quote(str(path))} --story US-001")
    if not yes and not can_ask():
        raise HandoffdError(
            "human steps ask a person, and there is no terminal",
            hint=f"handoffd rehearse {quote(str(path))} --yes",
        )
    if not path.is_dir():
        raise NotFound(f"{path} is no folder", hint=f"ls {quote(str(path.absolute().parent))}")


def _checked_script(file: Path) -> str:
    """Return the text of a script that the rehearsal will understand. Raises InvalidFile."""
    from handoffd.rehearsal.script import BadScript, parse

    name = str(file.absolute())
    with remedies("/"):
        try:
            with file.open("rb") as opened:  # once: it may be a pipe
                text = opened.read(_MOST_BYTES).decode("utf-8", "replace")
            parse(text, name)
        except OSError as error:
            raise InvalidFile((Problem(file=name, message=f"cannot be read ({error.strerror})"),)) from error
        except BadScript as bad:
            problem = Problem(
                file=bad.file, line=bad.line, key=bad.key, message=bad.message, allowed=bad.allowed
            )
            raise InvalidFile((problem,)) from None
    return text


def _rules_of(source: Path) -> RuleBook:
    """Return the project's step table.

    Raises InvalidFile for that, or for settings that are wrong, and StoreError for what cannot be read.
    """
    from handoffd.inspection.own_files import table_of

    try:
        with remedies(str(source)):
            return table_of(str(source))
    except StoreError as error:
        look = f"ls -la {quote(str(source / '.ai'))}"
        raise StoreError(error.message, code=error.code, hint=look) from error


@contextmanager
def _new_folder() -> Iterator[Path]:
    """Lend a folder that stays, unless what is done in it first fails."""
    base = Path(tempfile.mkdtemp(prefix="handoffd-rehearsal-"))
    try:
        yield base
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise


def _unmeasured(project: Path, rules: RuleBook) -> frozenset[str]:
    """Return the steps whose tests would be run, if there were a command for that."""
    from handoffd.inspection.own_files import settings_of

    if settings_of(str(project)).test.command is not None:
        return frozenset()
    return frozenset(name for name, rule in rules.steps.items() if rule.tests is not None)


def _settings() -> dict[str, Any]:
    """Return the person's own settings, as far as they matter here: who is told, in which language."""
    from handoffd.settings.loading import load

    with remedies("/"):
        settings = load().settings
    wanted = settings.model_dump(mode="json", include={"notify", "language", "execute"})
    free = {"min_free_memory_mb": 0}  # a rehearsal takes next to none
    return {**wanted, "executor": "rehearsal", "schedule": {"poll_s": 1}, "scheduling": free}
