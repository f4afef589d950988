"""Which watch is whose, also when two projects are one folder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoffd.watch.inotify_backend import WatchTable


def test_a_watch_is_its_projects_until_it_is_released() -> None:
    """Then nobody needs it."""
    table = WatchTable()

    assert table.assign("/a", 1) is None
    assert ("/a",) == table.roots(1)
    assert table.release("/a") == 1
    assert () == table.roots(1)
    assert table.release("/a") is None


def test_another_watch_takes_the_place_of_the_first() -> None:
    """The first one is nobody's, whatever still comes of it; the same one again is no change."""
    table = WatchTable()
    table.assign("/a", 1)

    assert table.assign("/a", 1) is None
    assert table.assign("/a", 2) == 1
    assert ((), ("/a",)) == (table.roots(1), table.roots(2))


def test_a_shared_watch_is_kept_for_the_other() -> None:
    """Whoever leaves first, it is given back when the last one leaves."""
    for first, last in (("/a", "/b"), ("/b", "/a")):
        table = WatchTable()
        table.assign("/a", 1)
        table.assign("/b", 1)

        assert {"/a", "/b"} == set(table.roots(1))
        assert table.release(first) is None
        assert (last,) == table.roots(1)
        assert table.release(last) == 1


def test_a_watch_that_went_by_itself_is_nobodys() -> None:
    """All that had it are told of, and none has one to give back."""
    table = WatchTable()
    table.assign("/a", 1)
    table.assign("/b", 1)
    table.assign("/c", 2)

    assert {"/a", "/b"} == set(table.drop(1))
    assert (() == table.drop(1), None, ("/c",)) == (True, table.release("/a"), table.all_roots())
    table.clear()
    assert () == table.all_roots()


ROOTS, WATCHES = st.sampled_from("abc"), st.integers(1, 3)
CHANGES = st.lists(
    st.tuples(st.just("assign"), ROOTS, WATCHES)
    | st.tuples(st.sampled_from(("release", "drop")), ROOTS, WATCHES)
)


@given(changes=CHANGES)
def test_it_is_what_a_simple_mapping_would_be(changes: list[tuple[str, str, int]]) -> None:
    """After any sequence; a watch is called needless exactly when its last project leaves it."""
    table, model = WatchTable(), dict[str, int]()
    for change, root, watch in changes:
        before = model.get(root)
        needless: int | None = None
        if change == "assign":
            needless = table.assign(root, watch)
            model[root] = watch
        elif change == "release":
            needless = table.release(root)
            model.pop(root, None)
        else:
            assert {one for one in model if model[one] == watch} == set(table.drop(watch))
            model = {one: number for one, number in model.items() if number != watch}
            before = None
        left = before is not None and before != model.get(root) and before not in model.values()
        assert (before if left else None) == needless
        for number in (1, 2, 3):
            assert {one for one in model if model[one] == number} == set(table.roots(number))
        assert set(model) == set(table.all_roots())
