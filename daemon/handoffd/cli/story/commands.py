"""`handoffd demo` and `handoffd rehearse`: a whole story under the real daemon, played by the rehearsal.

It is a real program that costs no token and writes real tests and code. `demo` takes a small project of
ours; `rehearse` takes a copy of a project, on which users try their own rules, checks and notifications
before they pay for a run. It does not touch the project itself. Problems with the project are reported
before the copy is made: afterwards the hints would lead to the copy.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from handoffd.cli.asking import json_option
from handoffd.cli.story.copies import copy_project, new_folder, own_settings, sandbox_here, skip_tests
from handoffd.cli.story.flows import flow_options, rehearse_flow
from handoffd.entrance.requests import ask
from handoffd.errors import HandoffdError, InvalidFile, NotFound, Problem, Refused, StoreError, remedies
from handoffd.settings.model import SandboxSettings

if TYPE_CHECKING:
    from handoffd.cli.story.player import Played
    from handoffd.entrance.place import Place
    from handoffd.protocol.rules import RuleBook


@click.command()
@click.option("--yes", is_flag=True, help="Let the review approve itself instead of asking.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to make the project (default: a new folder)."
)
@json_option
def demo(yes: bool, directory: Path | None, as_json: bool) -> None:
    """Take a small real project through a whole story; costs nothing.

    At a terminal it asks you at the review; without a terminal it approves the review and reports that.
    """
    from handoffd.cli.story.player import play, progress, tell
    from handoffd.rehearsal import sample

    _require_room(directory)
    base = Path(tempfile.mkdtemp(prefix="handoffd-demo-"))
    project = str(sample.create(directory.absolute() if directory else base / "shop"))
    progress.print(
        f"A small shop, made in [bold]{project}[/] for this, gets the story [bold]{sample.STORY}[/], "
        "discount codes.\nA script takes the agent's place and costs nothing; daemon and tests are real.",
        soft_wrap=True,
    )
    settings = {
        "executor": "rehearsal", "schedule": {"poll_s": 1}, "execute": {"min_free_mb": 0},
        "scheduling": {"min_free_memory_mb": 0}, "sandbox": sandbox_here(SandboxSettings()),
    }  # fmt: skip
    played = play(
        project, sample.STORY, base=base, settings=settings, approved_by=_approved_by(yes=yes), by="demo",
        again="handoffd demo",
    )  # fmt: skip
    proof = tell(played, as_json=as_json, prove=_prove)
    if not as_json:
        click.echo("\n".join(_next_steps(project, str(proof["pytest"]))))


def _require_room(directory: Path | None) -> None:
    """Refuse what the demo cannot do before anything is made. Raises HandoffdError."""
    if importlib.util.find_spec("pytest") is None:
        raise HandoffdError(
            "the shop's tests are run by pytest, which is not installed beside handoffd",
            code="NO_PYTEST", hint=f"{quote(sys.executable)} -m pip install pytest",
        )  # fmt: skip
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise HandoffdError(
            f"{directory} is not empty, and the demo needs an empty folder",
            code="NOT_EMPTY", hint="handoffd demo  # makes a folder itself",
        )  # fmt: skip


def _approved_by(*, yes: bool) -> str | None:
    """Return what approves the review instead of the user; None if the user is asked."""
    from handoffd.cli.story.reviewer import can_ask

    if yes:
        return "--yes was given"
    return None if can_ask() else "there is no terminal at which a person could be asked"


def _next_steps(project: str, tests: str) -> list[str]:
    """Return where to see the result, and the next commands."""
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
        f"  {program} init         # then with an agent: README.md, A minute with claude",
    ]


def _prove(played: Played) -> dict[str, object]:
    """Run the produced project's own tests as a user would; return the result. Raises StoryFailed."""
    from handoffd.cli.story.player import StoryFailed

    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "no:cacheprovider"]
    tests = subprocess.run(
        command, cwd=played.project, capture_output=True, text=True, check=False, timeout=120
    )
    last = (tests.stdout.strip().splitlines() or ["no output"])[-1]
    if tests.returncode != 0:
        hint = f"cd {quote(played.project)} && {join(command)}"
        message = f"the produced project's tests fail: {last}"
        raise StoryFailed(message, hint=hint, details={**played.json, "pytest": last}, code="TESTS_FAIL")
    return {"pytest": last}


# --- rehearse -----------------------------------------------------------------------------------------
_MOST_BYTES = 1024 * 1024


@click.command()
@click.argument("project", type=click.Path(path_type=Path), default=".")
@click.option("--story", help="The story's id (default: one that the project has not used).")
@click.option(
    "--script",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON that tells the rehearsal how to misbehave (docs/how-to/rehearse.md).",
)
@click.option("--yes", is_flag=True, help="Approve at human steps instead of asking.")
@flow_options
@json_option
@click.pass_obj
def rehearse(
    place: Place,
    /,
    project: Path,
    story: str | None,
    script: Path | None,
    yes: bool,
    as_json: bool,
    **flow: Any,
) -> None:
    """Run a story, or with --pipeline a flow, on a copy of PROJECT without an agent: no token is spent."""
    from handoffd.cli.story.player import play, progress, tell

    if flow["pipeline"] is not None:
        rehearse_flow(place, _source(place, project), script, as_json=as_json, **flow)
        return
    again = f"handoffd rehearse {quote(str(project))}"
    source = _source(place, project)
    story = _required(source, story, again, yes=yes)
    rules, settings = _rules_of(source), own_settings()
    acts = None if script is None else _checked_script(script, rules)
    with new_folder() as base:
        copy_project(source, base / source.name, acts)
        skipped = skip_tests(base / source.name, story)
        unmeasured = _unmeasured(base / source.name, rules)
    copy = str(base / source.name)
    progress.print(f"Rehearsing [bold]{story}[/] in a copy: {copy}\n")
    if skipped is not None:
        progress.print(f"The story's tests are skipped: {skipped}\n", soft_wrap=True, markup=False)
    approved_by = "--yes was given" if yes else None
    played = play(
        copy, story, base=base, settings=settings, approved_by=approved_by, by="rehearse", again=again
    )
    tell(replace(played, unmeasured=unmeasured, skipped=skipped), as_json=as_json)
    if not as_json:
        click.echo(f"\nThe copy: {copy}\nThe daemon's log: {played.log}")


def _source(place: Place, project: Path) -> Path:
    """Return the folder of a project, given by its path or name. Raises NotFound, and Refused for a home."""
    from handoffd.inspection.discovery import unfit

    if project.is_dir():
        source = project.resolve()
    elif "/" in str(project):
        raise NotFound(f"{project} is not a folder", hint=f"ls {quote(str(project.absolute().parent))}")
    else:
        source = Path(ask(place, "query", project=str(project)).json["root"])
    if (why := unfit(str(source), place.settings().state_dir)) is not None:
        raise Refused(f"{source} cannot be a project: {why}", hint="handoffd rehearse PROJECT")
    return source


def _required(source: Path, story: str | None, again: str, *, yes: bool) -> str:
    """Return the story to rehearse, and refuse what cannot be before anything is copied.

    Raises HandoffdError.
    """
    from handoffd.cli.story.reviewer import can_ask
    from handoffd.protocol.story import check_story_id

    unused = _unused_story(source)
    if story is not None:
        check_story_id(story, hint=f"{again} --story {unused}")
        if _is_used(source, story):
            raise Refused(f"{story} was worked on here before", hint=f"{again} --story {unused}")
    if not yes and not can_ask():
        raise HandoffdError("human steps ask a person, and there is no terminal", hint=f"{again} --yes")
    return story or unused


def _unused_story(source: Path) -> str:
    ids = (f"US-{number:03}" for number in count(1))
    return next(one for one in ids if not _is_used(source, one))


def _is_used(source: Path, story: str) -> bool:
    """Return whether the project has done a story, or has its scenarios: then its tests may be there, too."""
    from handoffd.inspection.framework import finished_before

    return story in finished_before(str(source)) or (source / f"docs/bdd/{story}.md").exists()


def _checked_script(file: Path, rules: RuleBook) -> str:
    """Return the text of a script that the rehearsal will understand. Raises InvalidFile."""
    from handoffd.rehearsal.script import ANY_STEP, STREAM, BadScript, parse

    name = str(file.absolute())
    with remedies("/"):
        try:
            with file.open("rb") as opened:  # once: it may be a pipe
                text = opened.read(_MOST_BYTES).decode("utf-8", "replace")
            script = parse(text, name)
        except OSError as error:
            raise InvalidFile((Problem(file=name, message=f"cannot be read ({error.strerror})"),)) from error
        except BadScript as bad:
            problem = Problem(
                file=bad.file, line=bad.line, key=bad.key, message=bad.message, allowed=bad.allowed
            )
            raise InvalidFile((problem,)) from None
        if unknown := script.keys() - {*rules.steps, ANY_STEP, STREAM}:
            steps = tuple(rules.steps)
            raise InvalidFile((Problem(file=name, key=min(unknown), message="is not a step", allowed=steps),))
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


def _unmeasured(project: Path, rules: RuleBook) -> frozenset[str]:
    """Return the steps whose tests would be run, if there were a command for that."""
    from handoffd.inspection.own_files import settings_of

    if settings_of(str(project)).test.command is not None:
        return frozenset()
    return frozenset(name for name, rule in rules.steps.items() if rule.tests is not None)
