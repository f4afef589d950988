"""What a soak has found: as values, as a table to paste, and as curves."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import Any

from tests.chaos.checker import Violation
from tests.soak.campaign import Soak
from tests.soak.curves import Curve, picture
from tests.soak.samples import last_of_each, slope_per_hour, steady
from tests.soak.workspace import quantile

Json = dict[str, Any]
WARM_UP_S = 1200.0
"""By then every project has gone through a story or two, and what is new fills gaps in the heap."""
GOAL_SLOPE = 1.0


def result(soak: Soak, violations: list[Violation], warm_up_s: float = WARM_UP_S) -> Json:
    """Return everything as plain values. `within_goal` is what `--check` asks for."""
    before, after = soak.at_rest
    slope = slope_per_hour(steady(soak.samples, 1, warm_up_s))
    found: Json = {
        "projects": len(soak.house.projects),
        "minutes": round(soak.samples[-1].at_s / 60, 1),
        "restarts": soak.service.lives - 1,
        "stories": sum(len(project.stories) for project in soak.house.projects),
        "dispatches": soak.dispatches,
        "not_passed": soak.faulty,
        "events": soak.events,
        "notices": soak.notices,
        "most_running": max(sample.running for sample in soak.samples),
        "ready_s": {"median": median(soak.service.ready_s), "max": max(soak.service.ready_s)},
        "rss_mb_at_rest": [before.rss_mb, after.rss_mb],
        "rss_mb_most": max(sample.rss_mb for sample in soak.samples),
        "rss_slope_mb_per_hour": slope,
        "rss_slope_of_lives": slope_per_hour([(s.at_s, s.rss_mb) for s in last_of_each(soak.samples)[1:-1]]),
        "descriptors_at_rest": [before.lasting, after.lasting],
        "threads_at_rest": [before.threads, after.threads],
        "seconds": {
            name.removeprefix("handoffd_").removesuffix("_seconds"): {
                "p50_under": quantile(buckets, 0.5), "p99_under": quantile(buckets, 0.99),
            }
            for name, buckets in soak.service.buckets.items()
        },
        "violations": [str(one) for one in violations],
        "faults": soak.service.faults,
    }  # fmt: skip
    found["within_goal"] = (
        not violations
        and not soak.service.faults
        and after.lasting <= before.lasting
        and (slope is None or slope < GOAL_SLOPE)
    )
    return found


def table(found: Json) -> str:
    """Return the result as a table in Markdown."""
    slope, lives = found["rss_slope_mb_per_hour"], found["rss_slope_of_lives"]
    seconds = found["seconds"]
    rows = [
        ("projects", f"{found['projects']:,}"),
        ("duration", f"{found['minutes']:g} min"),
        ("restarts of the daemon", found["restarts"]),
        (
            "from the start of its program to answering",
            f"{found['ready_s']['median']:g} s, at most {found['ready_s']['max']:g} s",
        ),
        ("stories brought to their end", f"{found['stories']:,}"),
        ("attempts, of them without a pass", f"{found['dispatches']:,}, {found['not_passed']:,}"),
        ("events checked", f"{found['events']:,}"),
        ("notices sent, each once", f"{found['notices']:,}"),
        (
            "memory of the daemon at rest, before and after",
            " and ".join(f"{one:g} MiB" for one in found["rss_mb_at_rest"]),
        ),
        ("most memory", f"{found['rss_mb_most']:g} MiB"),
        ("its slope in the long life, after warm-up", "–" if slope is None else f"{slope:g} MiB/h"),
        ("slope of the short lives' last samples", "–" if lives is None else f"{lives:g} MiB/h"),
        (
            "descriptors at rest but the journal's, before and after",
            " and ".join(map(str, found["descriptors_at_rest"])),
        ),
        ("event loop late by (p50, p99 under)", _under(seconds["loop_lag"])),
        (
            "hand-off to the next start, where no slot was waited for (p50, p99 under)",
            _under(seconds["handoff"]),
        ),
        ("**promises broken**", f"**{len(found['violations']) + len(found['faults'])}**"),
    ]
    return "\n".join(("| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)))


def _under(part: Json) -> str:
    return ", ".join("–" if value is None else f"{1000 * value:g} ms" for value in part.values())


def curves(soak: Soak) -> str:
    """Return the curves as SVG."""
    samples = soak.samples
    lives = [
        sample for sample, before in zip(samples[1:], samples, strict=False) if sample.life > before.life
    ]
    breaks = [sample.at_s / 60 for sample in lives]

    def curve(title: str, key: str) -> Curve:
        points = [(sample.at_s / 60, float(asdict(sample)[key])) for sample in samples]
        return Curve(title=title, points=points, breaks=breaks)

    shown = (
        curve("memory of the daemon, MiB (a line is a restart)", "rss_mb"),
        curve("its open descriptors", "descriptors"),
        curve("executors at work", "running"),
        curve("stories begun", "stories"),
    )
    return picture(shown, f"{len(soak.house.projects):,} projects at work")
