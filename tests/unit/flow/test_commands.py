"""The words of a command: what is replaced in them, and what runs our own program."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from handoffd.engine.flow.events import Execute
from handoffd.engine.flow.flow import Flow, Item
from handoffd.flow.commands import argv_of

OURS = (sys.executable, "-I", "-m", "handoffd")
FLOW = Flow(id="debug-7k2q", params={"topic": "$(rm -r /)", "days": 3})
ITEM = Item(id="T1", value={"id": "T1", "file": "a b"})


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (("make", "{params.topic}", "x{params.days}"), ("make", "$(rm -r /)", "x{params.days}")),
        (("cat", "{item.file}", "{item}"), ("cat", "a b", '{"id": "T1", "file": "a b"}')),
        (("cat", "{item.other}", "{params.none}"), ("cat", "{item.other}", "{params.none}")),
        (("handoffd", "kit", "group", "--size", "{params.days}"), (*OURS, "kit", "group", "--size", "3")),
        (("{project.test}",), ("make test",)),
        ("handoffd kit tests", (*OURS, "kit", "tests")),
        ("handoffd-else {params.topic}", ("/bin/sh", "-c", "handoffd-else {params.topic}")),
        ("{project.test} && echo {story}", ("/bin/sh", "-c", "make test && echo debug-7k2q")),
    ],
)  # fmt: skip
def test_only_whole_words_of_a_list_get_values(command: Any, argv: tuple[str, ...]) -> None:
    """In a text only the declared places are replaced; our own program is found without a PATH."""
    order = Execute(node="a", visit=1, command=command, number=1, item=ITEM)

    assert argv == argv_of(command, FLOW, order, {"{project.test}": "make test", "{story}": FLOW.id})
