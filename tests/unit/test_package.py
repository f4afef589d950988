"""The package itself, which offers the library's names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import handoffd
from handoffd import library


def test_the_package_has_the_names_of_the_library() -> None:
    """And no others."""
    assert [] == [name for name in library.__all__ if getattr(handoffd, name) is not getattr(library, name)]
    with pytest.raises(AttributeError):
        _ = handoffd.no_such_thing  # type: ignore[attr-defined]


def test_a_star_brings_what_type_checkers_see() -> None:
    """`__init__.pyi` has all of the library's names, and no others are public."""
    brought: dict[str, object] = {}
    exec("from handoffd import *", brought)
    assert set(library.__all__) == {name for name in brought if not name.startswith("__")}
    assert {*library.__all__, "__version__"} <= {*dir(handoffd)}


def test_the_package_imports_nothing_until_a_name_is_used() -> None:
    """Every command imports it, also the quick ones."""
    code = "import sys, handoffd; print(sorted(name for name in sys.modules if name.startswith('handoffd')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "['handoffd']" == done.stdout.strip()
