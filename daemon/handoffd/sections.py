"""What every section of the settings is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, WithJsonSchema


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
"""Text that nobody is shown; in a file also `{credential: NAME}` or `{file: PATH}`, see credentials.py."""

LONGEST_S = 366 * 24 * 3600
"""The longest time that a setting may be: more is a slip, and much more no calendar can reckon with."""

Interval = Annotated[float, Field(ge=0.01, le=LONGEST_S)]
"""Seconds after which something is done again; with less, nothing else would be done."""

Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]
Minutes = Annotated[float, Field(gt=0, le=LONGEST_S / 60)]
Hours = Annotated[float, Field(gt=0, le=LONGEST_S / 3600)]
