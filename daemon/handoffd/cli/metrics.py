"""`handoffd metrics`: what Prometheus reads, and what Grafana shows of it."""

from __future__ import annotations

import click

from handoffd.entrance.place import Place


@click.command()
@click.option(
    "--dashboard", is_flag=True, help="Print a dashboard for Grafana instead, to be imported there."
)
@click.option(
    "--alerts", is_flag=True, help="Print rules for Prometheus instead: what a person should be paged for."
)
@click.pass_obj
def metrics(place: Place, dashboard: bool, alerts: bool) -> None:
    """Print the daemon's series in the text format of Prometheus.

    Prometheus itself asks the loopback port (`control.tcp`), or a file that a timer writes for node_exporter.
    """
    if dashboard or alerts:
        from handoffd.settings.paths import shared

        name = "dashboard.json" if dashboard else "alerts.yaml"
        click.echo(shared("config", "prometheus", name).read_text(encoding="utf-8"), nl=False)
        return
    with place.client().stream("/metrics") as stream:
        for piece in stream.pieces():
            click.echo(piece, nl=False)
