"""How split-planned sources run on Spark: the driver plans splits, and a ticker of Spark's gives each task one row to read them for.

Which splits a checkpoint has is in its directive, and where they begin and end in the ledger; Spark's own log of the
ticker only numbers the checkpoints.
"""

from __future__ import annotations

import base64
import heapq
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split, SplitSource
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject

__all__ = ["TICKER", "pack", "places", "read_splits", "spread", "task_splits", "ticker_options"]

TICKER = "rate-micro-batch"


def ticker_options(tasks: int) -> dict[str, str]:
    """Return the options of a ticker that gives so many tasks one row each, numbered on from batch to batch."""
    return {"rowsPerBatch": str(tasks), "numPartitions": str(tasks), "startTimestamp": "0"}


def spread(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Return the splits in at most so many groups of about equal weight; the same for the same splits."""
    count = min(tasks, len(splits))
    groups: list[list[Split]] = [[] for _ in range(count)]
    heap = [(0, i) for i in range(count)]
    for split in sorted(splits, key=lambda s: (-s.weight, s.id)):
        weight, i = heapq.heappop(heap)
        groups[i].append(split)
        heapq.heappush(heap, (weight + split.weight, i))
    return [sorted(group, key=lambda s: s.id) for group in groups]


def pack(splits: Sequence[Split], first: int, tasks: int) -> dict[str, Any]:
    """Return what a directive says of one use of a source.

    Args:
        splits: the work of the checkpoint.
        first: the number of the ticker's first row in this batch.
        tasks: how many rows the batch has.
    """
    groups = [[[s.id, s.payload, s.weight] for s in group] for group in spread(splits, tasks)]
    text = json.dumps(groups, separators=(",", ":")).encode("utf-8", "surrogateescape")
    return {"first": first, "groups": base64.b64encode(zlib.compress(text, 1)).decode("ascii")}


def task_splits(batches: Iterator[pa.RecordBatch], use: str, directive: Mapping[str, Any]) -> list[Split]:
    """Return the splits of this task.

    Args:
        batches: the ticker's rows that came to it.
        use: the source's name, with the number of its use where there are several.
        directive: what the driver says of this checkpoint.
    """
    rows = [int(row) for batch in batches for row in batch.column(0).to_pylist()]
    plan = directive["splits"][use]
    groups = _groups(plan)
    numbers = [row - plan["first"] for row in rows]
    return [Split(*fields) for number in numbers if number < len(groups) for fields in groups[number]]


def places(use: str, directive: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of every split of a use among all of the checkpoint's, by its id; whoever reads it, it is the same."""
    ids = sorted(fields[0] for group in _groups(directive["splits"][use]) for fields in group)
    return {id: place for place, id in enumerate(ids)}


def _groups(plan: Mapping[str, Any]) -> list[list[list[Any]]]:
    text = zlib.decompress(base64.b64decode(plan["groups"])).decode("utf-8", "surrogateescape")
    groups: list[list[list[Any]]] = json.loads(text)
    return groups


def read_splits(
    source: SplitSource, splits: Sequence[Split], want: Literal["batch", "records"]
) -> Callable[[Callable[[Reject], None]], Iterator[Chunk]]:
    """Return what reads the splits once it is told where undecodable records go."""

    def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
        reader = source.reader(ReaderContext(reject=reject, want=want))
        for split in splits:
            yield from reader.read(split)

    return read
