"""What the tests of the MCP server share: where its tools look for the daemon."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import environment

from handoffd.entrance.place import Place


def place_at(runtime: Path) -> Place:
    """Return the place of a client whose daemon, if any, is at `runtime`."""
    return Place(config=None, environ=environment(runtime))
