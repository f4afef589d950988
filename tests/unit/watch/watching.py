"""Projects for the watcher's tests, a running watcher, and its hints."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from tests.support.eventually import eventually

from handoffd.settings.model import WatchSettings
from handoffd.watch.watcher import Watcher


class Hints:
    """Counts hints by project; the text of HANDOFF.md at the time of the last one is kept."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.seen: dict[str, str] = {}

    def take(self, root: str) -> None:
        """Look again."""
        self.count[root] += 1
        file = Path(root, ".ai", "HANDOFF.md")
        self.seen[root] = file.read_text(encoding="utf-8") if file.exists() else ""

    def saw(self, root: Path, text: str) -> Callable[[], bool]:
        """Return a condition: the last hint about `root` came when `text` was there."""
        return lambda: text == self.seen.get(str(root))


@asynccontextmanager
async def watching(
    settings: WatchSettings, *roots: Path, hints: Hints | None = None
) -> AsyncIterator[tuple[Watcher, Hints]]:
    """Run a watcher over `roots` that has given each its first hint."""
    hints = hints or Hints()
    watcher = Watcher(hints.take, settings)
    with anyio.fail_after(300):
        async with anyio.create_task_group() as group:
            group.start_soon(watcher.run)
            for root in roots:
                watcher.add(str(root))
            await eventually(lambda: len(roots) == len(hints.count), within_s=120)
            yield watcher, hints
            group.cancel_scope.cancel()


def project(folder: Path, name: str = "project") -> Path:
    """Return a new project with an empty `.ai` folder."""
    (folder / name / ".ai").mkdir(parents=True)
    return folder / name


def publish(root: Path, text: str, name: str = "HANDOFF.md") -> None:
    """Replace a file the way careful writers do: write beside it, then rename."""
    temp = root / ".ai" / f".{name}.{threading.get_ident()}"
    temp.write_text(text, encoding="utf-8")
    temp.replace(root / ".ai" / name)


def touch_name_that_is_no_utf8(root: Path) -> None:
    """Create (and so report) a file whose name watchfiles cannot decode."""
    os.close(os.open(os.fsencode(root / ".ai") + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
