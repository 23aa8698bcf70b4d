"""The pictures of the docs are what their scripts draw."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "draw_pictures.py"
PICTURES: dict[Path, str] = runpy.run_path(str(SCRIPT))["drawn"]()
SHAPE = "{http://www.w3.org/2000/svg}rect"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_the_picture_that_is_checked_in_is_the_one_that_is_drawn(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PICTURES[path], "type: python tools/draw_pictures.py"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_everything_drawn_is_within_the_picture(path: Path) -> None:
    root = ElementTree.fromstring(PICTURES[path])
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    for element in root.iter(SHAPE):
        right = float(element.get("x", 0)) + float(element.attrib["width"])
        below = float(element.get("y", 0)) + float(element.attrib["height"])
        assert right <= width, element.attrib
        assert below <= height, element.attrib
