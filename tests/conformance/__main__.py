"""Plays the cases of cel-spec, and prints where an expression is worth something else than CEL says.

The cases are in the source distribution of cel-python, which pip fetches from the package index; they are
kept nowhere. Our language is smaller than CEL: what it leaves out is counted by its reason. A whole number is
equal to a double. By intent, infinity and NaN are errors, and `%` takes doubles. Exit code 1 if another case
differs, 2 if the cases cannot be fetched.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.textproto import Block, read

from handoffd.protocol.expressions import Broken, Unsound, compiled, evaluate

SOURCE: Final = "cel-python==0.5.0"
FILES: Final = (
    "basic", "comparisons", "fields", "fp_math", "lists", "logic", "macros", "parse", "plumbing", "string",
)  # fmt: skip
"""About what our language has: no whole numbers, messages, time, conversions or extensions."""


class Case(NamedTuple):
    """A text, and the value or the error that it has."""

    name: str
    text: str
    bindings: Mapping[str, object]
    expected: object


class _Outside(Exception):
    """A case about what our language does not have, and what that is."""


_ERROR: Final = object()
_AGREES: Final = "agrees"
_BY_INTENT: Final = "differs by intent"
_LEFT_OUT: Final = "left out: "
_INTENDED: Final = "division by zero|cannot be used as a number"


def cases(folder: Path) -> Iterator[Case | str]:
    """Yield the cases in the files of a folder; the reason for one about what our language does not have."""
    for path in sorted(folder.glob("*.textproto")):
        file = read(path.read_text(encoding="utf-8"))
        for section in _blocks(file, "section"):
            for test in _blocks(section, "test"):
                where = f"{path.stem}/{_text(section, 'name')}/{_text(test, 'name')}"
                try:
                    yield _case(where, test) if path.stem in FILES else f"{_LEFT_OUT}all of {path.name}"
                except _Outside as error:
                    yield f"{_LEFT_OUT}{error}"


def _case(where: str, test: Block) -> Case:
    bindings = {
        _text(binding, "key"): _value(_blocks(_blocks(binding, "value")[0], "value")[0])
        for binding in _blocks(test, "bindings")
    }
    if "eval_error" in test or "any_eval_errors" in test:
        expected = _ERROR
    elif "value" in test:
        expected = _value(_blocks(test, "value")[0])
    else:
        expected = True
    return Case(where, _text(test, "expr"), bindings, expected)


def _blocks(block: Block, name: str) -> list[Block]:
    return [one for one in block.get(name, []) if not isinstance(one, str)]


def _text(block: Block, name: str) -> str:
    return next((one for one in block.get(name, []) if isinstance(one, str)), "")


def _value(block: Block) -> object:
    """Return a value as our language has it. Raises _Outside."""
    ((kind, values),) = block.items() if len(block) == 1 else [("", [])]
    first = values[0] if values else ""
    if kind == "list_value" and not isinstance(first, str):
        return [_value(one) for one in _blocks(first, "values")]
    if kind == "map_value" and not isinstance(first, str):
        entries = [(_blocks(one, "key")[0], _blocks(one, "value")[0]) for one in _blocks(first, "entries")]
        return {_key(key): _value(value) for key, value in entries}
    if not isinstance(first, str):
        raise _Outside(f"a {kind or 'message'}")
    return _scalar(kind, first)


def _key(block: Block) -> str:
    key = _value(block)
    if not isinstance(key, str):
        raise _Outside("a map with other keys than texts")
    return key


def _scalar(kind: str, text: str) -> object:
    match kind:
        case "bool_value":
            return text == "true"
        case "null_value":
            return None
        case "string_value":
            return text
        case "int64_value" | "double_value":
            return float(text)
    raise _Outside(f"a {kind}")


def played(case: Case) -> str:
    """Return how a case ends: `agrees`, why it is left out, or what is different."""
    try:
        expression = compiled(case.text, "any", dict.fromkeys(case.bindings, "any"))
    except Unsound as error:
        words = re.sub(r"'[^']*'|\d+", "…", error.faults[0].message)
        return _AGREES if case.expected is _ERROR else f"{_LEFT_OUT}{words}"
    try:
        value = evaluate(expression, case.bindings)
    except Broken as error:
        if case.expected is _ERROR:
            return _AGREES
        return _BY_INTENT if re.search(_INTENDED, error.words) else f"no value: {error.words}"
    if case.expected is _ERROR and "%" in case.text:
        return _BY_INTENT
    if case.expected is _ERROR:
        return f"an error is expected, and it is {value!r}"
    same = type(value) is type(case.expected) and value == case.expected
    return _AGREES if same else f"expected {case.expected!r}, and it is {value!r}"


def fetched(folder: Path) -> Path | None:
    """Return the folder with the cases, below another; None if the package index does not give them."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words = [*pip, "--no-binary", ":all:", "--dest", str(folder), SOURCE]
    if subprocess.run(words, check=False).returncode:
        return None
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(iter(folder.glob("*/features")), None)


def main() -> int:
    """Play all cases; 1 when one differs, 2 without cases."""
    with tempfile.TemporaryDirectory(prefix="handoffd-conformance-") as name:
        folder = fetched(Path(name))
        if folder is None:
            print(f"not played: the source distribution of {SOURCE} cannot be fetched, or has no cases.")
            return 2
        found = list(cases(folder))
    ends = [(case, case if isinstance(case, str) else played(case)) for case in found]
    fine = Counter(end for _, end in ends if end in {_AGREES, _BY_INTENT} or end.startswith(_LEFT_OUT))
    for end, count in fine.most_common():
        print(f"{count:5} {end}")
    different = [(case, end) for case, end in ends if end not in fine and not isinstance(case, str)]
    print(f"{len(different):5} different")
    for case, end in different:
        print(f"      {case.name}: {case.text!r}: {end}")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
