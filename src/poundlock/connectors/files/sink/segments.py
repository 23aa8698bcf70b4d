"""The hidden segments of one task attempt: opened, cut at the size limit, closed when too many are open, described.

Every name is unique to the attempt and nothing is ever reopened, so no other attempt's output can be touched.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.files.custom_rolling import CustomRollingPolicy, PartFile, rows_before_roll
from poundlock.connectors.files.file_values import OpenPartSeen, PreparedFile
from poundlock.connectors.files.sink.multipart import UploadWriter, of_storage
from poundlock.connectors.files.sink.partition_rows import Slice
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.formats.encode import Passing, SegmentOutput, open_output
from poundlock.formats.encode_bulk import BulkFile, BulkOptions, open_bulk, schema_digest
from poundlock.formats.own.custom import BULK, BulkWriterFactory
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.storage.base import Storage
from poundlock.storage.object_files import ObjectWriter
from poundlock.storage.uploads import LEAST_PART

MOST_HELD = 256 << 20  # bytes that one task's files on an object store hold in memory before they are parts

# Doubles of today's seconds are exact to 0.0002 ms, of the year 9999 to 0.03 ms: what is closer below a ms is that ms.
_ROUNDING_MS = 0.05


@dataclass(frozen=True, slots=True)
class Layout:
    """How segments are written."""

    kind: str  # "raw", "json", "csv", "custom", or one of `BULK`
    compression: str | None  # see `open_output` and `open_bulk`
    whole: bool  # each segment is a part of its own
    max_open: int  # so many segments are open at once; the one not used for longest is closed for the next
    parquet: ParquetOptions | None = None  # how Parquet files are laid out
    factory: BulkWriterFactory | None = None  # of files of a format of the user's

    @property
    def bulk(self) -> bool:
        """Whether files are written from columns, not from rows of bytes."""
        return self.kind in BULK

    def kind_of(self, schema: pa.Schema | None) -> str:
        """Return what files must have in common to become one."""
        if schema is not None:
            return f"{self.kind}:{schema_digest(schema)}"
        return self.kind if self.compression is None else f"{self.kind}+{self.compression}"


@dataclass(slots=True)
class _Segment:
    path: str
    bucket: str
    number: int
    new_part: bool
    kind: str
    handle: BinaryIO
    output: SegmentOutput
    bulk: BulkFile | None = None
    schema: pa.Schema | None = None
    rows: int = 0
    low: float = math.inf
    high: float = -math.inf
    held: int = 0

    def seen(self, rows: int, times: npt.NDArray[np.float64] | None, ms: float) -> None:
        self.rows += rows
        if times is not None:
            self.low = min(self.low, float(times.min()) * ms)
            self.high = max(self.high, float(times.max()) * ms)


@dataclass(slots=True)
class _Part:
    """The part that a bucket's next rows belong to: how much it holds, and whether they begin a new one."""

    bytes: int = 0
    new: bool = False
    # what a policy of the user's is to know, see `PartFile`
    rows: int = 0
    created_ms: int = 0
    last_write_ms: int = 0


@dataclass(slots=True)
class Segments:
    """All segments of one attempt."""

    storage: Storage  # the sink's folder
    layout: Layout  # how they are written
    rolling: RollingPolicy | CustomRollingPolicy  # the size limit, or the rows that begin a part
    name: Callable[[str, int], str]  # returns the hidden path of a bucket's segment with this number
    pending: dict[str, int]  # bytes that wait in each bucket's open part from earlier checkpoints
    header: Callable[[], bytes]  # returns what each file begins with
    describe: Callable[..., PreparedFile]  # makes the value of a finished segment of what is known of it here
    begin: Callable[[str], BinaryIO] | None = None  # opens a segment's handle; None = as a hidden file of the storage
    # so many bytes wait in memory at once for parts to be full, where files are made of parts
    most_held: int = MOST_HELD
    started_ms: int = 0  # begin of the checkpoint, ms since the epoch
    seen: Mapping[str, OpenPartSeen] = field(default_factory=dict)  # of the parts in `pending`
    _held: int = 0
    _open: OrderedDict[str, _Segment] = field(default_factory=OrderedDict)
    _parts: dict[str, _Part] = field(default_factory=dict)
    _done: list[PreparedFile] = field(default_factory=list)
    _count: int = 0

    def rows(self, bucket: str, rows: Slice, ms: float) -> None:
        """Write rows of bytes. A row that finds its part over the limit begins a new one, as if written one by one."""
        first, after, base = 0, len(rows.ends), rows.base
        custom = self.rolling if isinstance(self.rolling, CustomRollingPolicy) else None
        lines = None if custom is None else _lines(rows)
        while first < after:
            part = self._part(bucket)
            stop = self._fitting(part, rows.ends, first, base)
            if custom is not None and lines is not None:
                stop = first + self._before_roll(custom, bucket, part, lines.slice(first))
                if stop == first:
                    self._roll(bucket, part)
                    continue
            segment = self._segment(bucket, None)
            end = int(rows.ends[stop - 1]) + 1
            before = segment.output.size
            segment.output.write(rows.data[base - rows.base : end - rows.base])
            part.bytes += segment.output.size - before
            self._count_rows(part, stop - first)
            segment.seen(stop - first, None if rows.times is None else rows.times[first:stop], ms)
            self._bound_memory(segment)
            first, base = stop, end

    def batch(self, bucket: str, batch: pa.RecordBatch, times: npt.NDArray[np.float64] | None, ms: float) -> None:
        """Write columns to a bulk file; the size limit is looked at before each batch, by what has reached the file."""
        while isinstance(self.rolling, CustomRollingPolicy) and batch.num_rows:
            part = self._part(bucket)
            count = self._before_roll(self.rolling, bucket, part, batch)
            if count == batch.num_rows:
                break
            if count == 0:
                self._roll(bucket, part)
                continue
            self._write_batch(bucket, batch.slice(0, count), None if times is None else times[:count], ms)
            batch, times = batch.slice(count), None if times is None else times[count:]
        self._write_batch(bucket, batch, times, ms)

    def _write_batch(
        self, bucket: str, batch: pa.RecordBatch, times: npt.NDArray[np.float64] | None, ms: float
    ) -> None:
        part = self._part(bucket)
        segment = self._segment(bucket, batch.schema)
        assert segment.bulk is not None
        before = segment.output.size
        segment.bulk.write(batch)
        part.bytes += segment.output.size - before
        self._count_rows(part, batch.num_rows)
        segment.seen(batch.num_rows, times, ms)
        self._bound_memory(segment)

    def finish(self) -> list[PreparedFile]:
        """Make everything durable and return what describes it, in the order it was begun."""
        for bucket in list(self._open):
            self._close(bucket)
        return sorted(self._done, key=lambda done: done.k)

    def abandon(self) -> None:
        """Remove everything, as far as that is possible."""
        paths = [segment.path for segment in self._open.values()]
        paths += [done.path for done in self._done if done.upload is None]
        for segment in self._open.values():
            with suppress(Exception):
                handle = segment.handle
                handle.discard() if isinstance(handle, ObjectWriter) else handle.close()
        for path in paths if self.begin is None else ():
            with suppress(Exception):
                self.storage.delete(path)
        for done in self._done:
            if done.upload is not None:
                with suppress(Exception):
                    of_storage(self.storage).abort_upload(done.path, done.upload.id)
        self._open.clear()
        self._done.clear()

    def _bound_memory(self, written: _Segment) -> None:
        """Send the largest part early where too much waits; a file without enough for a part is finished instead."""
        if not isinstance(written.handle, ObjectWriter):
            return
        self._held += written.handle.held - written.held
        written.held = written.handle.held
        while self._held > self.most_held:
            largest = max(self._open.values(), key=lambda segment: segment.held)
            if largest.held < LEAST_PART:
                self._close(largest.bucket)
                continue
            cast(ObjectWriter, largest.handle).send_held()
            self._held -= largest.held
            largest.held = 0

    def _part(self, bucket: str) -> _Part:
        part = self._parts.get(bucket)
        if part is None:
            part = self._parts[bucket] = _Part(self.pending.get(bucket, 0), self.layout.whole)
            if (seen := self.seen.get(bucket)) is not None and not self.layout.whole:
                part.rows, part.created_ms, part.last_write_ms = seen.rows, seen.created_ms, seen.last_write_ms
        if isinstance(self.rolling, RollingPolicy) and self.rolling.full(part.bytes):
            self._roll(bucket, part)
        return part

    def _roll(self, bucket: str, part: _Part) -> None:
        """Let the next row of a bucket begin a new part."""
        if bucket in self._open:
            self._close(bucket)
        part.bytes, part.rows, part.new = 0, 0, True

    def _before_roll(self, policy: CustomRollingPolicy, bucket: str, part: _Part, rows: pa.RecordBatch) -> int:
        created, written = (part.created_ms, part.last_write_ms) if part.rows else (self.started_ms, self.started_ms)
        return rows_before_roll(policy, PartFile(bucket, part.bytes, part.rows, created, written), rows)

    def _count_rows(self, part: _Part, rows: int) -> None:
        if not part.rows:
            part.created_ms = self.started_ms
        part.rows, part.last_write_ms = part.rows + rows, self.started_ms

    def _fitting(self, part: _Part, ends: npt.NDArray[np.int64], first: int, base: int) -> int:
        """Return the row after the last one that still goes into the part: the one that takes it over the limit."""
        limit = self.rolling.max_bytes if isinstance(self.rolling, RollingPolicy) else None
        if limit is None or self.layout.compression is not None or part.bytes + int(ends[-1]) + 1 - base <= limit:
            return len(ends)
        over = int(np.searchsorted(ends[first:], limit - part.bytes + base, side="left"))
        return min(first + over + 1, len(ends))

    def _segment(self, bucket: str, schema: pa.Schema | None) -> _Segment:
        segment = self._open.get(bucket)
        if segment is not None and schema is not None and segment.schema != schema:
            self._close(bucket)
            segment = None
        if segment is not None:
            self._open.move_to_end(bucket)
            return segment
        if len(self._open) >= self.layout.max_open:
            self._close(next(iter(self._open)))
        path = self.name(bucket, self._count)
        handle = self.storage.write(path) if self.begin is None else self.begin(path)
        output = open_output(handle, None if self.layout.bulk else self.layout.compression)
        part = self._parts[bucket]
        segment = _Segment(path, bucket, self._count, part.new, self.layout.kind_of(schema), handle, output)
        self._open[bucket] = segment
        self._count += 1
        part.new = self.layout.whole
        if schema is not None:
            segment.schema = schema
            counted = cast(BinaryIO, Passing(output.write))
            options = BulkOptions(self.layout.compression, self.layout.parquet, self.layout.factory)
            segment.bulk = open_bulk(self.layout.kind, counted, schema, options)
        elif head := self.header():
            output.write(head)
        return segment

    def _close(self, bucket: str) -> None:
        segment = self._open[bucket]
        if segment.bulk is not None:
            segment.bulk.finish()
        segment.output.finish()
        self.storage.sync(segment.handle)
        segment.handle.close()
        del self._open[bucket]  # now, so that one that could not be finished is still abandoned
        self._held -= segment.held
        known = segment.low <= segment.high
        self._done.append(
            self.describe(
                path=segment.path,
                bucket=bucket,
                k=segment.number,
                kind=segment.kind,
                new_part=segment.new_part,
                rows=segment.rows,
                bytes=segment.output.size,
                crc32=segment.output.crc32,
                min_ms=math.floor(segment.low + _ROUNDING_MS) if known else None,
                max_ms=math.floor(segment.high + _ROUNDING_MS) if known else None,
                upload=segment.handle.upload if isinstance(segment.handle, UploadWriter) else None,
            )
        )


def _lines(rows: Slice) -> pa.RecordBatch:
    """Return rows of bytes as the column `value`, without copying them."""
    offsets = np.zeros(len(rows.ends) + 1, np.int64)
    np.subtract(rows.ends, rows.base - 1, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows.data)]
    values = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return pa.RecordBatch.from_arrays([values], ["value"])
