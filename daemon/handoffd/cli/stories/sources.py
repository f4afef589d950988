"""Where the texts of stories come from: a file, a folder, standard input, or the editor."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import join, quote, split
from typing import Final

from handoffd.errors import (
    HandoffdError,
    InvalidFile,
    NotFound,
    Problem,
    Refused,
    StoreError,
    with_remedy,
)
from handoffd.protocol.story_text import INVALID_TEXT, PIPED, WrittenStory, decoded, stories_in

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one file. A list of issues is longer than a text may be."""

STDIN: Final = "-"

_HELP: Final = "handoffd backlog import --help"
_ENDINGS: Final = (".md", ".markdown")

_CUT: Final = "~~~~ handoffd: from this line on, nothing belongs to the text ~~~~"
_EXPLAINED: Final = f"""
{_CUT}
Write above what {{story}} shall bring. The first line is its title.
Every agent that works on it gets this text; it needs no form. Save the file and leave the editor.
To start nothing, leave it empty or unchanged.
"""


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for `-`.

    Raises NotFound, StoreError, and Refused (INVALID_TEXT) for anything but text.
    """
    if name == STDIN:
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        try:
            with open(name, "rb") as file:
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise NotFound(
                f"there is no file {name}", hint=f"ls -l {quote(str(Path(name).parent))}"
            ) from None
        except OSError as error:
            raise StoreError(f"{name} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        shown = PIPED if name == STDIN else name
        raise Refused(f"{shown} is larger than {MOST_BYTES // 1024 // 1024} MiB", code=INVALID_TEXT)
    return decoded(content)


def found_in(name: str) -> list[WrittenStory]:
    """Return the stories of a file, a folder, or standard input for `-`.

    Raises InvalidFile with every problem of every file, NotFound where there is no story.
    """
    stories: list[tuple[str, WrittenStory]] = []
    problems: list[Problem] = []
    for file, one in _all_in(name):
        if isinstance(one, Problem):
            problems.append(one)
        else:
            stories.append((file, one))
    problems += _twice(stories)
    if problems:
        fix = with_remedy(InvalidFile(tuple(problems)), os.getcwd()).hint
        again = f"{fix}  # then import again; nothing was added" if name != STDIN else _HELP
        raise InvalidFile(tuple(problems), hint=again)
    if not stories:
        raise NotFound(f"there is no story in {name}", hint=_HELP)
    return [story for _, story in stories]


def _all_in(name: str) -> Iterator[tuple[str, WrittenStory | Problem]]:
    if name == STDIN or not os.path.isdir(name):
        shown = PIPED if name == STDIN else name
        yield from ((shown, one) for one in stories_in(shown, read_text(name)))
        return
    paths = sorted(path for path in Path(name).iterdir() if path.suffix.lower() in _ENDINGS)
    for path in paths:
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            text = read_text(str(path))
        except HandoffdError as error:
            yield str(path), Problem(file=str(path), message=error.message)
        else:
            yield from ((str(path), one) for one in stories_in(str(path), text, name=path.stem))


def _twice(stories: list[tuple[str, WrittenStory]]) -> Iterator[Problem]:
    """Yield what two stories have in common that each must have alone."""
    seen: dict[str, str] = {}
    for file, one in stories:
        name = one.id or one.described.source or one.described.title
        folded = " ".join(name.casefold().split())
        if folded in seen:
            message = f"{name[:80]!r} is another story, too, in {seen[folded]}"
            yield Problem(file=file, line=one.line, key=one.key, message=message)
        seen.setdefault(folded, f"{file}:{one.line}" if one.line else file)


# --- the editor -----------------------------------------------------------------------------------------
class Draft:
    """A text that no file of the user's has, and which a refusal must not lose."""

    def __init__(self, text: str, *, lost: bool) -> None:
        self._text = text
        self._path: Path | None = None
        self.lost = lost
        """Whether an error loses it: what was typed as a word can be typed again."""

    @property
    def path(self) -> Path:
        """The file, which is made when it is asked for, and stays until `discard`."""
        if self._path is None:
            handle, name = tempfile.mkstemp(prefix="handoffd-story-", suffix=".md")
            with open(handle, "w", encoding="utf-8") as file:
                file.write(self._text)
            self._path = Path(name)
        return self._path

    @property
    def written(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def edited(story: str | None, text: str, environ: Mapping[str, str]) -> tuple[str, Draft]:
    """Return what the user made of `text` in $VISUAL, $EDITOR or vi, and the file that it is in.

    Raises Refused (NOTHING_WRITTEN) for an empty or unchanged text, and StoreError if the editor fails.
    """
    draft = Draft(f"{text}\n{_EXPLAINED.format(story=story or 'the story')}", lost=True)
    with keeping(draft):
        _run_editor([*split(environ.get("VISUAL") or environ.get("EDITOR") or "vi"), str(draft.path)])
        written = decoded(draft.path.read_bytes()).partition(_CUT)[0].strip()
    if not written or written == text.strip():
        draft.discard()
        what = "unchanged" if written else "empty"
        raise Refused(f"the text is {what}: nothing was started", code="NOTHING_WRITTEN")
    return written, draft


def _run_editor(argv: list[str]) -> None:
    try:
        code = subprocess.call(argv)
    except OSError as error:
        message = f"the editor {argv[0]} does not start: {error.strerror}"
        raise StoreError(message, hint="export EDITOR=nano  # or name a file with --file") from error
    if code:
        raise StoreError(f"the editor ended with exit code {code}, so nothing was started ({join(argv)})")


@contextmanager
def keeping(draft: Draft | None) -> Iterator[None]:
    """Have errors say where the text is that they would have lost."""
    try:
        yield
    except HandoffdError as error:
        if draft is not None and draft.lost:
            error.message += f"; {kept(draft)}"
        raise


def kept(draft: Draft) -> str:
    """Return where the text is that a refusal would have lost."""
    return f"the text is in {draft.path}: give it again with --file"
