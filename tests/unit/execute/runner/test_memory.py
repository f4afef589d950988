"""The kernel's count of those it ended for want of memory, and what it explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.execute.runner import shim


def test_the_count_is_that_of_the_kernel(tmp_path: Path) -> None:
    """One line among many of a file that a kernel without the count does not have."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\noom_kill 3\nnuma_hit 4\n")

    assert 3 == shim.oom_kills(str(vmstat))
    assert 0 == shim.oom_kills(str(tmp_path / "missing"))
    assert shim.oom_kills() >= 0


@pytest.mark.parametrize(
    ("result", "kills", "explained"),
    [(-9, 1, True), (137, 1, True), (-9, 0, False), (-15, 1, False), (1, 1, False), (None, 1, False)],
)
def test_only_a_kill_can_be_for_want_of_memory(result: int | None, kills: int, *, explained: bool) -> None:
    """And only when the kernel has ended somebody since; a shell turns the signal into a code."""
    assert explained is shim.explained_by_oom(result, kills)
