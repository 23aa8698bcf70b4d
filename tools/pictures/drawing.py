"""What the pictures of the docs are drawn with: text, boxes, arrows, and the page that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
BLUE, GREEN, AMBER, GREY = "#dbe9f6", "#e0f0de", "#fbecc9", "#f2f2f2"
LINE_HEIGHT = 17


def text(x: float, y: float, words: str, *, bold: bool = False, size: int = 13, anchor: str = "middle") -> str:
    """Return one line of text; `y` is its base line."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def box(
    x: float, y: float, width: float, height: float, title: str, lines: Sequence[str] = (), fill: str = BLUE
) -> str:
    """Return a box with a bold title and lines below it."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="#444"/>'
    middle = x + width / 2
    below = [text(middle, y + 42 + LINE_HEIGHT * n, line, size=12) for n, line in enumerate(lines)]
    return "\n".join([shape, text(middle, y + 22, title, bold=True), *below])


def arrow(x1: float, y1: float, x2: float, y2: float, words: str = "", *, dashed: bool = False) -> str:
    """Return an arrow; its words stand above its middle."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    line = (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#444" stroke-width="1.5"{dashes} '
        'marker-end="url(#head)"/>'
    )
    return f"{line}\n{text((x1 + x2) / 2, (y1 + y2) / 2 - 7, words, size=11)}" if words else line


def line(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    """Return a thin line."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#888"{dashes}/>'


def page(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    """Return the picture as SVG; its width and height are those of the page it is shown on."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#111">\n'
        f"<title>{escape(title)}</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#444"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])
