"""Every setting in one table: names and defaults from the models, meanings from where people read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from tests.support.markdown import plain, table

from handoffd.protocol import yamltext
from handoffd.settings.loading import sensitive
from handoffd.settings.model import ProjectSettings
from handoffd.settings.paths import shared


def daemon_settings() -> str:
    """Return the daemon's settings with what the example file says about each."""
    text = shared("config", "handoffd.example.yaml").read_text("utf-8")
    rows = [(f"`{key}`", f"`{default}`", meaning) for key, default, meaning in _explained(text)]
    return table(("Setting", "Default", "Meaning"), rows)


def _explained(text: str) -> Iterable[tuple[str, str, str]]:
    """Yield each key of the example with its default and the comment above it."""
    data = yamltext.load(text, file="example").data
    comment: list[str] = []
    section, about = "", ""
    for line in text.splitlines():
        found = re.fullmatch(r"(?P<indent> *)(?P<out># )?(?P<key>[a-z_]+):(?P<value>.*)", line)
        if found is None or (
            found["out"] and not found["value"].startswith(" ~/") and "/run/" not in found["value"]
        ):
            comment = [*comment, line.strip(" #")] if line.lstrip().startswith("#") else []
            continue
        key = found["key"]
        section = ".".join(section.split(".")[: len(found["indent"]) // 2])
        value = found["value"].strip() if found["out"] else _default(data, section, key)
        if value is None:
            section, about = f"{section}.{key}".lstrip("."), " ".join(comment)
        else:
            yield (f"{section}.{key}" if section else key), value, " ".join(comment) or about or _ABOVE
            about = ""
        comment = []


def _default(data: Any, section: str, key: str) -> str | None:
    """Return a default as JSON; None for a section."""
    for part in section.split(".") if section else ():
        data = data[part]
    value = data[key]
    return None if isinstance(value, dict) and value else json.dumps(value, ensure_ascii=False)


def project_settings() -> str:
    """Return a project's own settings; a * marks what waits for trust."""
    rows, held = [], sensitive(ProjectSettings())
    for name, default in _flat("", ProjectSettings()):
        rows.append(
            (
                f"`{name}`",
                f"`{json.dumps(plain(default))}`",
                _MEANINGS[name] + (" \\*" if name in held else ""),
            )
        )
    return table(("Setting", "Default", "Meaning"), rows)


def _flat(prefix: str, model: BaseModel) -> Iterable[tuple[str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


_ABOVE = "Belongs to the one above."

_MEANINGS: Mapping[str, str] = {
    "auto": "Dispatch by itself as soon as the project is supervised and initialised (Level 2).",
    "auto_continue": (
        "Start the next story of its backlog by itself when one is done; without it, as the daemon's"
        " settings say."
    ),
    "schedule": (
        "What the clock starts in it: entries as in `schedule.starts` of the daemon's settings, without"
        " `projects`."
    ),
    "executor": (
        "Which executor works on it: a name, `auto`, or several with the best first. Without it, the"
        " daemon's."
    ),
    "language": "Language of its prompts, `en` or `zh-TW`; without it, the daemon's.",
    "preset": "A shipped change of the step table: `default`, `go`, `web` or `with-commit`.",
    "stall_min": (
        "Minutes without a sign of life after which its executor is ended, 0: never; without it,"
        " the daemon's."
    ),
    "test.command": (
        "The project's tests as an argv list; no shell reads it. `{report}` is replaced by a path in the"
        " daemon's own folder. Without a command nothing is measured."
    ),
    "test.report": (
        "How the tests report: `junit` or `jest` (JSON), a file at `{report}`; `gotest`, `tap` or `cargo`"
        " (what `cargo test` prints), at `{report}` or on standard output; `exit` for the exit code alone."
    ),
    "test.exclude_argument": (
        "Added once for each test file that cannot be loaded, with its path for `{file}`, to run the"
        " other tests without it."
    ),
    "external_edits": (
        "What becomes of a STATE.json that somebody else changed at rest: `hold_gates` adopts it unless"
        " it passes a human step, `adopt` always does, `refuse` never."
    ),
    **{
        f"caps.{scope}_{unit}": f"How many {word} {what} may spend; in force only where it is less than the"
        " daemon's. Lowering it needs no trust."
        for scope, what in (("attempt", "each run"), ("story", "each story"), ("project", "the project"))
        for unit, word in (("usd", "US dollars"), ("tokens", "tokens"))
    },
    "group": (
        "The group of the daemon's `scheduling.groups` it belongs to; without it, the first that names its"
        " path."
    ),
    "priority": "Its priority, -100 to 100, higher goes first; without it, its group's.",
    "env": "Names of further environment variables its executors and tests may see.",
}
