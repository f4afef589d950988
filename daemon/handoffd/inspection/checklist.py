"""`.ai/CHECKLIST.md`: what each step of a story comes to, as boxes that its executors tick.

The one file of this room that is written. A step that is a person's has a line without a box: no
executor passes there who could tick it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from handoffd.files.rooted import read_project_file, write_project_file
from handoffd.inspection.own_files import settings_of, table_of
from handoffd.inspection.project_status import parsed_state
from handoffd.protocol import yamltext
from handoffd.protocol.prompt import line
from handoffd.protocol.rules import Language, RuleBook, localized
from handoffd.protocol.story import check_story_id
from handoffd.settings.paths import shared

CHECKLIST = ".ai/CHECKLIST.md"
MAX_BYTES = 4 * 1024 * 1024


class Boxes(BaseModel):
    """The texts of a checklist in one language: by step, and the texts for every other step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plain: str
    person: str
    steps: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=2)
def boxes_in(language: Language) -> Boxes:
    """Return the texts that ship."""
    path = shared("config", "prompts", language, "checklist.yaml")
    return Boxes.model_validate(yamltext.load(path.read_bytes(), file=str(path)).data)


def checklist(story: str, steps: Iterable[str], rules: RuleBook, language: Language = "en") -> str:
    """Return the checklist of a story that takes `steps`, one section each."""
    boxes = boxes_in(language)
    return "\n".join([f"# {story}", "", *(_section(step, rules, boxes, language) for step in steps)])


def _section(step: str, rules: RuleBook, boxes: Boxes, language: Language) -> str:
    rule = rules.steps[step]
    # The step's own name is in its heading: by it executors find the boxes that are theirs.
    name = line(localized(rule.display_name, language) or "", limit=80)
    heading = f"## {name} ({step})" if name and name != step else f"## {step}"
    if rule.requires_human:
        lines = [boxes.person]
    else:
        lines = [f"- [ ] {text}" for text in boxes.steps.get(step, (boxes.plain,))]
    return "\n".join([heading, "", *lines, ""])


_BOX = re.compile(r"\s*[-*+] \[ \] +(\S.*)")
_HEADING = re.compile(r"#{1,6} +(\S.*)")


def unticked(lines: Iterable[str], ahead: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Yield line number, section and text of each box that is not ticked, but for the steps `ahead`.

    A heading that names no step counts as behind: an agent may have changed it.
    """
    section, open_ = "", True
    for number, text in enumerate(lines, start=1):
        if heading := _HEADING.fullmatch(text.rstrip()):
            section = heading[1]
            step = section.rpartition("(")[2].removesuffix(")")
            open_ = step not in ahead
        elif open_ and (box := _BOX.fullmatch(text.rstrip())):
            yield number, section, box[1]


def write_checklist(root: str, story: str, text: str, started: datetime | None = None) -> bool:
    """Create the story's checklist, unless it is there: an executor may have ticked it already.

    One of before the story has `started` is of an earlier start, and is replaced. Returns whether it was
    written. Raises StoreError.
    """
    seen = read_project_file(Path(root), CHECKLIST, MAX_BYTES)
    own = seen is not None and seen.content.startswith(f"# {story}\n".encode())
    since_ns = 0 if started is None else started.timestamp() * 1e9
    if seen is not None and own and seen.mtime_ns >= since_ns:
        return False
    write_project_file(Path(root), CHECKLIST, text, durable=False)
    return True


def generate_checklist(
    root: str, story: str, task_type: str = "story", language: Language | None = None
) -> bool:
    """Create the checklist of `story` by the project's own step table, unless it is there.

    `language` None: the one of the project's settings, else English. Returns whether it was written.
    Raises Refused (INVALID_STORY), InvalidFile for files of the project that mean nothing, StoreError.
    """
    check_story_id(story)
    rules = table_of(root)
    parsed = parsed_state(root)
    steps = rules.path_from(task_type, parsed.state.step if parsed is not None else "")
    chosen = language or settings_of(root).language or "en"
    return write_checklist(root, story, checklist(story, steps, rules, chosen))
