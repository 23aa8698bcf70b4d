"""windows.svg: which windows the rows of one key fall into, for four kinds of windows."""

from __future__ import annotations

from drawing import AMBER, BLUE, GREEN, GREY, line, page, text

WIDTH, HEIGHT = 960, 465
LEFT, SECOND = 180, 12.5
END_S = 60
ROWS_S = (2, 5, 11, 14, 16, 33, 36, 41, 57)


def at(seconds: float) -> float:
    """Return where a moment is drawn."""
    return LEFT + seconds * SECOND


def window(start: float, end: float, y: float, fill: str) -> str:
    """Return a window from one moment to another, with the number of rows in it; its end does not belong to it."""
    rows = sum(start <= row < end for row in ROWS_S)
    inside = f'<rect x="{at(start):g}" y="{y:g}" width="{(end - start) * SECOND:g}" height="24" rx="4" fill="{fill}" stroke="#444"/>'
    return f"{inside}\n{text(at((start + end) / 2), y + 16, f'{rows} rows' if rows != 1 else '1 row', size=11)}"


def sessions(gap: float) -> list[tuple[float, float]]:
    """Return the sessions of the rows: each ends a gap behind its last row."""
    found: list[tuple[float, float]] = []
    for row in ROWS_S:
        if found and row <= found[-1][1]:
            found[-1] = (found[-1][0], row + gap)
        else:
            found.append((row, row + gap))
    return found


def label(y: float, title: str, words: str) -> list[str]:
    """Return the name of a row of windows, at the left."""
    return [text(20, y, title, bold=True, anchor="start"), text(20, y + 17, words, size=11, anchor="start")]


def draw() -> str:
    """Return the picture as SVG."""
    parts = [*label(40, "rows of one key", "by event time")]
    parts += [f'<circle cx="{at(row):g}" cy="42" r="5" fill="#444"/>' for row in ROWS_S]
    parts += [line(LEFT, 60, at(END_S), 60)]
    for second in range(0, END_S + 1, 10):
        parts += [
            line(at(second), 60, at(second), 395, dashed=True),
            text(at(second), 76, f"{second} s", size=11),
        ]
    parts += [*label(110, "tumbling", "10 s")]
    parts += [window(start, start + 10, 98, BLUE) for start in range(0, END_S, 10)]
    parts += [*label(170, "sliding", "20 s by 10 s")]
    for lane in range(2):
        parts += [window(start, start + 20, 150 + 30 * lane, GREEN) for start in range(10 * lane, END_S - 19, 20)]
    parts += [*label(260, "session", "gap of 10 s")]
    parts += [window(start, min(end, END_S), 248, AMBER) for start, end in sessions(10)]
    parts += [*label(325, "cumulative", "30 s by 10 s")]
    for lane, size in enumerate((10, 20, 30)):
        parts += [window(start, start + size, 300 + 30 * lane, GREY) for start in range(0, END_S, 30)]
    parts += [
        text(
            20,
            425,
            "A window fires when the watermark passes its end: with rows at most 5 s late, [10 s, 20 s) at the first row at 25 s or later.",
            size=12,
            anchor="start",
        ),
        text(
            20,
            445,
            "A row behind the watermark is late: within the allowed lateness its window fires again, and later it goes to the late side output.",
            size=12,
            anchor="start",
        ),
    ]
    return page("Windows of event time", WIDTH, HEIGHT, parts)
