"""Story ids, path templates, and paths that must not leave the root."""

from __future__ import annotations

import pytest

from handoffd.errors import Refused
from handoffd.protocol.story import (
    check_story_id,
    expand,
    is_story_id,
    next_id,
    numberings,
    relative_path,
    same_story,
)


@pytest.mark.parametrize("text", ["US-013", "013", "CUSTOM-1771", "a", "a.b_c-d", "x" * 64])
def test_story_ids_that_are_accepted(text: str) -> None:
    """Letters, digits, dot, underscore and hyphen, up to 64."""
    assert is_story_id(text)
    assert text == check_story_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..b", ".hidden", "-rf", "a/b", "../x", "a b", "a\n", "ä", "x" * 65, "a\0",
        "max_attempts_exceeded", "main", "US-1;rm", "$(id)",
    ],
)  # fmt: skip
def test_story_ids_that_are_refused(text: str) -> None:
    """An id must not leave a folder, look like an option, or mean something else."""
    with pytest.raises(Refused) as caught:
        check_story_id(text)

    assert "INVALID_STORY" == caught.value.code


@pytest.mark.parametrize(
    ("template", "story", "path"),
    [
        ("docs/bdd/US-{story}.md", "US-013", "docs/bdd/US-013.md"),
        ("docs/bdd/US-{story}.md", "013", "docs/bdd/US-013.md"),
        ("docs/{story}/x.md", "US-013", "docs/US-013/x.md"),
        ("docs/{story}/x.md", "013", "docs/013/x.md"),
        ("US-{story}/{story}", "7", "US-7/7"),
        ("{storys} ${x} {{story}}", "7", "{storys} ${x} {7}"),
        ("docs/bdd/US-{story}.md", None, "docs/bdd/US-{story}.md"),
        ("PROJECT_MEMORY.md", "7", "PROJECT_MEMORY.md"),
    ],
)
def test_templates_are_expanded(template: str, story: str | None, path: str) -> None:
    """The prefix is never doubled, and nothing but the two tokens means anything."""
    assert path == expand(template, story)


def test_both_forms_of_an_id_name_one_story() -> None:
    """`013` and `US-013` lead to the same files."""
    assert same_story("013", "US-013")
    assert not same_story("013", "US-0130")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a/b.py", "a/b.py"), ("./a//b/", "a/b"), (" a b ", "a b"), ("docs/**", "docs/**"),
        ("結帳.md", "結帳.md"),
        ("", None), ("/etc/passwd", None), (" /etc/passwd", None), ("../x", None), ("a/../../x", None),
        ("a/..", None), ("~/x", None), ("a\\..\\b", None), ("a\0b", None), ("a\nb", None), ("x" * 1025, None),
        (".", None), ("..a/b", "..a/b"),
    ],
)  # fmt: skip
def test_no_path_leaves_the_root(text: str, plain: str | None) -> None:
    """A path is plain and relative, or it is none."""
    assert plain == relative_path(text)


# --- numbers --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stories", "mentioned", "following"),
    [
        ((), (), "US-001"),
        (("US-006",), (), "US-007"),
        (("US-6", "US-9"), (), "US-10"),
        (("US-001", "US-099"), (), "US-100"),
        (("US-009", "US-100"), (), "US-101"),
        (("US-002",), ("US-011", "UTF-8", "SHA-256"), "US-012"),
        ((), ("UTF-8", "SHA-256"), "US-001"),
        ((), ("US-04",), "US-05"),
        (("SHOP-12", "SHOP-7", "BUG-90"), (), "SHOP-13"),
        (("SHOP-12", "SHOP-7", "US-1"), (), "US-2"),
        (("BUG-3",), ("US-8",), "BUG-4"),
        (("NIGHTLY-20261127", "CUSTOM-1795498264000", "dark-mode"), (), "US-001"),
        (("013",), (), "US-014"),
        (("a_07",), (), "a_08"),
        (("US-999999",), (), "US-1000000"),
    ],
)
def test_the_next_id_is_of_the_projects_own_numbering(
    stories: tuple[str, ...], mentioned: tuple[str, ...], following: str
) -> None:
    """Its prefix, its zeros, above every number; words of a text prove no prefix, and dates do not count."""
    assert following == next_id((), stories) or mentioned
    assert following == next_id(numberings(stories, mentioned), ())
    assert following == next_id(numberings(stories, mentioned), stories)


def test_the_next_id_is_free_whatever_the_files_say() -> None:
    """The journal's stories and the files' are one row."""
    files = numberings(("US-004",))
    assert "US-008" == next_id(files, ("US-005", "US-007", "US-006"))
    assert "US-005" == next_id(files, ())
    assert "US-1000001" == next_id((), ("US-999999", "US-1000000"))
