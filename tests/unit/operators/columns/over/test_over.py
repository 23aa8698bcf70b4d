"""Aggregates of the rows around each against plain models: rows that wait for the watermark, late ones, frames, the end of the input."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.columns.over import over, ranges
from poundlock.operators.columns.over.over import ColumnOver
from poundlock.operators.columns.rows import gathered
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall, RowFrame
from support.changelog_scripts import ChangelogScript, changelog
from support.examples import examples

DECIMAL, LONG, INT, TEXT = pa.decimal128(10, 2), pa.int64(), pa.int32(), pa.string()
SCHEMA = pa.schema(
    [
        ("k", TEXT),
        ("ts", pa.timestamp("us")),
        ("id", INT),
        ("n", INT),
        ("d", DECIMAL),
        ("x", pa.float64()),
        ("t", TEXT),
        ("f", pa.bool_()),
    ]
)
EPOCH = datetime(2026, 1, 1)
AT = int(EPOCH.replace(tzinfo=UTC).timestamp()) * 1000
Row = tuple[Any, ...]


def place(name: str) -> int:
    return int(SCHEMA.get_field_index(name))


def ms(row: Row) -> int:
    return round((row[1] - EPOCH) / timedelta(milliseconds=1))


def call(function: Any, column: str | None, kind: pa.DataType, **options: Any) -> dict[str, Any]:
    return {"function": function, "column": column, "type": kind, **options}


AGGREGATES = [
    call("count", None, LONG),
    call("count", None, LONG, filter="f"),
    call("count", "t", LONG),
    call("count", "t", LONG, distinct=True),
    call("count", "x", LONG, distinct=True, filter="f"),
    call("sum", "n", INT),
    call("sum", "d", pa.decimal128(38, 2), filter="f"),
    call("sum", "x", pa.float64()),
    call("sum", "n", INT, distinct=True),
    call("sum", "d", pa.decimal128(38, 2), distinct=True),
    call("sum", "x", pa.float64(), distinct=True),
    call("avg", "n", INT),
    call("avg", "d", pa.decimal128(38, 6)),
    call("min", "n", INT),
    call("max", "n", INT, filter="f"),
    call("min", "t", TEXT),
    call("max", "d", DECIMAL),
    call("max", "x", pa.float64()),
    call("first_value", "t", TEXT),
    call("last_value", "t", TEXT),
    call("first_value", "n", INT, filter="f"),
    call("array_agg", "n", pa.list_(INT)),
    call("listagg", "t", TEXT, separator="; "),
    call("listagg", "t", TEXT, distinct=True),
    call("collect", "n", pa.map_(INT, INT)),
]
SHIFTED = [
    call("lag", "t", TEXT),
    call("lag", "n", INT, offset=3, default="id"),
    call("lag", "n", pa.int64(), offset=0),
]
LEADING = [call("lead", "t", TEXT), call("lead", "n", INT, offset=2, default="id")]
RANKS = [call(name, None, LONG) for name in ("row_number", "rank", "dense_rank")]
WHOLE = [
    call("percent_rank", None, pa.float64()),
    call("cume_dist", None, pa.float64()),
    call("ntile", None, LONG, offset=3),
]


def aggregated(of: OverCall, rows: list[Row]) -> Any:
    """Return an aggregate of some rows, as Flink has it."""
    if of.filter is not None:
        rows = [row for row in rows if row[place(of.filter)] is True]
    if of.column is None:
        return len(rows)
    values = [row[place(of.column)] for row in rows]
    if of.function != "array_agg":
        values = [value for value in values if value is not None]
    if of.distinct:
        values = list(dict.fromkeys(values))
    if of.function == "count":
        return len(values)
    if of.function == "collect":
        return dict(Counter(values))
    if not values:
        return None
    if of.function == "sum":
        return sum(values)
    if of.function == "avg":
        total = sum(values)
        if pa.types.is_integer(of.type):
            return int(total / len(values))
        return (total / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    if of.function in ("min", "max"):
        return min(values) if of.function == "min" else max(values)
    if of.function == "listagg":
        return of.separator.join(values)
    return values if of.function == "array_agg" else values[0] if of.function == "first_value" else values[-1]


def result(of: OverCall, rows: list[Row], at: int, spans: list[Any], *, in_stream: bool = False) -> Any:
    """Return a result for one of the rows of a key in order.

    Args:
        spans: what equal rows have in common, and bounds of spans are of.
        in_stream: whether rows come out by event time, where LAG sees those of equal time at once.
    """
    equal = [n for n, span in enumerate(spans) if span == spans[at]]
    if of.function in ("lag", "lead"):
        other = (equal[-1] if in_stream else at) + of.offset * (1 if of.function == "lead" else -1)
        if 0 <= other < len(rows):
            return rows[other][place(str(of.column))]
        return None if of.default is None else rows[at][place(of.default)]
    if of.function == "row_number":
        return at + 1
    if of.function == "rank":
        return equal[0] + 1
    if of.function == "dense_rank":
        return len(dict.fromkeys(spans[: at + 1]))
    if of.function == "percent_rank":
        return equal[0] / (len(rows) - 1) if len(rows) > 1 else 0.0
    if of.function == "cume_dist":
        return (equal[-1] + 1) / len(rows)
    if of.function == "ntile":
        width, more = divmod(len(rows), of.offset)
        parts = [n for n in range(of.offset) for _ in range(width + (n < more))]
        return parts[at] + 1
    frame = of.frame
    if frame.unit == "rows":
        first = 0 if frame.preceding is None else max(0, at - frame.preceding)
        stop = len(rows) if frame.following is None else max(at + 1 + frame.following, 0)
        return aggregated(of, rows[first:stop])
    first_n = {None: 0, 0: equal[0]}.get(frame.preceding)
    last_n = {None: len(rows) - 1, 0: equal[-1]}.get(frame.following)
    chosen = [
        row
        for n, row in enumerate(rows)
        if (n >= first_n if first_n is not None else spans[n] >= spans[at] - frame.preceding)
        and (n <= last_n if last_n is not None else spans[n] <= spans[at] + frame.following)
    ]
    return aggregated(of, chosen)


class KeyModel:
    """The rows of one key in a stream, as Flink's operators have them.

    Args:
        rule: how late rows are told: by the watermark, by the last row that came out, or as those of a span of time.
    """

    def __init__(self, calls: list[OverCall], rule: str, span: int) -> None:
        self.calls, self.rule, self.span = calls, rule, span
        self.waiting: list[Row] = []
        self.done: list[Row] = []
        self.timers: set[int] = set()
        self.last, self.forget = MIN, MIN

    def take(self, row: Row, watermark: int) -> bool:
        """Return whether a row is taken."""
        time = ms(row)
        if time <= (watermark if self.rule == "watermark" else self.last):
            return False
        self.waiting.append(row)
        self.timers.add(time)
        if self.rule == "span" and time + self.span + 1 > self.forget:
            self.forget = time + self.span + self.span // 2 + 1
            self.timers.add(self.forget)
        return True

    def advance(self, watermark: int) -> list[Row]:
        """Return the rows that come out, with their results."""
        out = []
        for time in sorted(each for each in self.timers if each <= watermark):
            self.timers.remove(time)
            if self.rule == "span" and self.forget <= time:
                self.done, self.last, self.forget = [], MIN, MIN
                continue
            self.last = time
            new = [row for row in self.waiting if ms(row) == time]
            self.waiting = [row for row in self.waiting if ms(row) != time]
            self.done += new
            spans = [ms(row) for row in self.done]
            for at in range(len(self.done) - len(new), len(self.done)):
                out.append(
                    (*self.done[at], *(result(each, self.done, at, spans, in_stream=True) for each in self.calls))
                )
        return out


def comparable(row: Row) -> Row:
    """Return a row of results as values that can be compared: of floating point numbers some digits."""
    return tuple(
        round(value, 6)
        if isinstance(value, float)
        else tuple(sorted(value.items() if isinstance(value, dict) else value, key=repr))
        if isinstance(value, dict) or (isinstance(value, tuple) and value and isinstance(value[0], tuple))
        else tuple(value)
        if isinstance(value, list)
        else ()
        if value == {}
        else value
        for value in row
    )


def script(
    calls: list[OverCall],
    firing: Any = "event_time",
    *,
    keys: tuple[str, ...] = ("k",),
    order: list[SortColumn] | None = None,
    policy: MergePolicy | None = None,
    schema: pa.Schema = SCHEMA,
    **options: Any,
) -> ChangelogScript:
    by = [SortColumn("ts")] if order is None else order
    of = ColumnOver("over", RowKeys(keys, key_hashes), schema, by, firing, calls, **options)
    return ChangelogScript(of.operator, [keys], policy)


def made(drawn: list[dict[str, Any]], frame: RowFrame) -> list[OverCall]:
    return [OverCall(name=f"r{n}", frame=frame, **each) for n, each in enumerate(drawn)]


def row(k: str | None, time: int, number: int = 0, **others: Any) -> Row:
    at = EPOCH + timedelta(milliseconds=time)
    return (k, at, number, *(others.get(name) for name in ("n", "d", "x", "t", "f")))


def drawn_row(dice: random.Random, keys: int, number: int, times: tuple[int, int]) -> Row:
    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    return row(
        maybe(str(dice.randrange(keys))),
        dice.randrange(*times),
        number,
        n=maybe(dice.randrange(-3, 4)),
        d=maybe(Decimal(dice.randrange(-500, 500)) / 100),
        x=maybe(dice.randrange(-8, 8) / 4),
        t=maybe("x" * dice.randrange(3) + dice.choice("abc")),
        f=maybe(dice.random() < 0.7),
    )


def batch(rows: list[Row]) -> pa.RecordBatch:
    return changelog([("+I", each) for each in rows], SCHEMA, kinds=False)


FRAMES = [
    RowFrame("range", None),
    RowFrame("rows", None),
    RowFrame("rows", 0),
    RowFrame("rows", 2),
    RowFrame("range", 5),
    RowFrame("range", 40),
]


@examples(120)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_rows_come_out_when_the_watermark_has_reached_them(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    keys = data.draw(st.sampled_from([("k",), ()]))
    frame = data.draw(st.sampled_from(FRAMES))
    framed = frame.preceding is not None
    calls = made(
        data.draw(st.lists(st.sampled_from(AGGREGATES + ([] if framed else SHIFTED + RANKS)), min_size=1, max_size=5)),
        frame,
    )
    rule = "watermark" if not framed else "last" if frame.unit == "rows" else "span"
    one = script(calls, keys=keys, policy=MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8]))))
    models: dict[Any, KeyModel] = {}
    number, watermark, dropped, serial = dice.choice([1, 3, 20]), MIN, 0, 0
    for last in [*[False] * dice.randrange(1, 7), True]:
        now = max(watermark, 0)
        rows = []
        for _ in range(dice.randrange(25)):
            serial += 1
            rows.append(drawn_row(dice, number, serial, (max(now - 40, 0), now + 60)))
        after = MAX if last else max(watermark, dice.choice([watermark, now + dice.randrange(50)]))
        for each in rows:
            model = models.setdefault(each[0] if keys else (), KeyModel(calls, rule, frame.preceding or 0))
            dropped += not model.take(each, watermark)
        wanted = {key: model.advance(after) for key, model in models.items()} if after > watermark else {}
        tasks = dice.choice([1, 2, 3]) if keys else 1
        shift = 0 if after == MAX else AT
        at_once = dice.choice([1, 1 << 20])
        with (
            patch.object(over, "_AT_ONCE", at_once),
            patch.object(gathered, "_AT_ONCE", at_once),
            patch.object(ranges, "_AT_ONCE", 3),
        ):
            out = one.checkpoint(batch(rows), tasks=tasks, watermark=after + shift if after != MIN else MIN)
        got: dict[Any, list[Row]] = {}
        for kind, each in out:
            assert kind == "+I"
            got.setdefault(each[0] if keys else (), []).append(comparable(each))
        assert got == {key: [comparable(each) for each in some] for key, some in wanted.items() if some}
        assert one.late_dropped == dropped
        watermark = after


WHOLE_FRAMES = [
    RowFrame("range", None),
    RowFrame("range", None, None),
    RowFrame("rows", 1, 1),
    RowFrame("rows", 3, -1),
    RowFrame("rows", None, 2),
    RowFrame("rows", 0, None),
    RowFrame("range", 5, 3),
    RowFrame("range", 0, None),
]


@examples(80)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_at_the_end_of_the_input_rows_come_out_in_any_order(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    keys = data.draw(st.sampled_from([("k",), ()]))
    frame = data.draw(st.sampled_from(WHOLE_FRAMES))
    choices = AGGREGATES + SHIFTED + LEADING + RANKS + WHOLE
    calls = made(data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=5)), frame)
    descending, kinds = data.draw(st.booleans()), data.draw(st.booleans())
    schema = SCHEMA.append(pa.field("row_kind", TEXT)) if kinds else SCHEMA
    order = [SortColumn("ts", descending, not descending)]
    one = script(calls, "end", keys=keys, order=order, schema=schema)
    live: list[Row] = []
    number = dice.choice([1, 3, 20])
    for last in [*[False] * dice.randrange(1, 4), True]:
        changes: list[tuple[str, Row]] = []
        for _ in range(dice.randrange(25)):
            if kinds and live and dice.random() < 0.3:
                changes.append(("-D", live.pop(0)))
            else:
                live.append(drawn_row(dice, number, len(changes) + 100 * len(live), (0, 30)))
                changes.append(("+I", live[-1]))
        given_rows = changelog(changes, SCHEMA, kinds=kinds)
        out = one.checkpoint(given_rows, tasks=dice.choice([1, 2]) if keys else 1, watermark=MAX if last else MIN)
        assert last or not out
    wanted: dict[Any, list[Row]] = {}
    by_key: dict[Any, list[Row]] = {}
    for each in live:
        by_key.setdefault(each[0] if keys else (), []).append(each)
    for key, rows in by_key.items():
        rows = sorted(rows, key=lambda each: -ms(each) if descending else ms(each))
        spans = [-ms(each) if descending else ms(each) for each in rows]
        wanted[key] = [
            comparable((*each, *(result(call, rows, at, spans) for call in calls))) for at, each in enumerate(rows)
        ]
    got: dict[Any, list[Row]] = {}
    for _, each in out:
        got.setdefault(each[0] if keys else (), []).append(comparable(each))
    assert got == wanted


@examples(40)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_rows_that_come_out_as_they_arrive(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    frame = data.draw(st.sampled_from([RowFrame("rows", None), RowFrame("rows", 2), RowFrame("range", 50)]))
    calls = made(data.draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4)), frame)
    one = script(calls, "arrival", order=[])
    done: dict[Any, list[tuple[int, Row]]] = {}
    number, clock = dice.choice([1, 3, 20]), 1_000
    for _ in range(dice.randrange(1, 7)):
        clock += dice.randrange(1, 60)
        rows = [drawn_row(dice, number, n, (0, 60)) for n in range(dice.randrange(25))]
        out = one.checkpoint(batch(rows), tasks=dice.choice([1, 2, 3]), clock=clock)
        wanted: dict[Any, list[Row]] = {}
        for each in rows:
            done.setdefault(each[0], []).append((clock, each))
        for key in dict.fromkeys(each[0] for each in rows):
            own = done[key]
            count = sum(each[0] == key for each in rows)
            spans = [at for at, _ in own]
            wanted[key] = [
                comparable((*own[at][1], *(result(call, [r for _, r in own], at, spans) for call in calls)))
                for at in range(len(own) - count, len(own))
            ]
        got: dict[Any, list[Row]] = {}
        for _, each in out:
            got.setdefault(each[0], []).append(comparable(each))
        assert got == wanted


@examples(40)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_rows_are_sorted_by_time_and_what_stands_behind_it(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    more, nothing = data.draw(st.sampled_from([([], 0), ([SortColumn("n", True, False)], 0), ([SortColumn("t")], "")]))
    order = [SortColumn("ts"), *more]
    one = script([], keys=(), order=order)
    model = KeyModel([], "last", 0)
    watermark = MIN
    for last in [*[False] * dice.randrange(1, 6), True]:
        now = max(watermark, 0)
        rows = [drawn_row(dice, 2, n, (max(now - 40, 0), now + 60)) for n in range(dice.randrange(25))]
        after = MAX if last else max(watermark, now + dice.randrange(50))
        dropped = sum(not model.take(each, watermark) for each in rows)
        wanted = model.advance(after) if after > watermark else []
        for key in reversed(order[1:]):
            # Nulls are less than all values.
            at = place(key.column)
            wanted.sort(key=lambda row: (row[at] is not None, row[at] or nothing), reverse=key.descending)
        wanted.sort(key=ms)
        before = one.late_dropped
        out = one.checkpoint(batch(rows), watermark=after if after == MAX else after + AT)
        assert [each for _, each in out] == wanted
        assert one.late_dropped - before == dropped
        watermark = after


def test_of_sorted_rows_some_are_left_out_at_the_end() -> None:
    one = script([], "end", keys=(), order=[SortColumn("n", True)], limit=2, offset=1)
    rows = [row("a", 1, n, n=n % 5) for n in range(7)]
    assert one.checkpoint(batch(rows[:3])) == []
    out = one.checkpoint(batch(rows[3:]), watermark=MAX)
    assert [each[2] for _, each in out] == [3, 2]


def test_a_row_needs_a_time_and_rows_that_change_are_refused() -> None:
    one = script(made([call("count", None, LONG)], RowFrame("rows", 1)))
    nameless = [("a", None, 1, None, None, None, None, None)]
    with pytest.raises(DefinitionError, match="a row has no event time"):
        one.checkpoint(batch(nameless))
    schema = SCHEMA.append(pa.field("row_kind", TEXT))
    other = script(made([call("count", None, LONG)], RowFrame("rows", 1)), schema=schema)
    with pytest.raises(TerminalError, match="rows that change come in"):
        other.checkpoint(changelog([("+I", row("a", 1))], SCHEMA, kinds=True))


def test_a_key_whose_time_is_over_begins_again() -> None:
    calls = made([call("count", None, LONG), call("lag", "n", INT)], RowFrame("range", None))
    one = script(calls, ttl_ms=100)
    out = [
        one.checkpoint(batch([row("a", time, time, n=time)]), clock=clock, watermark=AT + time)
        for time, clock in ((1, 1_000), (2, 1_099), (3, 1_200))
    ]
    assert [each[0][1][-2:] for each in out] == [(1, None), (2, 1), (1, None)]


def test_state_of_other_frames_is_refused() -> None:
    one = script(made([call("sum", "n", INT)], RowFrame("rows", 1)))
    one.checkpoint(batch([row("a", 1, n=1)]), watermark=AT + 1)
    other = script(made([call("sum", "n", INT)], RowFrame("rows", 2)))
    other.state = one.state
    with pytest.raises(TerminalError, match="state 'last rows' holds"):
        other.checkpoint(batch([row("a", 2, n=1)]), watermark=AT + 2)
