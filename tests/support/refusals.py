"""Errors for people, expected by their codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handoffd.errors import HandoffdError, Refused


@contextmanager
def refused(
    code: str, hint: str | None = None, *, kind: type[HandoffdError] = Refused, match: str | None = None
) -> Iterator[None]:
    """Expect an error of this code, and of this next command if there is a `hint`."""
    with pytest.raises(kind, match=match) as caught:
        yield
    assert (code, hint or caught.value.hint) == (caught.value.code, caught.value.hint)
