"""`handoffd gc`: what is kept of the past, what of it goes, and why the rest stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account as person
from handoffd.entrance.requests import either

_KINDS = {
    "run": "records of runs",
    "copy": "copies in projects",
    "notice": "notices",
    "events": "events",
    "journal": "journal",
    "replaced journals": "replaced journals",
}
_MOST_LINES = 20
LIMIT_S = 1800.0
"""How long a daemon may clean up: a year of runs on a slow disk, projects that do not answer."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
@click.pass_obj
def gc(place: Place, dry_run: bool, as_json: bool) -> None:
    """Remove what the settings (retention) say nobody needs any more.

    Runs that live or were not judged stay, and whatever the daemon has not made.
    """
    by = person()

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.gc(place.settings(), dry_run=dry_run, by=by)

    body = {"dry_run": dry_run, "by": by}
    answer = either(place, lambda _: place.client(LIMIT_S).post("/v1/gc", body), without)
    if as_json:
        print_json(answer.json)
        return
    click.echo("\n".join(report(answer.json)))
    for problem in answer.json["problems"]:
        click.echo(f"warning: {plain(problem)}", err=True)


def report(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines for an answer of `POST /v1/gc`."""
    sizes = [_size(one) for one in answer["sizes"][:_MOST_LINES]]
    lines = table(("WHAT", "PROJECT", "COUNT", "SIZE"), sizes) if sizes else []
    if len(answer["sizes"]) > _MOST_LINES:
        lines.append(f"… and {len(answer['sizes']) - _MOST_LINES} more (--json)")
    return [*lines, "", *_gone(answer), *_kept(answer["kept"])]


def _size(one: Mapping[str, Any]) -> list[str]:
    what = _KINDS.get(one["kind"], plain(one["kind"]))
    return [what, shorten(one["project"] or "–", 60), f"{one['count']:,}", weight(one["bytes"])]


def _gone(answer: Mapping[str, Any]) -> Iterator[str]:
    did = "would go" if answer["dry_run"] else "removed"
    if not answer["doomed"]:
        yield f"{did}: nothing"
    counts, weights = Counter[str](), Counter[str]()
    for one in answer["doomed"]:
        counts[one["kind"]] += 1
        weights[one["kind"]] += one["bytes"]
    for kind, count in counts.items():
        yield f"{did}: {count:,} × {_KINDS.get(kind, plain(kind))}, {weight(weights[kind])}"
    if answer["dry_run"]:
        shown = answer["doomed"][:_MOST_LINES]
        yield from (f"    {plain(one['what'])}: {plain(one['why'])}" for one in shown)
        if len(answer["doomed"]) > _MOST_LINES:
            yield f"    … and {len(answer['doomed']) - _MOST_LINES} more (--json)"


def _kept(kept: Mapping[str, int]) -> Iterator[str]:
    if kept:
        yield "runs kept: " + ", ".join(f"{count:,} {why}" for why, count in sorted(kept.items()))


def weight(count: int) -> str:
    """Return a number of bytes as people say it."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 10 else f"{size:.1f} {_UNITS[unit]}"
