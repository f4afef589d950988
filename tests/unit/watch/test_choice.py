"""By what folders are watched."""

from __future__ import annotations

import subprocess
import sys

import pytest

from handoffd.settings.model import WatchSettings
from handoffd.watch.inotify_backend import InotifyBackend
from handoffd.watch.watcher import backend_of
from handoffd.watch.watchfiles_backend import WatchfilesBackend


def test_each_can_be_asked_for() -> None:
    """By its name."""
    assert isinstance(backend_of(WatchSettings(backend="inotify")), InotifyBackend)
    assert isinstance(backend_of(WatchSettings(backend="watchfiles")), WatchfilesBackend)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no inotify")
def test_on_linux_the_kernel_is_asked_directly() -> None:
    """Unless somebody says otherwise; what is not used is not loaded."""
    assert isinstance(backend_of(WatchSettings()), InotifyBackend)

    script = (
        "import sys\n"
        "from handoffd.settings.model import WatchSettings\n"
        "from handoffd.watch.watcher import backend_of\n"
        "backend_of(WatchSettings())\n"
        "print('watchfiles' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": "daemon"},
    )
    assert "False" == done.stdout.strip()
