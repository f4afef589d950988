"""Which folder a project is: the one that was worked on, not whatever lies at its path by now.

An agent that writes to absolute paths makes a folder there again after its project was moved away,
with nothing in it but its hand-off. Taken for the project, it would be worked on to the end. So
another folder counts only if STATE.json lies in it, as in a copy, a fresh clone or a mount that is
back; or if a person says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from handoffd.engine.commands import command_for
from handoffd.errors import Locked, StoreError
from handoffd.files.errors import PROJECT_GONE
from handoffd.files.locks import FileLock, acquire_project, project_lock_path
from handoffd.files.projection import state_name


class Claims:
    """Which root a folder belongs to, by its lock's name: two paths to one folder are one project.

    A project at rest holds no lock, but keeps its claim.
    """

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}

    def take(self, name: str, root: str) -> None:
        """Have the folder belong to `root`. Raises Locked when it belongs to another one."""
        owner = self._roots.setdefault(name, root)
        if owner != root:
            why = f"the project {root} is in use: {owner} is the same folder"
            raise Locked(why, hint=command_for(owner, "status"))

    def drop(self, name: str | None, root: str) -> None:
        """Have it belong to nobody, if it belongs to `root`."""
        if name is not None and self._roots.get(name) == root:
            del self._roots[name]


class Folder:
    """The folder of one project. `lock` paths tell folders apart, by device and inode."""

    def __init__(self, root: str, state_dir: Path, claims: Claims | None = None) -> None:
        self._root = Path(root)
        self._state_dir = state_dir
        self._claims = claims or Claims()
        self._claimed: str | None = None
        self._lock: FileLock | None = None
        self._ours: Path | None = None

    @property
    def held(self) -> bool:
        """Whether its lock is ours."""
        return self._lock is not None

    @property
    def name(self) -> str | None:
        """The name of the lock of the folder that was worked on; None while that is any."""
        return self._ours.name if self._ours is not None else None

    def remember(self, name: str) -> None:
        """Know the folder again that was worked on before a rest."""
        self._ours, self._claimed = self._state_dir / "locks" / name, name

    def claim(self, path: Path, *, bare: bool) -> Callable[[], FileLock] | None:
        """Claim the folder at `path`, which is the root now; return what locks it, None if it is locked.

        That call blocks on the disk and raises Locked; what it returns goes to `hold`. This one raises
        Locked when another root has the folder, and StoreError for another folder than before that is
        `bare`: it lacks the STATE.json there should be.
        """
        if self._ours not in {None, path} and bare:
            self.let_go()
            raise self._another()
        if self._lock is not None and self._lock.path == path:
            self._ours = path
            return None
        self.let_go()
        self._claims.take(path.name, str(self._root))
        self._claimed = path.name
        return partial(acquire_project, path, self._root)

    def hold(self, lock: FileLock) -> None:
        """Keep the lock of the folder that was claimed."""
        self._lock, self._ours = lock, lock.path

    def _another(self) -> StoreError:
        trust = command_for(str(self._root), "trust")
        why = (
            f"another folder lies at {self._root} than the one that was worked on, without its STATE.json:"
            f" move that one back, or go on in this one with `{trust}`"
        )
        return StoreError(why, code=PROJECT_GONE, hint=trust)

    def is_there(self) -> bool:
        """Return whether the project's folder lies at its root; blocks on the disk."""
        try:
            path = project_lock_path(self._state_dir, self._root)
        except StoreError:
            return False
        return self._ours in {None, path} or (self._root / state_name("main")).exists()

    def accept(self) -> None:
        """Take whatever folder lies there now for the project's: a person says so."""
        self._ours = None

    def rest(self) -> None:
        """Release the lock and keep the claim."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def let_go(self) -> None:
        """Release the lock."""
        self.rest()
        self._claims.drop(self._claimed, str(self._root))
        self._claimed = None
