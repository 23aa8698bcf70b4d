"""gates.svg: the two gates of a checkpoint, what is visible before and behind each, and what a crash leaves."""

from __future__ import annotations

from drawing import AMBER, BLUE, GREEN, GREY, arrow, box, line, page, text

WIDTH, HEIGHT = 960, 330


def gate(x: float, name: str, words: str) -> list[str]:
    """Return a gate: a thick line from above to below, with its name."""
    return [
        f'<rect x="{x - 4:g}" y="60" width="8" height="150" fill="#444"/>',
        text(x, 34, name, bold=True, size=15),
        text(x, 52, words, size=11),
    ]


def draw() -> str:
    """Return the picture as SVG."""
    parts = [
        box(30, 90, 200, 90, "input", ("ranges that the driver", "planned: offsets,", "bytes of files, rows"), GREY),
        arrow(230, 135, 282, 135),
        *gate(290, "gate 1: prepare", "tasks have written, nothing is visible"),
        box(
            330,
            90,
            240,
            90,
            "hidden",
            ("hidden files, open transactions,", "state files; under names that", "no other attempt uses"),
            BLUE,
        ),
        arrow(570, 135, 622, 135),
        *gate(630, "gate 2: decide", "one record is created, exclusively"),
        box(
            670,
            90,
            250,
            90,
            "visible",
            ("files renamed, transactions", "committed, positions moved;", "repeated until all is known"),
            GREEN,
        ),
        line(290, 215, 290, 290, dashed=True),
        line(630, 215, 630, 290, dashed=True),
        text(150, 245, "a crash here:", bold=True),
        text(150, 265, "nothing was written", size=12),
        text(460, 245, "a crash here:", bold=True),
        text(460, 265, "it never happened; hidden output", size=12),
        text(460, 281, "is removed, the ranges are read again", size=12),
        text(795, 245, "a crash here:", bold=True),
        text(795, 265, "it happened; the next start", size=12),
        text(795, 281, "finishes the commit", size=12),
        f'<rect x="20" y="300" width="920" height="22" rx="4" fill="{AMBER}" stroke="#444"/>',
        text(480, 316, "the two gates are never open together: nothing passes twice, nothing is left behind", size=12),
    ]
    return page("The two gates of a checkpoint", WIDTH, HEIGHT, parts)
