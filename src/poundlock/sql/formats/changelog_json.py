"""Changes of databases in JSON, as Debezium, Canal and Maxwell write them: records of changes to rows with their kinds, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, indices_of, ranges
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.change_metadata import column_of_metadata, fields_of
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder, bad_record
from poundlock.sql.formats.json_format import JsonDecoder, json_rules, row_type
from poundlock.sql.formats.json_text import JsonTexts, check_keys, json_texts
from poundlock.sql.formats.json_values import JsonRules
from poundlock.sql.formats.value_texts import joined_texts, one
from poundlock.sql.functions.kernels.columns import repeated, trues, valid_flags
from poundlock.sql.types import STRING, SqlType

Dialect = Literal["debezium-json", "canal-json", "maxwell-json"]

_ADDED, _CHANGED, _REMOVED = "added", "changed", "removed"
_OPERATIONS: dict[Dialect, dict[str, str]] = {
    "debezium-json": {"c": _ADDED, "r": _ADDED, "u": _CHANGED, "d": _REMOVED},
    "canal-json": {"INSERT": _ADDED, "UPDATE": _CHANGED, "DELETE": _REMOVED},
    "maxwell-json": {"insert": _ADDED, "update": _CHANGED, "delete": _REMOVED},
}
_WRITTEN: dict[Dialect, tuple[str, str]] = {
    "debezium-json": ("c", "d"),
    "canal-json": ("INSERT", "DELETE"),
    "maxwell-json": ("insert", "delete"),
}
_SKIPPED = "CREATE"
"""The type of Canal's records of new tables, which change no row."""


class _Envelope(msgspec.Struct):
    """What a record names of the rows before a change."""

    old: Any = None


_KEYS = msgspec.json.Decoder(_Envelope)


class ReadsChanges(Protocol):
    """A format of changes, as far as errors and words of kinds go."""

    @property
    def table(self) -> str:
        """The name of the table."""

    @property
    def dialect(self) -> Dialect:
        """Whose words for the kinds of change it has."""

    @property
    def rules(self) -> JsonRules:
        """Whether records are left out that are no change."""

    @property
    def option(self) -> str:
        """The option that leaves them out."""


@dataclass(frozen=True)
class ChangelogDecoder:
    """Records of changes to rows with `ROW_KIND`.

    Args:
        columns: those of the table.
        metadata: columns that show what a record has beside its rows, named by the keys of the format.
        has_schema: whether the change is the payload beside its schema, as Kafka Connect writes it.
        included: patterns of the databases and of the tables whose changes are read, of Canal; None: all.
        prefix: what stands before the names of the format's options.
    """

    table: str
    dialect: Dialect
    columns: tuple[FormatColumn, ...]
    rules: JsonRules
    metadata: tuple[FormatColumn, ...] = ()
    has_schema: bool = False
    included: tuple[str | None, str | None] = (None, None)
    prefix: str = ""
    is_updating: bool = True
    leaves_out: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        places = self._wanted_records(records)
        some = records if len(places) == len(records) else records.take(indices_of(places))
        columns = tuple(each for each in self.columns if each.column in wanted) or self.columns[:1]
        metadata = tuple(each for each in self.metadata if each.column in wanted)
        parts, fields, read = self._parts(some, columns, metadata)
        rows, of = Changes(self, some, columns, parts, read).rows()
        return self._with_metadata(rows, metadata, fields, np.searchsorted(read, of)), places[of]

    def _parts(
        self, records: pa.Array, columns: tuple[FormatColumn, ...], metadata: tuple[FormatColumn, ...]
    ) -> tuple[tuple[pa.Array, pa.Array, pa.Array], dict[str, pa.Array], Numbers]:
        """Return the rows before and after each change and the word for what it is, the fields of metadata, and of which record they are."""
        row = row_type(columns)
        data = SqlType("ARRAY", of=(row,)) if self.dialect == "canal-json" else row
        names = ("before", "after", "op") if self.dialect == "debezium-json" else ("old", "data", "type")
        inside, beside = fields_of(metadata, self.dialect)
        change = (*(FormatColumn(n, n, kind) for n, kind in zip(names, (data, data, STRING), strict=True)), *inside)
        envelope = (
            (FormatColumn("payload", "payload", row_type(change)), *beside) if self.has_schema else (*change, *beside)
        )
        reader = JsonDecoder(self.table, envelope, self.rules, self.option)
        read, places = reader.decode(records, [each.column for each in envelope])
        arrays = [*read.column(0).flatten(), *read.columns[1:]] if self.has_schema else read.columns
        fields = {each.name: array for each, array in zip((*inside, *beside), arrays[3:], strict=True)}
        before, after, operation = arrays[:3]
        return (before, after, operation), fields, np.arange(len(records)) if places is None else places

    def _with_metadata(
        self, rows: pa.RecordBatch, metadata: tuple[FormatColumn, ...], fields: dict[str, pa.Array], of: Numbers
    ) -> pa.RecordBatch:
        """Return rows with the metadata of their records before the kind of change.

        Args:
            of: of which of the records that were read each row is.
        """
        if not metadata:
            return rows
        shown = [column_of_metadata(each, self.dialect, fields).take(indices_of(of)) for each in metadata]
        *columns, kinds = rows.columns
        *names, kind = rows.schema.names
        return pa.RecordBatch.from_arrays(
            [*columns, *shown, kinds], [*names, *(each.column for each in metadata), kind]
        )

    def _wanted_records(self, records: pa.Array) -> Numbers:
        """Return which records are of the databases and tables that are wanted."""
        if self.included == (None, None):
            return np.arange(len(records))
        named = tuple(FormatColumn(name, name, STRING) for name in ("database", "table"))
        reader = JsonDecoder(self.table, named, self.rules, self.option)
        names, places = reader.decode(records, ["database", "table"])
        kept = np.ones(names.num_rows, np.bool_)
        for column, pattern in zip(names.columns, self.included, strict=True):
            if pattern is None:
                continue
            known = {name: re.fullmatch(pattern, name) is not None for name in column.unique().to_pylist() if name}
            kept &= np.array([known.get(name, False) for name in column.to_pylist()], np.bool_)
        return np.flatnonzero(kept) if places is None else places[kept]

    @property
    def option(self) -> str:
        """The option that leaves records out that cannot be read."""
        return f"{self.prefix}{self.dialect}.ignore-parse-errors"


class Changes:
    """The changes of some records.

    Args:
        decoder: of the format.
        columns: that are wanted, one at least.
        parts: the rows before and after each change, and the word for what it is.
        places: of which record each of them is.
    """

    def __init__(
        self,
        decoder: ReadsChanges,
        records: pa.Array,
        columns: tuple[FormatColumn, ...],
        parts: tuple[pa.Array, pa.Array, pa.Array],
        places: Numbers,
    ) -> None:
        self._decoder, self._records, self._columns = decoder, records, columns
        self._before, self._after, self._operation = parts
        self._places = places

    def rows(self) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows and of which record each is."""
        known = _OPERATIONS[self._decoder.dialect]
        added, changed, removed = (
            self._is_one_of([word for word, what in known.items() if what == kind])
            for kind in (_ADDED, _CHANGED, _REMOVED)
        )
        there, there_before = valid_flags(self._after), valid_flags(self._before)
        is_debezium = self._decoder.dialect == "debezium-json"
        good = ((added | changed) & there) | (removed & (there_before if is_debezium else there))
        good &= ~changed | there_before
        if self._decoder.dialect == "canal-json":
            good &= ~changed | (self._counts(self._before) >= self._counts(self._after))
        skipped = (
            self._is_one_of([_SKIPPED]) if self._decoder.dialect == "canal-json" else np.zeros(len(good), np.bool_)
        )
        self._refuse(good | skipped, changed & ~there_before)
        if is_debezium:
            return self._put_together(
                self._before, self._after, self._places, added & good, changed & good, removed & good
            )
        at = np.flatnonzero(good)
        old, data, of = self._pairs(at)
        flags = (added[of], changed[of], removed[of])
        before = self._filled(old, data, of, changed)
        return self._put_together(before, data, self._places[of], flags[0], flags[1], flags[2], removes=data)

    def _is_one_of(self, words: Sequence[str]) -> Flags:
        return trues(pc.is_in(self._operation, value_set=pa.concat_arrays([repeated(_text(w), 1) for w in words])))

    @staticmethod
    def _counts(lists: pa.Array) -> Numbers:
        return np.where(valid_flags(lists), np.diff(_bounds(lists)), 0)

    def _refuse(self, good: Flags, without_before: Flags) -> None:
        """Raise for the first record that is no change, where such records are not left out."""
        if good.all() or self._decoder.rules.is_lenient:
            return
        row = int(np.argmin(good))
        record = self._records[int(self._places[row])].as_py()
        operation = self._operation[row].as_py()
        if without_before[row]:
            what = "the row before the change is missing; of Postgres, it is there with REPLICA IDENTITY FULL"
        elif operation in _OPERATIONS[self._decoder.dialect]:
            what = f"the row of a change {operation!r} is missing"
        else:
            what = f"there is no change {operation!r}"
        raise bad_record(self._decoder.table, f"{record[:60]!r}: {what}", self._decoder.option)

    def _pairs(self, at: Numbers) -> tuple[pa.Array, pa.Array, Numbers]:
        """Return the old and the new rows of some records, one beside the other, and of which record each pair is."""
        if self._decoder.dialect == "maxwell-json":
            return self._before.take(indices_of(at)), self._after.take(indices_of(at)), at
        counts = self._counts(self._after)[at]
        of = np.repeat(at, counts)
        number = ranges(np.zeros(len(at), np.int64), counts)
        data = self._after.values.take(indices_of(_bounds(self._after)[:-1][of] + number))
        has_old = number < self._counts(self._before)[of]
        old = self._before.values.take(column_of(_bounds(self._before)[:-1][of] + number, pa.int64(), has_old))
        return old, data, of

    def _filled(self, old: pa.Array, data: pa.Array, of: Numbers, changed: Flags) -> pa.Array:
        """Return old rows with the fields of the new ones where the record names no old one."""
        kept = self._named(old, of, changed)
        fields = []
        for place, (before, after) in enumerate(zip(old.flatten(), data.flatten(), strict=True)):
            taken = valid_flags(before) | kept[:, place]
            fields.append(before if taken.all() else pc.if_else(column_of(taken, pa.bool_()), before, after))
        return pa.StructArray.from_arrays(fields, fields=[data.type.field(i) for i in range(data.type.num_fields)])

    def _named(self, old: pa.Array, of: Numbers, changed: Flags) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Return which fields, null among the old ones, the records name all the same: they were null before."""
        named = np.zeros((len(of), len(self._columns)), np.bool_)
        has_null = np.zeros(len(of), np.bool_)
        for column in old.flatten():
            has_null |= ~valid_flags(column)
        firsts = np.concatenate([[0], np.flatnonzero(np.diff(of)) + 1]) if len(of) else np.zeros(0, np.int64)
        number = np.arange(len(of)) - np.repeat(firsts, np.diff(np.append(firsts, len(of))))
        for row in np.flatnonzero(has_null & changed[of]).tolist():
            names = _old_names(self._records[int(self._places[of[row]])].as_py(), int(number[row]))
            named[row] = [each.name in names for each in self._columns]
        return named

    def _put_together(
        self,
        before: pa.Array,
        after: pa.Array,
        of: Numbers,
        added: Flags,
        changed: Flags,
        removed: Flags,
        removes: pa.Array | None = None,
    ) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows of changes in their order, an old one before its new one.

        Args:
            removes: the rows that are removed; by default those before the change.
        """
        sources = pa.concat_arrays([before, after] if removes is None else [before, after, removes])
        rows = len(after)
        counts = added.astype(np.int64) + removed + 2 * changed
        pair = np.repeat(np.arange(rows), counts)
        second = ranges(np.zeros(rows, np.int64), counts) == 1
        takes_after = (added | changed)[pair] & (second | added[pair])
        places = np.where(takes_after, pair + rows, pair)
        if removes is not None:
            places = np.where(removed[pair], pair + 2 * rows, places)
        codes = np.where(added[pair], 0, np.where(removed[pair], 3, np.where(second, 2, 1)))
        kinds = pa.concat_arrays([_text(kind) for kind in ("+I", "-U", "+U", "-D")]).take(indices_of(codes))
        taken = sources.take(indices_of(places))
        names = [each.column for each in self._columns]
        return pa.RecordBatch.from_arrays([*taken.flatten(), kinds], [*names, ROW_KIND]), of[pair]


def _old_names(record: bytes, number: int) -> set[str]:
    """Return the names of an old row's fields."""
    try:
        old = _KEYS.decode(record).old
    except (msgspec.MsgspecError, ValueError):
        return set()
    if isinstance(old, list):
        old = old[number] if number < len(old) else None
    return set(old) if isinstance(old, dict) else set()


def _bounds(lists: pa.Array) -> Numbers:
    ends = ends_in(lists)
    return ends if len(ends) == len(lists) + 1 else np.zeros(len(lists) + 1, np.int64)


def _text(word: str) -> pa.Array:
    return pa.repeat(one(word), 1)


@dataclass(frozen=True)
class ChangelogEncoder:
    """Rows with `ROW_KIND` to records of changes: rows that come, and rows that go."""

    dialect: Dialect
    columns: tuple[FormatColumn, ...]
    texts: JsonTexts
    takes_updates: bool = True

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row."""
        row = self.texts.objects([rows.column(each.column) for each in self.columns], row_type(self.columns))
        added, removed = _WRITTEN[self.dialect]
        if self.dialect == "debezium-json":
            skipped = self.texts.leaves_nulls_out
            comes = ("{" if skipped else '{"before":null,') + '"after":', f',"op":"{added}"}}'
            goes = '{"before":', (',"op":' if skipped else ',"after":null,"op":') + f'"{removed}"}}'
        else:
            begin, end = ("[", "]") if self.dialect == "canal-json" else ("", "")
            comes, goes = ((f'{{"data":{begin}', f'{end},"type":"{word}"}}') for word in (added, removed))
        made = joined_texts(one(comes[0]), row, one(comes[1]))
        if ROW_KIND in rows.schema.names:
            is_gone = pc.is_in(rows.column(ROW_KIND), value_set=pa.concat_arrays([_text("-U"), _text("-D")]))
            if pc.any(is_gone).as_py():
                made = pc.if_else(is_gone, joined_texts(one(goes[0]), row, one(goes[1])), made)
        return made.cast(pa.binary())


def _read_options(
    options: TableOptions, context: FormatContext, dialect: Dialect
) -> tuple[ChangelogDecoder, JsonTexts]:
    """Return the decoder, and how values are written, as all options say; a table may be read and written."""
    check_keys(row_type(context.columns), context.table, "JSON")
    decoder = ChangelogDecoder(
        context.table,
        dialect,
        context.columns,
        json_rules(options, dialect),
        context.metadata,
        prefix=options.prefix,
    )
    texts = json_texts(options, dialect)
    if dialect == "debezium-json":
        decoder = replace(decoder, has_schema=options.flag("debezium-json.schema-include"))
    if dialect == "canal-json":
        database, table = (
            options.read(f"canal-json.{what}.include", _pattern, None, "orders_.*") for what in ("database", "table")
        )
        decoder = replace(decoder, included=(database, table))
    return decoder, texts


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from None
    return text


def changelog_decoder(options: TableOptions, context: FormatContext, dialect: Dialect) -> RecordDecoder:
    """Return what reads records of changes.

    Raises:
        OptionError: an option cannot be.
    """
    return _read_options(options, context, dialect)[0]


def changelog_encoder(options: TableOptions, context: FormatContext, dialect: Dialect) -> RecordEncoder:
    """Return what writes records of changes; raises as `changelog_decoder`."""
    decoder, texts = _read_options(options, context, dialect)
    if decoder.has_schema:
        raise OptionError(
            f"{context.table}: changes are written without a schema",
            next="leave 'debezium-json.schema-include' out of a table that is written to",
            kind="bad_option_value",
        )
    return ChangelogEncoder(dialect, context.columns, texts)
