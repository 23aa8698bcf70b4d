"""What a collector gathers before it is full: a set number of rows, and of bytes however wide the rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from poundlock.operators.keyed.output import CHUNK_ROWS, Collector, bytes_of

KB = 1 << 10
MOST = 32 * KB
WIDE: dict[str, Callable[[int], Any]] = {
    "text": lambda n: {"n": n, "text": "x" * KB},
    "results": lambda n: (n, b"x" * KB),
    "nested": lambda n: {"n": n, "list": [{"text": "x" * (KB // 100)}] * 100},
    "wide among narrow": lambda n: {"n": n, "text": "x" * (4 * KB * (n % 4 == 0))},
    "narrow at first": lambda n: {"n": n, "text": "x" * (KB * (n > 1000))},
}


def gathered(make: Callable[[int], Any], rows: int, collector: Collector) -> list[list[Any]]:
    """Return the values of the chunks."""
    chunks: list[list[Any]] = []
    for number in range(rows):
        collector.emit(make(number), "key", None, "side" if number % 3 else "")
        if collector.full:
            chunks.append([value for chunk in collector.drain() for value in chunk.values])
    return [*chunks, [value for chunk in collector.drain() for value in chunk.values]]


@pytest.mark.parametrize("kind", WIDE)
def test_a_chunk_of_wide_rows_is_bounded(kind: str) -> None:
    chunks = gathered(WIDE[kind], 2_000, Collector(chunk_bytes=MOST))
    assert sum(map(len, chunks)) == 2_000
    # Between two looks rows may become wider: those of one interval are too much then.
    most = 300 * KB if kind == "narrow at first" else 3 * MOST
    assert max(sum(map(bytes_of, chunk)) for chunk in chunks) <= most


@pytest.mark.parametrize("most", [1, 7, CHUNK_ROWS])
def test_a_chunk_of_narrow_rows_has_the_rows_that_were_asked_for(most: int) -> None:
    chunks = gathered(lambda n: {"n": n, "text": "x" * 100}, 20_000, Collector(most))
    assert {len(chunk) for chunk in chunks[:-1]} == {most}
