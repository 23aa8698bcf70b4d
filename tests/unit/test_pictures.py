"""The pictures of the docs are what their scripts draw."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

SCRIPT = Path(__file__).parents[2] / "tools" / "draw_architecture.py"


def test_the_picture_that_is_checked_in_is_the_one_that_is_drawn() -> None:
    drawing = runpy.run_path(str(SCRIPT))
    assert drawing["PICTURE"].read_text(encoding="utf-8") == drawing["draw"](), (
        "type: python tools/draw_architecture.py"
    )


def test_everything_drawn_is_within_the_picture() -> None:
    drawing = runpy.run_path(str(SCRIPT))
    root = ElementTree.fromstring(drawing["draw"]())
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        right = float(element.get("x", 0)) + float(element.attrib["width"])
        below = float(element.get("y", 0)) + float(element.attrib["height"])
        assert right <= drawing["WIDTH"], element.attrib
        assert below <= drawing["HEIGHT"], element.attrib
