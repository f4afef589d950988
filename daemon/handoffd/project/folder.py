"""Which folder a project is, and what one visit of it fetches.

It is the folder that was worked on, not any other that is at its path by now. An agent that writes to
absolute paths makes a folder there again after its project was moved away, with nothing in it but its
hand-off. Taken for the project, it would be worked on to the end. So another folder counts only if it
contains STATE.json, as a copy, a fresh clone or a remounted disk does; or if the user accepts it.

All that a look needs of the disk is fetched by one thread in one go: a hop to a thread costs more than
reading a few small files, and a daemon that starts looks at all its projects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, StoreError
from handoffd.files.atomic import has_temporaries
from handoffd.files.errors import PROJECT_GONE
from handoffd.files.locks import FileLock, acquire_project, project_lock_path
from handoffd.files.ownership import owner_of
from handoffd.files.rooted import visiting
from handoffd.files.state_file import Seen, read_state, state_name, stray_states
from handoffd.inspection.own_files import Texts, read_texts
from handoffd.track.services import Claims


# --- which folder the project is ----------------------------------------------------------------------
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
            f"another folder is at {self._root} than the one that was worked on, without its STATE.json:"
            f" move that one back, or go on in this one with `{trust}`"
        )
        return StoreError(why, code=PROJECT_GONE, hint=trust)

    def is_there(self) -> bool:
        """Return whether the project's folder is at its root; blocks on the disk."""
        try:
            path = project_lock_path(self._state_dir, self._root)
        except StoreError:
            return False
        return self._ours in {None, path} or (self._root / state_name("main")).exists()

    def accept(self) -> None:
        """Accept the current folder as the project's, because the user did."""
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


# --- what a look reads of it --------------------------------------------------------------------------
class Found(Struct, kw_only=True):
    """What a visit found. `lock` guards the folder that is at the root now; `texts` is None if not read.

    `halves`: whether a write that a crash cut off has left its file. `strays`: the names of STATE files in
    `.ai/states` of which there is no track. `beside`: there are several; then STATE.json is the `desk`.
    """

    lock: Path
    texts: Texts | None = None
    states: dict[str, Seen | None] = field(default_factory=dict)
    beside: bool = False
    desk: Seen | None = None
    strays: tuple[str, ...] = ()
    halves: bool = False
    owner: str | None = None
    """The state directory of another daemon that the project belongs to."""
    error: HandoffdError | None = None
    """Why there is not more: what comes after it was not looked at."""


def visit(state_dir: Path, root: Path, tracks: Collection[str], *, texts: bool, first: bool) -> Found:
    """Return what is in a project's folder: its own files if asked for, the STATE file of every track.

    What cannot be read is part of what was found: the rest still counts.

    With `first`, halves and strays are looked for. Blocks for as long as the disk does. Raises StoreError
    when the root is missing or cannot be read.
    """
    found = Found(lock=project_lock_path(state_dir, root), owner=owner_of(str(root), state_dir))
    try:
        found.halves = first and has_temporaries(root / ".ai")
        with visiting(root):
            if texts:
                found.texts = read_texts(root)
            found.beside = len(tracks) > 1
            for track in tracks:
                found.states[track] = read_state(root, track, beside=found.beside)
            found.desk = read_state(root) if found.beside else None
            found.strays = stray_states(root, tracks if found.beside else ()) if first else ()
    except HandoffdError as error:
        found.error = error
    return found
