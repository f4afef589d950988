"""What `reload` and the adding of many projects answer."""

from __future__ import annotations

import json

from handoffd.api.service import added_json, problem_json, renewed_json
from handoffd.engine.views import Renewed, SettingsView
from handoffd.errors import NotFound, Problem

PROBLEM = Problem(file="/etc/h.yaml", line=3, key="language", message="must be one", allowed=("en", "zh-TW"))


def test_what_was_read_again_is_told_whole() -> None:
    """Settings first, then projects; `problems` are all there are, in words."""
    view = SettingsView(file="/etc/h.yaml", problems=(PROBLEM,), restart=("control.tcp.port",))
    renewed = Renewed(settings=view, brought=2, let_go=1, problems=("/srv/shop: bad",))

    told = renewed_json(renewed, view.warnings)

    assert (2, 1, [str(PROBLEM), "/srv/shop: bad"]) == (told["brought"], told["let_go"], told["problems"])
    assert {
        "file": "/etc/h.yaml", "taken": False, "changed": [], "restart": ["control.tcp.port"],
        "problems": [problem_json(PROBLEM)],
    } == told["settings"]  # fmt: skip
    assert 2 == len(told["warnings"])
    assert told == json.loads(json.dumps(told))


def test_a_problem_has_its_place_and_what_is_allowed() -> None:
    """For programs."""
    assert {
        "file": "/etc/h.yaml", "line": 3, "key": "language", "message": "must be one",
        "allowed": ["en", "zh-TW"],
    } == problem_json(PROBLEM)  # fmt: skip


def test_which_were_added_and_why_others_were_not() -> None:
    """Each by what it was asked for."""
    told = added_json({"/srv/a": "/srv/a", "/gone": NotFound("/gone is no folder", hint="ls")})

    assert ["/srv/a"] == told["added"]
    refusal = {"project": "/gone", "code": "NOT_FOUND", "message": "/gone is no folder", "hint": "ls"}
    assert [refusal] == told["refused"]
