"""Curves as a picture for a browser: nothing but SVG, so that the text can include it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 860, 150, 64, 28, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity over time. `points` are (minutes, value) in order; `breaks` the minutes of restarts."""

    title: str
    points: Sequence[tuple[float, float]]
    breaks: Sequence[float] = ()


def picture(curves: Sequence[Curve], title: str) -> str:
    """Return an SVG document with one panel for each curve, all over the same minutes."""
    most_min = max((point[0] for curve in curves for point in curve.points), default=1.0) or 1.0
    height = _TOP + len(curves) * (_HEIGHT + _GAP)
    panels = "\n".join(
        _panel(curve, _TOP + place * (_HEIGHT + _GAP), most_min) for place, curve in enumerate(curves)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' font-family="sans-serif" font-size="11" role="img" aria-label="{escape(title)}">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>\n{panels}\n</svg>\n'
    )


def _panel(curve: Curve, top: float, most_min: float) -> str:
    low, high = _range([value for _, value in curve.points])
    wide, right = _WIDTH - _LEFT - 16, _WIDTH - 16

    def x(minutes: float) -> float:
        return round(_LEFT + wide * minutes / most_min, 1)

    def y(value: float) -> float:
        return round(top + _HEIGHT - (_HEIGHT - 16) * (value - low) / (high - low), 1)

    path = " ".join(f"{x(at)},{y(value)}" for at, value in curve.points)
    bottom = top + _HEIGHT
    breaks = "".join(
        f'<path d="M{x(at)} {top + 16}V{bottom}" stroke="#e3b341" stroke-width="0.7"/>' for at in curve.breaks
    )
    return (
        f'<text x="{_LEFT}" y="{top + 8}" fill="#222">{escape(curve.title)}</text>{breaks}'
        f'<path d="M{_LEFT} {bottom}H{right}M{_LEFT} {y(high)}H{right}" stroke="#ccc" fill="none"/>'
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end" fill="#666">{low:g}</text>'
        f'<text x="{_LEFT - 6}" y="{y(high) + 4}" text-anchor="end" fill="#666">{high:g}</text>'
        f'<text x="{right}" y="{bottom + 13}" text-anchor="end" fill="#666">{most_min:.0f} min</text>'
        f'<polyline points="{path}" fill="none" stroke="#1f6feb" stroke-width="1.2"/>'
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return where an axis begins and ends: at 0, unless all values are far from it."""
    most, least = max(values, default=1.0), min(values, default=0.0)
    low = 0.0 if least < most / 2 else float(int(least * 0.9))
    return low, most if most > low else low + 1
