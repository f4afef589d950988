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
    """Return the daemon's settings with their comments in the example file."""
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
        said = " ".join(comment).partition(" Example:")[0]
        if value is None:
            section, about = f"{section}.{key}".lstrip("."), said
        else:
            yield (f"{section}.{key}" if section else key), value, said or about or _ABOVE
            about = ""
        comment = []


def _default(data: Any, section: str, key: str) -> str | None:
    """Return a default as JSON; None for a section."""
    for part in section.split(".") if section else ():
        data = data[part]
    value = data[key]
    return None if isinstance(value, dict) and value else json.dumps(value, ensure_ascii=False)


def project_settings() -> str:
    """Return a project's own settings; a * marks settings that need a person's trust."""
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


_ABOVE = "As above."

_MEANINGS: Mapping[str, str] = {
    "auto": "Dispatch as soon as the project is supervised and initialised (Level 2).",
    "auto_continue": ("Start the next story of its backlog when one is done."),
    "schedule": (
        "Starts by the clock, as in `schedule.starts` of the daemon's settings, without `projects`."
    ),
    "executor": ("Its executor: a name, `auto`, or several with the best first. Without it, the daemon's."),
    "language": "Language of its prompts, `en` or `zh-TW`; without it, the daemon's.",
    "preset": "A shipped change of the step table: `default`, `go`, `web` or `with-commit`.",
    "gates": "When you decide about each story: `before` its code (`review`), `after` it (`acceptance`), "
    "`both` or `none`. One gate more counts at once.",
    "identical_ends": "After this many equal failures of a step in a row a story waits for you, "
    "though it has attempts left; 0: never.",
    "stall_min": ("As the daemon's `execute.stall_min`, which applies without it."),
    "test.command": (
        "The project's tests as an argv list, without a shell. `{report}` becomes a path in the daemon's own"
        " folder. Without a command nothing is measured."
    ),
    "test.report": (
        "How the tests report: `junit` or `jest` (JSON), a file at `{report}`; `gotest`, `tap` or `cargo`"
        " (what `cargo test` prints), at `{report}` or on standard output; `exit` for the exit code alone."
    ),
    "test.reports": (
        "Where maven or gradle, which take no path, leave JUnit files, as patterns below the root:"
        ' `["**/target/surefire-reports/*.xml"]`. They are removed before each run.'
    ),
    "test.exclude_argument": (
        "Argument that excludes a test file which cannot be loaded; `{file}` becomes its path."
    ),
    "allow_test_changes": (
        "Patterns, as in .gitignore, of test files that may differ from what the red step left:"
        " `[tests/fixtures/**]`."
    ),
    "external_edits": (
        "Edits of STATE.json while nothing runs: `hold_gates` adopts them unless they pass a human step,"
        " `adopt` always does, `refuse` never."
    ),
    **{
        f"caps.{scope}_{unit}": f"The most {word} for {what}."
        for scope, what in (("attempt", "each run"), ("story", "each story"), ("project", "the project"))
        for unit, word in (("usd", "US dollars"), ("tokens", "tokens"))
    },
    "group": ("Its group of the daemon's `scheduling.groups`; without it, the first that names its path."),
    "priority": "Its priority, -100 to 100, higher goes first; without it, its group's.",
    "env": "Further environment variables that its executors and tests may see.",
    "sandbox.level": "As the daemon's, which applies without it.",
    "sandbox.network": _ABOVE,
    "sandbox.writable": "More than the daemon's.",
    "sandbox.visible": _ABOVE,
    "sandbox.let_in": _ABOVE,
    "snapshots": "Whether the files of its stories are kept as refs of its git repository.",
    "workspace.kind": "Where its stories work: `root`, its own folder, or `clone`, a private clone for each.",
    "workspace.setup": "What makes a clone ready, as an argv list: `[npm, ci]`.",
    "workspace.setup_min": "Minutes that it may take.",
    "workspace.link": "What a clone gets of the project's folder that is not in git, as links: `[.env]`.",
    "stories.parallel": (
        "Most of its stories that are worked on at once, each in a clone of its own (`workspace: clone`)."
        " More than 1 makes `auto_continue` the default."
    ),
    "stories.waiting": (
        "Most of its stories that may wait, for a person, a limit or a budget, while the next one is begun."
    ),
    "stories.land": (
        "Who lands a story that is done in a clone: you (`ask`), the daemon (`auto`), `stories.land_command`"
        " (`command`), or none of them (`branch`: its branch is all that you want)."
    ),
    "stories.land_command": (
        "What takes a story that is done, as an argv list: it opens a pull request, for instance. It runs in"
        " the project's folder, outside of the sandbox."
    ),
    "stories.land_command_min": "Minutes that it may take.",
    "stories.protected": 'Branches on which nothing is landed: `[main, "release/*"]`.',
    "stories.overlap": (
        "What a story does, before its first step with code, where another one changes the same files: `wait`"
        " until that has landed, or `warn` in `status`."
    ),
    "commit": (
        "When the daemon commits on a story's branch: after each `step`, at the end of the `story`, never"
        " (`none`; in a clone `agent`: what agents commit). Without it, `step` in a clone, else `none`."
    ),
    "commit_author": "Who is the author of these commits, as `NAME <ADDRESS>`; without it, handoffd.",
}
