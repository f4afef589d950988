"""Pictures of pipelines."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from tests.unit.protocol.pipelines.samples import ISSUES, OTHERS

from handoffd.protocol.pipelines.drawing import Arrow, arrows, mermaid, svg, table
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Plan

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan() -> Plan:
    """Return a plan that uses the whole language."""
    return load_plan(ISSUES, "issues.yaml", others=OTHERS).plan


def _plan(tasks: str) -> Plan:
    return load_plan(f"language: 1\npipeline: p\ntasks:\n{tasks}", "p.yaml").plan


def test_needs_ways_back_and_calls_are_arrows(plan: Plan) -> None:
    """What a called task sends back goes to its caller."""
    assert [
        Arrow("need", "explore", "solve"),
        Arrow("call", "solve", "choose", "several, at most 1"),
        Arrow("need", "solve", "audit"),
        Arrow("back", "audit", "solve", "rejected, at most 2"),
        Arrow("call", "audit", "judge", "rejected, then at most 3"),
        Arrow("back", "choose", "solve", "first"),
        Arrow("back", "judge", "solve", "once_more, at most 1"),
    ] == arrows(plan.scope("issue"))


def test_a_flowchart_has_a_box_for_each_group_and_an_arrow_for_each_need(plan: Plan) -> None:
    """Ways back and calls are dashed, each in its own way."""
    drawn = mermaid(plan)
    lines = [line.strip() for line in drawn.splitlines()]

    assert "flowchart TD" == lines[0]
    assert 'subgraph t2 ["issue<br/>group for each item"]' in lines
    assert "t3 --> t4" in lines
    assert 't5 -.->|"rejected, at most 2"| t4' in lines
    assert 't2 -->|"all, some"| t8' in lines
    assert drawn.count(" -.->") == drawn.count("linkStyle")


def test_a_flowchart_styles_the_arrows_that_it_means(plan: Plan) -> None:
    """They are counted in the order of the text."""
    drawn = mermaid(plan)
    links = [line for line in drawn.splitlines() if "-->" in line or "-.->" in line]
    styled = [int(number) for number in re.findall(r"linkStyle (\d+)", drawn)]

    assert [number for number, line in enumerate(links) if "-.->" in line] == styled


def test_text_cannot_break_out_of_a_flowchart() -> None:
    """Quotes and brackets are written as entities."""
    drawn = mermaid(_plan("  a: {run: 'echo \"];<b>#1'}\n"))

    assert '["a<br/>command echo #quot;];#lt;b#gt;#35;1"]' in drawn


def test_a_table_has_a_row_for_each_task_with_what_follows(plan: Plan) -> None:
    """Tasks of a group are below it, one step deeper."""
    rows = {row.name: row for row in table(plan)}

    assert [0, 0, 1, 1, 1, 1, 1, 0] == [row.depth for row in table(plan)][:8]
    assert "agent reviewer" == rows["audit"].who
    assert "solve" == rows["audit"].needs
    assert (
        "approved: ok; concerns: warn; rejected: back to solve (at most 2), then call judge (at most 3),"
        " then hold; failed: hold; asks: hold"
    ) == rows["audit"].follows


def test_a_picture_shows_every_task_below_what_it_needs(plan: Plan) -> None:
    """It is XML, and nothing is outside of it."""
    picture = ET.fromstring(svg(plan))
    tops = {
        one.text: float(one.attrib["y"]) for one in picture.iter(f"{SVG}text") if "class" not in one.attrib
    }
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    boxes = [
        {key: float(one.attrib[key]) for key in ("x", "y", "width", "height")}
        for one in picture.iter(f"{SVG}rect")
    ]

    assert {name for scope in (plan.root, plan.scope("issue")) for name in scope.tasks} == {*tops}
    assert tops["mode"] < tops["explore"] < tops["solve"] < tops["audit"] < tops["judge"] < tops["marshal"]
    assert all(0 <= box["x"] and box["x"] + box["width"] <= width for box in boxes)
    assert all(0 <= box["y"] and box["y"] + box["height"] <= height for box in boxes)


def test_no_two_tasks_of_a_picture_overlap(plan: Plan) -> None:
    """But for a group and what is inside of it."""
    picture = ET.fromstring(svg(plan))
    plain = [one.attrib for one in picture.iter(f"{SVG}rect") if one.attrib["style"] != "fill:none"]
    boxes = [tuple(int(one[key]) for key in ("x", "y", "width", "height")) for one in plain]

    assert [] == [
        (one, other)
        for number, one in enumerate(boxes)
        for other in boxes[number + 1 :]
        if one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
        if one[1] < other[1] + other[3] and other[1] < one[1] + one[3]
    ]


def test_text_cannot_break_out_of_a_picture() -> None:
    """It is escaped."""
    drawn = svg(_plan("  a: {run: '</text><script>alert(1)</script>'}\n"))

    assert "<script>" not in drawn
    assert "command &lt;/text&gt;&lt;script&gt;" in drawn
