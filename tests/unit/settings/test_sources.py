"""Layers are merged key by key, and every key has its source."""

from __future__ import annotations

from pathlib import Path

from handoffd.settings.model import Settings
from handoffd.settings.sources import DEFAULT, Merge, Source, source_of, without_empty_keys

FIRST, SECOND = Source(kind="file", name="f", line=3), Source(kind="flag", name="--x")


def merged(*layers: dict[str, object]) -> Merge:
    """Lay the first layer with the first source, the second over it with the second."""
    merge = Merge({"HOME": "/home/ann"})
    for values, source in zip(layers, (FIRST, SECOND), strict=False):
        merge.lay(values, lambda _, source=source: source, Path("/base"))  # type: ignore[misc]
    return merge


def test_sections_are_merged_and_lists_replaced() -> None:
    """What the upper layer does not mention stays."""
    merge = merged(
        {"watch": {"step_ms": 1, "shards": 2}, "notify": {"command": ["a", "b"]}},
        {"watch": {"step_ms": 3}, "notify": {"command": ["c"]}},
    )

    assert {"watch": {"step_ms": 3, "shards": 2}, "notify": {"command": ["c"]}} == merge.data
    assert {
        "watch.step_ms": SECOND, "watch.shards": FIRST, "notify.command": SECOND,
    } == merge.sources  # fmt: skip


def test_a_section_and_a_value_replace_each_other() -> None:
    """The sources of the replaced values go, too."""
    assert {"watch": SECOND} == merged({"watch": {"step_ms": 1}}, {"watch": 5}).sources
    assert {"watch.step_ms": SECOND} == merged({"watch": 5}, {"watch": {"step_ms": 1}}).sources


def test_the_source_of_an_item_is_the_one_of_its_list() -> None:
    """Its neighbours in a section have their own."""
    merge = merged({"notify": {"command": ["a"]}})

    assert FIRST == source_of("notify.command.0", merge.sources)
    assert source_of("notify.backoff_s", merge.sources) is None


def test_a_missing_key_is_located_at_its_neighbours() -> None:
    """It has no line itself; its section has."""
    merge = merged({"notify": {"webhook": {"timeout_s": 1}}})

    assert ("f", 3) == merge.locate("notify.webhook.url")
    assert ("f", 3) == merge.locate("notify")
    assert ("default", None) == merge.locate("language")


def test_paths_become_absolute() -> None:
    """Relative ones start at the layer's base, `~` is the home; validation refuses other values."""
    merge = merged({"state_dir": "s", "runtime_dir": "~", "projects": ["~/a", "../b", 3, ""]})

    assert (Path("/base/s"), Path("/home/ann")) == (merge.data["state_dir"], merge.data["runtime_dir"])
    assert [Path("/home/ann/a"), Path("/b"), 3, ""] == merge.data["projects"]


def test_patterns_of_groups_become_absolute() -> None:
    """As paths of projects do; validation refuses other values."""
    groups = {"web": {"slots": 2, "projects": ["~/web/*", "shops/*", 3]}, "odd": 4, "none": {"projects": "x"}}
    merge = merged({"scheduling": {"per_project": 1, "groups": groups}})

    assert {
        "per_project": 1,
        "groups": {
            "web": {"slots": 2, "projects": ["/home/ann/web/*", "/base/shops/*", 3]},
            "odd": 4,
            "none": {"projects": "x"},
        },
    } == merge.data["scheduling"]
    assert {"groups": 3} == merged({"scheduling": {"groups": 3}}).data["scheduling"]


def test_keys_without_a_value_are_left_out() -> None:
    """Except where null is a value; unknown keys stay, for validation to refuse."""
    values = {"watch": None, "log": {"level": None}, "notify": {"command": None}, "nonsense": None}

    assert {"log": {}, "notify": {"command": None}, "nonsense": None} == without_empty_keys(values, Settings)


def test_a_source_as_text() -> None:
    """`config show` prints sources."""
    assert ("file f:3", "flag --x", "default") == (str(FIRST), str(SECOND), str(DEFAULT))
