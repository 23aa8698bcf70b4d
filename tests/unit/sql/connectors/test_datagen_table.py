"""Generated tables: Flink's options, values by type, and rows that are the same whoever makes them and in whatever pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.base import ReaderContext, Split
from poundlock.formats.convert import to_batch
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.datagen.table import DatagenTable, GeneratedRows
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import PhysicalColumn
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock
from support.examples import examples
from support.table_formats import definition_of

EVERY = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10, 2), i DECIMAL(38, 3), j CHAR(5),"
    " k VARCHAR(7), l STRING, m BINARY(3), n BYTES, o DATE, p TIME, q TIMESTAMP(3), r TIMESTAMP_LTZ(6), s ROW<x INT, y STRING>,"
    " t ARRAY<INT>, u MAP<STRING, ARRAY<DOUBLE>>, v MULTISET<INT>"
)
FROM_MS = 1_767_607_200_000  # 2026-01-05 10:00:00Z


def source(
    columns: str, options: str = "", read: Sequence[str] | None = None, zone: str = "UTC", name: str = "t"
) -> GeneratedRows:
    more = f", {options}" if options else ""
    definition = definition_of(f"CREATE TABLE t ({columns}) WITH ('connector'='datagen'{more})")
    there = [Field(c.name, c.name, c.type) for c in definition.columns if isinstance(c, PhysicalColumn)]
    fields = tuple(each for each in there if read is None or each.name in read)
    table = TableContext(FullName("c", "d", name), definition, fields, ZoneInfo(zone), False)
    made = DatagenTable().source(table)
    assert made.program is None
    assert isinstance(made.source, GeneratedRows)
    return made.source


def batches(of: GeneratedRows, borders: Sequence[int]) -> list[pa.RecordBatch]:
    reader = of.reader(ReaderContext(reject=None))
    splits = [Split(str(a), {"start": a, "stop": b, "from_ms": FROM_MS}) for a, b in pairwise(borders)]
    return [to_batch(chunk).batch for split in splits for chunk in reader.read(split)]


def rows(of: GeneratedRows, *borders: int) -> list[dict[str, Any]]:
    return [row for batch in batches(of, borders) for row in batch.to_pylist()]


def test_every_type_has_values_of_its_own_type() -> None:
    of = source(EVERY, "'fields.l.length'='4', 'fields.n.length'='2', 'fields.u.key.length'='1'")
    (batch,) = batches(of, [0, 500])
    batch.validate(full=True)
    assert batch.schema == of.schema()
    assert sum(column.null_count for column in batch.columns) == 0
    first = batch.to_pylist()[0]
    assert {name: len(first[name]) for name in "jklmnt"} == {"j": 5, "k": 7, "l": 4, "m": 3, "n": 2, "t": 3}
    for name in "bcdefghijklmn":
        assert len(set(batch.column(name).to_pylist())) > 10, name
    assert (
        1
        <= min(len(each) for each in batch.column("u").to_pylist())
        < max(len(each) for each in batch.column("u").to_pylist())
        <= 3
    )


@examples(20)
@given(st.lists(st.integers(1, 400), max_size=5), st.integers(0, 1000))
def test_a_row_is_the_same_in_whatever_pieces_it_is_made(borders: list[int], start: int) -> None:
    of = source(
        EVERY,
        "'fields.d.null-rate'='0.5', 'fields.l.var-len'='true', 'fields.q.max-past'='1 h', 'fields.l.length'='20'",
    )
    cut = sorted({start, start + 401, *(start + each for each in borders)})
    assert pa.Table.from_batches(batches(of, cut)).equals(pa.Table.from_batches(batches(of, [start, start + 401])))


def test_other_tables_have_other_rows() -> None:
    assert rows(source("a BIGINT"), 0, 5) != rows(source("a BIGINT", name="other"), 0, 5)
    both = rows(source("a BIGINT, b BIGINT"), 0, 5)
    assert all(row["a"] != row["b"] for row in both)


def test_a_sequence_ends_the_table() -> None:
    columns = "a INT, b STRING, c DECIMAL(10, 2), d DOUBLE"
    options = "'fields.a.kind'='sequence', 'fields.a.start'='-2', 'fields.a.end'='7'"
    for name in "bcd":
        options += f", 'fields.{name}.kind'='sequence', 'fields.{name}.start'='1', 'fields.{name}.end'='100'"
    of = source(columns, options)
    assert (of.count, of.bounded) == (10, True)
    assert rows(of, 0, 2) == [
        {"a": -2, "b": "1", "c": Decimal("1.00"), "d": 1.0},
        {"a": -1, "b": "2", "c": Decimal("2.00"), "d": 2.0},
    ]
    assert source(columns, options + ", 'number-of-rows'='3'").count == 3
    endless = source(columns)
    assert (endless.count, endless.bounded) == (None, False)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("INT", "3", "5"), ("BIGINT", "-9223372036854775808", "-9223372036854775800"), ("TINYINT", "-128", "127"),
     ("DOUBLE", "1.5", "2.5"), ("DECIMAL(10, 2)", "0.1", "0.3"), ("DECIMAL(38, 0)", "12345678901234567890", "99999999999999999999999999999999999999")],
)  # fmt: skip
def test_values_lie_within_their_bounds(kind: str, least: str, most: str) -> None:
    of = source(f"a {kind}", f"'fields.a.min'='{least}', 'fields.a.max'='{most}'")
    values = [row["a"] for row in rows(of, 0, 2000)]
    assert Decimal(least) <= Decimal(str(min(values))) <= Decimal(str(max(values))) <= Decimal(most)
    assert len(set(values)) > 2
    if kind in ("INT", "BIGINT", "TINYINT"):
        assert (min(values), max(values)) == (int(least), int(most))


def test_times_are_those_at_which_rows_are_due() -> None:
    of = source(
        "a TIMESTAMP(3), b TIMESTAMP_LTZ(3), c DATE, d TIME, e TIMESTAMP(3)",
        "'rows-per-second'='4', 'fields.e.max-past'='10 s'",
        zone="Asia/Kolkata",
    )
    first, *_, last = rows(of, 0, 8)
    assert (str(first["a"]), str(last["a"])) == ("2026-01-05 15:30:00", "2026-01-05 15:30:01.750000")
    assert (str(last["b"]), str(first["c"]), str(first["d"])) == (
        "2026-01-05 10:00:01.750000+00:00",
        "2026-01-05",
        "15:30:00",
    )
    behind = [(row["a"] - row["e"]).total_seconds() for row in rows(of, 0, 2000)]
    assert min(behind) >= 0
    assert 9 < max(behind) <= 10


def test_nulls_and_lengths() -> None:
    of = source("a STRING, b INT", "'fields.a.length'='5', 'fields.a.var-len'='true', 'fields.b.null-rate'='0.25'")
    made = rows(of, 0, 4000)
    assert {len(row["a"]) for row in made} == {1, 2, 3, 4, 5}
    assert 800 < sum(row["b"] is None for row in made) < 1200


def test_columns_that_nobody_reads_are_not_made_and_change_no_other() -> None:
    columns, options = (
        "a INT, b STRING, c BIGINT",
        "'fields.a.kind'='sequence', 'fields.a.start'='1', 'fields.a.end'='9'",
    )
    whole, part = source(columns, options), source(columns, options, read=["c"])
    assert rows(part, 0, 9) == [{"c": row["c"]} for row in rows(whole, 0, 9)]
    assert part.count == 9, "a sequence ends the rows, whoever reads it"


def test_rows_come_at_their_rate(tmp_path: Any) -> None:
    clock = ManualClock(FROM_MS)
    of = replace(source("a INT", "'rows-per-second'='100'"), clock=clock)
    enumerator = of.enumerator(LocalStorage(str(tmp_path)))
    start = enumerator.initial()
    assert enumerator.latest(start) == start
    clock.set(FROM_MS + 1_500)
    end = enumerator.latest(start)
    assert end == {"row": 150, "from_ms": FROM_MS}
    (split,) = enumerator.splits(start, end)
    assert split.payload == {"start": 0, "stop": 150, "from_ms": FROM_MS}


@pytest.mark.parametrize(
    ("columns", "options", "kind", "words"),
    [
        ("a INT", "'fields.b.min'='1'", "unknown_option", r"fields\.b\.min"),
        ("a INT", "'fields.a.length'='1'", "unknown_option", r"fields\.a\.length"),
        ("a INT", "'fields.a.kind'='serial'", "bad_option_value", "kind"),
        ("a INT", "'fields.a.kind'='sequence', 'fields.a.start'='1'", "missing_option", r"fields\.a\.end"),
        ("a INT", "'fields.a.kind'='sequence', 'fields.a.start'='5', 'fields.a.end'='1'", "bad_option_value", "at most the end"),
        ("a TINYINT", "'fields.a.kind'='sequence', 'fields.a.start'='1', 'fields.a.end'='200'", "bad_option_value", "a value of TINYINT"),
        ("a VARCHAR(2)", "'fields.a.kind'='sequence', 'fields.a.start'='1', 'fields.a.end'='200'", "bad_option_value", "no longer than"),
        ("a BOOLEAN", "'fields.a.kind'='sequence'", "bad_option_value", "no sequence of BOOLEAN"),
        ("a ARRAY<INT>", "'fields.a.element.kind'='sequence'", "bad_option_value", "part of a column"),
        ("a INT", "'fields.a.min'='5', 'fields.a.max'='1'", "bad_option_value", "at most the max"),
        ("a TINYINT", "'fields.a.max'='200'", "bad_option_value", "a value of TINYINT"),
        ("a CHAR(3)", "'fields.a.length'='2'", "bad_option_value", "left out"),
        ("a CHAR(3)", "'fields.a.var-len'='true'", "bad_option_value", "has its length"),
        ("a VARCHAR(3)", "'fields.a.length'='4'", "bad_option_value", "3 at most"),
        ("a INT", "'fields.a.null-rate'='2'", "bad_option_value", "from 0 to 1"),
        ("a INT NOT NULL", "'fields.a.null-rate'='0.5'", "bad_option_value", "NOT NULL"),
        ("a MAP<ARRAY<INT>, INT>", "", "type_mismatch", "keys of ARRAY"),
        ("a INT", "'rows-per-second'='0'", "bad_option_value", "rows-per-second"),
        ("a INT", "'number-of-rows'='-1'", "bad_option_value", "number-of-rows"),
        ("a INT", "'scan.parallelism'='2'", "unsupported_query", r"scan\.parallelism"),
    ],
)  # fmt: skip
def test_what_is_refused(columns: str, options: str, kind: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        source(columns, options)
    assert refused.value.kind == kind
