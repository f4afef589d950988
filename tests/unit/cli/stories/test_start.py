"""`handoffd start`: what its words mean, and where a text comes from."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import pytest
from tests.support.commands import LIMIT_S, Commands, Said, environment
from tests.support.controlled import Controlled

from handoffd.cli.stories.start import StartWords, meant
from handoffd.engine.decision import Accepted, Refusal
from handoffd.engine.events import Started

PROJECTS = {"shop", "my shop", "SHOP-1", "商店"}


# --- what the words mean --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "project", "stories", "texts"),
    [
        ("US-1", None, "US-1", ""),
        ("'Add a toggle'", None, "", "Add a toggle"),
        ("-", None, "", "-"),
        ("shop US-1", "shop", "US-1", ""),
        (". 'Add a toggle'", ".", "", "Add a toggle"),
        ("shop -", "shop", "", "-"),
        ("shop US-1 'Add a toggle'", "shop", "US-1", "Add a toggle"),
        ("US-1 'Add a toggle'", None, "US-1", "Add a toggle"),
        ("US-1 US-2 US-3", None, "US-1 US-2 US-3", ""),
        ("SHOP-1 US-2", "SHOP-1", "US-2", ""),
        ("SHOP-2 US-2", None, "SHOP-2 US-2", ""),
        ("shpo US-2", "shpo", "US-2", ""),
        ("shpo 'Add a toggle'", "shpo", "", "Add a toggle"),
        ("dark-mode US-2", "dark-mode", "US-2", ""),
        ("./US-1 US-2", "./US-1", "US-2", ""),
        ("'/srv/my shop' US-1", "/srv/my shop", "US-1", ""),
        ("'my shop' US-1", "my shop", "US-1", ""),
        ("'my shop'", None, "", "my shop"),
        ("'/health is slow'", None, "", "/health is slow"),
        ("'Add\ta toggle' US-9", None, "US-9", "Add\ta toggle"),
        ("加入深色模式", None, "", "加入深色模式"),
        (". 故事", ".", "", "故事"),
        ("商店 US-1", "商店", "US-1", ""),
        ("商店 ダークモード", "商店", "", "ダークモード"),
        ("商店", None, "商店", ""),
        ("dark_mode", None, "dark_mode", ""),
    ],
)
def test_a_word_with_white_space_is_a_text_and_others_are_ids_or_the_project(
    words: str, project: str | None, stories: str, texts: str
) -> None:
    """The first of several names is the project, unless it looks like an id and not like a project."""
    said = meant(tuple(shlex.split(words)), PROJECTS.__contains__, described=False)

    wanted = StartWords(project=project, stories=tuple(stories.split()), texts=(texts,) if texts else ())
    assert wanted == said


def test_with_a_text_as_an_option_one_name_is_the_project() -> None:
    """Or an id, if it looks like one."""
    assert "shop" == meant(("shop",), PROJECTS.__contains__, described=True).project
    assert ("US-1",) == meant(("US-1",), PROJECTS.__contains__, described=True).stories


# --- from the words to the event --------------------------------------------------------------------------
def given(control: Controlled) -> Started:
    """Return the start that reached the project."""
    ((root, event),) = control.supervision.given
    assert "/srv/shop" == root
    assert isinstance(event, Started)
    return event


def test_a_text_reaches_the_project_and_the_next_command_is_told(
    control: Controlled, handoffd: Commands
) -> None:
    """The daemon chooses the id, which the answer names."""
    control.supervision.answer = Accepted(
        step="bdd", status="pending", message="US-007 starts at bdd", caller_instruction="x", story="US-007",
        warnings=("look out",),
    )  # fmt: skip
    said = handoffd("start", "shop", "Dark mode\nAt night.", "--queue", "--priority", "3", "--title", "Night")

    event = given(control)
    assert ("", "Night", "Dark mode\nAt night.") == (
        event.story, event.described and event.described.title, event.described and event.described.text,
    )  # fmt: skip
    assert (True, 3, (), False) == (event.queue, event.priority, event.numbers, event.heeds_undescribed)
    assert ["US-007 starts at bdd (bdd, pending)", "  warning: look out"] == said.lines[:2]
    assert said.lines[-1].startswith("  next: handoffd ")


@pytest.mark.parametrize(
    "words", ["shop US-7 'Dark mode'", "shop 'Dark mode' --id US-7", "shop --id US-7 'Dark mode'"]
)
def test_an_id_may_be_given_with_a_text(control: Controlled, handoffd: Commands, words: str) -> None:
    """As a word or as an option."""
    assert 0 == handoffd("start", *shlex.split(words)).code
    assert ("US-7", None) == (given(control).story, given(control).numbers)


def test_several_stories_of_the_project_here_need_no_project(
    control: Controlled, handoffd: Commands, here: Path
) -> None:
    """The first is an id by its form."""
    control.supervision.projects[str(here)] = control.supervision.projects["/srv/shop"]
    assert 0 == handoffd("start", "US-010", "US-011").code
    ((root, event),) = control.supervision.given
    assert isinstance(event, Started)
    assert (str(here), "US-010", ("US-011",)) == (root, event.story, event.then)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("shop 'a b' 'c d'", "one text at a time"),
        ("shop 'a b' --file x", "one text at a time"),
        ("shop - 'a b'", "one text at a time"),
        ("", "STORY is missing"),
    ],
)
def test_words_that_do_not_fit_are_usage_errors(
    control: Controlled, handoffd: Commands, words: str, said: str
) -> None:
    """Nothing is started."""
    told = handoffd("start", *shlex.split(words))
    assert 2 == told.code
    assert said in told.err
    assert [] == control.supervision.given


@pytest.mark.parametrize(
    ("words", "following"),
    [
        ("shop Add dark mode", "handoffd start shop 'Add dark mode' --queue"),
        ("shop Add and Add", "handoffd start shop 'Add and Add' --queue"),
    ],
)
def test_a_text_without_quotes_is_typed_again_with_them(
    control: Controlled, handoffd: Commands, words: str, following: str
) -> None:
    """As it was typed; the daemon has only its words, as ids."""
    control.supervision.answer = Refusal(
        code="UNQUOTED", message="a text needs quotes", caller_instruction="x",
        next_command="handoffd start {project} TEXT --queue",
    )  # fmt: skip
    told = handoffd("start", *words.split(), "--queue")
    assert (1, f"  next: {following}") == (told.code, told.err.replace("/srv/shop", "shop").splitlines()[-1])
    assert given(control).heeds_words


@pytest.mark.parametrize(
    ("words", "following"),
    [
        ("shop Add a toggle, please", "handoffd start shop 'Add a toggle, please'"),
        ("Add dark mode", "handoffd start 'Add dark mode'"),
        ("shpo US-1 US-2", "handoffd projects"),
        ("shpo dark-mode", "handoffd projects"),
        ("shop US/2", "handoffd start shop STORY"),
    ],
)
def test_words_that_cannot_be_ids_or_a_project_are_advised_quotes(
    control: Controlled, handoffd: Commands, words: str, following: str
) -> None:
    """But for what may be a typing error in one."""
    told = handoffd("start", *words.split())
    assert f"  next: {following}" == told.err.splitlines()[-1]
    assert [] == control.supervision.given


# --- files ------------------------------------------------------------------------------------------------
def test_a_file_may_say_the_id_and_what_options_say(
    control: Controlled, handoffd: Commands, here: Path
) -> None:
    """What is typed goes before it."""
    front = "---\nid: US-012\ntitle: Night\nblocked_by: US-011\npriority: 5\n---\nDark mode"
    (here / "story.md").write_text(front)
    assert 0 == handoffd("start", "shop", "--file", "story.md", "--priority", "7").code
    event = given(control)
    assert ("US-012", ("US-011",), 7) == (event.story, event.blocked_by, event.priority)
    assert ("Night", "Dark mode") == (
        event.described and event.described.title, event.described and event.described.text,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", 1, "it is empty"),
        (b"a\n\xff\xfe", 1, "line 2 is not UTF-8"),
        (b"a\0b", 1, "line 1 holds a NUL character"),
        (b"x" * (5 * 1024 * 1024), 1, "is larger than 4 MiB"),
        (b"x" * (65 * 1024), 1, "64 KiB is the most"),
        (None, 4, "there is no file story.md"),
    ],
)
def test_a_file_that_is_no_text_is_one_clear_error(
    control: Controlled, handoffd: Commands, here: Path, content: bytes | None, code: int, said: str
) -> None:
    """And starts nothing."""
    if content is not None:
        (here / "story.md").write_bytes(content)
    told = handoffd("start", "shop", "--file", "story.md")
    assert (code, "") == (told.code, told.out)
    assert said in told.err
    assert [] == control.supervision.given


@pytest.mark.parametrize(
    ("words", "text"), [("-", "Dark mode\n\nAt night.\n"), ("'Dark mode\n\nAt night.'", "")]
)
def test_a_refusal_keeps_a_text_that_no_command_repeats(
    control: Controlled, tmp_path: Path, words: str, text: str
) -> None:
    """In a file that the next command names. One that is repeated needs none."""
    control.supervision.answer = Refusal(
        code="STORY_IN_PROGRESS", message="US-1 runs", caller_instruction="x",
        next_command="handoffd start {project} TEXT --queue --title Night",
    )  # fmt: skip
    env = {"TMPDIR": str(tmp_path)}
    told = run(control, "start", "shop", *shlex.split(words), text=text, env=env)

    (kept,) = tmp_path.glob("handoffd-story-*")
    assert f"next: handoffd start /srv/shop --file {kept} --queue --title Night\n" in told.err
    assert "Dark mode\n\nAt night." == kept.read_text().strip()
    run(control, "start", "shop", "-", text="Dark mode", env=env)
    assert [kept] == [*tmp_path.glob("handoffd-story-*")]


def test_a_refusal_names_the_file_again(control: Controlled, handoffd: Commands, here: Path) -> None:
    """Its text is too long for a command to repeat."""
    (here / "my story.md").write_text("Dark mode\n\nAt night.")
    control.supervision.answer = Refusal(
        code="STORY_IN_PROGRESS", message="US-1 runs", caller_instruction="x",
        next_command="handoffd start {project} TEXT --queue",
    )  # fmt: skip
    told = handoffd("start", "shop", "--file", "my story.md")
    assert "next: handoffd start /srv/shop --file 'my story.md' --queue\n" in told.err


# --- standard input, and the editor ---------------------------------------------------------------------
def run(control: Controlled, *words: str, text: str = "", env: Mapping[str, str] | None = None) -> Said:
    """Run `handoffd` as a program of its own, with a text for its standard input."""
    ended = subprocess.run(
        [sys.executable, "-m", "handoffd", *words],
        env=environment(control.runtime, **(env or {})),
        input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return Said(ended.returncode, ended.stdout, ended.stderr)


def test_an_issue_comes_from_standard_input(control: Controlled) -> None:
    """As `gh` prints it."""
    issue = {"body": "At night.", "number": 12, "title": "Dark mode", "url": "https://x.org/12"}
    assert 0 == run(control, "start", "shop", "-", text=json.dumps(issue)).code
    text = given(control).described
    assert text is not None
    assert ("Dark mode", "https://x.org/12") == (text.title, text.source)
    assert "Dark mode\n\nAt night.\n\nSource: https://x.org/12" == text.text


def editor(folder: Path, script: str) -> dict[str, str]:
    """Return an environment whose editor is a script; it gets the file as its last word."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"EDITOR": f"{path} --wait", "TMPDIR": str(folder)}


def test_a_text_is_written_in_the_editor(control: Controlled, tmp_path: Path) -> None:
    """The lines that explain are left out, and the file goes when it is no longer needed."""
    env = editor(
        tmp_path, '[ "$1" = --wait ] && { echo "Dark mode"; cat "$2"; } > "$2.new" && mv "$2.new" "$2"'
    )
    said = run(control, "start", "shop", "--edit", env=env)
    assert (0, "") == (said.code, said.err)
    assert "Dark mode" == (given(control).described and given(control).described.text)  # type: ignore[union-attr]
    assert [] == list(tmp_path.glob("handoffd-story-*"))


def test_the_editor_begins_with_the_text_that_there_is(control: Controlled, tmp_path: Path) -> None:
    """The one that is given, or that the story has."""
    env = editor(tmp_path, 'sed -i s/mode/theme/ "$2"')
    assert 0 == run(control, "start", "shop", "Dark mode", "--edit", env=env).code
    assert 0 == run(control, "start", "shop", "US-1", "--edit", env=env).code
    texts = [
        event.described.text
        for _, event in control.supervision.given
        if isinstance(event, Started) and event.described
    ]
    assert ["Dark theme", "Dark theme\n\nA toggle."] == texts


@pytest.mark.parametrize(
    ("words", "script", "said"),
    [
        ("", "true", "the text is empty: nothing was started"),
        ("'Dark mode'", "true", "the text is unchanged: nothing was started"),
        ("", 'echo > "$2"', "the text is empty"),
        ("", "exit 3", "the editor ended with exit code 3, so nothing was started"),
        ("", "printf '\\377' > \"$2\"", "line 1 is not UTF-8: save it as UTF-8; the text is in /"),
        (
            "",
            'head -c 70000 /dev/zero | tr "\\0" x > "$2"',
            "64 KiB is the most: shorten it; the text is in /",
        ),
    ],
)
def test_a_text_that_is_not_written_starts_nothing(
    control: Controlled, tmp_path: Path, words: str, script: str, said: str
) -> None:
    """Leaving the editor without a word is a way to change one's mind."""
    told = run(control, "start", "shop", *shlex.split(words), "--edit", env=editor(tmp_path, script))
    assert (1, "") == (told.code, told.out)
    assert said in told.err
    assert [] == control.supervision.given


def test_an_editor_that_is_not_there_is_named(control: Controlled) -> None:
    """The hint says how to choose another."""
    told = run(control, "start", "shop", "--edit", env={"EDITOR": "/nowhere/ed"})
    assert 1 == told.code
    assert "the editor /nowhere/ed does not start" in told.err
    assert "next: export EDITOR=nano" in told.err


def test_a_refusal_does_not_lose_what_was_written(control: Controlled, tmp_path: Path) -> None:
    """It says where the text is, which `--file` takes."""
    control.supervision.answer = Refusal(
        code="STORY_IN_PROGRESS", message="US-1 runs", caller_instruction="x"
    )
    env = editor(tmp_path, 'echo "Dark mode" > "$2"')
    told = run(control, "start", "shop", "--edit", env=env)
    (kept,) = tmp_path.glob("handoffd-story-*")
    assert f"US-1 runs; the text is in {kept}: give it again with --file" in told.err
    assert 0o600 == stat.S_IMODE(kept.stat().st_mode)
    control.supervision.answer = Accepted(step="bdd", status="pending", message="ok", caller_instruction="x")
    assert 0 == run(control, "start", "shop", "--file", str(kept)).code


# --- at a terminal ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("terminal", [True, False])
def test_only_at_a_terminal_an_undescribed_story_is_to_be_refused(
    control: Controlled, terminal: bool
) -> None:
    """There a person can be asked for a text."""
    mine, theirs = os.openpty()
    command: Any = [sys.executable, "-m", "handoffd", "start", "shop", "US-9"]
    with os.fdopen(theirs, "rb") as screen:
        stdin = screen if terminal else subprocess.DEVNULL
        env = environment(control.runtime)
        subprocess.run(command, env=env, stdin=stdin, capture_output=True, timeout=LIMIT_S, check=True)
    os.close(mine)
    assert terminal == given(control).heeds_undescribed


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class _Older(BaseHTTPRequestHandler):
    """Answers as a daemon of before stories had texts."""

    def do_GET(self) -> None:
        """Know no project."""
        self._answer(404, {"type": "error", "code": "NOT_FOUND", "message": "no project", "hint": None})

    def do_POST(self) -> None:
        """Start what it understands."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        unknown = sorted(body.keys() - {"project", "by", "story", "queue"})
        if unknown:
            message = f"unknown argument {unknown[0]!r} (allowed: story, queue)"
            self._answer(400, {"type": "error", "code": "BAD_ARGUMENT", "message": message, "hint": None})
            return
        told = {"type": "accepted", "message": f"{body['story']} starts", "step": "bdd", "status": "pending"}
        self._answer(200, {**told, "caller_instruction": "x", "project": "/srv/shop"})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        """Return a name for the log: a Unix socket has no address."""
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def test_a_daemon_of_before_an_upgrade_is_asked_as_it_understands(tmp_path: Path) -> None:
    """It knows no argument `described`, which the person at the terminal never typed."""
    runtime = Path(tempfile.mkdtemp(prefix="older-", dir="/tmp"))
    try:
        with _Server(str(runtime / "control.sock"), _Older) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            mine, theirs = os.openpty()
            with os.fdopen(theirs, "rb") as screen:
                ended = subprocess.run(
                    [sys.executable, "-m", "handoffd", "start", "shop", "US-9"],
                    env=environment(runtime), stdin=screen, capture_output=True, text=True, timeout=LIMIT_S,
                    check=False,
                )  # fmt: skip
            os.close(mine)
            server.shutdown()
    finally:
        shutil.rmtree(runtime)
    assert (0, "US-9 starts (bdd, pending)\n", "") == (ended.returncode, ended.stdout, ended.stderr)
