"""Whether what a step has written is there, can be read, and holds what later steps rely on; a program.

The daemon runs it as a check after a claimed `pass`, where a rule says `outputs`, in the sandbox and within
the limits of a check: an agent wrote what it reads. It prints each problem as `file:line: what is wrong` and
ends with 1, with 0 if there is none, and with 126 where it could not find that out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct
from msgspec.structs import replace
from pathspec import GitIgnoreSpec

from handoffd.inspection.test_files import TEST_FILES

MAX_BYTES = 8 * 1024 * 1024
"""A file beyond this is not read, and that is a problem."""
MOST_PROBLEMS = 50
_SHORTEST_TITLE: Final = 3
"""Letters and digits of a title that say too little."""
MARK: Final = "[NEEDS CLARIFICATION"
ELSEWHERE: Final = (
    "**/*_spec.*", "**/*Test.*", "**/*Tests.*", "**/*IT.*", "**/*.feature", "**/*.rs", "spec/**", "specs/**",
    "e2e/**", "features/**", "cypress/**",
)  # fmt: skip
"""Where tests are named, beside the patterns of the step table: RSpec, JUnit, Rust, Cypress and the like."""
_NOT_LOOKED_INTO: Final = frozenset(
    {
        ".git",
        ".hg",
        ".tox",
        ".venv",
        "__pycache__",
        "build",
        "dist",
        "node_modules",
        "target",
        "vendor",
        "venv",
    }
)


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads tags that other programs give a meaning to, as `!Ref`, and what looks like a date, as written."""


Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
for _prefix in ("!", "tag:yaml.org,2002:python/"):
    Loader.add_multi_constructor(_prefix, lambda _, __, node: str(node.value))

_METHODS: Final = ("send", "receive", "publish", "subscribe")

Found = Iterator[str]


def problems(root: Path, asked: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return what is wrong below `root`, a line each; `asked` has the patterns of each check by its name.

    A pattern is one of a .gitignore, relative to the root. Reads files: blocks. Raises OSError.
    """
    found = chain.from_iterable(_CHECKS[name](root, patterns) for name, patterns in asked.items() if patterns)
    return tuple(islice(dict.fromkeys(found), MOST_PROBLEMS))


# --- the checks -----------------------------------------------------------------------------------------
def _missing(root: Path, patterns: Sequence[str]) -> Found:
    for name in patterns:
        path = root / name
        if not path.is_file():
            yield f"{name}: it is missing, and this step writes it"
        elif not (text := _text(path)) or not text.strip():
            yield f"{name}: it is empty" if text is not None else f"{name}: {_UNREAD}"


def _unparsed(root: Path, patterns: Sequence[str]) -> Found:
    for name in _matching(root, patterns):
        if name.endswith((".json", ".yaml", ".yml")):
            yield from (f"{name}{said}" for said in _of_document(root / name))


def _without_level(root: Path, patterns: Sequence[str]) -> Found:
    rows = _text(root / "docs/nfr.md")
    for name in _matching(root, patterns):
        if not name.endswith((".md", ".feature")):
            continue
        there = scenarios_in(_text(root / name) or "")
        if not there:
            yield f"{name}: it has no scenario, such as `### Scenario: S1 a guest pays @unit`"
        for one in there:
            yield from (f"{name}:{one.line}: {said}" for said in _of_level(one, rows))


def _of_level(one: Scenario, rows: str | None) -> Found:
    if not one.levels:
        yield f"scenario {one.title!r} has no test level: {', '.join(LEVELS)} or @perf(ID)"
    for measured in one.measures:
        if not measured:
            yield f"scenario {one.title!r} says @perf without the id of a row of docs/nfr.md: @perf(ID)"
        elif rows is not None and not re.search(rf"(?<![\w-]){re.escape(measured)}(?![\w-])", rows):
            yield f"scenario {one.title!r} measures {measured}, which docs/nfr.md does not have"


def _untested(root: Path, patterns: Sequence[str]) -> Found:
    wanted = [
        (name, one)
        for name in _matching(root, patterns)
        if name.endswith((".md", ".feature"))
        for one in scenarios_in(_text(root / name) or "")
    ]
    specified = {name for name, _ in wanted}
    for name in _matching(root, (*TEST_FILES, *ELSEWHERE)) if wanted else ():
        if name not in specified and (text := _text(root / name)) is not None:
            is_named = _names_in(text)
            wanted = [(where, one) for where, one in wanted if not is_named(one)]
    for name, one in wanted:
        by = (
            f"{one.id} in its name or description"
            if one.id
            else "its whole title; an id such as S1 is shorter"
        )
        yield f"{name}:{one.line}: scenario {one.title!r} has no test: no test file has {by}"


def _names_in(text: str) -> Callable[[Scenario], bool]:
    """Return what tells whether a text of tests names a scenario, by its id or by all words of its title."""
    words = re.sub(r"[\W_]+", "", text.casefold())

    def is_named(one: Scenario) -> bool:
        title = re.sub(r"[\W_]+", "", one.title.casefold())
        if len(title) > _SHORTEST_TITLE and title in words:
            return True
        parts = [re.escape(part) for part in re.split(r"[-_.]", one.id or "")]
        before = r"(?:(?<![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))"
        own = rf"{before}(?i:{'[-_. ]?'.join(parts)})(?![0-9]|(?<![0-9])[a-z])"
        return one.id is not None and re.search(own, text) is not None

    return is_named


def _unanswered(root: Path, patterns: Sequence[str]) -> Found:
    for name in _matching(root, patterns):
        for number, line in enumerate((_text(root / name) or "").splitlines(), 1):
            if MARK in line.upper():
                yield f"{name}:{number}: still unclear: {line.strip()[:200]}"


_CHECKS: Final[Mapping[str, Callable[[Path, Sequence[str]], Found]]] = {
    "exist": _missing,
    "parse": _unparsed,
    "levels": _without_level,
    "tested": _untested,
    "clear": _unanswered,
}


# --- the scenarios of a story, in Markdown or Gherkin, with English or Chinese keywords -------------------
LEVELS: Final = ("@unit", "@integration", "@component", "@e2e")
"""The levels at which a scenario may be tested, beside `@perf(ID)`."""
MOST_SCENARIOS = 1000
_PREFIX: Final = r"\s*(?:#{1,6}\s+|[-*+]\s+|\d{1,4}[.)]\s+|\*\*|>\s*)*"
_KEYWORD: Final = r"(?:Scenario(?:\s+(?:Outline|Template))?|Example|(?:情境|場景|劇本|场景)(?:大綱|大纲)?)"
_SCENARIO: Final = re.compile(
    rf"{_PREFIX}{_KEYWORD}(?:\s+(?P<number>[\w.-]{{1,40}}))?\s*[:：]\s*(?P<title>.*)", re.IGNORECASE
)
_FEATURE: Final = re.compile(rf"{_PREFIX}(?:Feature|Rule|功能|規則)\s*[:：]", re.IGNORECASE)
_HEADING: Final = re.compile(r"\s*#{1,6}\s")
_TAG: Final = re.compile(r"(?<![\w.])@(?P<name>[A-Za-z][\w-]*)(?:\((?P<id>[^()\n]{0,80})\))?")
_ID: Final = re.compile(r"\[?(?P<id>[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)*)\]?(?=[\s:：.,–—-]|$)")


class Scenario(Struct, frozen=True, kw_only=True):
    """One scenario; `line` counts from 1. `title` has neither tags nor marks nor its id."""

    title: str
    line: int
    id: str | None = None
    """What tests call it by, such as `S1` or `US-001-2`; None: only its title."""
    levels: tuple[str, ...] = ()
    """The test levels it says, `@perf` without its id among them."""
    measures: tuple[str, ...] = ()
    """The ids of `@perf(ID)`; empty ones where it has none."""


def scenarios_in(text: str) -> tuple[Scenario, ...]:
    """Return the scenarios of a text, in order; at most the first thousand."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _SCENARIO.match(line)][:MOST_SCENARIOS]
    inherited = ""
    found: list[Scenario] = []
    before = 0
    for place, start in enumerate(starts):
        for number in range(before, start):
            if _FEATURE.match(lines[number]):
                inherited = f"{_tags_above(lines, number)} {lines[number]}"
        end = starts[place + 1] if place + 1 < len(starts) else len(lines)
        one = _scenario(lines, start, end, inherited)
        if found and _is_same(found[-1], one):  # a heading, and its Gherkin
            one = _both(found.pop(), one)
        found.append(one)
        before = start
    return tuple(found)


def _is_same(heading: Scenario, one: Scenario) -> bool:
    return heading.title.casefold() == one.title.casefold() and (one.id or heading.id) == (
        heading.id or one.id
    )


def _both(heading: Scenario, one: Scenario) -> Scenario:
    return replace(
        heading,
        id=heading.id or one.id,
        levels=tuple(dict.fromkeys((*heading.levels, *one.levels))),
        measures=tuple(dict.fromkeys((*heading.measures, *one.measures))),
    )


def _scenario(lines: list[str], start: int, end: int, inherited: str) -> Scenario:
    head = _SCENARIO.match(lines[start])
    assert head is not None
    body = list(
        takewhile(lambda line: not (_HEADING.match(line) or _FEATURE.match(line)), lines[start + 1 : end])
    )
    own = len(list(takewhile(_is_tags, body))) if _HEADING.match(lines[start]) else 0
    while len(body) > own and (not body[-1].strip() or _is_tags(body[-1])):  # those are above what is next
        body.pop()
    said = " ".join((inherited, _tags_above(lines, start), lines[start], *body))
    tags = [(one["name"].casefold(), one["id"]) for one in _TAG.finditer(said)]
    title = _TAG.sub("", head["title"]).replace("[P]", "").strip(" *#`")
    first = _ID.match(title)
    named = first["id"] if first and re.search(r"\d", first["id"]) else None
    if named is None and head["number"] and re.search(r"[A-Za-z]", head["number"]):
        named = head["number"]
    elif named is not None and first is not None:
        title = title[first.end() :].lstrip(" :：.,–—-") or named
    return Scenario(
        title=title[:200] or (named or ""),
        line=start + 1,
        id=named,
        levels=tuple(dict.fromkeys(f"@{name}" for name, _ in tags if f"@{name}" in (*LEVELS, "@perf"))),
        measures=tuple(dict.fromkeys((measured or "").strip() for name, measured in tags if name == "perf")),
    )


def _tags_above(lines: list[str], number: int) -> str:
    """Return the lines of tags right above a line."""
    first = number
    while first and _is_tags(lines[first - 1]):
        first -= 1
    return " ".join(lines[first:number])


def _is_tags(line: str) -> bool:
    """Return whether a line holds tags and nothing else."""
    return line.strip().startswith("@") and not _TAG.sub("", line).strip()


# --- documents that have a parser -------------------------------------------------------------------------
def _of_document(path: Path) -> Found:
    """Yield what is wrong with a YAML or JSON file, as `:line: message`."""
    text = _text(path)
    if text is None:
        yield f": {_UNREAD}"
        return
    nodes: list[Any] = []
    try:
        if path.suffix == ".json":
            document = json.loads(text)
            with suppress(yaml.YAMLError, ValueError, RecursionError):  # only for the lines of its values
                nodes = list(yaml.compose_all(text, Loader=Loader))
        else:
            nodes = list(yaml.compose_all(text, Loader=Loader))
            document = yaml.load(text, Loader=Loader) if len(nodes) == 1 else None  # noqa: S506 (it is safe)
    except json.JSONDecodeError as error:
        yield f":{error.lineno}: no JSON: {error.msg}"
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        yield f":{line}: no YAML: {error.problem or error.context}"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield f": no {'JSON' if path.suffix == '.json' else 'YAML'}: {' '.join(str(error).split())}"
    else:
        for place, message in _of_contract(path, document):
            yield f":{_line_of(nodes, place)}: {'.'.join(map(str, place))}{': ' if place else ''}{message}"


def _of_contract(path: Path, document: object) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield what is wrong with an OpenAPI or AsyncAPI document: where, by its keys, and in words."""
    kinds = document if isinstance(document, dict) else {}
    if "openapi" in kinds or "swagger" in kinds:
        yield from _of_openapi(path, kinds)
    elif "asyncapi" in kinds:
        yield from _of_asyncapi(kinds)
    elif named := re.match(r"(openapi|asyncapi|swagger)(?![a-z])", path.stem):
        yield (), f"no {named[1]} document: it does not begin with `{named[1]}: VERSION`"


_NO_VERSION: Final = 'no version of OpenAPI that is known, such as "3.1.0"'


def _of_openapi(path: Path, document: dict[str, Any]) -> Iterator[tuple[tuple[object, ...], str]]:
    from jsonschema_path import SchemaPath  # noqa: PLC0415  (takes half a second; other files do without)
    from jsonschema_path.handlers import default_handlers  # noqa: PLC0415
    from openapi_spec_validator.shortcuts import get_validator_cls  # noqa: PLC0415
    from openapi_spec_validator.validation.exceptions import ValidatorDetectError  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    if not isinstance(document.get("openapi", document.get("swagger")), str):
        yield (), _NO_VERSION
        return
    dangling = tuple(_dangling(document))
    yield from dangling
    handlers = {"file": default_handlers["file"]}  # what is on other machines is not fetched
    try:
        schema = SchemaPath.from_dict(document, base_uri=path.absolute().as_uri(), handlers=handlers)
        for error in islice(get_validator_cls(document)(schema).iter_errors(), MOST_PROBLEMS):
            yield tuple(error.absolute_path), (error.message.splitlines() or [""])[0][:300]
    except Unresolvable as error:
        if not dangling and not error.ref.startswith(("http:", "https:")):
            yield (), f"{error.ref} cannot be read"
    except ValidatorDetectError:
        yield (), _NO_VERSION
    except Exception as error:  # a validator expects honest documents
        yield (), f"no validator gets through it: {type(error).__name__}: {error}"[:300]


def _of_asyncapi(document: dict[str, Any]) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield what its next reader would stumble over: no parser of AsyncAPI in Python is kept."""
    version = document["asyncapi"]
    if not re.fullmatch(r"[23]\.\d+\.\d+", str(version)):
        yield ("asyncapi",), f"{version!r} is not a version of AsyncAPI, such as 3.0.0"
    info = document.get("info")
    for key in ("title", "version"):
        if not isinstance(info, dict) or not isinstance(info.get(key), str):
            yield ("info",), f"has no {key}"
    for key in ("channels", "operations", "components"):
        if not isinstance(document.get(key, {}), dict):
            yield (key,), "must be a mapping"
    if str(version).startswith("2") and "channels" not in document:
        yield (), "has no channels"
    for name, operation in _mapping(document.get("operations")).items():
        if _mapping(operation).get("action") not in _METHODS and "$ref" not in _mapping(operation):
            yield ("operations", name), "has no action: send or receive"
    yield from _dangling(document)


def _dangling(document: dict[str, Any]) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield each `$ref` into the document that leads nowhere."""
    left: list[tuple[tuple[object, ...], object]] = [((), document)]
    for _ in range(100_000):
        if not left:
            return
        place, value = left.pop()
        if isinstance(value, list):
            left += [((*place, number), item) for number, item in enumerate(value)]
        elif isinstance(value, dict):
            left += [((*place, key), item) for key, item in value.items()]
            target = value.get("$ref")
            if isinstance(target, str) and target.startswith("#/") and not _leads(document, target):
                yield (*place, "$ref"), f"{target} leads nowhere"


def _leads(document: object, target: str) -> bool:
    for part in target[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        elif isinstance(document, dict) and key in document:
            document = document[key]
        else:
            return False
    return True


def _mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _line_of(nodes: Sequence[Any], place: Sequence[object]) -> int:
    """Return the line of a value, or of what is nearest around it."""
    node = nodes[0] if nodes else None
    for part in place:
        if isinstance(node, yaml.MappingNode):
            inner = next((value for key, value in node.value if key.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            inner = node.value[part]
        else:
            inner = None
        if inner is None:
            break
        node = inner
    return node.start_mark.line + 1 if node is not None else 1


# --- files ------------------------------------------------------------------------------------------------
_UNREAD: Final = f"it cannot be read as UTF-8 text of at most {MAX_BYTES // 1024 // 1024} MiB"


def _text(path: Path) -> str | None:
    """Return the text of a regular file; None where there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_text("utf-8-sig")
    except (OSError, ValueError):
        return None


def _matching(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files that patterns take in, sorted; a check has a limit of time, however many there are."""
    if not any(set(name) & set("*?[!") for name in patterns):
        return [name for name in patterns if (root / name).is_file()]
    takes_in = GitIgnoreSpec.from_lines(patterns).match_file
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _NOT_LOOKED_INTO)
        below = os.path.relpath(folder, root)
        paths = (name if below == "." else f"{below}/{name}" for name in sorted(names))
        found += [path for path in paths if takes_in(path)]
    return found


# --- the program ------------------------------------------------------------------------------------------
_WRONG, _CANNOT = 1, 126


def main(words: Sequence[str]) -> int:
    """Check what is below the current folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="handoffd-outputs", description=__doc__, allow_abbrev=False)
    for name in _CHECKS:
        parser.add_argument(f"--{name}", action="append", default=[], metavar="PATTERN")
    try:
        found = problems(Path.cwd(), vars(parser.parse_args(words)))
    except Exception as error:  # an end with 1 would be the agent's fault
        found, code = (f"the outputs could not be checked: {type(error).__name__}: {error}",), _CANNOT
    else:
        code = _WRONG if found else 0
    lines = (*found, f"{found[0]} (and {len(found) - 1} more)") if len(found) > 1 else found
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
