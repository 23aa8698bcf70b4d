"""Records of CSV cut into the texts of their fields: by Arrow where they are plain or quoted all through, else one by one as Jackson does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of
from poundlock.sql.formats.value_texts import one, texts

_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
_BLANKS = "".join(map(chr, range(33)))
_LINE_END = re.compile("[\r\n]")
_LEAST = 16  # fewer are sooner cut one by one


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How fields stand in a record.

    Args:
        quote: around fields that hold delimiters, doubled within; "" for none.
        escape: before a character that means itself; "" for none.
        has_comments: whether records that begin with # are none.
        trims: whether blanks around fields in no quotes are none of theirs.
        ends_with_delimiter: whether a record may have a delimiter behind its last field.
        drops_more: whether fields behind those of the table are left out; else such a record is none.
        needs_all: whether a record with fewer fields is none.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    has_comments: bool = False
    trims: bool = False
    ends_with_delimiter: bool = True
    drops_more: bool = False
    needs_all: bool = False


@dataclass(frozen=True, slots=True)
class CutRecords:
    """Records as texts.

    Args:
        columns: of texts; null where a record ends before that field.
        places: of which record each row is.
        bad: the records that are none, and why.
        counts: how many fields each row has; None: as many as there are columns.
    """

    columns: Sequence[pa.Array]
    places: Numbers
    bad: dict[int, str]
    counts: Numbers | None


def cut(records: pa.Array, fields: int, dialect: CsvDialect) -> CutRecords:
    """Return the fields of records.

    Args:
        records: binary; null where there is none.
        fields: how many a record has.
    """
    places = np.arange(len(records))
    if records.null_count:
        places = np.flatnonzero(flags_in(pc.is_valid(records)))
        records = records.take(indices_of(places))
    if len(records) < _LEAST:
        return _one_by_one(records, places, fields, dialect)
    try:
        whole = pc.cast(records, pa.string())
    except pa.ArrowInvalid:
        return _one_by_one(records, places, fields, dialect)
    if dialect.has_comments:
        kept = flags_in(pc.invert(pc.starts_with(whole, "#")))
        if not kept.all():
            whole, places = whole.take(indices_of(np.flatnonzero(kept))), places[kept]
    plain = flags_in(pc.match_substring_regex(whole, _well_formed(dialect)))
    columns = _by_arrow(whole, plain, fields, dialect) if plain.any() else None
    if columns is None:
        return _one_by_one(whole.cast(pa.binary()), places, fields, dialect)
    if plain.all():
        return CutRecords(columns, places, {}, None)
    rest = np.flatnonzero(~plain)
    others = _one_by_one(whole.take(indices_of(rest)).cast(pa.binary()), places[rest], fields, dialect)
    every = np.concatenate([places[plain], others.places])
    order = indices_of(np.argsort(every, kind="stable"))
    both = [pa.concat_arrays([some, more]).take(order) for some, more in zip(columns, others.columns, strict=True)]
    assert others.counts is not None
    counts = np.concatenate([np.full(int(plain.sum()), fields), others.counts])[np.argsort(every, kind="stable")]
    return CutRecords(both, np.sort(every), others.bad, counts)


def _well_formed(dialect: CsvDialect) -> str:
    """Return a pattern of records that Arrow cuts as Jackson does: not empty, in one line, each quote where it belongs."""
    out = "".join(
        rf"\x{ord(each):02x}" for each in f"{dialect.delimiter}{dialect.quote}{dialect.escape}" if ord(each) < 128
    )
    free = rf"[^{out}\x00\r\n]*"
    if dialect.trims:
        free = rf"(?:[^{out}\x00-\x20](?:{free}[^{out}\x00-\x20])?)?"
    field = free
    if dialect.quote:
        quote = rf"\x{ord(dialect.quote):02x}"
        escape = rf"\x{ord(dialect.escape):02x}" if dialect.escape else ""
        field = rf"(?:{quote}(?:[^{quote}{escape}\x00\r\n]|{quote}{quote})*{quote}|{free})"
    return rf"^{field}(?:\x{ord(dialect.delimiter):02x}{field})*$"


def _by_arrow(whole: pa.Array, plain: Flags, fields: int, dialect: CsvDialect) -> list[pa.Array] | None:
    some = whole if plain.all() else whole.filter(column_of(plain, pa.bool_()))
    if pc.any(pc.equal(some, one(""))).as_py():
        return None
    ends = column_of(np.array([0, len(some)], np.int32), pa.int32())
    data = pc.binary_join(pa.ListArray.from_arrays(ends, some), one("\n")).cast(pa.binary())[0].as_buffer()
    names = [f"f{place}" for place in range(fields)]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(use_threads=False, block_size=data.size + 2, column_names=names),
            pacsv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote or False,
                double_quote=bool(dialect.quote),
                escape_char=False,
                ignore_empty_lines=False,
            ),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, null_values=[]
            ),
        )
    except pa.ArrowInvalid:  # another number of fields: which record it is the other way says
        return None
    if table.num_rows != len(some):
        return None
    return [pa.concat_arrays(column.chunks) for column in table.columns]


def _one_by_one(records: pa.Array, places: Numbers, fields: int, dialect: CsvDialect) -> CutRecords:
    rows: list[list[str]] = []
    kept: list[int] = []
    bad: dict[int, str] = {}
    for place, record in zip(places.tolist(), records.to_pylist(), strict=True):
        if dialect.has_comments and record.startswith(b"#"):
            continue
        try:
            row = fields_of(str(record, "utf-8"), dialect)
        except ValueError as error:
            bad[place] = str(error)
            continue
        if dialect.ends_with_delimiter and len(row) == fields + 1 and not row[-1]:
            row.pop()
        if dialect.drops_more:
            del row[fields:]
        if len(row) > fields or (dialect.needs_all and len(row) < fields):
            bad[place] = f"it has {len(row)} fields, the table {fields}"
            continue
        rows.append(row)
        kept.append(place)
    columns = [texts([row[at] if at < len(row) else None for row in rows]) for at in range(fields)]
    return CutRecords(columns, np.array(kept, np.int64), bad, np.array([len(row) for row in rows], np.int64))


def fields_of(record: str, dialect: CsvDialect) -> list[str]:
    """Return the fields of a record, which ends where a line ends that is in no quotes.

    Raises:
        ValueError: a quote is not closed, or something stands behind a closed one.
    """
    delimiter, quote, escape = dialect.delimiter, dialect.quote, dialect.escape
    if not (quote and quote in record) and not (escape and escape in record):
        parts = _LINE_END.split(record, maxsplit=1)[0].split(delimiter)
        return [part.strip(_BLANKS) for part in parts] if dialect.trims else parts
    made: list[str] = []
    blanks = "".join(each for each in _BLANKS if each not in f"{delimiter}\r\n") if dialect.trims else ""
    at = 0
    while True:
        at = len(record) - len(record[at:].lstrip(blanks)) if blanks else at
        if quote and record.startswith(quote, at):
            text, at = _quoted(record, at + 1, quote, escape)
            behind = record[at:].lstrip(_BLANKS)
            if _LINE_END.search(record, at, len(record) - len(behind)):
                return [*made, text]
            at = len(record) - len(behind)
            if behind and not behind.startswith(delimiter):
                raise ValueError(f"there is more behind the closing quote at character {at}")
        else:
            text, at = _unquoted(record, at, delimiter, escape)
            text = text.rstrip(_BLANKS) if dialect.trims else text
        made.append(text)
        if at >= len(record):
            return made
        at += 1


def _quoted(record: str, at: int, quote: str, escape: str) -> tuple[str, int]:
    """Return a text that begins behind a quote, and the place behind its closing one."""
    begin = at
    parts: list[str] = []
    mark = re.compile(f"[{re.escape(quote + escape)}]")
    while match := mark.search(record, at):
        parts.append(record[at : match.start()])
        at = match.end()
        if escape and match[0] == escape:
            parts.append(_unescaped(record, at))
            at += 1
        elif record.startswith(quote, at):
            parts.append(quote)
            at += 1
        else:
            return "".join(parts), at
    raise ValueError(f"the quote at character {begin - 1} is not closed")


def _unquoted(record: str, at: int, delimiter: str, escape: str) -> tuple[str, int]:
    parts: list[str] = []
    mark = re.compile(f"[{re.escape(delimiter + escape)}\r\n]")
    while match := mark.search(record, at):
        parts.append(record[at : match.start()])
        at = match.end()
        if match[0] == delimiter:
            return "".join(parts), at - 1
        if match[0] in "\r\n":
            return "".join(parts), len(record)
        parts.append(_unescaped(record, at))
        at += 1
    return "".join([*parts, record[at:]]), len(record)


def _unescaped(record: str, at: int) -> str:
    if at >= len(record):
        raise ValueError("it ends behind an escape character")
    return _ESCAPES.get(record[at], record[at])
