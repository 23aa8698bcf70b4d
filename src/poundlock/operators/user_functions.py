"""The operators that call a user's function for each record or each Arrow batch.

A function fails for a row, not for a chunk: where the job's author chose that, the rows it raises for are handed over one by one
and all others go on, whatever chunk they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import repeat
from operator import eq
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, PoundlockError, TerminalError
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, NoOrigin, Origin, Records, subset, within
from poundlock.formats.declared import check_declared_types
from poundlock.formats.reject import Reject
from poundlock.operators.batches import batch_as, batches_of
from poundlock.operators.chain import MAIN, Emit, Misfit, RowFailed, UserFunction
from poundlock.operators.records import RecordMaker, as_dict, as_dicts, record_reader, struct_rows
from poundlock.stream.functions.records import BatchFormat
from poundlock.stream.stream import Side

# These say something of the job or of the machine, not of a row.
NOT_OF_A_ROW = (PoundlockError, MemoryError)


def given_records(chunk: Chunk, records: RecordMaker | None) -> Iterable[Any]:
    """Return what a function is given for each row; None makes dicts."""
    return convert.to_records(chunk).rows if records is None else records.of_chunk(chunk)


def _each(
    function: Callable[[Any], Any], chunk: Chunk, records: RecordMaker | None, failed: RowFailed | None
) -> tuple[list[Any], list[int] | None]:
    """Return what a function gives for each row, and the rows that is of; None for all of them."""
    given = given_records(chunk, records)
    if failed is None:
        return list(map(function, given)), None
    results: list[Any] = []
    rows: list[int] = []
    for i, row in enumerate(given):
        try:
            results.append(function(row))
        except NOT_OF_A_ROW:
            raise
        except Exception as error:
            failed(chunk, i, error)
        else:
            rows.append(i)
    return results, None if len(rows) == len(chunk) else rows


def _places(chunk: Chunk, rows: Iterable[int]) -> list[int]:
    """Return where rows of a chunk are in its origin."""
    index = _index(chunk)
    return list(rows) if index is None else [index[i] for i in rows]


def _index(chunk: Chunk) -> Sequence[int] | None:
    return chunk.index if isinstance(chunk, Records) else None


@dataclass(frozen=True)
class Filter(UserFunction):
    """Keep the rows for which the user's function is true, in the form they came in."""

    function: Callable[[Any], Any]
    records: RecordMaker | None = None
    leaves_out: ClassVar[bool] = True

    def process(self, chunk: Chunk, emit: Emit) -> None:
        function, chunk = self.function, readable(chunk, self)
        call = function if self.failed is None else lambda row: bool(function(row))
        answers, rows = _each(call, chunk, self.records, self.failed)
        keep = [bool(answer) for answer in answers]
        if rows is not None:
            kept = {row for row, stays in zip(rows, keep, strict=True) if stays}
            keep = [row in kept for row in range(len(chunk))]
        emit(MAIN, chunk if all(keep) else convert.take(chunk, keep))


def readable(chunk: Chunk, operator: Filter | MapRecords | FlatMap) -> Chunk:
    """Return the rows that records can be made of."""
    records = operator.records
    return convert.for_python(chunk, operator.unreadable, None if records is None else records.columns)


def _all_have(rows: list[Any], names: frozenset[str]) -> bool:
    """Return whether all records are dicts of just these columns; a loop in C, which is what most records need."""
    return set(map(type, rows)) <= {dict} and all(map(eq, map(dict.keys, rows), repeat(names)))


def _shaped(row: Any, names: tuple[str, ...], known: frozenset[str], step: str) -> dict[str, Any]:
    """Return a user's record as a dict with exactly the declared columns."""
    row = as_dict(row, names)
    if not isinstance(row, dict):
        raise DefinitionError(
            f"{step} returned {type(row).__name__}, not a dict",
            next="return {column: value, …} with the declared schema, or an object with fields of these names",
        )
    _check_declared(step, row.keys() - known, names)
    return {name: row.get(name) for name in names}


def _check_declared(step: str, extra: Set[str], names: Iterable[str]) -> None:
    if extra:
        raise DefinitionError(
            f"{step} returned the undeclared column {min(extra)!r}",
            next=f"add it to schema=, or return only {', '.join(names)}",
        )


@dataclass(frozen=True)
class MapRecords(UserFunction):
    """One record in, one record out."""

    id: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    records: RecordMaker | None = None

    def process(self, chunk: Chunk, emit: Emit) -> None:
        chunk = readable(chunk, self)
        results, of = _each(self.function, chunk, self.records, self.failed)
        self._send(chunk, results, of, emit)

    def _send(self, chunk: Chunk, results: list[Any], of: list[int] | None, emit: Emit) -> None:
        """Emit what the function gave for rows of a chunk; `of` None for all of them."""
        names = tuple(self.schema.names)
        known = frozenset(names)
        if self.failed is None and (objects := struct_rows(results, names)) is not None:
            given = Records(objects, chunk.origin, _index(chunk) if of is None else _places(chunk, of))
            check_declared_types(self.id, given, self.schema)
            emit(MAIN, given)
            return
        rows = as_dicts(results, names)
        if not _all_have(rows, known):
            for i, row in enumerate(rows):
                if type(row) is not dict or row.keys() != known:
                    rows[i] = _shaped(row, names, known, self.id)
        if self.failed is not None and (bad := convert.misfits(rows, self.schema)):
            places = range(len(rows)) if of is None else of
            for i, why in sorted(bad.items()):
                self.failed(chunk, places[i], Misfit(why))
            of = [place for i, place in enumerate(places) if i not in bad]
            rows = [row for i, row in enumerate(rows) if i not in bad]
        given = Records(rows, chunk.origin, _index(chunk) if of is None else _places(chunk, of))
        if self.failed is None:
            check_declared_types(self.id, given, self.schema)
        emit(MAIN, given)


@dataclass(frozen=True)
class FlatMap(UserFunction):
    """One record in, any number out, some of them to side outputs."""

    id: str
    function: Callable[[Any], Iterable[Any]]
    schemas: Mapping[str, pa.Schema]  # tag to columns; "" is the main output
    records: RecordMaker | None = None

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Emit what comes of each row; of one for which the function raises in the middle, nothing."""
        chunk, function = readable(chunk, self), self.function
        known = {tag: frozenset(schema.names) for tag, schema in self.schemas.items()}
        rows: dict[str, list[dict[str, Any]]] = {tag: [] for tag in self.schemas}
        index: dict[str, list[int]] = {tag: [] for tag in self.schemas}
        results, of = _each(lambda record: self._outs(function(record)), chunk, self.records, self.failed)
        for i, outs in zip(range(len(chunk)) if of is None else of, results, strict=True):
            for out in outs:
                tag, row = (out.tag, out.record) if isinstance(out, Side) else (MAIN, out)
                if tag not in known:
                    raise DefinitionError(
                        f"{self.id} sent a record to the undeclared side output {tag!r}",
                        next=f'declare it: flat_map(…, side_outputs={{"{tag}": "…"}})',
                    )
                if type(row) is not dict or row.keys() != known[tag]:
                    row = _shaped(row, tuple(self.schemas[tag].names), known[tag], self.id)
                rows[tag].append(row)
                index[tag].append(i)
        bad = self._misfits(chunk, rows, index)
        for tag, emitted in rows.items():
            kept = [at for at, i in enumerate(index[tag]) if i not in bad]
            of_tag = _places(chunk, [index[tag][at] for at in kept])
            given = Records([emitted[at] for at in kept], chunk.origin, of_tag)
            if self.failed is None:
                check_declared_types(self.id, given, self.schemas[tag])
            emit(tag, given)

    def _outs(self, given: Any) -> list[Any]:
        """Return the records that a function gave for one; a single record, of which a loop would make its names, is refused."""
        if given and (type(given) is dict or record_reader(type(given)) is not None):
            raise DefinitionError(
                f"{self.id} returned one record, and flat_map takes any number",
                next="yield it, or return [record]; where one comes of each, write map",
            )
        return list(given or ())

    def _misfits(
        self, chunk: Chunk, rows: Mapping[str, Sequence[dict[str, Any]]], index: Mapping[str, Sequence[int]]
    ) -> dict[int, str]:
        """Hand over the rows of which something came that does not fit, where they are bad records; return them."""
        bad: dict[int, str] = {}
        if self.failed is not None:
            for tag, schema in self.schemas.items():
                for at, why in convert.misfits(rows[tag], schema).items():
                    bad.setdefault(index[tag][at], why)
            for i, why in sorted(bad.items()):
                self.failed(chunk, i, Misfit(why))
        return bad


@dataclass(frozen=True)
class MapBatches(UserFunction):
    """A batch in, batches out. `schema` is what the function declared to give; `input_schema` what it is given, where known.

    A batch for which the function raises is given to it again in halves, until the rows are known for which it does; how rows
    are cut into batches is nothing that a function may rely on.
    """

    id: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    input_schema: pa.Schema | None = None
    form: BatchFormat = "record_batch"

    def process(self, chunk: Chunk, emit: Emit) -> None:
        batch = convert.to_batch(chunk, self.input_schema if isinstance(chunk, Records) else None)
        if self.failed is None:
            try:
                self._emit(self._call(batch.batch), batch.origin, batch.batch.num_rows, emit)
            except Misfit as error:
                raise TerminalError(
                    f"{self.id} returned {error}",
                    next="let each column have values of the one type that schema= declares",
                ) from error
        else:
            self._halves(batch, 0, batch.batch.num_rows, self.failed, emit)

    def _halves(self, batch: Batch, start: int, stop: int, failed: RowFailed, emit: Emit) -> None:
        """Emit what comes of some rows of a batch, each half by itself where the function raises for them together."""
        try:
            parts = list(self._call(batch.batch.slice(start, stop - start)))
            for part in parts:
                convert.to_batch(Batch(part, NoOrigin(self.id)), self.schema, _misfit)
        except NOT_OF_A_ROW:
            raise
        except Exception as error:
            if stop - start == 1:
                failed(batch, start, error)
                return
            middle = (start + stop) // 2
            self._halves(batch, start, middle, failed, emit)
            self._halves(batch, middle, stop, failed, emit)
            return
        whole = stop - start == batch.batch.num_rows
        origin = batch.origin if whole else subset(batch.origin, np.arange(start, stop, dtype=np.int64))
        self._emit(parts, origin, stop - start, emit)

    def _call(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return batches_of(self.function(batch_as(rows, self.form)), self.id)

    def _emit(self, parts: Iterable[pa.RecordBatch], origin: Origin, rows: int, emit: Emit) -> None:
        for part in parts:
            columns = part.schema.names
            _check_declared(self.id, set(columns) - set(self.schema.names), self.schema.names)
            if twice := sorted(name for name in self.schema.names if columns.count(name) > 1):
                raise DefinitionError(f"{self.id} returned two columns {twice[0]!r}", next="rename one of them")
            of = origin if part.num_rows == rows else within(origin, part.num_rows)
            emit(MAIN, convert.to_batch(Batch(part, of), self.schema))


def _misfit(record: Reject) -> None:
    raise Misfit(record.reason)
