"""The program in which apprise runs; what it does with apprise is in test_apprise.py."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

from handoffd.notify.apprise import ARGV
from handoffd.notify.apprise_worker import REQUIREMENT, _harmless, _pieces

REPOSITORY = Path(__file__).parents[3]


def test_no_piece_of_an_address_is_told() -> None:
    """Whatever apprise logs, in one line that is not long."""
    secrets = _pieces("tgram://123456:ABC-key/chat1?x=query&pass=p%40ss%2Fword")
    told = (
        "2026-01-31 22:15:09,123 - WARNING - Failed to send to 123456:ABC-key/chat1\n"
        "2026-01-31 22:15:10,123 - WARNING - query of p@ss/word, error=401.\n" + "x" * 999
    )

    shown = _harmless(told, secrets)
    assert shown.startswith("Failed to send to ")
    assert "error=401" in shown
    assert not [key for key in ("123456", "ABC-key", "chat1", "query", "p@ss", "word") if key in shown]
    assert len(shown) <= 300


def test_what_is_to_be_installed_is_the_extra() -> None:
    """Of that name: what is told must be right."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert [REQUIREMENT] == extras["apprise"]
    assert REQUIREMENT in extras["dev"]


def test_what_cannot_be_answered_is_answered_too_and_its_end_is_that_of_its_input() -> None:
    """However its daemon dies; of an address that apprise does not know only the number is told."""
    program = subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b'nonsense\n{"urls": ["nosuch://key"], "check": true}\n')
    program.stdin.flush()

    assert {"error": "apprise failed (JSONDecodeError)"} == json.loads(program.stdout.readline())
    unusable = [{"number": 1, "why": "apprise does not know such an address"}]
    assert {"taken": [], "failed": [], "unusable": unusable} == json.loads(program.stdout.readline())
    program.stdin.close()
    assert 0 == program.wait(timeout=60)
    program.stdout.close()
