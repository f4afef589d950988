"""What the benchmark prints for people."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_ROWS = (
    ("rename → exec, handoffd", "rename_to_exec_ms"),
    ("exit → exec, handoffd", "exit_to_exec_ms"),
    ("rename → exec, floor", "floor_ms"),
)
_COLUMNS = ("n", "p50", "p90", "p99", "max")


def text(found: Json) -> str:
    """Return the findings as a short table."""
    lines = [_machine(found), ""]
    lines.append(f"{'milliseconds':<26}" + "".join(f"{name:>9}" for name in _COLUMNS))
    lines += [_row(label, found[key]) for label, key in _ROWS]
    if found["ratio"] is not None:
        p50, p99 = found["ratio"]["p50"], found["ratio"]["p99"]
        lines.append(f"{'handoffd / floor':<26}{'':>9}{p50:>8}×{'':>9}{p99:>8}×")
    if found["resolution_ms"]:
        lines.append(f"Coarse: the executor is a {found['executor']}, its clock has steps of 10 ms.")
    return "\n".join([*lines, "", *_at_rest(found), _verdict(found)])


def _machine(found: Json) -> str:
    on = found["machine"]
    return (
        f"{found['projects']:,} idle projects; {on['cores']} cores, Linux {on['kernel']}, "
        f"Python {on['python']}, {on['file_system']}, load {on['load']}; executor: {found['executor']}"
    )


def _row(label: str, values: Json) -> str:
    return f"{label:<26}{values['n']:>9}" + "".join(f"{values[name]:>9.2f}" for name in _COLUMNS[1:])


def _at_rest(found: Json) -> list[str]:
    idle, start = found["idle"], found["start"]
    return [
        f"At rest over {idle['seconds']:g} s: {idle['cpu_percent']:g} % of a core, {idle['rss_mb']:g} MB, "
        f"{idle['threads']} threads.",
        f"Start to ready {start['ready_s']:g} s, every project looked at {idle['settled_s']:g} s later; "
        f"adding {start['added']:,} took {start['add_s']:g} s.",
    ]


def _verdict(found: Json) -> str:
    goal, ours = found["goal_ms"], found["rename_to_exec_ms"]
    said = "met" if found["within_goal"] else "MISSED"
    each = ", ".join(f"{name} {ours[name]:.1f} ms of at most {goal[name]:g}" for name in goal)
    return f"Goal {said}: {each}."
