"""One notice instead of many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.notices import NOTICE

from handoffd.notify.digests import MOST_LISTED, Cover, folded
from handoffd.notify.notice import MOST_BYTES, message

COVER = Cover(id="digest-1", place="/state", at=NOTICE.at)
BLOG = replace(
    NOTICE, id="b", project="/srv/blog", name="blog", story=None, step="", action=None, text="a\nb"
)


def test_it_lists_by_project_with_what_to_type() -> None:
    """And says how many, of which projects, and why so."""
    digest = folded([NOTICE, BLOG, replace(NOTICE, id="c", text="US-006 is done")], 3, "quiet", COVER)

    assert ("digest", 3, "3 notices: shop (2), blog (1)") == (digest.kind, digest.count, digest.text)
    assert digest.lines == (
        "shop:",
        "- US-005 review: US-005 waits for a review > handoffd approve /srv/shop",
        "- US-005 review: US-006 is done > handoffd approve /srv/shop",
        "blog:",
        "- a b",
    )
    assert digest.why is not None
    assert "quiet hours" in digest.why
    assert ("digest-1", "/state", "handoffd status") == (digest.id, digest.project, digest.action)


def test_a_single_one_is_told_as_it_is() -> None:
    """Under an id of its own, as it goes out anew."""
    assert replace(NOTICE, id="digest-1") == folded([NOTICE], 1, "digest", COVER)


def test_of_a_gate_and_its_reminders_only_the_last_is_listed() -> None:
    """It says all that the others do."""
    notices = [
        NOTICE,
        BLOG,
        *(replace(NOTICE, id=f"r{n}", of=NOTICE.id, text=f"waits {n} h") for n in (1, 4)),
    ]

    lines = folded(notices, 4, "quiet", COVER).lines
    assert ["blog:", "- a b", "shop:", "- US-005 review: waits 4 h > handoffd approve /srv/shop"] == list(
        lines
    )


def test_of_a_storm_the_first_few_are_named() -> None:
    """The rest is counted; the journal has them all."""
    storm = [
        replace(NOTICE, id=str(n), name=f"shop{n}", project=f"/srv/shop{n}", text="x" * 999)
        for n in range(500)
    ]

    digest = folded(storm, 990, "burst", COVER)
    assert "990 notices: shop0 (1), shop1 (1), shop2 (1) and others" == digest.text
    assert f"and {990 - MOST_LISTED} more: handoffd notices" == digest.lines[-1]
    assert 2 * MOST_LISTED + 1 == len(digest.lines)


@pytest.mark.parametrize("letter", ["x", "擷"])
@pytest.mark.parametrize("count", [MOST_LISTED, 90])
def test_a_message_shows_whole_lines_and_counts_all_that_it_leaves_out(letter: str, count: int) -> None:
    """As many as fit: half a command would be another one. No project is named of which nothing is shown."""
    action = "handoffd approve /srv/a/rather/long/way/to/shop{} --story US-005"
    gates = [
        replace(NOTICE, id=str(n), project=f"/srv/shop{n // 3}", name=f"shop{n // 3}", text=letter * 200,
                action=action.format(n // 3))
        for n in range(count)
    ]  # fmt: skip

    told = message(folded(gates[:80], count, "quiet", COVER))
    lines = told.splitlines()
    shown = [line for line in lines if line.startswith("- ")]
    assert MOST_BYTES - 900 < len(told.encode()) <= MOST_BYTES
    assert all(line.endswith(f"> {action.format(n // 3)}") for n, line in enumerate(shown))
    assert 3 <= len(shown) < MOST_LISTED
    assert lines[-4].startswith("- ")
    assert [f"and {count - len(shown)} more: handoffd notices", "Where: /state", "Next: handoffd status"] == (
        lines[-3:]
    )


def test_a_message_that_has_no_room_for_a_single_line_still_counts() -> None:
    """A command may be longer than what fits."""
    long = replace(NOTICE, action=f"handoffd approve /{'x' * 4000}")

    told = message(folded([long, replace(BLOG, id="c")], 2, "quiet", COVER)).splitlines()
    assert ["and 2 more: handoffd notices", "Where: /state", "Next: handoffd status"] == told[2:]
