"""Log lines, read back from their stream."""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog

from handoffd.app.logs import configure_logging, form_for
from handoffd.settings.model import LogSettings


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the logging configuration, which belongs to the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def _configured(form: str = "json", level: str = "info", stream: TextIO | None = None) -> io.StringIO:
    target = stream or io.StringIO()
    settings = LogSettings.model_validate({"format": form, "level": level})
    configure_logging(settings, stream=target, environment={})
    assert isinstance(target, io.StringIO)
    return target


def _entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_event_level_logger_time_and_keywords() -> None:
    """One line is one object, the fixed keys first; a path or an odd object becomes text."""
    stream = _configured()

    structlog.get_logger("handoffd.watch").info("saved", path=Path("/srv/shop"), names={"b"}, none=[], n=2)

    (entry,) = _entries(stream)
    assert ["time", "level", "logger", "event"] == list(entry)[:4]
    assert entry.pop("time").endswith("Z")
    expected = {"level": "info", "logger": "handoffd.watch", "event": "saved"}
    assert {**expected, "path": "/srv/shop", "names": ["b"], "none": [], "n": 2} == entry


def test_text_is_one_readable_line() -> None:
    """Time, level, event and key=value, quoted where necessary."""
    stream = _configured("text")

    structlog.get_logger("handoffd").warning(
        "slow sweep", root="/srv/my shop", seconds=1.5, note="", 名="測試"
    )

    _, _, rest = stream.getvalue().partition(" ")
    assert 'warning slow sweep root="/srv/my shop" seconds=1.5 note="" 名=測試\n' == rest


def test_a_second_configuration_replaces_the_first() -> None:
    """It changes the level of existing loggers and of libraries, and no line appears twice."""
    log, library = structlog.get_logger("handoffd"), logging.getLogger("library")
    first = _configured(level="error")
    log.info("unheard")
    library.warning("unheard, too")
    second = _configured(level="debug")
    log.debug("heard")

    assert "" == first.getvalue()
    assert ["heard"] == [entry["event"] for entry in _entries(second)]


def test_libraries_log_to_the_same_stream() -> None:
    """With arguments, traceback and bound context in one line of JSON."""
    stream = _configured()

    with structlog.contextvars.bound_contextvars(run="r1"):
        structlog.get_logger("handoffd").info("ours")
        logging.getLogger("library").error("job %s failed", "poll", exc_info=ValueError("torn"))

    ours, theirs = _entries(stream)
    assert ("r1", "r1", "job poll failed") == (ours["run"], theirs["run"], theirs["event"])
    assert theirs["exception"].endswith("ValueError: torn")


@pytest.mark.parametrize(("level", "heard"), [("info", ["warning"]), ("debug", ["info", "warning"])])
def test_chatty_libraries_are_turned_down(level: str, heard: list[str]) -> None:
    """File events and ticks appear only at debug level."""
    stream = _configured(level=level)

    logging.getLogger("watchfiles.main").debug("raw event")
    logging.getLogger("watchfiles.main").info("1 change detected")
    logging.getLogger("apscheduler.executors.default").warning("missed")

    assert heard == [entry["level"] for entry in _entries(stream)]


def test_warnings_of_python_are_logged() -> None:
    """A deprecation goes to the same stream."""
    stream = _configured()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old call", UserWarning, stacklevel=1)
        logging.captureWarnings(False)

    (entry,) = _entries(stream)
    assert "old call" in entry["event"]


KEYS = "token api_key apiKey Authorization webhook_secret X-Api-Key password accessToken cookie"


@pytest.mark.parametrize("key", KEYS.split())
def test_values_of_secret_keys_are_not_logged(key: str) -> None:
    """At any depth and in any spelling."""
    stream = _configured()

    structlog.get_logger("handoffd").info(
        "request", **{key: "hunter2"}, headers={key: "hunter2", "deep": [{key: ["hunter2", 22]}]}, seen="this"
    )

    assert "hunter2" not in stream.getvalue()
    (entry,) = _entries(stream)
    assert "[redacted]" == entry[key]
    assert "[redacted]" == entry["headers"][key]
    assert "this" == entry["seen"]


@pytest.mark.parametrize(
    "text",
    [
        "GET https://alice:hunter2@example.org/x",
        "Authorization: Bearer hunter2",
        "run with ANTHROPIC_API_KEY=hunter2 set",
        "--auth-token=hunter2",
        '{"password": "hunter2"}',
        "https://example.org/hook?token=hunter2&room=1",
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_inside_text_are_not_logged(text: str, form: str) -> None:
    """In events, values, argvs and tracebacks."""
    stream = _configured(form)
    log = structlog.get_logger("handoffd")

    log.info(text, value=text, argv=["agent", text, "--password", "hunter2"])
    log.error("failed", exc_info=ValueError(text))
    logging.getLogger("library").warning("%s", text)

    assert "hunter2" not in stream.getvalue()
    assert "[redacted]" in stream.getvalue()


def test_counts_and_other_keys_are_not_redacted() -> None:
    """Tokens used, monkeys, empty values."""
    stream = _configured()

    structlog.get_logger("handoffd").info(
        "usage", input_tokens=512, monkey="yes", token=None, tokenizer="bpe"
    )

    (entry,) = _entries(stream)
    expected = {"input_tokens": 512, "monkey": "yes", "token": None, "tokenizer": "bpe"}
    assert expected == {key: entry[key] for key in expected}


@pytest.mark.parametrize("form", ["json", "text"])
def test_hostile_text_forges_no_line_and_drives_no_terminal(form: str) -> None:
    """Line breaks, escape sequences and invalid UTF-8 become harmless."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="strict", write_through=True)
    settings = LogSettings.model_validate({"format": form})
    configure_logging(settings, stream=stream, environment={})
    hostile = 'a\n2026-01-01 info gate opened\x1b[2J\u009b\r"\udcff'

    structlog.get_logger("handoffd").info(hostile, file=hostile)

    written = raw.getvalue()
    assert 1 == written.count(b"\n")
    assert b"\x1b" not in written
    assert b"\r" not in written
    assert b"gate opened" in written


def test_a_traceback_in_text_is_indented_below_its_line() -> None:
    """So that the end of an entry is visible."""
    stream = _configured("text")

    try:
        json.loads("torn")
    except ValueError:
        structlog.get_logger("handoffd").exception("project crashed", project="/srv/shop")

    first, *below = stream.getvalue().splitlines()
    assert first.endswith("error   project crashed project=/srv/shop")
    assert below[-1].startswith("    json.decoder.JSONDecodeError: ")
    assert all(line.startswith("    ") for line in below)


@pytest.mark.parametrize(
    ("stream", "environment", "form"),
    [
        (Terminal(), {}, "text"),
        (Terminal(), {"INVOCATION_ID": "x", "JOURNAL_STREAM": "1:2"}, "text"),
        (io.StringIO(), {"JOURNAL_STREAM": "1:2"}, "json"),
        (io.StringIO(), {"INVOCATION_ID": "x"}, "json"),
        (io.StringIO(), {}, "text"),
    ],
)
def test_the_form_depends_on_the_stream(stream: TextIO, environment: dict[str, str], form: str) -> None:
    """Text for a terminal, even under systemd; JSON for the journal."""
    assert form == form_for(stream, environment)


@pytest.mark.parametrize(("inherited", "marks"), [(False, ("<4>", "<3>")), (True, ("", ""))])
def test_only_the_journal_gets_priorities(tmp_path: Path, inherited: bool, marks: tuple[str, str]) -> None:
    """So `journalctl --priority warning` finds warnings; an inherited variable has no effect."""
    with (tmp_path / "journal").open("w+", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        given = "1:2" if inherited else f"{status.st_dev}:{status.st_ino}"
        configure_logging(LogSettings(), stream=stream, environment={"JOURNAL_STREAM": given})
        structlog.get_logger("handoffd").warning("watch degraded")
        logging.getLogger("library").error("broken")
        stream.seek(0)
        written = stream.read().splitlines()

    assert [f'{mark}{{"time"' for mark in marks] == [line[: len(marks[0]) + 7] for line in written]
