"""Screens on a terminal of 80 columns: what is ours fits; a command to type, or a path, stays whole."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from tests.support.agents import project_at
from tests.support.commands import environment_of, typed
from tests.support.daemon import Daemon
from tests.support.recording import WIDTH, Shown, recorded
from tests.support.repositories import git

from handoffd.engine.wording import columns

LONG = "A customer who has paid with a gift card gets the rest of it back as another card"
GATED = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 5}
  review: {next_on_pass: done, requires_human: true, step_instruction: {en: Review it.}}
"""
BRIEF = "steps: {bdd: {next_on_pass: done, timeout_min: 5}}\n"
WHOLE = re.compile(r" *(?:# |next: |(?:[^:;,.]{1,60}: )?(?:handoffd [a-z]|/\S*(?: \(.*\))?$))")
"""A command or a path, behind a label; and a comment of a file that is shown as it is."""
SHOP, FARM, YARD = "shop-for-a-customer", "farm", "yard"
SCREENS = (
    "status", f"status {SHOP}", f"status {FARM}", f"backlog {SHOP}", f"backlog import {SHOP} stories",
    "gate", f"gate {SHOP} --no-keys", "stories", "report", "notices", "runs", "tonight",
    f"start {SHOP} US-909", f"start {SHOP} Add a dark mode to all pages of the site", "status nowhere-at-all",
    "schedule", "limits", f"gate {SHOP}", f"init {YARD}",
)  # fmt: skip
KEYS = {"q quit": "q", "]: ": "\n"}
"""What is hit at which text: a review stays undecided, and the questions of init are answered with Enter."""


@pytest.fixture(scope="module")
def screens(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """Return each screen: of a story at a gate with others behind it, and one that is done and not landed.

    Last a new project is set up.
    """
    base = tmp_path_factory.mktemp("screens")
    shop, farm = project_at(base / SHOP, GATED), project_at(base / FARM, BRIEF, "workspace: clone\n")
    (farm / ".gitignore").write_text("/.ai\n")
    (base / YARD).mkdir()
    (base / YARD / "Makefile").write_text("test:\n\ttrue\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        assert 0 == git(farm, *words)
        assert 0 == git(base / YARD, *words)
    (base / "stories").mkdir()
    for number in range(1, 4):
        (base / f"stories/{number}.md").write_text(
            f"---\nid: US-00{number}\n---\n# {LONG} ({number})\n\nGive.\n"
        )
    for project in (shop, farm):
        assert 0 == typed(daemon, "start", str(project), f"{LONG}\n\n{LONG}. {LONG}.", "--id", "US-001").code
    typed(daemon, "start", str(shop), "US-007", "--queue", "--blocked-by", "US-002", "--blocked-by", "US-003")
    typed(daemon, "backlog", "import", str(shop), str(base / "stories"))
    daemon.wait_at(shop, "review", "needs_human")
    daemon.wait_at(farm, "done", "pass")
    program = shlex.join([sys.executable, "-m", "handoffd", "--config", str(daemon.config)])
    commands = [f"{program} {words} || true" for words in SCREENS]
    env = environment_of(daemon) | {"TERM": "xterm", "PAGER": "cat"}
    return dict(zip(SCREENS, recorded(commands, env=env, folder=base, keys=KEYS), strict=True))


@pytest.mark.parametrize("words", SCREENS)
def test_no_line_of_ours_is_wider_than_the_terminal(screens: dict[str, Shown], words: str) -> None:
    """But for one that is a command to type, or a path."""
    lines = screens[words].text
    assert lines
    assert [] == [line for line in lines if columns(line) > WIDTH and not WHOLE.match(line)]
