"""One notice instead of many."""

from __future__ import annotations

from dataclasses import replace

from tests.support.notices import NOTICE

from handoffd.notify.digest import MOST_LISTED, Cover, folded
from handoffd.notify.wording import message

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
    assert len(message(digest).encode()) < 4000
