"""The task's half of the Delta sink: rows into Parquet files that no version of the table names until the driver commits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.delta.partition_values import folder_of, texts_of
from poundlock.connectors.delta.sink.files import DeltaFiles
from poundlock.connectors.delta.sink.fitting import fitted
from poundlock.connectors.delta.sink.names import attempt_of, changes_folder, file_name, tag_of
from poundlock.connectors.delta.sink.values import WrittenFiles, check_format
from poundlock.connectors.files.sink.partition_rows import order, runs
from poundlock.errors import TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, Chunk, origin_of
from poundlock.formats.convert import not_utf8, row_values, to_batch
from poundlock.formats.reject import Reject, as_json
from poundlock.storage.storage_errors import writing_failed

if TYPE_CHECKING:
    from poundlock.connectors.delta.sink.sink import DeltaSink


class DeltaWriter:
    """Writes the rows of one task attempt."""

    def __init__(self, context: WriterContext, sink: DeltaSink) -> None:
        check_format(context.directive)
        self._context, self._sink = context, sink
        self._partition_by: tuple[str, ...] = tuple(context.directive["partition_by"])
        self._rules = sink.rules(ddl.parse(context.directive["columns"]), self._partition_by, context.sink)
        self._tag, self._attempt = tag_of(sink.app), attempt_of(context.attempt)
        self._given: pa.Schema | None = None
        self._target = pa.schema([])
        self._parts: list[WrittenFiles] = []
        self._files = self._new_files(0)
        self._number = 0
        self._written = False

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were written. Raises TransientError when the file system fails."""
        if not len(chunk):
            return 0
        rows = to_batch(chunk)
        if rows.batch.schema != self._given:
            self._take(rows.batch.schema)
        made, bad = fitted(rows.batch, self._target, self._rules)
        bad = {**bad, **not_utf8(made)}
        if bad:
            self._reject(rows, bad)
            made = made.take(pa.array(np.delete(np.arange(made.num_rows), sorted(bad))))
        if made.num_rows:
            with self._failing("writing to"):
                self._write(made)
            if not self._written:
                self._written = True
                hit(Failpoint.SINK_WRITING)
        return int(made.num_rows)

    def prepare(self) -> Sequence[JSON]:
        """Make all of it durable and return one payload for all rows with the same columns."""
        with self._failing("finishing a file in"):
            self._end_part()
        return [part.to_json() for part in self._parts]

    def abandon(self) -> None:
        """Remove what was written, as far as that is possible."""
        self._files.abandon()
        for part in self._parts:
            for each in part.files:
                with suppress(Exception):
                    self._sink.storage().delete(each.path)

    def _take(self, given: pa.Schema) -> None:
        """Take rows with other columns than before: their files are others, too."""
        target = self._rules.target(given, TerminalError)
        if self._given is not None and target != self._target:
            with self._failing("finishing a file in"):
                self._end_part()
        self._given, self._target = given, target

    def _end_part(self) -> None:
        files = self._files.finish()
        if files:
            columns = ddl.render(self._target)
            self._parts.append(
                WrittenFiles(self._context.checkpoint, self._attempt, columns, self._partition_by, files)
            )
            self._number += len(files)
        self._files = self._new_files(self._number)

    def _new_files(self, first: int) -> DeltaFiles:
        sink = self._sink
        return DeltaFiles(
            sink.storage(),
            sink.compression,
            sink.target_bytes,
            sink.max_open_files,
            lambda values, number: self._path(values, first + number),
            self._context.started_ms,
        )

    def _path(self, values: Mapping[str, str | None], number: int) -> str:
        task = self._context
        name = file_name(task.subtask, task.checkpoint, self._tag, self._attempt, number)
        folder = changes_folder(self._tag) if self._sink.key else folder_of(values)
        return f"{folder}/{name}" if folder else name

    def _write(self, rows: pa.RecordBatch) -> None:
        if self._sink.key or not self._partition_by:
            self._files.write({}, rows)
            return
        texts = [texts_of(rows.column(name)) for name in self._partition_by]
        whole = rows.drop_columns(list(self._partition_by))
        codes, firsts = _codes(texts)
        index = order(codes)
        sorted_rows = whole.take(pa.array(index))
        for code, first, after in runs(codes[index]):
            row = int(firsts[code])
            values = {name: text[row].as_py() for name, text in zip(self._partition_by, texts, strict=True)}
            self._files.write(values, sorted_rows.slice(first, after - first))

    def _reject(self, rows: Batch, bad: Mapping[int, str]) -> None:
        origin = origin_of(rows)
        for row in sorted(bad):
            self._context.reject(Reject(bad[row], as_json(row_values(rows.batch, row)), origin.at(row)))

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text, next = writing_failed(error, doing=f"{doing} {self._sink.storage().root}")
            checkpoint, sink = self._context.checkpoint, self._context.sink
            raise TransientError(text, next=next, checkpoint=checkpoint, participant=sink) from error


def _codes(texts: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Return a number of its partition for each row, and for each number a row that has it."""
    numbers = np.zeros(len(texts[0]), np.int64)
    for text in texts:
        encoded = pc.dictionary_encode(text, null_encoding="encode")
        numbers = numbers * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        # Numbered closely after each column, so that they stay small however many columns there are.
        _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    return numbers.astype(np.int32), firsts
