"""What commands share when they print an answer."""

from __future__ import annotations

import json

import pytest

from handoffd.cli.asking import insisted, print_json
from handoffd.errors import StoreError


def test_programs_get_one_indented_object_in_any_language(capsys: pytest.CaptureFixture[str]) -> None:
    """Chinese stays readable."""
    print_json({"story": "US-001", "report": "實作完成"})

    printed = capsys.readouterr().out
    assert "實作完成" in printed
    assert (
        printed == json.dumps({"story": "US-001", "report": "實作完成"}, indent=2, ensure_ascii=False) + "\n"
    )


def test_a_daemon_without_a_place_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    """After longer and longer pauses, with a word and what shows the crowd; other errors are errors."""
    full = StoreError("64 streams are open", code="TOO_MANY_STREAMS", hint="ps -fp 7")
    answers: list[str | StoreError] = [*[full] * 7, "answer"]
    paused: list[float] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    assert "answer" == insisted(ask, paused.append)
    assert [1, 2, 4, 8, 16, 30, 30] == paused
    told = capsys.readouterr().err.splitlines()
    assert "handoffd: 64 streams are open; see: ps -fp 7; trying again in 1 s" == told[0]
    answers.append(StoreError("the disk is full"))
    with pytest.raises(StoreError, match="disk"):
        insisted(ask, paused.append)
