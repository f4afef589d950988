"""Starts a module as `python -m` does, and lets no file of the current folder take its place.

A program of its own, run by the Python of a project, which may be as old as 3.7: it imports the standard
library and the module, and nothing of handoffd. `python -m pytest` looks into the current folder first, so
that a file `pytest.py` there would be the runner. Here the module, and the plugins of pytest, are looked for
everywhere else first; before tests are collected, the current folder is where `-m` would have it.

The arguments come as JSON on standard input, the module first: they say where the report is written, which
the code under test need not know.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_RUNNERS = frozenset(("coverage", "nose2", "pytest", "unittest", "xdist"))
"""What is loaded before the current folder is on the path, if the arguments name it."""
_INTERRUPTED = 2
"""Pytest's own exit code for a run that did not end by itself."""
_REPORT = ("--junitxml", "--junit-xml")


class Here:
    """The current folder: it is looked into last at first, and first as soon as it is `open`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        sys.meta_path.append(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a module that is nowhere else, such as a plugin that the project names."""
        return PathFinder.find_spec(name, [self.folder], target) if path is None else None

    def open(self) -> None:
        """Be where `python -m` has the current folder."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            sys.path.insert(0, self.folder)


def main() -> None:
    """Read the arguments, and be the module that they name."""
    module, *arguments = json.load(sys.stdin)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    alone = bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)
    here = None
    if not alone:
        del sys.path[0]  # this file's own folder
        here = Here(os.getcwd())
    sys.argv = [module, *_shown(arguments)]
    for name in (module, *arguments):
        if name.partition(".")[0] in _RUNNERS:
            with suppress(ImportError):
                importlib.import_module(name.partition(".")[0])
    if module == "pytest":
        # Before the program under test runs: what it does at its exit could rewrite the report.
        leave, flush = os._exit, (sys.stdout.flush, sys.stderr.flush)
        status = _pytest(arguments, here)
        for one in flush:
            with suppress(OSError, ValueError):
                one()
        leave(status)
    sys.argv[1:] = arguments
    if here is not None:
        here.open()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _pytest(arguments: list[str], here: Here | None) -> int:
    import pytest  # noqa: PLC0415

    class Watching:
        """Opens the current folder once pytest and its plugins are loaded; sees who ends the run."""

        is_ended = False

        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self) -> None:
            if here is not None:
                here.open()

        def pytest_keyboard_interrupt(self) -> None:
            """Remember that `pytest.exit` ended the run, which may name any exit code."""
            self.is_ended = True

    watching = Watching()
    status = int(pytest.main(arguments, plugins=[watching]))
    return status or (_INTERRUPTED if watching.is_ended else 0)


def _shown(arguments: list[str]) -> list[str]:
    """Return the arguments without the one that says where the report is written."""
    shown = []
    skip = False
    for word in arguments:
        if not skip and not word.startswith(tuple(f"{option}=" for option in _REPORT)):
            shown += [] if word in _REPORT else [word]
        skip = word in _REPORT
    return shown


if __name__ == "__main__":
    main()
