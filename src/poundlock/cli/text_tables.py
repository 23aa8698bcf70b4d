"""Rows as a table of text, as shells of databases draw it."""

from __future__ import annotations

from collections.abc import Sequence

_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
"""What stands for a control character: a value must not move the cursor, nor end a line of the table."""


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> list[str]:
    """Return the lines of a table: its heading, and its rows between borders. None is NULL."""
    shown = [[shown_value(value) for value in row] for row in rows]
    heading = [shown_value(name) for name in names]
    widths = [max(map(_width, column)) for column in zip(heading, *shown, strict=True)]
    border = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    return [border, _line(heading, widths), border, *(_line(row, widths) for row in shown), border]


def shown_value(value: str | None) -> str:
    """Return a value as one line of text."""
    return "NULL" if value is None else value.translate(_PICTURES)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f" {value}{' ' * (width - _width(value))} " for value, width in zip(values, widths, strict=True))
    return "|".join(["", *padded, ""])
