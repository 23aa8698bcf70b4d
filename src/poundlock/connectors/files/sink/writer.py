"""The task's half of the file sink: chunks in, hidden segments out, every row either written or rejected with a reason.

Raw rows stay one buffer from source to file; columns are encoded once and routed as raw rows are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.files.buckets.assignment import REJECTED, Assignment, BucketRows
from poundlock.connectors.files.file_values import FileDirective, PreparedFile
from poundlock.connectors.files.partitions.late_rows import LateRows
from poundlock.connectors.files.partitions.sealed import SealingRule
from poundlock.connectors.files.sink.multipart import open_upload
from poundlock.connectors.files.sink.names import join, name_pattern, owner_tag, segment_name, upload_name
from poundlock.connectors.files.sink.partition_rows import order, route, runs
from poundlock.connectors.files.sink.raw_lines import raw_rows
from poundlock.connectors.files.sink.segments import Layout, Segments
from poundlock.errors import TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk, Records, origin_of
from poundlock.formats.convert import row_values, to_batch
from poundlock.formats.encode import CsvEncoder, CustomRowEncoder, JsonEncoder, RowEncoder, select
from poundlock.formats.own.custom import BulkWriterFactory, Encoder
from poundlock.formats.reject import Reject, as_json
from poundlock.storage.storage_errors import writing_failed

if TYPE_CHECKING:
    from poundlock.connectors.files.sink.sink import FileSink


class FileWriter:
    """Writes the rows of one task attempt, as the sink says."""

    def __init__(self, context: WriterContext, sink: FileSink) -> None:
        self._context, self._sink = context, sink
        self._storage = storage = sink.storage()
        self._assigner = sink.assigner.open(context, raw=sink.row is not None)
        self._encoder = encoder = _encoder(sink)
        self._tag = owner_tag(context.job_id, context.sink)
        directive = FileDirective.of(context.directive or {"v": FileDirective.FORMAT})
        self._known = context.subtask in directive.known
        self._floor = 0
        if self._known and directive.following:
            self._floor = directive.following[directive.known.index(context.subtask)]
        rule, decided = sink.completion, directive.decided
        self._late: LateRows | None = None
        if isinstance(rule, SealingRule) and decided is not None:
            self._late = LateRows(rule, decided.watermark, decided.clock_ms)
        self._uploads = sink.uploads
        self._written = False
        factory = sink.format if isinstance(sink.format, BulkWriterFactory) else None
        layout = Layout(sink.kind_of_rows, sink.codec, sink.whole, sink.max_open_files, sink.parquet, factory)
        pending = {b: size for b, subtask, size in directive.pending if subtask == context.subtask}
        header: Callable[[], bytes] = encoder.header if encoder is not None else bytes
        begin = partial(open_upload, storage) if self._uploads else None
        self._segments = Segments(
            storage,
            layout,
            sink.rolling,
            self._name,
            pending,
            header,
            self._describe,
            begin,
            started_ms=context.started_ms,
            seen={each.bucket: each for each in directive.seen if each.subtask == context.subtask},
        )

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were written. Raises TransientError when the file system fails."""
        if not len(chunk):
            return 0
        with self._failing("writing to"):
            count = self._write_raw(chunk, row) if (row := self._sink.row) is not None else self._write_columns(chunk)
            if count and not self._written:
                self._written = True
                hit(Failpoint.SINK_WRITING)
        return count

    def prepare(self) -> Sequence[JSON]:
        """Make all of it durable and return one payload a segment."""
        with self._failing("finishing a segment in"):
            return [piece.to_json() for piece in self._segments.finish()]

    def _describe(self, **seen: Any) -> PreparedFile:
        """Return the value of a finished segment."""
        piece = PreparedFile(
            v=PreparedFile.FORMAT,
            tag=self._tag,
            at_ms=self._context.started_ms,
            floor=self._floor,
            checkpoint=self._context.checkpoint,
            **seen,
        )
        counter = self._floor + piece.k if self._uploads else None
        return msgspec.structs.replace(piece, digest=_digest(piece), counter=counter)

    def abandon(self) -> None:
        """Remove what was written, as far as that is possible."""
        self._segments.abandon()

    def _write_raw(self, chunk: Chunk, row: str) -> int:
        rows = raw_rows(chunk, row, self._assigner.valid_json)
        origin = origin_of(chunk)
        for i, (reason, value) in rows.bad.items():
            self._context.reject(Reject(reason, value, origin.at(i)))
        lines = rows.lines
        if not len(lines):
            return 0
        assignment = self._assign(BucketRows(lines, rows.columns))
        for i in sorted(assignment.reasons):
            place = i if rows.index is None else int(rows.index[i])
            value = rows.originals[i] if i in rows.originals else lines.row(i)
            self._context.reject(Reject(assignment.reasons[i], value, origin.at(place)))
        self._route(lines.data, lines.ends, assignment)
        return len(lines) - len(assignment.reasons)

    def _assign(self, rows: BucketRows) -> Assignment:
        assignment = self._assigner.assign(rows)
        refused = {
            number: f"bucket {name!r} has a {letter!r}, which this file system takes in no name"
            for letter in self._storage.refused_in_names
            for number, name in enumerate(assignment.names)
            if letter in name
        }
        if self._late is not None:
            refused |= self._late.refused(assignment.names)
            assignment = replace(assignment, names=self._late.places(assignment.names))
        return _refusing(assignment, len(rows), refused) if refused else assignment

    def _write_columns(self, chunk: Chunk) -> int:
        as_records = isinstance(chunk, Records) and self._encoder is not None and self._encoder.takes_records
        rows = chunk if isinstance(chunk, Records) and as_records else to_batch(chunk)
        assignment = self._assign(BucketRows(None, rows))
        self._reject_rows(rows, assignment.reasons)
        if self._encoder is None:
            assert isinstance(rows, Batch)
            self._write_bulk(rows.batch, assignment)
            return len(rows) - len(assignment.reasons)
        encoded = self._encoder.encode(rows)
        bad = {i: why for i, why in encoded.bad.items() if i not in assignment.reasons}
        self._reject_rows(rows, bad)
        if encoded.bad:
            assignment = _without(assignment, len(rows), encoded.bad)
        if len(encoded.ends):
            self._route(encoded.data, encoded.ends, assignment)
        return len(rows) - len(assignment.reasons) - len(encoded.bad)

    def _write_bulk(self, batch: pa.RecordBatch, assignment: Assignment) -> None:
        wanted = select(batch, self._sink.columns, frozenset((self._sink.bucket_column,)))
        codes, times = assignment.codes, assignment.times
        if isinstance(codes, int):
            self._segments.batch(assignment.names[codes], wanted, times, assignment.ms)
            return
        index = order(codes)
        wanted = wanted.take(pa.array(index))
        times = None if times is None else times[index]
        for code, first, after in runs(codes[index]):
            part = None if times is None else times[first:after]
            self._segments.batch(assignment.names[code], wanted.slice(first, after - first), part, assignment.ms)

    def _route(self, data: memoryview, ends: npt.NDArray[np.int64], assignment: Assignment) -> None:
        for part in route(data, ends, assignment):
            self._segments.rows(assignment.names[part.bucket], part, assignment.ms)

    def _reject_rows(self, rows: Batch | Records, reasons: Mapping[int, str]) -> None:
        origin = origin_of(rows)
        for i in sorted(reasons):
            row = rows.rows[i] if isinstance(rows, Records) else row_values(rows.batch, i)
            kept = {name: value for name, value in row.items() if name != self._sink.bucket_column}
            self._context.reject(Reject(reasons[i], as_json(kept), origin.at(i)))

    def _name(self, bucket: str, number: int) -> str:
        if not self._known:
            self._known, self._floor = True, self._first_free()
        task, prefix = self._context, self._sink.prefix
        if self._uploads:
            counter = self._floor + number
            return join(bucket, upload_name(prefix, task.subtask, counter, self._tag, task.attempt, self._sink.ending))
        return join(bucket, segment_name(prefix, task.subtask, task.checkpoint, self._tag, task.attempt, number))

    def _first_free(self) -> int:
        """Return the counter after the greatest one in a finished name of this subtask.

        A job's first run may find a folder in which another life of the pipeline, or another program, has left files.
        """
        names = name_pattern(self._sink.prefix, self._sink.ending, str(self._context.subtask))
        pattern = re.compile(rf"(?:.*/)?{names}")
        matches = (pattern.fullmatch(entry.path) for entry in self._storage.list())
        return max((int(match[2]) + 1 for match in matches if match), default=0)

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text, next = writing_failed(error, doing=f"{doing} {self._storage.root}")
            checkpoint, sink = self._context.checkpoint, self._context.sink
            raise TransientError(text, next=next, checkpoint=checkpoint, participant=sink) from error


def _encoder(sink: FileSink) -> RowEncoder | None:
    if isinstance(sink.format, Encoder):
        return CustomRowEncoder(sink.format, sink.columns, (sink.bucket_column,))
    if sink.kind_of_rows == "json":
        return JsonEncoder(sink.columns, (sink.bucket_column,))
    return CsvEncoder(sink.columns, (sink.bucket_column,), header=sink.header) if sink.kind_of_rows == "csv" else None


def _digest(piece: PreparedFile) -> str | None:
    """Return the digest of a segment: of its bucket, length and checksum, which is there already.

    An Avro file has a random mark between its blocks, so that the same rows have another checksum each time; so may a file of the user's.
    """
    if piece.kind.startswith(("avro", "custom-bulk")):
        return None
    text = f"{piece.bucket}\0{piece.bytes}\0{piece.crc32}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _without(assignment: Assignment, rows: int, bad: Mapping[int, str]) -> Assignment:
    """Return the assignment of the rows that were encoded."""
    keep = np.ones(rows, np.bool_)
    keep[list(bad)] = False
    codes = np.full(rows, assignment.codes, np.int32) if isinstance(assignment.codes, int) else assignment.codes
    times = None if assignment.times is None else assignment.times[keep]
    reasons = {i: why for i, why in assignment.reasons.items() if keep[i]}
    return Assignment(assignment.names, codes[keep], times, assignment.ms, reasons)


def _refusing(assignment: Assignment, rows: int, refused: Mapping[int, str]) -> Assignment:
    """Return the assignment with the rows of some buckets rejected, number to reason."""
    codes = np.full(rows, assignment.codes, np.int32) if isinstance(assignment.codes, int) else assignment.codes.copy()
    out = np.flatnonzero(np.isin(codes, list(refused)))
    reasons = {**assignment.reasons, **{row: refused[int(codes[row])] for row in out.tolist()}}
    codes[out] = REJECTED
    return replace(assignment, codes=codes, reasons=reasons)
