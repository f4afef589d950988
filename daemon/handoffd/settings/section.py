"""What every section of the settings is made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema


class Section(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError("must be a whole path, from the root")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


def _reference(name: str) -> dict[str, object]:
    properties = {name: {"type": "string"}}
    return {
        "type": "object", "properties": properties, "required": [name], "additionalProperties": False
    }  # fmt: skip


Secret = Annotated[
    SecretStr, WithJsonSchema({"anyOf": [{"type": "string"}, _reference("credential"), _reference("file")]})
]
"""Text that is never shown; in a file also `{credential: NAME}` or `{file: PATH}`, see `secrets`."""

_SIZE = re.compile(r"([0-9]{1,15})(?:(\.[0-9]{1,3})? ?([KMGT])(?:iB)?)?")
"""As systemd or `runs` writes it. `GB` is refused: some people mean a power of 1000."""


def _bytes(size: object) -> object:
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise ValueError(
            "must be a size such as 512M, 4G or 1.5GiB (K, M, G, T: powers of 1024), or in bytes"
        )
    if found is None:
        return size
    whole, fraction, unit = found.groups(default="")
    scale = 1 << 10 * " KMGT".index(unit or " ")
    return int(whole) * scale + int(fraction[1:] or 0) * scale // 10 ** len(fraction[1:])


class Bytes(int):
    """A number of bytes that is shown as people write it: `4G`."""

    def __str__(self) -> str:
        """Return it in the largest unit that makes it a whole number."""
        unit = next((power for power in (4, 3, 2, 1) if self and self % (1 << 10 * power) == 0), 0)
        return f"{self >> 10 * unit}{' KMGT'[unit].strip()}"


Size = Annotated[
    int,
    BeforeValidator(
        _bytes, json_schema_input_type=Annotated[str, Field(pattern=rf"^(?:{_SIZE.pattern})$")] | int
    ),
    AfterValidator(Bytes),
]
"""Bytes; in a file also with K, M, G or T for a power of 1024: `4G`, `4GiB`, `4 GiB`."""

LONGEST_S = 366 * 24 * 3600
"""The longest time of a setting: more is a mistake, and much more overflows dates."""

Interval = Annotated[float, Field(ge=0.01, le=LONGEST_S)]
"""Seconds between repetitions; with less, the daemon would do nothing else."""

Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]
Minutes = Annotated[float, Field(gt=0, le=LONGEST_S / 60)]
Hours = Annotated[float, Field(gt=0, le=LONGEST_S / 3600)]
