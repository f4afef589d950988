"""What people are told of a silence."""

from __future__ import annotations

from handoffd.engine.run import Silence


def test_every_sign_is_named_with_its_figure() -> None:
    """So that a person can judge whether it really was one."""
    silence = Silence(quiet_min=10.0, limit_min=10, output_bytes=41_213, cpu_s=0.64, written_bytes=192)
    told = "no output (after 41,213 bytes), 0.6 s of processor time, 192 bytes written"
    assert told == silence.signs
