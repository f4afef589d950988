"""`handoffd metrics`."""

from __future__ import annotations

import json
import re

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.engine.views import WORKABLE
from handoffd.protocol import yamltext


def test_a_dashboard_to_import(handoffd: Commands) -> None:
    """With a data source that Grafana asks for, and no panel without a question."""
    found = json.loads(handoffd("metrics", "--dashboard").out)

    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert len(panels) > 15
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert "datasource" == found["templating"]["list"][0]["type"]


def test_a_panel_shows_bytes_as_bytes(handoffd: Commands) -> None:
    """And nothing else: what is no size has an axis of its own beside it."""
    panels = json.loads(handoffd("metrics", "--dashboard").out)["panels"]
    for panel in panels:
        targets = panel.get("targets", [])
        if not any("_bytes" in target["expr"] for target in targets):
            continue
        config = panel["fieldConfig"]
        apart = {
            one["matcher"]["options"]
            for one in config["overrides"]
            if "custom.axisPlacement" in {changed["id"] for changed in one["properties"]}
        }
        assert "bytes" == config["defaults"]["unit"], panel["title"]
        assert {one["legendFormat"] for one in targets if "_bytes" not in one["expr"]} == apart


def test_what_was_spent_outlives_a_restart(handoffd: Commands) -> None:
    """The sum of a day is taken from what the journal has booked, not from what one life has counted."""
    panels = json.loads(handoffd("metrics", "--dashboard").out)["panels"]
    (spent,) = [panel for panel in panels if panel["title"] == "Spent in 24 h"]

    assert ["handoffd_spent_usd"] == [
        name for one in spent["targets"] for name in re.findall(r"handoffd_\w+", one["expr"])
    ]


def test_rules_for_alerts(handoffd: Commands) -> None:
    """Each with what to type."""
    text = handoffd("metrics", "--alerts").out

    groups = yamltext.load(text, file="alerts.yaml").data["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 5
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules)


def test_somebody_is_paged_for_a_project_that_stands_still(handoffd: Commands) -> None:
    """Under every condition in which nothing is dispatched in it, but that it has not begun."""
    alerts = handoffd("metrics", "--alerts").out
    (left_out,) = re.findall(r'handoffd_projects\{condition!~"([a-z_|]*)"\}', alerts)

    assert WORKABLE | {"not_initialized"} == set(left_out.split("|"))


def test_what_the_daemon_answers_is_passed_on(control: Controlled, handoffd: Commands) -> None:
    """Its refusal, too."""
    said = handoffd("metrics")

    assert 4 == said.code
    assert "handoffd run" in said.err
