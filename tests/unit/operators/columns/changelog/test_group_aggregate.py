"""Aggregates of groups over changelogs against a plain model: the table that the changes make, at most one change a key and checkpoint,
keys whose time is over, results that are wanted at the end alone.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.columns.changelog.aggregates import GroupAggregates
from poundlock.operators.columns.changelog.group_aggregate import ColumnGroupAggregation
from poundlock.operators.columns.rows import gathered
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.group import MAX
from poundlock.state.hashing import key_hashes
from poundlock.state.inspect import StateReader
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.changelog_nodes import AggregateCall
from support.changelog_scripts import Change, ChangelogScript, apply, changelog, hashable
from support.examples import examples

DECIMAL = pa.decimal128(10, 2)
SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.int32()), ("d", DECIMAL), ("x", pa.float64()), ("t", pa.string()), ("f", pa.bool_())]
)
MULTISET = pa.map_(pa.int32(), pa.int32())


def call(function: Any, column: str | None, kind: pa.DataType, **options: Any) -> AggregateCall:
    return AggregateCall(function=function, column=column, type=kind, name="", **options)


def named(calls: list[AggregateCall]) -> list[AggregateCall]:
    return [
        AggregateCall(
            function=each.function,
            column=each.column,
            type=each.type,
            name=f"r{n}",
            distinct=each.distinct,
            filter=each.filter,
            separator=each.separator,
        )
        for n, each in enumerate(calls)
    ]


LONG, INT, TEXT = pa.int64(), pa.int32(), pa.string()
CALLS = [
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
    call("avg", "n", INT),
    call("avg", "d", pa.decimal128(38, 6)),
    call("avg", "x", pa.float64(), distinct=True),
    call("min", "n", INT),
    call("max", "n", INT, filter="f"),
    call("min", "t", TEXT),
    call("max", "d", DECIMAL, distinct=True),
    call("max", "x", pa.float64()),
    call("first_value", "t", TEXT),
    call("last_value", "t", TEXT),
    call("first_value", "n", INT, filter="f"),
    call("last_value", "d", DECIMAL),
    call("array_agg", "n", pa.list_(INT)),
    call("listagg", "t", TEXT, separator="; "),
    call("listagg", "t", TEXT, distinct=True),
    call("collect", "n", MULTISET),
]


class Model:
    """The values of one aggregate of one group."""

    def __init__(self, of: AggregateCall) -> None:
        self.of = of
        self.values: list[Any] = []

    def take(self, kind: str, row: tuple[Any, ...]) -> None:
        of = self.of
        value = None if of.column is None else row[SCHEMA.get_field_index(of.column)]
        if of.filter is not None and row[SCHEMA.get_field_index(of.filter)] is not True:
            return
        if value is None and of.column is not None and of.function not in ("array_agg", "single_value"):
            return
        if kind in ("+I", "+U"):
            self.values.append(value)
        else:
            self.values.remove(value)

    def result(self) -> Any:
        of, values = self.of, self.values
        if of.distinct:
            values = list(dict.fromkeys(values))
        if of.function == "count":
            return len(values)
        if of.function == "collect":
            return tuple(Counter(values).items())
        if not values:
            return None
        if of.function == "sum":
            return sum(values)
        if of.function == "avg":
            total = sum(values)
            if pa.types.is_integer(of.type):
                return int(total / len(values))
            if pa.types.is_floating(of.type):
                return total / len(values)
            return (total / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        if of.function in ("min", "max"):
            return min(values) if of.function == "min" else max(values)
        if of.function == "array_agg":
            return tuple(values)
        if of.function == "listagg":
            # Which of equal values stands where follows from how rows fall into checkpoints.
            return of.separator.join(sorted(values)) if of.distinct else of.separator.join(values)
        return values[0] if of.function == "first_value" else values[-1]


def shown(calls: list[AggregateCall], row: tuple[Any, ...], keys: int) -> tuple[Any, ...]:
    """Return a row whose results are in one order where that is any."""
    results = list(row)
    for n, each in enumerate(calls, keys):
        if each.function == "listagg" and each.distinct and results[n] is not None:
            results[n] = each.separator.join(sorted(results[n].split(each.separator)))
        if each.function == "collect":
            results[n] = tuple(sorted(dict(results[n]).items(), key=repr))
    return tuple(results)


def wanted(calls: list[AggregateCall], rows: list[Change], keys: list[str]) -> Counter[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[Model]] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    for kind, row in rows:
        key = tuple(row[SCHEMA.get_field_index(name)] for name in keys)
        if not counts[key]:
            groups[key] = [Model(each) for each in calls]
        counts[key] += 1 if kind in ("+I", "+U") else -1
        for model in groups[key]:
            model.take(kind, row)
    made = [(*key, *(model.result() for model in groups[key])) for key, count in counts.items() if count]
    return Counter(shown(calls, row, len(keys)) for row in made)


def script(
    calls: list[AggregateCall],
    *,
    keys: tuple[str, ...] = ("k",),
    retracts: bool = True,
    ttl_ms: int | None = None,
    policy: MergePolicy | None = None,
    **options: Any,
) -> ChangelogScript:
    aggregates = GroupAggregates(calls, SCHEMA, retracts, key_hashes, ttl_ms)
    of = ColumnGroupAggregation(RowKeys(keys, key_hashes), [SCHEMA.field(name) for name in keys], aggregates, **options)
    return ChangelogScript(of.operator, [keys], policy)


def row(k: str | None, n: int | None = None, **others: Any) -> tuple[Any, ...]:
    return (k, n, others.get("d"), others.get("x"), others.get("t"), others.get("f"))


def drawn(dice: random.Random, keys: int) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    return (
        maybe(str(dice.randrange(keys))),
        maybe(dice.randrange(-3, 4)),
        maybe(Decimal(dice.randrange(-500, 500)) / 100),
        maybe(dice.randrange(-8, 8) / 4),
        maybe("x" * dice.randrange(3) + dice.choice("abc")),
        maybe(dice.random() < 0.7),
    )


def steps(dice: random.Random, live: list[tuple[Any, ...]], count: int, keys: int, *, retracts: bool) -> list[Change]:
    """Return the next changes; rows that are taken away are of `live`."""
    made: list[Change] = []
    for _ in range(count):
        if retracts and live and dice.random() < 0.45:
            gone = live.pop(dice.randrange(len(live)))
            if dice.random() < 0.5:
                made.append(("-D", gone))
            else:
                made.append(("-U", gone))
                live.append(drawn(dice, keys))
                made.append(("+U", live[-1]))
        else:
            live.append(drawn(dice, keys))
            made.append(("+I", live[-1]))
    return made


def with_updates_before(out: list[Change], by_key: dict[tuple[Any, ...], tuple[Any, ...]], keys: int) -> list[Change]:
    """Return changes with what each +U replaces, given what there was of each key."""
    known, made = dict(by_key), []
    for kind, each in out:
        made += [("-U", known[each[:keys]]), (kind, each)] if kind == "+U" else [(kind, each)]
        known[each[:keys]] = each
    return made


@examples(80)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_the_changes_make_the_table_of_the_rows_that_there_are(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    retracts, update_before = data.draw(st.booleans()), data.draw(st.booleans())
    keys = data.draw(st.sampled_from([["k"], ["k", "f"], []]))
    calls = named(data.draw(st.lists(st.sampled_from(CALLS), min_size=0 if keys else 1, max_size=6)))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one = script(calls, keys=tuple(keys), retracts=retracts, policy=policy, update_before=update_before)
    live: list[tuple[Any, ...]] = []
    rows: list[Change] = []
    table: Counter[tuple[Any, ...]] = Counter()
    by_key: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    number, at_once = dice.choice([1, 3, 40]), dice.choice([1, 1 << 20])
    for _ in range(dice.randrange(1, 7)):
        new = steps(dice, live, dice.randrange(1, 30), number, retracts=retracts)
        rows += new
        with patch.object(gathered, "_AT_ONCE", at_once):
            out = one.checkpoint(changelog(new, SCHEMA, kinds=retracts), tasks=dice.choice([1, 2, 3]))
        once = Counter(each[: len(keys)] for kind, each in out if kind != "-U")
        assert at_once == 1 or set(once.values()) <= {1}, "a key has one change at most"
        if not retracts:
            assert all(kind != "-D" for kind, _ in out)
        if not update_before:
            assert all(kind != "-U" for kind, _ in out)
            out = with_updates_before(out, by_key, len(keys))
        by_key |= {made[: len(keys)]: made for kind, made in out if kind != "-D"}
        for kind, made in out:
            assert at_once == 1 or kind != "+U" or ("-U", made) not in out, "an equal result is no change"
        apply(table, out)
        assert Counter(shown(calls, each, len(keys)) for each in table.elements()) == wanted(calls, rows, keys)


def test_kinds_of_changes() -> None:
    one = script(named([call("sum", "n", INT), call("max", "n", INT)]))

    def checkpoint(*rows: Change) -> list[Change]:
        return one.checkpoint(changelog(list(rows), SCHEMA, kinds=True))

    assert checkpoint(("+I", row("a", 1)), ("+I", row("a", 3))) == [("+I", ("a", 4, 3))]
    assert checkpoint(("-D", row("a", 3))) == [("-U", ("a", 4, 3)), ("+U", ("a", 1, 1))]
    assert checkpoint(("+I", row("a", None))) == [], "nothing has changed"
    assert checkpoint(("-D", row("a", 1))) == [("-U", ("a", 1, 1)), ("+U", ("a", None, None))]
    assert checkpoint(("-D", row("a", None)), ("+I", row("b", 2)), ("-U", row("b", 2))) == [("-D", ("a", None, None))]
    assert one.state.manifest.files, "what is removed was written"


def test_without_a_key_nothing_comes_out_before_a_row_and_a_group_that_is_empty_goes_away() -> None:
    one = script(named([call("count", None, LONG)]), keys=())
    assert one.checkpoint(changelog([], SCHEMA, kinds=True)) == []
    assert one.checkpoint(changelog([("+I", row("a"))], SCHEMA, kinds=True)) == [("+I", (1,))]
    assert one.checkpoint(changelog([("-D", row("a"))], SCHEMA, kinds=True)) == [("-D", (1,))]


def test_whole_numbers_wrap_around_as_in_flink() -> None:
    one = script(named([call("sum", "n", INT)]), retracts=False)
    most = (1 << 31) - 1
    out = one.checkpoint(changelog([("+I", row("a", most)), ("+I", row("a", 1))], SCHEMA, kinds=False))
    assert out == [("+I", ("a", -(1 << 31)))]


def test_a_key_whose_time_is_over_begins_again() -> None:
    calls = named([call("count", None, LONG), call("min", "n", INT), call("first_value", "n", INT)])
    one = script(calls, ttl_ms=100)
    rows = [changelog([("+I", row("a", n))], SCHEMA, kinds=True) for n in (1, 2, 3)]
    assert one.checkpoint(rows[0], clock=1000) == [("+I", ("a", 1, 1, 1))]
    assert one.checkpoint(rows[1], clock=1099) == [("-U", ("a", 1, 1, 1)), ("+U", ("a", 2, 1, 1))]
    assert one.checkpoint(rows[2], clock=1200) == [("+I", ("a", 1, 3, 3))]


def test_an_equal_result_comes_out_where_there_is_a_time_to_live() -> None:
    one = script(named([call("max", "n", INT)]), ttl_ms=100)
    rows = changelog([("+I", row("a", 1))], SCHEMA, kinds=True)
    assert one.checkpoint(rows) == [("+I", ("a", 1))]
    assert one.checkpoint(rows) == [("-U", ("a", 1)), ("+U", ("a", 1))]


def test_of_a_bounded_input_the_last_results_come_out_at_the_end() -> None:
    one = script(named([call("sum", "n", INT), call("count", "n", LONG, distinct=True)]), bounded=True)
    rows = [("+I", row("a", 1)), ("+I", row(None, 2)), ("+I", row("b", 5)), ("-D", row("b", 5))]
    assert one.checkpoint(changelog(rows[:2], SCHEMA, kinds=True)) == []
    out = one.checkpoint(changelog(rows[2:], SCHEMA, kinds=True), watermark=MAX)
    assert sorted(out, key=repr) == [("+I", ("a", 1, 1)), ("+I", (None, 2, 1))]


def test_a_value_that_has_to_be_the_only_one() -> None:
    one = script(named([call("single_value", "n", INT)]), keys=())
    assert one.checkpoint(changelog([("+I", row("a", 1))], SCHEMA, kinds=True)) == [("+I", (1,))]
    replaced = [("+U", row("a", 2)), ("-U", row("a", 1))]
    assert one.checkpoint(changelog(replaced, SCHEMA, kinds=True)) == [("-U", (1,)), ("+U", (2,))]
    with pytest.raises(TerminalError, match="a sub-query that is used as a value gave 2 rows"):
        one.checkpoint(changelog([("+I", row("a", 3))], SCHEMA, kinds=True))


def test_floating_point_numbers_that_are_equal_are_one_value() -> None:
    one = script(named([call("count", "x", LONG, distinct=True)]))
    nan = float("nan")
    rows = [("+I", row("a", x=x)) for x in (0.0, -0.0, nan, -nan)]
    assert one.checkpoint(changelog(rows, SCHEMA, kinds=True)) == [("+I", ("a", 2))]
    assert one.checkpoint(changelog([("-D", row("a", x=-0.0))], SCHEMA, kinds=True)) == []


def test_state_of_other_aggregates_is_refused() -> None:
    one = script(named([call("max", "n", INT)]))
    one.checkpoint(changelog([("+I", row("a", 1))], SCHEMA, kinds=True))
    other = script(named([call("min", "n", INT)]))
    other.state = one.state
    with pytest.raises(TerminalError, match="state 'groups' holds"):
        other.checkpoint(changelog([("+I", row("a", 1))], SCHEMA, kinds=True))


def test_what_is_no_aggregate_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'total' is no aggregate"):
        call("total", "n", INT)
    with pytest.raises(DefinitionError, match="sum of no column"):
        call("sum", None, INT)
    with pytest.raises(DefinitionError, match="there is no sum of values of type string"):
        script(named([call("sum", "t", INT)])).checkpoint(changelog([], SCHEMA, kinds=True))


def test_lists_are_compared_as_they_are() -> None:
    assert hashable([1, [2]]) == (1, (2,))


@pytest.mark.parametrize("retracts", [True, False])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [False, True]),
        (pa.int8(), [-1, 3]),
        (pa.float32(), [-1.5, 3.0]),
        (pa.date32(), [date(2025, 1, 1), date(2026, 1, 1)]),
        (pa.time32("ms"), [time(1), time(2)]),
        (pa.timestamp("ms"), [datetime(2025, 1, 1), datetime(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
        (pa.binary(), [b"a", b"b"]),
        (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("2.25")]),
    ],
)
def test_values_of_many_types(kind: pa.DataType, values: list[Any], retracts: bool) -> None:
    least, most = values
    functions = ("min", "max", "first_value", "last_value", "array_agg", "collect")
    types = [kind] * 4 + [pa.list_(kind), pa.map_(kind, pa.int64())]
    calls = [
        AggregateCall(function=function, name=function, type=of, column="v")  # type: ignore[arg-type]
        for function, of in zip(functions, types, strict=True)
    ]
    calls += [AggregateCall(function="count", name="d", type=LONG, column="v", distinct=True)]
    schema = pa.schema([("k", kind), ("v", kind)])
    aggregates = GroupAggregates(calls, schema, retracts, key_hashes)
    of = ColumnGroupAggregation(RowKeys(("k",), key_hashes), [schema.field("k")], aggregates)
    one = ChangelogScript(of.operator, [["k"]])

    def came(*rows: tuple[str, Any]) -> list[Change]:
        return one.checkpoint(changelog([(sign, (least, v)) for sign, v in rows], schema, kinds=retracts))

    first = (least, least, most, most, least, (most, None, least), ((most, 1), (least, 1)), 2)
    assert came(("+I", most), ("+I", None), ("+I", least)) == [("+I", first)]
    if retracts:
        left = (least, least, least, least, least, (None, least), ((least, 1),), 1)
        assert came(("-D", most)) == [("-U", first), ("+U", left)]
        assert came(("-D", least)) == [("-U", left), ("+U", (least, *[None] * 4, (None,), (), 0))]
    else:
        assert [kind for kind, _ in came(("+I", most))] == ["-U", "+U"]


def test_the_state_of_a_key_can_be_read() -> None:
    one = script(named([call("count", "t", LONG, distinct=True), call("last_value", "n", INT)]), keys=("k",))
    rows = [("+I", row("a", 1, t="p")), ("+I", row("a", 2, t="q")), ("+I", row("b", 3, t="q"))]
    one.checkpoint(changelog(rows, SCHEMA, kinds=True))
    reader = StateReader(one.state.manifest, one.state.files)
    of_a = {(entry.table, repr(entry.window)): entry.value for entry in reader.entries_of("operator", "a")}
    every = [entry for entry in reader.entries("operator") if entry.key == "a"]
    assert of_a == {(entry.table, repr(entry.window)): entry.value for entry in every}
    assert of_a["groups", "None"] == [2, 2, 2, 1, 2]
    assert of_a["counts 0", "['p']"] == [1]
