"""procrastinate as an engine: a worker, and the machine's PostgreSQL with its default settings.

PostgreSQL comes from no registry, so it must be on the machine. It refuses to run as root, so then it runs as
`postgres`, the account of Debian's package. It listens on a socket in a folder of that account, and on no
port.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.peers.engine import Engine, NotMeasured, Running, Scripted, Work, script_of, server, until_up
from tests.peers.installing import installed, pinned

ACCOUNT = "postgres"
DEBIAN = Path("/usr/lib/postgresql")
_INIT_LIMIT_S = 120


class Procrastinate(Engine):
    """A worker, which is killed in the kill test, beside a database."""

    name = "procrastinate"
    victim = "the worker"

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def install(self) -> str:
        """Install it, and find PostgreSQL."""
        programs = _programs()
        installed(self._cache, self.name)
        packages = pinned()[self.name]["pypi"]
        said = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, timeout=60, check=True
        )
        number = said.stdout.split()[2]
        return (
            f"procrastinate {packages['procrastinate']}, psycopg {packages['psycopg']}, PostgreSQL {number}"
        )

    @contextlib.contextmanager
    def opened(self, work: Work) -> Iterator[Running]:
        """Lend a database without a table."""
        place = installed(self._cache, self.name)
        with _folder() as folder:
            data = folder / "data"
            _run(
                [_programs() / "initdb", "-D", data, "-U", ACCOUNT, "--auth=trust", "--encoding=UTF8"], folder
            )
            argv = [str(_programs() / "postgres"), "-D", str(data), "-c", "listen_addresses=",
                    "-c", f"unix_socket_directories={folder}"]  # fmt: skip
            # SIGQUIT: what it holds is thrown away at once, so it need not be written.
            with server(argv, folder, user=_account(), ended_by=signal.SIGQUIT) as process:
                until_up(process, folder, lambda: _ready(folder))
                script = script_of(place.python, "with_procrastinate", work, {"socket": str(folder)})
                with contextlib.closing(Scripted(script, work.folder, [process])) as running:
                    yield running


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Lend a folder that only the database's account can enter, with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="handoffd-postgres-"))
    try:
        if (account := _account()) is not None:
            shutil.chown(folder, account, account)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str | None:
    return ACCOUNT if os.geteuid() == 0 else None


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs, of the newest version. Raises NotMeasured."""
    named = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    found = named[-1] if named else shutil.which("postgres")
    if found is None:
        raise NotMeasured("there is no PostgreSQL, which keeps its jobs: apt-get install postgresql")
    return Path(found).parent


def _run(argv: list[Path | str], folder: Path) -> None:
    account = _account()
    try:
        subprocess.run(
            argv, cwd=folder, check=True, capture_output=True, text=True, timeout=_INIT_LIMIT_S, user=account,
            group=account, extra_groups=[] if account else None,
        )  # fmt: skip
    except (OSError, KeyError, subprocess.SubprocessError) as why:
        raise NotMeasured(f"no database was made: {why}") from why


def _ready(folder: Path) -> bool:
    """Return whether it accepts connections, as it says itself in the last line of its file."""
    lock = folder / "data" / "postmaster.pid"
    return lock.exists() and lock.read_text().rstrip().endswith("ready")
