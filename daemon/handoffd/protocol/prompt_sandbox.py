"""A template language small enough to be given to strangers.

A project may replace prompt templates, and an agent may have written them. Jinja's sandbox
keeps a template from reaching into Python, but not from running for ever or filling the memory. So
only a part of the language is accepted: output, `if`, `for`, `set`, `include`, `extends`, `block`, tests
and a few filters. There are no calls, macros, arithmetic or concatenation and nothing that captures
output, hence no way to make a value larger than it was; all output passes through `render`, which
stops at its limit; and loops and includes are paid for, by the size of what they repeat, from an allowance
for the whole rendering. What remains is bounded work: a fraction of a second for honest templates,
a few seconds at worst. A caller that wants a limit in seconds can therefore render in a
plain worker thread and stop waiting for it: the thread ends soon, and by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, nodes, pass_context
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from handoffd.errors import InvalidFile, Problem

MAX_TEMPLATE_CHARACTERS = 32_768
MAX_PROBLEMS = 50
ALLOWANCE = 50_000
"""How many nodes of templates loops and includes may evaluate in one rendering."""

_METER = "_meter"
_EXTENDS = re.compile(r"\{%[-+]?\s*extends\b")
_STATEMENTS = ("if", "for", "set", "include", "extends", "block")
_ACCEPTED = (
    nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If, nodes.For, nodes.Include,
    nodes.Extends, nodes.Block, nodes.Assign, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand,
    nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.CondExpr, nodes.Getattr, nodes.Getitem, nodes.Slice,
    nodes.List, nodes.Tuple, nodes.Keyword,
)  # fmt: skip


class TooMuchOutput(Exception):
    """The output passed its limit; rendering was stopped there."""


class _Spent(Exception):
    """The allowance for loops and includes is used up."""


class _Meter:
    def __init__(self) -> None:
        self.left = ALLOWANCE

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise _Spent("loops and includes repeat too much")


def render(environment: PromptEnvironment, name: str, values: Mapping[str, Any], *, limit: int) -> str:
    """Return the rendering of a template.

    Raises InvalidFile, naming template and line, when the template or one it uses is at fault, and
    TooMuchOutput when the result would be larger than `limit` bytes of UTF-8.
    """
    try:
        chunks = environment.get_template(name).generate({**values, _METER: _Meter()})
        return "".join(_bounded(chunks, limit))
    except (InvalidFile, TooMuchOutput):
        raise
    except Exception as error:
        raise InvalidFile((environment.problem(error, name),)) from None


def _bounded(chunks: Iterator[str], room: int) -> Iterator[str]:
    for chunk in chunks:
        room -= len(chunk.encode())
        if room < 0:
            raise TooMuchOutput
        yield chunk


class PromptEnvironment(ImmutableSandboxedEnvironment):
    """The accepted part of Jinja over the templates in `by_name`.

    `files` tells by template name which file to show in errors, where that is not the name itself.
    """

    def __init__(self, by_name: Mapping[str, str], files: Mapping[str, str]) -> None:
        super().__init__(
            loader=_Loader(by_name),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        self._names = by_name
        self._files = files
        self.globals.clear()
        given = self.filters
        self.filters = {name: given[name] for name in _FILTERS} | {
            "join": _join, "_each": _each, "_included": _included,
        }  # fmt: skip
        self.tests = {name: self.tests[name] for name in _TESTS}

    def problems(self) -> Iterator[Problem]:
        """Return what is wrong with each template, as far as that shows without rendering."""
        for name in self._names:
            try:
                self.get_template(name)
            except InvalidFile as error:
                yield from error.problems
            except Exception as error:
                yield self.problem(error, name)

    def problem(self, error: Exception, name: str) -> Problem:
        """Return `error`, which came up in template `name` or one it uses, with its place."""
        line: int | None = None
        if isinstance(error, TemplateSyntaxError):
            name, line = error.name or name, error.lineno
        else:
            name, line = self._innermost(error, name)
        allowed = tuple(sorted(self._names)) if isinstance(error, TemplateNotFound) else ()
        return Problem(file=self._file(name), line=line, message=_said(error), allowed=allowed)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        shown = name or "template"
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            message = f"has {len(source)} characters; at most {MAX_TEMPLATE_CHARACTERS} are allowed"
            raise InvalidFile((Problem(file=self._file(shown), message=message),))
        try:
            tree = super()._parse(source, name, filename)
            problems = tuple(islice(_Checker(self, self._file(shown)).check(tree), MAX_PROBLEMS))
        except TemplateError:
            raise
        except Exception as error:  # the parser breaks on some texts (depth of nesting, numbers too long)
            raise InvalidFile((Problem(file=self._file(shown), message=_said(error)),)) from None
        if problems:
            raise InvalidFile(problems)
        metered = _Metering().visit(tree)
        assert isinstance(metered, nodes.Template)
        return metered

    def source_of(self, name: str) -> str | None:
        """Return the text of a template, None if there is none of that name."""
        return self._names.get(name)

    def _file(self, name: str) -> str:
        return self._files.get(name, name)

    def _innermost(self, error: Exception, name: str) -> tuple[str, int | None]:
        line: int | None = None
        traceback = error.__traceback__
        while traceback is not None:
            filename = traceback.tb_frame.f_code.co_filename
            if filename in self._names:
                name, line = filename, traceback.tb_lineno
            traceback = traceback.tb_next
        return name, line


_FILTERS = ("capitalize", "count", "d", "default", "first", "last", "length", "lower", "trim", "upper")
_TESTS = ("defined", "even", "none", "odd", "undefined")


class _Loader(BaseLoader):
    """Templates from a mapping, each under its name as file name, so that tracebacks show it."""

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._by_name = by_name

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Return a template for Jinja; raises TemplateNotFound."""
        if template not in self._by_name:
            raise TemplateNotFound(template)
        return self._by_name[template], template, lambda: True


class _Checker:
    """Finds what a prompt template may not contain."""

    def __init__(self, environment: PromptEnvironment, file: str) -> None:
        self._environment = environment
        self._file = file

    def check(self, tree: nodes.Template) -> Iterator[Problem]:
        """Return every problem, in order of lines."""
        found = [problem for node in tree.find_all(nodes.Node) for problem in self._node(node)]
        return iter(sorted(found, key=lambda problem: problem.line or 0))

    def _node(self, node: nodes.Node) -> Iterator[Problem]:
        match node:
            case nodes.Name() if node.name.startswith("_") or node.name == "self":
                yield self._problem(node, f"the name {node.name!r} is not available")
            case nodes.Filter() if node.name.startswith("_") or node.name not in self._environment.filters:
                known = tuple(sorted(name for name in self._environment.filters if name[0] != "_"))
                yield self._problem(node, f"there is no filter {node.name!r}", known)
            case nodes.Test() if node.name not in self._environment.tests:
                yield self._problem(node, f"there is no test {node.name!r}", tuple(self._environment.tests))
            case nodes.For():
                yield from self._loop(node)
            case nodes.List() | nodes.Tuple() if any(_loaded(node)):
                yield self._problem(node, "a list may hold nothing but constants")
            case nodes.Include() if not node.with_context:
                yield self._problem(node, "an include always sees the values of the prompt")
            case nodes.Block() if node.scoped or node.required:
                yield self._problem(node, "a block has nothing but a name")
            case _ if not isinstance(node, _ACCEPTED):
                yield self._unavailable(node)

    def _unavailable(self, node: nodes.Node) -> Problem:
        kind = type(node).__name__
        if isinstance(node, nodes.Expr):
            return self._problem(node, f"{kind}: calls, arithmetic and concatenation are not available here")
        return self._problem(node, f"{kind}: this statement is not available here", _STATEMENTS)

    def _loop(self, node: nodes.For) -> Iterator[Problem]:
        if node.recursive:
            yield self._problem(node, "a loop cannot be recursive")
        if any(node.find_all(nodes.Block)):
            yield self._problem(node, "a block cannot stand in a loop")

    def _problem(self, node: nodes.Node, message: str, allowed: tuple[str, ...] = ()) -> Problem:
        return Problem(file=self._file, line=node.lineno, message=message, allowed=allowed)


def _loaded(node: nodes.List | nodes.Tuple) -> Iterator[nodes.Node]:
    if getattr(node, "ctx", "load") == "load":
        yield from (item for item in node.items if not isinstance(item, nodes.Const))


class _Metering(NodeTransformer):
    """Makes loops and includes pay: their subjects pass through a filter that spends."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (Jinja finds it by this name)
        cost = 1 + sum(1 for _ in node.find_all(nodes.Node))
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_each", cost)
        return node

    def visit_Include(self, node: nodes.Include) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.template = _filtered(node.template, "_included")
        return node


def _filtered(node: nodes.Node, name: str, *arguments: int) -> nodes.Filter:
    constants = [nodes.Const(argument, lineno=node.lineno) for argument in arguments]
    return nodes.Filter(node, name, constants, [], None, None, lineno=node.lineno)


@pass_context
def _each(context: Context, items: Iterable[object], cost: int) -> Iterator[object]:
    meter: _Meter = context[_METER]
    for item in items:
        meter.spend(cost)
        yield item


@pass_context
def _included(context: Context, name: object) -> object:
    environment = context.environment
    assert isinstance(environment, PromptEnvironment)
    if not isinstance(name, str):
        raise TypeError("an include needs the name of one template")
    source = environment.source_of(name) or ""
    if _EXTENDS.search(source):
        raise TypeError(f"an included template ({name}) cannot extend another")
    meter: _Meter = context[_METER]
    meter.spend(50 + len(source) // 4)
    return name


def _join(items: object, separator: str = "") -> str:
    if not isinstance(items, list | tuple) or len(separator) > 100:
        raise TypeError("join needs a list, and a separator of at most 100 characters")
    return separator.join(map(str, items))


def _said(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "templates use each other, or are nested, without end"
    if isinstance(error, TemplateNotFound):
        return f"there is no template {error.name!r}"
    text = " ".join(str(error).split())
    return (text[:300] + "…" if len(text) > 300 else text) or type(error).__name__
