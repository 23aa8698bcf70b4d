"""Draws docs/pictures/architecture.svg: the loop of the driver, the stages of its Spark job, and what each of them writes.

The picture is a function of this file alone, so that a test can hold the one that is checked in against it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "architecture.svg"
WIDTH, HEIGHT = 960, 560
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


def driver() -> list[str]:
    """Return the driver's part: the five steps of a checkpoint, and the way back to the first."""
    steps = [
        ("PLAN", ("a range of every", "split; watermarks,", "clock, manifest")),
        ("RUN", ("one Spark job;", "reports come back,", "no rows")),
        ("VERIFY", ("every participant", "can still commit", "what is prepared")),
        ("DECIDE", ("one record, created", "exclusively: the", "point of truth")),
        ("COMMIT", ("idempotent, until", "every outcome", "is known")),
    ]
    parts = [
        '<rect x="20" y="20" width="920" height="170" rx="10" fill="none" stroke="#888" stroke-dasharray="4 3"/>',
        text(34, 42, "driver: the checkpoint loop", bold=True, anchor="start"),
    ]
    for number, (title, lines) in enumerate(steps):
        x = 40 + 180 * number
        parts.append(box(x, 60, 150, 92, title, lines, AMBER if title == "DECIDE" else BLUE))
        if number:
            parts.append(arrow(x - 30, 106, x - 3, 106))
    parts += [
        '<path d="M 835 152 V 174 H 115 V 156" fill="none" stroke="#444" stroke-width="1.5" marker-end="url(#head)"/>',
        text(475, 186, "the next RUN may go on beside this COMMIT; the next DECIDE waits", size=11),
    ]
    return parts


def tasks() -> list[str]:
    """Return the tasks' part: the two stages of a keyed job, and the exchange between them."""
    return [
        '<rect x="20" y="230" width="920" height="150" rx="10" fill="none" stroke="#888" stroke-dasharray="4 3"/>',
        text(34, 252, "tasks: Arrow batches, outside the JVM", bold=True, anchor="start"),
        box(40, 270, 130, 90, "read", ("a split: topic,", "partition, from, to;", "file, range"), GREEN),
        box(200, 270, 130, 90, "decode", ("once, whatever", "hangs on it"), GREEN),
        box(360, 270, 130, 90, "operators", ("functions, filters,", "partial aggregates"), GREEN),
        box(
            600,
            270,
            150,
            90,
            "keyed operators",
            ("windows, processes,", "timers over the", "state of their groups"),
            GREEN,
        ),
        box(790, 270, 130, 90, "writers", ("hidden output,", "named by attempt"), GREEN),
        arrow(170, 315, 197, 315),
        arrow(330, 315, 357, 315),
        arrow(490, 315, 597, 315, "exchange"),
        text(550, 332, "by key group", size=11),
        arrow(750, 315, 787, 315),
        arrow(230, 152, 230, 228, ""),
        text(240, 214, "directive", size=11, anchor="start"),
        arrow(860, 268, 420, 194, "", dashed=True),
        text(700, 226, "committables, positions, counts", size=11),
    ]


def stores() -> list[str]:
    """Return what outlives every process."""
    return [
        box(40, 430, 170, 90, "source", ("Kafka, files,", "PostgreSQL, …"), GREY),
        box(280, 430, 190, 90, "ledger", ("decisions, one file each;", "the only log"), AMBER),
        box(510, 430, 190, 90, "state", ("immutable runs;", "a decision names them"), GREY),
        box(740, 430, 180, 90, "sinks", ("hidden or prepared,", "then visible"), GREY),
        arrow(105, 428, 105, 362),
        arrow(620, 428, 660, 362),
        arrow(700, 362, 660, 428),
        arrow(855, 362, 835, 428),
        '<path d="M 655 154 V 200 H 505 V 405 H 375 V 427" fill="none" stroke="#444" stroke-width="1.5" '
        'marker-end="url(#head)"/>',
    ]


def draw() -> str:
    """Return the picture as SVG."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" fill="#111">\n'
        "<title>A checkpoint of poundlock: the driver's loop, the tasks, and what they keep</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#444"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    )
    return "\n".join([head, *driver(), *tasks(), *stores(), "</svg>\n"])


def main() -> int:
    """Write the picture; return an exit code."""
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
