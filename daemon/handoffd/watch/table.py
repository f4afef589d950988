"""Which watch is whose.

Two projects may be one folder (a bind mount, a name that leads there), and the kernel gives a folder
one watch: it is given back only when nobody needs it any more.
"""

from __future__ import annotations


class WatchTable:
    """Roots and the numbers of their watches, both ways. Pure book-keeping."""

    def __init__(self) -> None:
        self._watch_of: dict[str, int] = {}
        self._root_of: dict[int, str] = {}
        self._others: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._watch_of)

    def all_roots(self) -> tuple[str, ...]:
        """Return every project that is watched."""
        return tuple(self._watch_of)

    def roots(self, watch: int) -> tuple[str, ...]:
        """Return whose watch this is; nobody's if it was given back, whatever still comes of it."""
        root = self._root_of.get(watch)
        if root is None:
            return ()
        return (root, *self._others.get(watch, ()))

    def assign(self, root: str, watch: int) -> int | None:
        """Note that `root` is watched by `watch`; return the watch that nobody needs any more, if any."""
        before = self._watch_of.get(root)
        if before == watch:
            return None
        needless = self.release(root)
        self._watch_of[root] = watch
        if self._root_of.setdefault(watch, root) != root:
            self._others.setdefault(watch, set()).add(root)
        return needless

    def release(self, root: str) -> int | None:
        """Note that `root` is not watched; return the watch that nobody needs any more, if any."""
        watch = self._watch_of.pop(root, None)
        if watch is None:
            return None
        others = self._others.get(watch, set())
        others.discard(root)
        if not others:
            self._others.pop(watch, None)
        if self._root_of[watch] != root:
            return None
        del self._root_of[watch]
        if not others:
            return watch
        self._root_of[watch] = others.pop()
        if not others:
            self._others.pop(watch, None)
        return None

    def drop(self, watch: int) -> tuple[str, ...]:
        """Note that a watch has gone by itself; return whose it was."""
        roots = self.roots(watch)
        for root in roots:
            del self._watch_of[root]
        self._root_of.pop(watch, None)
        self._others.pop(watch, None)
        return roots

    def clear(self) -> None:
        """Forget all."""
        self._watch_of.clear()
        self._root_of.clear()
        self._others.clear()
