"""The next command to type is one wherever the source names it: one of ours that exists, or a shell's."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.generate import ROOT
from tests.support.typed import typed

from handoffd.api.arguments import usage
from handoffd.api.verbs import VERBS, VerbSpec
from handoffd.engine.wording import command_for
from handoffd.protocol.state import Reason

PACKAGE = ROOT / "daemon" / "handoffd"
LAYERS = ("api", "cli", "doctor", "entrance", "fleet", "project", "track")
MODULES = sorted(module for layer in LAYERS for module in (PACKAGE / layer).rglob("*.py"))
SHELL = {
    "${EDITOR:-vi}", "cat", "cd", "curl", "diff", "env", "export", "getent", "git", "less", "ls", "mkdir",
    "mv", "pipx", "printenv", "python3", "rm", "ss", "stat", "sudo",
}  # fmt: skip
"""Programs of others, and words of the shell itself, that a hint may begin with."""
SAMPLE = "x"
"""A placeholder for a value that only a run of the program knows."""


def hints(module: Path) -> Iterator[tuple[str, ast.expr]]:
    """Yield each hint of a module with its place: the keyword's value, or what a name was set to."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                value = node.value
                known = names.get(value.id, value) if isinstance(value, ast.Name) else value
                for part in ast.walk(known):
                    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                        part.value = names.get(part.value.id, part.value)
                yield f"{module.name}:{node.value.lineno}", known


def texts(node: ast.expr) -> Iterator[str]:
    """Yield what a hint can say, with samples for what a run puts in; nothing for what others make."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(_part(part) for part in parts)
        case ast.IfExp(body=one, orelse=other):
            yield from texts(one)
            yield from texts(other)
        case ast.Call(func=ast.Name(id="command_for"), args=[_, *words]):
            yield command_for("/srv/shop", *(next(texts(word), SAMPLE) for word in words))


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(ast.literal_eval(node))
    assert isinstance(node, ast.FormattedValue)
    match node.value:
        case ast.Call(func=ast.Attribute(attr="command"), args=[ast.Constant(value=str(verb))]):
            return f"handoffd service {verb}"  # of `Scope`
        case ast.Call(func=ast.Name(id="quote"), args=[ast.Attribute(attr="executable")]):
            return "python3"
        case ast.Call(func=ast.Name(id="join")):
            return "env x"  # a whole command of another program
        case ast.Call(func=ast.Name(id="command_for")):
            return next(texts(node.value))
    return SAMPLE


FOUND = [(place, text) for module in MODULES for place, node in hints(module) for text in texts(node)]


def test_the_hints_are_found() -> None:
    """The test below would pass if it looked at nothing."""
    assert len(FOUND) > 30


@pytest.mark.parametrize(("place", "text"), FOUND, ids=[place for place, _ in FOUND])
def test_a_hint_is_a_command(place: str, text: str) -> None:
    """It can be pasted whole: what is not a command is behind a #."""
    for part in re.split(r"&&|;|\|", text.partition("#")[0]):
        first = shlex.split(part)[0]
        if first == "handoffd":
            typed(part)
        else:
            assert first in {*SHELL, SAMPLE}, place


@pytest.mark.parametrize("spec", VERBS.values(), ids=VERBS)
def test_how_a_verb_is_given_is_how_it_is_typed(spec: VerbSpec) -> None:
    """With its project, or the flow that tells it, and all that it needs."""
    understood = typed(usage(spec, "/srv/my shop", "in a terminal of your own"))
    where = "flow_id" if spec.of_flow and spec.name != "flow_start" else "project"

    told = "FLOW" if where == "flow_id" else "/srv/my shop"
    assert (spec.name, told) == (understood.name, understood.given[where])


def test_a_verb_that_needs_a_reason_lists_the_reasons() -> None:
    """Behind the command, where a shell does not mind."""
    line = usage(VERBS["reject"], "/srv/shop")

    assert line.startswith("handoffd reject /srv/shop REASON  # REASON: ")
    assert [] == [reason for reason in Reason if reason not in line]
    assert "REASON" == typed(line).given["reason"]
