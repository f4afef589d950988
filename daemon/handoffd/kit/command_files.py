"""`resolve-path`, `render`, `write`: a file with a command for the agents of a project.

Three programs and not one, so that a person can be asked in between: nothing is overwritten unasked.
"""

from __future__ import annotations

import json
import re
from typing import Final

from handoffd.errors import NotFound, Refused
from handoffd.kit.given import Done, Given, invalid

FOLDER: Final = ".claude/commands"
RENDERED: Final = "command.md"
TEMPLATE: Final = """\
---
description: {description_yaml}
---

# {name}

{description}

## What you are given

$ARGUMENTS

## What to do

1. Read what the arguments name, and the rules in docs/ that hold for it.
2. Do what the description above says, and no more.
3. Say in the end which files you changed, and how you checked them.
"""
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_GROUP: Final = re.compile(r"([a-z][a-z0-9-]*)?")
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
_LONGEST: Final = 60


def place_of(given: Given) -> str:
    """Return where the command file belongs, from the parameters. Raises InvalidFile."""
    name, group = given.param("name"), given.params.get("group", "")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        invalid("HANDOFFD_PARAM_NAME", "", f"'{name[:80]}': must be small letters and digits, joined by '-'")
    if not _GROUP.fullmatch(group) or len(group) > _LONGEST:
        invalid(
            "HANDOFFD_PARAM_GROUP", "", f"'{group[:80]}': must be empty, or small letters, digits and '-'"
        )
    return "/".join(part for part in (FOLDER, group, f"{name}.md") if part)


def resolve_path(given: Given) -> Done:
    """Say where the command file belongs, and whether there is one."""
    path = place_of(given)
    there = given.text(path) is not None
    summary = f"{path} exists already." if there else f"{path} is free."
    return Done(outcome="exists" if there else "free", fields={"path": path}, summary=summary)


def render(given: Given) -> Done:
    """Fill the template; each placeholder needs a value."""
    file = given.words.get("from")
    template = TEMPLATE if file is None else given.text(file)
    if template is None:
        raise NotFound(f"there is no template {file} in {given.root}")
    values = {**given.params, "description_yaml": json.dumps(given.param("description"), ensure_ascii=False)}
    where = file or "the template command-md"
    wanted = dict.fromkeys(_PLACEHOLDER.findall(template))
    missing = [name for name in wanted if name not in values]
    if missing:
        invalid(where, missing[0], "this placeholder has no value", sorted(values))
    # In one pass: a value with braces is a text, and no placeholder.
    text = _PLACEHOLDER.sub(lambda found: values[found[1]], template)
    return Done(summary=f"{len(text):,} characters.", out={RENDERED: text.encode()})


def write(given: Given) -> Done:
    """Write what was rendered; over another file only with a person's word."""
    path = place_of(given)
    files = [file for _, file in given.board.named(RENDERED)]
    if not files:
        raise NotFound(f"the board has no {RENDERED}; `handoffd kit render command-md` makes it")
    content = given.board.read(files[-1])
    target = given.board.of("target")
    before = given.text(path)
    may = target is not None and target.outcome == "exists"
    if before is not None and before.encode() != content and not may:
        raise Refused(f"{path} exists, and no person agreed to overwrite it", hint=f"cat {path}")
    return Done(summary=f"{path} is written.", writes={path: content})
