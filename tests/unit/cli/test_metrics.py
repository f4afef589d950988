"""`handoffd metrics`."""

from __future__ import annotations

import json

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.protocol import yamltext


def test_a_dashboard_to_import(handoffd: Commands) -> None:
    """With a data source that Grafana asks for, and no panel without a question."""
    found = json.loads(handoffd("metrics", "--dashboard").out)

    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert len(panels) > 15
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert "datasource" == found["templating"]["list"][0]["type"]


def test_rules_for_alerts(handoffd: Commands) -> None:
    """Each with what to type."""
    text = handoffd("metrics", "--alerts").out

    groups = yamltext.load(text, file="alerts.yaml").data["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 5
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules)


def test_what_the_daemon_answers_is_passed_on(control: Controlled, handoffd: Commands) -> None:
    """Its refusal, too."""
    said = handoffd("metrics")

    assert 4 == said.code
    assert "handoffd run" in said.err
