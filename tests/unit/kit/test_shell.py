"""Between the environment of a task and a program."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.kit.boards import board, row

from handoffd.errors import HandoffdError
from handoffd.kit.given import Answer, Done, Given
from handoffd.kit.programs import PROGRAMS, Program
from handoffd.kit.shell import given_by, run


class Night:
    """A clock that shows one moment."""

    def now(self) -> datetime:
        """Return a minute before midnight."""
        return datetime(2026, 1, 31, 23, 59, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return nothing that is used."""
        return 0.0


def echo(given: Given) -> Done:
    """Hand over and write what was given: the program of these tests."""
    return Done(
        outcome="found", fields={"n": 2, "ok": True}, summary="é",
        out={"a.json": b"{}"}, writes={given.words["path"]: b"new"},
    )  # fmt: skip


ECHO = Program(name="echo", about="", more="", function=f"{__name__}:echo")


def test_the_environment_says_what_a_program_gets(tmp_path: Path) -> None:
    """Parameters, answers, the item, the board, and how to test."""
    board(tmp_path / "b", [row("scan", outcome="found")], {})
    environ = {
        "HANDOFFD_PARAM_NAME": "x", "HANDOFFD_PARAM_PATHS": '["a"]', "HANDOFFD_BOARD": str(tmp_path / "b"),
        "HANDOFFD_ANSWER_CHOOSE": "chosen", "HANDOFFD_ANSWER_CHOOSE_TEXT": "E1",
        "HANDOFFD_FLOW": "clean-7k2q",
        "HANDOFFD_ITEM": '{"id": "D1"}', "HANDOFFD_TEST_COMMAND": '["make"]', "HANDOFFD_FLOWS": "/f",
        "PATH": "/bin",
    }  # fmt: skip

    one = given_by(environ, tmp_path, {"manifest": "m"}, Night())

    assert {"name": "x", "paths": '["a"]'} == one.params
    assert {"choose": Answer("chosen", "E1")} == one.answers
    assert ("found", {"id": "D1"}, "clean-7k2q") == (one.board.entries[0].outcome, one.item, one.flow)
    assert ({"command": '["make"]'}, Path("/f"), "2026-01-31") == (one.test, one.flows, one.today)


def test_an_item_that_is_a_text_stays_one(tmp_path: Path) -> None:
    """Quoted or not."""
    assert "GH-12" == given_by({"HANDOFFD_ITEM": "GH-12"}, tmp_path, {}).item
    assert "GH-12" == given_by({"HANDOFFD_ITEM": '"GH-12"'}, tmp_path, {}).item
    assert given_by({}, tmp_path, {}).item is None


def test_a_question_that_ends_in_text_is_not_taken_for_a_text(tmp_path: Path) -> None:
    """Its own choice has the shorter name."""
    environ = {"HANDOFFD_ANSWER_READ_TEXT": "yes", "HANDOFFD_ANSWER_READ_TEXT_TEXT": "all"}

    assert {"read_text": Answer("yes", "all")} == given_by(environ, tmp_path, {}).answers


def test_files_and_the_result_go_where_the_environment_says(tmp_path: Path) -> None:
    """And what is written, into the workspace."""
    (tmp_path / "out").mkdir()
    environ = {"HANDOFFD_OUT": str(tmp_path / "out"), "HANDOFFD_RESULT": str(tmp_path / "result.json")}

    run(ECHO, Given(root=tmp_path, words={"path": "docs/x.md"}), environ)

    assert "{}" == (tmp_path / "out/a.json").read_text()
    assert "new" == (tmp_path / "docs/x.md").read_text()
    assert {"outcome": "found", "fields": {"n": 2, "ok": True}, "summary": "é"} == json.loads(
        (tmp_path / "result.json").read_text("utf-8")
    )


def test_by_hand_files_are_handed_over_in_the_workspace(tmp_path: Path) -> None:
    """As an agent does."""
    run(ECHO, Given(root=tmp_path, words={"path": "x"}), {})

    assert "{}" == (tmp_path / ".ai/out/a.json").read_text()


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "link/x"])
def test_nothing_is_written_outside_of_the_workspace(tmp_path: Path, path: str) -> None:
    """Whatever a program says."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "link").symlink_to(tmp_path)

    with pytest.raises(HandoffdError, match="refusing"):
        run(ECHO, Given(root=tmp_path / "w", words={"path": path}), {})
    assert not (tmp_path / "x").exists()


def test_every_program_exists_and_says_what_it_does() -> None:
    """Its function can be imported, and takes what it is given."""
    from importlib import import_module

    for one in PROGRAMS.values():
        module, _, name = one.function.partition(":")
        assert callable(getattr(import_module(module), name)), one.name
        assert one.about.endswith(".")
        assert one.more
        assert len(one.about) <= 75
