"""The picture beside the numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.soak.curves import Curve, picture

SVG = "{http://www.w3.org/2000/svg}"


def test_a_panel_for_each_curve_and_a_line_for_each_restart() -> None:
    """As valid XML, with every point inside the picture."""
    curves = [
        Curve(title="memory <MiB>", points=[(0, 80), (30, 81.5), (60, 81)], breaks=[20, 40]),
        Curve(title="descriptors", points=[(0, 60), (60, 60)]),
    ]

    root = ET.fromstring(picture(curves, "a soak"))

    lines = root.findall(f"{SVG}polyline")
    assert [3, 2] == [len(line.attrib["points"].split()) for line in lines]
    assert {"memory <MiB>", "descriptors"} <= {text.text for text in root.findall(f"{SVG}text")}
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for point in " ".join(line.attrib["points"] for line in lines).split():
        x, y = map(float, point.split(","))
        assert (True, True) == (0 <= x <= width, 0 <= y <= height)


def test_nothing_sampled_is_an_empty_picture() -> None:
    """An interrupted soak has one, too."""
    ET.fromstring(picture([Curve(title="memory", points=[])], "nothing"))
