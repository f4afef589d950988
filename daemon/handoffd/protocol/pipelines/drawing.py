"""Pictures of a plan: a Mermaid flowchart, rows for a table, and an SVG that needs no program to be made.

Groups are boxes around their tasks, needs are arrows, ways back are dotted and calls are dashed; both say by
which outcome they are taken, and how often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Final, Literal

from msgspec import Struct, field

from handoffd.protocol.plan import SELF, Accept, Again, BackTo, Call, End, Plan, Scope, Task

_MERMAID: Final = {
    "agent": ('("', '")'),
    "command": ('["', '"]'),
    "merge": ('[/"', '"/]'),
    "question": ('{{"', '"}}'),
    "table": ('{"', '"}'),
    "pipeline": ('[["', '"]]'),
}
_STROKES: Final = {"need": "", "back": "2 4", "call": "8 4"}
MOST_LABEL: Final = 40


class Arrow(Struct, frozen=True):
    """From one task of a scope to another: a need, a way back, or a call."""

    kind: Literal["need", "back", "call"]
    start: str
    end: str
    label: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """One task as a row of a table."""

    depth: int
    name: str
    who: str
    needs: str
    follows: str


# --- tasks and arrows ----------------------------------------------------------------------------
def arrows(scope: Scope) -> list[Arrow]:
    """Return the needs, the ways back and the calls of a scope, in this order for each task."""
    return [arrow for name in scope.order for arrow in (*_needs(scope.tasks[name]), *_ways(scope, name))]


def _needs(task: Task) -> Iterator[Arrow]:
    for name, taken in task.needs.items():
        yield Arrow("need", name, task.name, ", ".join(taken or ()))


def _ways(scope: Scope, name: str) -> Iterator[Arrow]:
    task = scope.tasks[name]
    ladders = (*task.outcomes.items(), *task.join.outcomes.items())
    for outcome, ladder in ladders:
        for number, rung in enumerate(ladder):
            then = "then " if number else ""
            match rung:
                case BackTo():
                    label = f"{outcome}, {then}at most {rung.at_most}"
                    ends = _callers(scope, name) if rung.task == SELF else [rung.task]
                    yield from (Arrow("back", name, end, label) for end in ends)
                case Call():
                    yield Arrow("call", name, rung.task, f"{outcome}, {then}at most {rung.at_most}")
                case Again():
                    yield from (Arrow("back", name, end, outcome) for end in _callers(scope, name))
                case _:
                    pass


def _callers(scope: Scope, name: str) -> list[str]:
    """Return the tasks that a task acts on when it sends itself back: its callers, or itself."""
    if not scope.tasks[name].on_demand:
        return [name]
    return [
        task.name
        for task in scope.tasks.values()
        for ladders in [(*task.outcomes.values(), *task.join.outcomes.values())]
        if any(isinstance(rung, Call) and rung.task == name for ladder in ladders for rung in ladder)
    ]


def _who(task: Task) -> str:
    doer = task.doer if isinstance(task.doer, str) else " ".join(task.doer)
    many = " for each item" if task.each is not None else ""
    if task.kind in {"pipeline", "question", "group", "table"}:
        doer = " or ".join(task.pipelines)
    return f"{task.kind} {doer}".strip()[:MOST_LABEL] + many


def table(plan: Plan) -> list[Line]:
    """Return a row for each task: who does it, what it needs, and what follows from its outcomes."""
    return list(_lines(plan.root, 0))


def _lines(scope: Scope, depth: int) -> Iterator[Line]:
    for name in scope.order:
        task = scope.tasks[name]
        ladders = (*task.outcomes.items(), *task.join.outcomes.items())
        follows = "; ".join(f"{outcome}: {', then '.join(map(_rung, ladder))}" for outcome, ladder in ladders)
        yield Line(depth=depth, name=name, who=_who(task), needs=", ".join(task.needs), follows=follows)
        if task.inner is not None:
            yield from _lines(task.inner, depth + 1)


def _rung(rung: object) -> str:
    match rung:
        case BackTo():
            return f"back to {rung.task} (at most {rung.at_most})"
        case Call():
            return f"call {rung.task} (at most {rung.at_most})"
        case Accept():
            return "warn" if rung.warn else "ok"
        case End():
            return f"end: {rung.how}"
        case _:
            return type(rung).__name__.lower()


# --- Mermaid ------------------------------------------------------------------------------------------
def mermaid(plan: Plan) -> str:
    """Return a flowchart of a plan in Mermaid's language."""
    drawing = _Mermaid()
    drawing.scope(plan.root, "", "  ")
    strokes = [
        f"  linkStyle {number} stroke-dasharray:{_STROKES[kind]}"
        for number, kind in enumerate(drawing.links)
        if _STROKES[kind]
    ]
    return "\n".join(["flowchart TD", *drawing.lines, *strokes]) + "\n"


class _Mermaid(Struct):
    lines: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def scope(self, scope: Scope, place: str, indent: str) -> None:
        for name in scope.order:
            task, path = scope.tasks[name], f"{place}/{name}"
            known = self.known[path] = f"t{len(self.known) + 1}"
            label = f"{_quoted(name)}<br/>{_quoted(_who(task))}"
            if task.inner is None:
                opening, closing = _MERMAID[task.kind]
                self.lines.append(f"{indent}{known}{opening}{label}{closing}")
                continue
            self.lines.append(f'{indent}subgraph {known} ["{label}"]')
            self.scope(task.inner, path, f"{indent}  ")
            self.lines.append(f"{indent}end")
        for arrow in arrows(scope):
            self._arrow(arrow, place, indent)

    def _arrow(self, arrow: Arrow, place: str, indent: str) -> None:
        start, end = self.known[f"{place}/{arrow.start}"], self.known[f"{place}/{arrow.end}"]
        line = "-->" if arrow.kind == "need" else "-.->"
        label = f'|"{_quoted(arrow.label)}"|' if arrow.label else ""
        self.lines.append(f"{indent}{start} {line}{label} {end}")
        self.links.append(arrow.kind)


def _quoted(text: str) -> str:
    plain = " ".join(text.split())
    for sign, written in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        plain = plain.replace(sign, written)
    return plain


# --- SVG ----------------------------------------------------------------------------------------------
_LETTER, _HEIGHT, _GAP, _ROW_GAP, _MARGIN, _TITLE, _LANES = 7, 46, 28, 56, 20, 26, 40
_FILLS: Final = {"question": "#fff3d6", "command": "#eceff1", "merge": "#eceff1", "table": "#f3e8fd"}
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.who{fill:#666}.label{font-size:10px;fill:#555}"
    "rect{stroke:#8a8a8a}path{fill:none;stroke:#555}.back{stroke:#b3261e}.call{stroke:#1a5fb4}"
)


class _Box(Struct):
    """A task where it is drawn; positions count from the corner of the whole picture."""

    task: Task
    width: int
    height: int
    inner: _Layout | None = None
    left: int = 0
    top: int = 0

    @property
    def middle(self) -> int:
        return self.left + self.width // 2

    @property
    def bottom(self) -> int:
        return self.top + self.height


class _Layout(Struct):
    """The tasks of a scope in rows: each below all that it needs."""

    scope: Scope
    rows: list[list[_Box]]
    width: int
    height: int

    def boxes(self) -> dict[str, _Box]:
        return {box.task.name: box for row in self.rows for box in row}

    def put(self, left: int, top: int) -> None:
        """Give every box its position, rows one below the other, each in the middle."""
        for row in self.rows:
            at = left + (self.width - _row_width(row)) // 2
            for box in row:
                box.left, box.top = at, top
                if box.inner is not None:
                    box.inner.put(at + _MARGIN, top + _TITLE)
                at += box.width + _GAP
            top += max((box.height for box in row), default=0) + _ROW_GAP


def svg(plan: Plan) -> str:
    """Return a picture of a plan as SVG, tasks below what they need."""
    layout = _layout(plan.root)
    layout.put(_MARGIN, _MARGIN)
    width, height = layout.width + 2 * _MARGIN + 4 * _LANES, layout.height + 2 * _MARGIN
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" style="fill:#555;stroke:none"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-label="{escape(plan.name)}">',
            f"<defs>{marker}</defs><style>{_STYLE}</style>",
            *_drawn(layout),
            "</svg>\n",
        ]
    )


def _layout(scope: Scope) -> _Layout:
    depths = _depths(scope)
    rows: list[list[_Box]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for name in scope.order:
        rows[depths[name]].append(_box(scope.tasks[name]))
    for row in rows:
        row.sort(key=lambda box: box.task.on_demand)
    height = sum(max(box.height for box in row) + _ROW_GAP for row in rows if row) - _ROW_GAP
    return _Layout(scope, [row for row in rows if row], max(map(_row_width, rows), default=0), height)


def _depths(scope: Scope) -> dict[str, int]:
    """Return the row of each task: below what it needs, or below what calls it; what is always done, last."""
    found: dict[str, int] = {}
    for name in scope.order:
        found[name] = 1 + max((found[one] for one in scope.tasks[name].needs), default=-1)
    for name in scope.order:
        if scope.tasks[name].on_demand:
            found[name] = 1 + max((found[one] for one in _callers(scope, name)), default=-1)
    last = max(found.values(), default=-1)
    return {name: last + 1 if scope.tasks[name].always else depth for name, depth in found.items()}


def _box(task: Task) -> _Box:
    words = max(len(task.name), len(_who(task)))
    width = words * _LETTER + 24
    if task.inner is None:
        return _Box(task, width, _HEIGHT)
    inner = _layout(task.inner)
    title = 34 + (len(task.name) + len(_who(task))) * _LETTER
    around = (
        inner.width + 2 * _MARGIN + (_LANES if any(one.kind == "back" for one in arrows(task.inner)) else 0)
    )
    return _Box(task, max(title, around), inner.height + _TITLE + _MARGIN, inner)


def _row_width(row: list[_Box]) -> int:
    return sum(box.width for box in row) + _GAP * max(len(row) - 1, 0)


def _drawn(layout: _Layout) -> Iterator[str]:
    boxes = layout.boxes()
    for box in boxes.values():
        fill = _FILLS.get(box.task.kind, "#e8f0fe") if box.inner is None else "none"
        yield (
            f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="6"'
            f' style="fill:{fill}"/>'
        )
        yield f'<text x="{box.left + 10}" y="{box.top + 18}">{escape(box.task.name)}</text>'
        left, top = (10, 36) if box.inner is None else (24 + len(box.task.name) * _LETTER, 18)
        who = escape(_who(box.task))
        yield f'<text class="who" x="{box.left + left}" y="{box.top + top}">{who}</text>'
        if box.inner is not None:
            yield from _drawn(box.inner)
    labels: dict[tuple[str, str, str], list[str]] = {}
    for arrow in arrows(layout.scope):
        labels.setdefault((arrow.kind, arrow.start, arrow.end), []).append(arrow.label)
    for lane, ((kind, start, end), texts) in enumerate(labels.items()):
        yield from _curve(
            kind, boxes[start], boxes[end], texts, _outside(boxes, start, end) + 12 * (lane % 3)
        )


def _outside(boxes: Mapping[str, _Box], start: str, end: str) -> int:
    """Return how far right a way back leads, beyond all boxes that it passes."""
    top = min(boxes[start].top, boxes[end].top)
    bottom = max(boxes[start].bottom, boxes[end].bottom)
    return max(box.left + box.width for box in boxes.values() if box.top <= bottom and top <= box.bottom) + 24


def _curve(kind: str, start: _Box, end: _Box, texts: list[str], out: int) -> Iterator[str]:
    """Yield an arrow with its labels: downwards, or around all boxes between on the right."""
    if kind != "back" and start.bottom < end.top:
        x, y, to_x, to_y = start.middle, start.bottom, end.middle, end.top
        half = (to_y - y) // 2
        line = f"M{x} {y}C{x} {y + half} {to_x} {to_y - half} {to_x} {to_y}"
        at_x, at_y = (x + 5 * to_x) // 6, y + 3 * (to_y - y) // 4
    else:
        x, y = start.left + start.width, start.top + 12
        to_x, to_y = end.left + end.width, end.bottom - 12
        line = f"M{x} {y}C{out} {y} {out} {to_y} {to_x} {to_y}"
        at_x, at_y = (x + to_x + 6 * out) // 8, (y + to_y) // 2
    dashes = f' stroke-dasharray="{_STROKES[kind]}"' if _STROKES[kind] else ""
    yield f'<path class="{kind}" d="{line}"{dashes} marker-end="url(#end)"/>'
    for number, text in enumerate(filter(None, texts)):
        yield f'<text class="label" x="{at_x + 4}" y="{at_y + 12 * number}">{escape(text)}</text>'
