"""The folders that stories are worked on in: small, with checks that cost a few milliseconds."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.stories import ROUGH, Odds, Story, rules, tell
from tests.support.repositories import git

# What is there at first passes; what the scaffold adds fails until there has been an impl. The
# rehearsal's own count of its starts tells how far the story is.
_TESTS = """\
echo "$HANDOFFD_RUN" >> {log}
count=.ai/rehearsal-count.json
echo 1..2
echo ok 1 - old
if grep -qs '"impl"' $count; then echo ok 2 - new
elif grep -qs '"scaffold"' $count; then echo not ok 2 - new
fi
"""


@dataclass(slots=True)
class Project:
    """One root, and the stories played in it."""

    root: Path
    naps: bool
    wild: bool
    odds: Odds = ROUGH
    stories: list[Story] = field(default_factory=list)

    def next_story(self, chance: Random) -> Story:
        """Return one more story, its script in place. Only while none is in flight."""
        name = f"US-{len(self.stories) + 1:03}"
        story = tell(name, chance, naps=self.naps, wild=self.wild, odds=self.odds)
        self.stories.append(story)
        (self.root / ".ai/rehearsal-count.json").unlink(missing_ok=True)
        (self.root / ".ai/rehearsal.json").write_text(json.dumps(story.rehearsal()))
        return story


def make(root: Path, kind: int, checks: Path, odds: Odds = ROUGH) -> Project:
    """Return a new project of a kind at `root`; `checks` is a file that gets a line for each check that runs.

    Every second one has tests, the others are git repositories; every third has a time limit that is always
    missed, every fourth may lose its shims at any time.
    """
    wild = kind % 4 == 3
    project = Project(root, naps=kind % 3 == 0 and not wild, wild=wild, odds=odds)
    folder = root / ".ai"
    folder.mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A project in which whatever can be killed is killed.\n")
    table = rules(naps=project.naps)
    if kind % 4 in {1, 2}:
        table["steps"]["impl"]["post_check"] = f'echo "$HANDOFFD_RUN" >> {shlex.quote(str(checks))}'
    (folder / "step-rules.yaml").write_text(json.dumps(table))  # JSON is YAML
    if kind % 2:
        script = root.parent / f"{root.name}-tests.sh"
        script.write_text(_TESTS.format(log=shlex.quote(str(checks))))
        settings = {"test": {"command": ["/bin/sh", str(script)], "report": "tap"}}
        (folder / "handoffd.yaml").write_text(json.dumps(settings))
    else:
        assert 0 == git(root, "init", "--quiet")
    return project
