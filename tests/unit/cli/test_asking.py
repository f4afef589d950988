"""What commands share when they print an answer."""

from __future__ import annotations

import json

import pytest

from handoffd.cli.asking import print_json


def test_programs_get_one_indented_object_in_any_language(capsys: pytest.CaptureFixture[str]) -> None:
    """Chinese stays readable."""
    print_json({"story": "US-001", "report": "實作完成"})

    printed = capsys.readouterr().out
    assert "實作完成" in printed
    assert (
        printed == json.dumps({"story": "US-001", "report": "實作完成"}, indent=2, ensure_ascii=False) + "\n"
    )
