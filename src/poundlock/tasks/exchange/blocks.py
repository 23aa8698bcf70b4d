"""Rows on their way to the operators of another stage: sorted by key group, as one Arrow block for each task they go to.

A block says of every run of rows its key group and where in the sources it was read, so that the task that receives it can put
the rows of all blocks in one order, whichever tasks made them: see `received`. Nothing here is written outside of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.operators.time_values import SplitTimes
from poundlock.tasks.columns import int_column
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.placement import Custom, Partitioner, RoundRobin

_ROWS = "__rows"  # a hidden column of nulls, which says how many rows there are where nobody needs a column of them
EVERYWHERE = -1
"""The key group of broadcast rows."""

DELIVERY_BYTES = 4 << 20  # of blocks that are sent at once
# Of messages that PySpark pickles together: arrays in its JVM, which die young if they are small, and else wait for a full heap.
_LIST_BYTES = 4 << 20
_LEAST_BYTES = 256 << 10  # of a message
_FLUSH_BYTES = 4 << 20, 16 << 20  # what one writer gathers before it makes blocks of it, at least and at most
_FLUSH_EACH = 128 << 10  # and for each task that they go to
_END = 16  # bytes that a stream has behind its last batch, and a few more
_INDEX = 3  # a run of rows: key group, place, first row
RUN_INDEX_BYTES = _INDEX * 8


class KeyHashing(Protocol):
    """The hash of keys and their groups, as `poundlock.state.hashing` has them."""

    def key_hashes(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
        """Return the hash of each row's key, one column or several."""

    def groups_of(self, hashes: npt.NDArray[np.uint64], max_parallelism: int) -> npt.NDArray[np.int32]:
        """Return the key group of each hash."""


@dataclass(frozen=True, kw_only=True)
class ExchangeInput:
    """One input of an operator behind an exchange.

    Args:
        keys: the columns of the key; none = all rows have the same.
        how: "keyed" = by the key; "broadcast" = to every task; "spread" = evenly, for an input without a key; "rescale" = the
            rows of each split evenly over a few tasks; "custom" = as `partitioner` says of the key.
        max_parallelism: how many key groups there are; None = one for each task, where rows are placed and have no key group.
    """

    operator: str
    side: int = 0
    keys: tuple[str, ...] = ()
    how: Literal["keyed", "broadcast", "spread", "rescale", "custom"] = "keyed"
    max_parallelism: int | None = 128
    partitioner: Partitioner | None = None

    def groups(self, parallelism: int) -> int:
        """Return into how many groups rows fall that are for so many tasks."""
        return parallelism if self.max_parallelism is None else self.max_parallelism


class Block(msgspec.Struct, frozen=True):
    """Rows of one input for one task.

    Args:
        target: the number of the task.
        part: a writer that had many rows made several blocks; their order.
        places: where the rows were read: (source, sequence of the split), in the order they came.
        index: for each run of rows its key group, the number of its place and its first row, as int64.
        rows: an Arrow IPC stream of one batch, its last column hidden; mapped where it waits on a disk.
    """

    operator: str
    side: int
    target: int
    part: int
    places: tuple[tuple[str, int], ...]
    index: bytes
    rows: bytes | bytearray | memoryview
    count: int

    def runs(self) -> npt.NDArray[np.int64]:
        """Return the index: a row for each run, with the columns key group, place, first row."""
        return np.frombuffer(self.index, np.int64).reshape(-1, _INDEX)

    def batch(self) -> pa.RecordBatch:
        """Return the rows; without a copy if they are not compressed."""
        with pa.ipc.open_stream(pa.py_buffer(self.rows)) as reader:
            return reader.read_next_batch()


class Delivery(msgspec.Struct, frozen=True):
    """What one task of a stage sends at once to one task of the next: blocks for it, and the event times it knows of.

    One goes to every task of the next stage, also without a block, for all of them calculate the watermarks. Further ones have blocks
    alone: Spark keeps what is sent at once in its heap, several times.
    """

    reports: tuple[SplitTimes, ...]
    blocks: tuple[Block, ...]


def deliveries(
    blocks: Iterable[Block], reports: Iterable[SplitTimes], parallelism: int
) -> Iterator[tuple[int, Delivery]]:
    """Yield what a task sends to each task of the next stage, by the number of that task, see `Delivery`."""
    known = tuple(reports)
    by_target = _by_target(blocks)
    most = message_bytes(parallelism)
    for target in range(parallelism):
        first, *more = _together(by_target.get(target, ()), most)
        yield target, Delivery(known, first)
        for blocks_of_one in more:
            yield target, Delivery((), blocks_of_one)


def block_deliveries(blocks: Iterable[Block], parallelism: int) -> Iterator[tuple[int, Delivery]]:
    """Yield blocks as what is sent besides `deliveries`, by the number of the task."""
    most = message_bytes(parallelism)
    for target, of_one in _by_target(blocks).items():
        for together in _together(of_one, most):
            yield target, Delivery((), together)


def _by_target(blocks: Iterable[Block]) -> dict[int, list[Block]]:
    by_target: dict[int, list[Block]] = {}
    for block in blocks:
        by_target.setdefault(block.target, []).append(block)
    return by_target


def _together(blocks: Iterable[Block], most: int) -> list[tuple[Block, ...]]:
    """Return blocks in their order, as many together as are sent at once; one group where there are none."""
    groups: list[list[Block]] = [[]]
    size = 0
    for block in blocks:
        if groups[-1] and size + len(block.rows) > most:
            groups.append([])
            size = 0
        groups[-1].append(block)
        size += len(block.rows)
    return [tuple(group) for group in groups]


def message_bytes(parallelism: int) -> int:
    """Return how large what a task sends to another one at a time may be, in bytes.

    PySpark pickles what goes to a task in lists, of 10 x parallelism messages and at most 1,000 at first, and its JVM holds each
    list as one array, which ends at 2 GB: so where a key is hot and all goes to one task, messages have to be small.
    """
    return min(max(_LIST_BYTES // min(10 * parallelism, 1000), _LEAST_BYTES), DELIVERY_BYTES)


@dataclass
class BlockWriter:
    """Makes the blocks of one input in one task.

    Args:
        parallelism: how many tasks share the key groups.
        splits: per source, how many splits it has in the checkpoint; where rows of each go to a few tasks.
        flush_bytes: blocks are made when so much has come; what is open is the memory that a writer needs. None = by the parallelism.
        compress_from: blocks from this size on are compressed by lz4; None = none are, as Spark's shuffle compresses by itself.
    """

    to: ExchangeInput
    hashing: KeyHashing
    parallelism: int = 1
    splits: Mapping[str, int] = field(default_factory=dict)
    flush_bytes: int | None = None
    compress_from: int | None = None
    # Rows, and the number of their place.
    _open: list[tuple[pa.RecordBatch, int]] = field(default_factory=list, init=False)
    _places: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _spread: RoundRobin = field(init=False)
    _groups: list[npt.NDArray[np.int64]] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _parts: int = field(default=0, init=False)
    _full: int = field(init=False)

    def __post_init__(self) -> None:
        least, most = _FLUSH_BYTES
        self._full = self.flush_bytes or min(max(self.parallelism * _FLUSH_EACH, least), most)
        splits = self.splits if self.to.how == "rescale" else None
        self._spread = RoundRobin(self.to.groups(self.parallelism), splits)

    def add(self, batch: pa.RecordBatch, place: SplitPlace) -> list[Block]:
        """Take rows; return the blocks that became full with them.

        Args:
            batch: all batches of an input have the same columns.
            place: where they were read; the rows of a split come in its order.
        """
        if not batch.num_rows:
            return []
        where = place.source, place.sequence
        number = self._places.setdefault(where, len(self._places))
        if self.to.how == "keyed":
            columns = [batch.column(name) for name in self.to.keys]
            hashes = self.hashing.key_hashes(columns) if columns else np.zeros(batch.num_rows, np.uint64)
            groups = self.hashing.groups_of(hashes, self.to.groups(self.parallelism)).astype(np.int64)
        else:
            groups = self._unkeyed(batch, place)
        self._open.append((batch.append_column(_ROWS, pa.nulls(batch.num_rows)), number))
        self._groups.append(groups)
        self._bytes += batch.nbytes
        return self._flush() if self._bytes >= self._full else []

    def finish(self) -> list[Block]:
        """Return the blocks of what is left."""
        return self._flush() if self._open else []

    def _unkeyed(self, batch: pa.RecordBatch, place: SplitPlace) -> npt.NDArray[np.int64]:
        """Return groups of rows that have no key group."""
        if self.to.how == "broadcast":
            return np.full(batch.num_rows, EVERYWHERE, np.int64)
        if self.to.partitioner is not None:
            placed = Custom(self.to.operator, self.to.partitioner, self.to.groups(self.parallelism))
            return placed.of([batch.column(name) for name in self.to.keys])
        return self._spread.of(batch.num_rows, place)

    def _flush(self) -> list[Block]:
        rows = one_batch([batch for batch, _ in self._open])
        groups = np.concatenate(self._groups)
        places = np.repeat([number for _, number in self._open], [batch.num_rows for batch, _ in self._open])
        if (groups[1:] < groups[:-1]).any():
            # 16 bits are sorted by radix, several times as fast as more.
            order = np.argsort(groups.astype(np.uint16), kind="stable")
            rows, groups, places = rows.take(int_column(order, pa.int64())), groups[order], places[order]
        blocks = self._cut(rows, groups, places)
        self._open, self._groups, self._places, self._bytes = [], [], {}, 0
        self._parts += 1
        return blocks

    def _cut(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], places: npt.NDArray[Any]) -> list[Block]:
        starts = _run_starts(groups, places)
        index = np.column_stack([groups[starts], places[starts], starts])
        if self.to.how == "broadcast":
            payload = self._encoded(rows)
            every = range(self.parallelism)
            return [self._block(target, index, payload, rows.num_rows) for target in every]
        targets = index[:, 0] * self.parallelism // self.to.groups(self.parallelism)
        blocks: list[Block] = []
        for target in np.unique(targets).tolist():
            first, stop = np.searchsorted(targets, [target, target + 1]).tolist()
            start = int(index[first, 2])
            end = int(index[stop, 2]) if stop < len(index) else rows.num_rows
            part = index[first:stop] - [0, 0, start]
            blocks += self._pieces(target, part, rows.slice(start, end - start))
        return blocks

    def _pieces(self, target: int, index: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Iterator[Block]:
        """Yield the rows for a task as blocks of about the size of a message."""
        # Each piece would have the whole of a dictionary.
        whole = any(pa.types.is_dictionary(column.type) for column in rows.columns)
        count = 1 if whole else max(min(-(-rows.nbytes // message_bytes(self.parallelism)), rows.num_rows), 1)
        length = -(-rows.num_rows // count)
        for first in range(0, rows.num_rows, length):
            some = rows.slice(first, length)
            start, stop = np.searchsorted(index[:, 2], [first, first + some.num_rows], "left")
            if start == len(index) or index[start, 2] > first:
                start -= 1  # the run that this piece begins within
            runs = index[start:stop].copy()
            runs[:, 2] = np.maximum(runs[:, 2] - first, 0)
            yield self._block(target, runs, self._encoded(some), some.num_rows)
            self._parts += 1

    def _block(self, target: int, index: npt.NDArray[np.int64], payload: bytes | bytearray, rows: int) -> Block:
        places = tuple(self._places)
        return Block(
            self.to.operator, self.to.side, target, self._parts, places, index.astype(np.int64).tobytes(), payload, rows
        )

    def _encoded(self, rows: pa.RecordBatch) -> bytes | bytearray:
        return encoded(rows, compress=self.compress_from is not None and rows.nbytes >= self.compress_from)


def encoded(rows: pa.RecordBatch, *, compress: bool = False) -> bytes | bytearray:
    """Return rows as the Arrow IPC stream of a block, compressed by lz4 or not at all."""
    if compress or any(pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type) for field in rows.schema):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4" if compress else None)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_batch(rows)
        return bytes(sink.getvalue())
    # Written where it stays, for its size is known: a stream that grows is copied as it does, and once more in the end.
    data = bytearray(len(rows.schema.serialize()) + pa.ipc.get_record_batch_size(rows) + _END)
    with pa.FixedSizeBufferWriter(pa.py_buffer(data)) as out, pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return data


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of the same columns one behind the other; without a copy where there is one."""
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _run_starts(groups: npt.NDArray[np.int64], places: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the first row of each run of rows of one group and place."""
    new = np.empty(len(groups), np.bool_)
    new[:1] = True
    new[1:] = (groups[1:] != groups[:-1]) | (places[1:] != places[:-1])
    return np.flatnonzero(new)
