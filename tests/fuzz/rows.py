"""Long inputs on which a reader has once taken the square of their length, or worse.

Each has a head, a piece that is repeated until the input is as long as it says, and a tail; `{n}` in a
piece is the number of the repetition. The suite has every reader read them, which took some of them
hours; `make fuzz` measures all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = b"{n}"


@dataclass(frozen=True, slots=True)
class Row:
    """One long input, of about `size` bytes."""

    head: bytes
    piece: bytes
    tail: bytes = b""
    size: int = 1_000_000

    def body(self) -> bytes:
        """Return it."""
        longest = self.piece.replace(_NUMBER, b"99999")
        times = max(1, (self.size - len(self.head) - len(self.tail)) // len(longest))
        pieces = (self.piece.replace(_NUMBER, b"%d" % number) for number in range(times))
        return b"".join((self.head, *pieces, self.tail))


def _row(piece: bytes, times: int) -> bytes:
    return b"".join(piece.replace(_NUMBER, b"%d" % number) for number in range(times))


_CARGO: Final = (
    b"     Running unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)\nrunning 35000 tests\n"
)
_WRONG_SUM: Final = b"test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"

ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "report-cargo": (
        Row(b"", b"   Running" + _row(b" (", 2000) + _row(b"/-", 29_000) + b"\n"),
        Row(_CARGO + _row(b"test a ... ok\n", 35_000), _WRONG_SUM),
    ),
    "report-gotest": (
        Row(_row(b"a{n}.go:1:1: bad\n", 10_000), b"FAIL\tp{n} [build failed]\n"),
        Row(_row(b"# b{n}\na.go:1:1: bad\n", 10_000), b"FAIL\tp{n} [build failed]\n"),
    ),
    "stories": (
        Row(b"# ", b"# ", b"x", 64_000),
        Row(b"## x", b" #", b"x", 250_000),
        Row(b"", b"\n", b"x", 250_000),
    ),
    "state": (
        Row(b'{"project": "p", "step": "s", "status": "pass", "failing_tests": [', b"1,", b"1]}", 500_000),
    ),
    "named": (
        Row(b"A = " + _row(b"x", 100_000) + b"\ntest:\n", b"\t$(A)\n", size=250_000),
        Row(b"test:" + _row(b" a{n}", 9000) + b"\n", b"a{n}: b{n}\n", size=250_000),
        Row(b"import ", b"a.", b"a\n", 250_000),
        Row(b"from ", b".", b" \n", 250_000),
        Row(b"", b"a", b"\n", 250_000),
    ),
    "papers": (Row(b"## NOW\n## x", b" #", b"x\n", 250_000),),
    "sources": (
        Row(b"", b"\\'", b"\n"),
        Row(b"", b"/*\n"),
        Row(b"", b"@Test void a{n}(){}\n"),
        Row(_row(b"func TestA{n}(t *testing.T) {}\n", 15_000), b"func x() {}\n"),
    ),
    "python": (
        Row(b"pytestmark = 1\n", b"a=1;", size=64_000),
        Row(b"class A:\n", b" def pytest_collection_modifyitems(skip): pass\n", size=64_000),
        Row(_row(b"@pytest.mark.anyio\n", 1500) + b"class TestA:\n", b" def test_{n}(s): 1\n", size=64_000),
    ),
    "suites": (
        Row(b"", b"\n", size=250_000),
        Row(b"", b"use (\n"),
        Row(b"[tool", b". l", b"]\n"),
        Row(b'{"scripts": {"test": "', b"{", b'"}}'),
    ),
    "manifests": (
        Row(b'{"scripts": {"test": "a"', b', "test:{n}": "a"', b"}}", 250_000),
        Row(b"[tool", b". l", b"]\n", 250_000),
        Row(b"", b"a" + _row(b".b", 4000) + b".c{n} = 1\n", size=250_000),
        Row(b'{"a": ' + _row(b"[", 700), b"1,", b"1" + _row(b"]", 700) + b"}", 250_000),
    ),
    "hook-settings": (
        Row(b'{"hooks": {"Stop": [{"hooks": [{"command": "', b"o", b'"}]}]}}', 64_000),
        Row(b'{"hooks": {"Stop": [{"hooks": [', b'{"command": "handoffd hook"},', b"{}]}]}}", 64_000),
    ),
}
"""By the name of the target."""
