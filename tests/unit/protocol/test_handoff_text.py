"""The form of the two hand-off files, and the marks they are known by."""

from __future__ import annotations

import pytest

from handoffd.errors import InvalidFile
from handoffd.protocol.handoff import Claimed, FileMark, HandoffMark, worst
from handoffd.protocol.handoff_text import Pieces, handoff_pieces, is_blank, result_pieces
from handoffd.protocol.state import Status

# --- texts -------------------------------------------------------------------------------------------
FRONT = "---\nstatus: pass\n---\nbody\n"


def values(pieces: Pieces) -> dict[str, object]:
    """Return the fields, which must be there."""
    assert pieces.fields is not None
    return dict(pieces.fields.values)


@pytest.mark.parametrize("content", [b"", b" \n\t\r\n", b"\xef\xbb\xbf\n", b"\0" * 100])
def test_a_blank_file_says_nothing(content: bytes) -> None:
    """White space, a lone byte order mark, and zeros left by a power cut."""
    assert is_blank(content)
    assert not is_blank(content + b"x")


@pytest.mark.parametrize(
    "text",
    [
        FRONT,
        "\ufeff" + FRONT,
        "\n \n" + FRONT,
        FRONT.replace("\n", "\r\n"),
        FRONT.replace("\n", "\r"),
        FRONT.replace("---\n", "---  \n"),
        "  ---\n  status: pass\n  ---\nbody\n",
        "---\nstatus: pass\n...\nbody\n",
        "```yaml\n---\nstatus: pass\n---\n```\nbody\n",
        "```markdown\n" + FRONT + "```\n",
        "```yaml\nstatus: pass\n```\nbody\n",
        "---\nstatus: pass # sure\n---\n---\nbody: 1\n---\n",
    ],
)
def test_front_matter_is_found(text: str) -> None:
    """However an editor or an agent has dressed it."""
    pieces = handoff_pieces(text.encode())

    assert {"status": "pass"} == values(pieces)
    assert "body" in pieces.body


def test_front_matter_may_be_utf_16() -> None:
    """As some shells write it."""
    assert {"status": "pass"} == values(handoff_pieces(FRONT.encode("utf-16")))


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n---\nstatus: pass\n---\n",
        "status: pass\n",
        "```\ncode\n```\n",
        "--- \n---\nbody",
        "----\nx",
    ],
)
def test_without_front_matter_all_is_body(text: str) -> None:
    """A rule further down, a code block, or an empty front matter is the old format."""
    assert handoff_pieces(text.encode()).fields is None


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n\n---\nstatus: pass\n", 3, "never closed"),
        ("---", 1, "never closed"),
        ("```yaml\n---\nstatus: pass\n```\n", 2, "never closed"),
        ("---\na: 1\nb: c: d\n---\n", 3, "mapping values"),
        ("\n---\na: 1\na: 2\n---\n", 4, "twice"),
        ("---\njust prose\n---\n", 1, "key: value"),
        ("---\n- a\n---\n", 1, "key: value"),
        ("---\na: &x 1\n---\n", 2, "anchors"),
        ("---\na: " + "x" * 65536 + "\n---\n", None, "larger than 64 KiB"),
        ("x" * (1024 * 1024 + 1), None, "larger than 1024 KiB"),
    ],
)
def test_front_matter_that_cannot_be_read(text: str, line: int | None, message: str) -> None:
    """The problem names the line of the file, not of the front matter."""
    with pytest.raises(InvalidFile) as caught:
        handoff_pieces(text.encode())

    (problem,) = caught.value.problems
    assert message in problem.message
    assert (".ai/HANDOFF.md", line) == (problem.file, problem.line)


def test_bytes_that_are_not_text_are_replaced_with_a_warning() -> None:
    """Broken encoding and terminal colours in a value do not void the claim."""
    pieces = handoff_pieces(b"---\nstatus: pass\nsummary: a\xffb\x1b[31m\x00\n---\n")

    assert {"status": "pass", "summary": "a\ufffdb\ufffd[31m\ufffd"} == values(pieces)
    assert len(pieces.warnings) == 1


@pytest.mark.parametrize(
    "text",
    [
        "status: failing\nreason: scope_warning\n",
        "status:failing\r\nreason:   scope_warning",
        "status=failing\nreason = scope_warning",
        "# result\n---\n- status: 'failing'\n- reason: \"scope_warning\"\n---\n",
        "```\n**status**: failing  # sadly\n**reason**: scope_warning\n```",
        '{"status": "failing", "reason": "scope_warning"}',
        '{\n  "status": "failing",\n  "reason": "scope_warning"\n}\n',
    ],
)
def test_executor_result_is_read_generously(text: str) -> None:
    """Any habit of writing flat pairs is understood."""
    assert {"status": "failing", "reason": "scope_warning"} == values(result_pieces(text.encode()))


def test_other_lines_of_executor_result_are_left_out() -> None:
    """They are named in warnings, with their lines; a hash in prose begins no comment."""
    pieces = result_pieces(b"hello\nstatus: pass\n!!\nsummary: fixed #12\n")

    assert {"status": "pass", "summary": "fixed #12"} == values(pieces)
    assert ["'hello'", "'!!'"] == [warning.rpartition(": ")[2] for warning in pieces.warnings]
    assert pieces.fields is not None
    assert 2 == pieces.fields.lines["status"]


@pytest.mark.parametrize("content", [b"x" * 65537, b'{"status": '])
def test_an_executor_result_that_cannot_be_read(content: bytes) -> None:
    """Too large, or begun as JSON and not ended."""
    with pytest.raises(InvalidFile):
        result_pieces(content)


# --- marks and claims --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ((Status.PASS,), Status.PASS),
        ((Status.PASS, Status.FAILING), Status.FAILING),
        ((Status.FAILING, Status.PASS), Status.FAILING),
        ((Status.NEEDS_HUMAN, Status.FAILING), Status.NEEDS_HUMAN),
        ((Status.PASS, Status.FAILING, Status.NEEDS_HUMAN), Status.NEEDS_HUMAN),
    ],
)
def test_the_worse_claim_counts(claims: tuple[Claimed, ...], expected: Status) -> None:
    """needs_human, then failing, then pass, in whatever order they are given."""
    assert expected == worst(*claims)


@pytest.mark.parametrize("change", [{"digest": "b"}, {"inode": 2}, {"mtime_ns": 2}])
def test_any_difference_makes_another_mark(change: dict[str, object]) -> None:
    """A byte-identical rewrite has another inode or time, and so another mark."""
    mark = FileMark(digest="a", inode=1, mtime_ns=1)

    assert HandoffMark(handoff=mark) != HandoffMark(handoff=mark.model_copy(update=change))
    assert HandoffMark(handoff=mark) == HandoffMark(handoff=mark.model_copy())


def test_files_that_are_there_repeat_an_earlier_mark_or_are_new() -> None:
    """A file that is gone since does not count; without any file nothing is repeated."""
    mark, other = (FileMark(digest="a", inode=number, mtime_ns=1) for number in (1, 2))
    both = HandoffMark(handoff=mark, result=mark)

    assert both.repeats(both)
    assert HandoffMark(handoff=mark).repeats(both)
    assert not HandoffMark().repeats(both)
    assert not HandoffMark(handoff=mark, result=other).repeats(both)
    assert not both.repeats(HandoffMark(handoff=mark))
