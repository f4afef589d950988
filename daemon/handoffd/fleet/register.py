"""The supervised projects: those that are up, as objects, and those at rest, as rows.

A root is in one of the two, always: what moves it from one to the other does so at one instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from handoffd.project.project import Project
from handoffd.project.rest import Row


class Register:
    """Every supervised project, by root."""

    def __init__(self) -> None:
        self.awake: dict[str, Project] = {}
        self._resting: dict[str, Row] = {}
        self._called: dict[str, str | set[str]] = {}
        """The roots of projects at rest by name: one, as a rule."""
        self._guests: Counter[str] = Counter()

    def __contains__(self, root: object) -> bool:
        return root in self.awake or root in self._resting

    def __len__(self) -> int:
        return len(self.awake) + len(self._resting)

    def __iter__(self) -> Iterator[str]:
        yield from self.awake
        yield from self._resting

    @property
    def resting(self) -> Mapping[str, Row]:
        """The projects at rest."""
        return self._resting

    # --- moving ----------------------------------------------------------------------------------
    def lay_down(self, root: str, row: Row) -> None:
        """Have a project at rest from now on."""
        self.awake.pop(root, None)
        self._resting[root] = row
        known = self._called.setdefault(row.name, root)
        if isinstance(known, set):
            known.add(root)
        elif known != root:
            self._called[row.name] = {known, root}

    def get_up(self, root: str, project: Project) -> None:
        """Have a project up from now on that was at rest."""
        self.forget(root)
        self.awake[root] = project

    def forget(self, root: str) -> None:
        """Have a project neither up nor at rest."""
        self.awake.pop(root, None)
        row = self._resting.pop(root, None)
        if row is None:
            return
        known = self._called[row.name]
        if isinstance(known, set):
            known.discard(root)
        if not known or known == root:
            del self._called[row.name]

    # --- guests ----------------------------------------------------------------------------------
    @contextmanager
    def guest(self, root: str) -> Iterator[None]:
        """Keep a project up while a verb or a question is being answered."""
        self._guests[root] += 1
        try:
            yield
        finally:
            self._guests[root] -= 1
            if not self._guests[root]:
                del self._guests[root]

    def guests(self, root: str) -> int:
        """Return how many ask it something now."""
        return self._guests[root]

    # --- names -----------------------------------------------------------------------------------
    def name_of(self, root: str) -> str:
        """Return what its STATE.json calls a project; else its folder's name. KeyError for a stranger."""
        row = self._resting.get(root)
        return row.name if row is not None else name_of(self.awake[root])

    def called(self, name: str) -> list[str]:
        """Return the roots of all projects of a name, the ones that are up first."""
        up = [root for root, project in self.awake.items() if name_of(project) == name]
        known = self._called.get(name, ())
        return [*up, *([known] if isinstance(known, str) else sorted(known))]

    def names(self) -> Mapping[str, str]:
        """Return, by root, what each is called by: its name, or its root if several share that."""
        return _Names(self)


class _Names(Mapping[str, str]):
    """Looks a name up when it is asked for: most questions are about a few projects."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._awake = Counter(name_of(project) for project in register.awake.values())

    def __getitem__(self, root: str) -> str:
        name = self._register.name_of(root)
        known = self._register._called.get(name, ())  # noqa: SLF001  (its other half)
        resting = 1 if isinstance(known, str) else len(known)
        return name if self._awake[name] + resting == 1 else root

    def __iter__(self) -> Iterator[str]:
        return iter(self._register)

    def __len__(self) -> int:
        return len(self._register)


def name_of(project: Project) -> str:
    """Return what its STATE.json calls a project; else its folder's name."""
    state = project.main.track.state
    return state.project if state is not None else Path(project.root).name
