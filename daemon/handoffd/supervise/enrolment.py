"""Which projects come and which ones go, by what the settings mean: decided without a look at any disk.

What goes was brought by the settings and is meant by them no more. A folder that is not there is still
meant, and while the place is gone that an entry names, nothing goes that came by this entry: an
unmounted disk is no edit of the settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from handoffd.inspection.discovery import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An entry of the settings, and where its base lies at the moment; `base` None: nowhere, or silent."""

    wanted: Wanted
    base: str | None

    @property
    def bases(self) -> frozenset[str]:
        """Where its base lies, as it is written and as it is."""
        return frozenset((self.wanted.base, self.base or self.wanted.base))

    def covers(self, root: str) -> bool:
        """Return whether it means `root`: as it is written, or where its base leads to."""
        return self.wanted.covers(root, self.bases)


def departures(brought_by: Mapping[str, str], placed: Sequence[Placed]) -> frozenset[str]:
    """Return the roots that the settings have brought and mean no more."""
    lost = {entry.wanted.text for entry in placed if entry.base is None}
    # Thousands may be written out: a root is looked up among them, and compared with the others only.
    written = {base for entry in placed if entry.wanted.kind == "path" for base in entry.bases}
    wide = [entry for entry in placed if entry.wanted.kind != "path"]
    return frozenset(
        root
        for root, text in brought_by.items()
        if text not in lost and root not in written and not any(entry.covers(root) for entry in wide)
    )


def arrivals(found: Iterable[str], known: Collection[str], kept_out: Collection[str]) -> tuple[str, ...]:
    """Return the roots of `found` that are new, in their order, without those a person has removed."""
    return tuple(root for root in found if root not in known and root not in kept_out)
