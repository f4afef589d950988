"""What every section of the settings is made of."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from handoffd.sections import AbsolutePath, Section


class Some(Section):
    """A section."""

    number: float = 1


@pytest.mark.parametrize("values", [{"other": 1}, {"number": float("nan")}])
def test_what_is_unknown_or_no_number_is_refused(values: dict[str, object]) -> None:
    """A typo is told of."""
    with pytest.raises(ValidationError):
        Some.model_validate(values)


def test_sections_do_not_change() -> None:
    """Whoever holds one can rely on it."""
    with pytest.raises(ValidationError):
        Some().number = 2  # type: ignore[misc]


@pytest.mark.parametrize("path", ["relative", "~/x", "/a\0b"])
def test_paths_are_whole(path: str) -> None:
    """A daemon's current folder says nothing."""
    with pytest.raises(ValidationError):
        TypeAdapter(AbsolutePath).validate_python(path)
