"""What `reload` and the adding of many projects answer, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from handoffd.engine.views import Renewed
from handoffd.errors import HandoffdError, Problem

Json = dict[str, Any]


def renewed_json(renewed: Renewed, warnings: tuple[str, ...]) -> Json:
    """Return what came of reading everything again; `problems` are all there are, in words."""
    view = renewed.settings
    return {
        "type": "reloaded",
        "settings": {
            "file": view.file,
            "taken": not view.problems,
            "changed": list(view.changed),
            "restart": list(view.restart),
            "problems": [problem_json(problem) for problem in view.problems],
        },
        "brought": renewed.brought,
        "let_go": renewed.let_go,
        "problems": [*map(str, view.problems), *renewed.problems],
        "warnings": list(warnings),
    }


def problem_json(problem: Problem) -> Json:
    """Return a problem of a file: where it is, what it is, and what is allowed."""
    return {**asdict(problem), "allowed": list(problem.allowed)}


def added_json(outcome: Mapping[str, str | HandoffdError]) -> Json:
    """Return which projects are supervised now, and why others are not."""
    added = [root for root in outcome.values() if isinstance(root, str)]
    refused = [
        {"project": asked, "code": error.code, "message": error.message, "hint": error.hint}
        for asked, error in outcome.items()
        if isinstance(error, HandoffdError)
    ]
    return {"type": "added_many", "added": added, "refused": refused}
