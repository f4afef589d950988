"""What every section of the settings is made of."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from handoffd.settings.section import AbsolutePath, Section, Size


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


@pytest.mark.parametrize(
    ("given", "count", "shown"),
    [
        ("4G", 4 << 30, "4G"),
        ("2GiB", 2 << 30, "2G"),
        ("2 GiB", 2 << 30, "2G"),
        ("2 G", 2 << 30, "2G"),
        ("512MiB", 512 << 20, "512M"),
        ("1.5 GiB", 1536 << 20, "1536M"),
        ("0.125K", 128, "128"),
        ("1536M", 1536 << 20, "1536M"),
        ("1024M", 1 << 30, "1G"),
        (1 << 20, 1 << 20, "1M"),
        ("100", 100, "100"),
        ("0", 0, "0"),
    ],
)
def test_a_size_is_written_as_people_write_it(given: str | int, count: int, shown: str) -> None:
    """And shown so, whatever it was written as."""
    found = TypeAdapter(Size).validate_python(given)
    assert (count, shown) == (found, str(found))
    assert count == TypeAdapter(Size).validate_python(shown)


@pytest.mark.parametrize(
    "given",
    [
        "4 gigs",
        "4g",
        "4GB",
        "4Gib",
        "4  GiB",
        "4Gi",
        "1.5",
        ".5G",
        "-1",
        "",
        -1,
        True,
        1.5,
        None,
        "9" * 16,
        "٣",
    ],
)
def test_what_is_no_size_is_refused(given: object) -> None:
    """With examples of some; to some people a GB is a power of 1000."""
    with pytest.raises(ValidationError, match="must be a size such as 512M"):
        TypeAdapter(Size).validate_python(given)
