"""Windows by columns against the same windows record by record: results, late rows, the order of firings, through state files that merge
and tasks that change their number.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import indices_of
from poundlock.operators.columns import partials
from poundlock.operators.columns.aggregation import FunctionAggregation
from poundlock.operators.columns.operator import ColumnChunk, ColumnWork, PartialsOperator, ResultColumns
from poundlock.operators.columns.partials import (
    PLACE,
    Partials,
    RowAggregation,
    SessionAggregation,
    SliceAggregation,
    merges_by_time,
)
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.columns.sessions import ColumnSessions
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.columns.windows import UNFIRED, ColumnWindows
from poundlock.operators.factory import by_record, window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.keyed.output import GroupBatch, OutputChunk
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import CONTENTS, WindowSpec
from poundlock.plan.sql_text import result_type
from poundlock.state.hashing import groups_of, key_hashes
from poundlock.state.operator_state import OperatorState
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.arrow import ArrowAggregateFunction
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.windows.builtin_assigners import (
    CountSlidingWindows,
    CountTumblingWindows,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    FixedSessions,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.evictors import CountEvictor
from support.column_scripts import GROUPS, pieces, task_of
from support.examples import examples
from support.own_aggregate import LISTED, OWN_RESULT, OWN_SQL, Own

ANY_ORDER = [
    SqlAggregate(kind="count"),
    SqlAggregate(kind="sum", column=0),
    SqlAggregate(kind="min", column=0),
    SqlAggregate(kind="max", column=1),
    SqlAggregate(kind="avg", column=0),
    SqlAggregate(kind="count_distinct", column=1),
]
IN_ORDER = [
    SqlAggregate(kind="first", column=1),
    SqlAggregate(kind="first", column=0, ignore_nulls=True),
    SqlAggregate(kind="last", column=0),
    SqlAggregate(kind="last", column=1, ignore_nulls=True),
    SqlAggregate(kind="collect_list", column=0),
    SqlAggregate(kind="collect_list", column=1),
    SqlAggregate(kind="min_by", column=0, by=1),
    SqlAggregate(kind="max_by", column=1, by=0),
]
TUMBLING, CUMULATIVE = TumblingEventTimeWindows("10 s"), CumulativeEventTimeWindows("5 s", "20 s")
WINDOWS = [
    TUMBLING,
    TumblingEventTimeWindows("10 s", "3 s"),
    SlidingEventTimeWindows("10 s", "4 s"),
    SlidingEventTimeWindows("10 s", "5 s", "1 s"),
    SlidingEventTimeWindows("4 s", "6 s"),
    SlidingEventTimeWindows("3 s", "9 s", "1 s"),
    CUMULATIVE,
    TumblingProcessingTimeWindows("10 s"),
    SlidingProcessingTimeWindows("10 s", "4 s"),
    SlidingProcessingTimeWindows("6 s", "6 s", "1 s"),
    SlidingProcessingTimeWindows("4 s", "6 s"),
    SlidingProcessingTimeWindows("3 ms", "1 ms"),
    CumulativeProcessingTimeWindows("2 s", "6 s"),
    CumulativeProcessingTimeWindows("3 s", "12 s", "1 s"),
    EventTimeSessionWindows("3 s"),
    EventTimeSessionWindows("500 ms"),
    EventTimeSessionWindows("20 s"),
    ProcessingTimeSessionWindows("3 s"),
    ProcessingTimeSessionWindows("20 s"),
    ProcessingTimeSessionWindows("1 ms"),
]
KEYS: dict[str, list[pa.Field]] = {
    "text": [pa.field("k", pa.string())],
    "number": [pa.field("k", pa.int64())],
    "both": [pa.field("k", pa.string()), pa.field("k2", pa.int64())],
    "none": [],
}
ARGUMENTS = (pa.int64(), pa.string())
Row = tuple[Any, int, int | None, str | None]
Result = tuple[Any, tuple[int, int], tuple[Any, ...], int]


class OrderOfArrival(SqlAggregates):
    """Keeps whole elements, and puts those of sessions that become one in the order they came: their last value is a number of that."""

    def first(self, value: Any) -> list[Any]:
        return [value]

    def add(self, value: Any, held: list[Any]) -> list[Any]:
        return [*held, value]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [*a, *b]

    def result(self, held: list[Any]) -> tuple[Any, ...]:
        return SqlAggregates(self.aggregates).of(sorted(held, key=lambda value: int(value[-1])))


class ByRecord:
    """The windows record by record."""

    def __init__(self, spec: WindowSpec, policy: MergePolicy) -> None:
        assert isinstance(spec.function, SqlAggregates)
        sessions = isinstance(spec.assigner, EventTimeSessionWindows)
        self.spec = replace(spec, function=OrderOfArrival(spec.function.aggregates)) if sessions else spec
        self.state = ScratchState(GROUPS, policy=policy)
        self.late_dropped = 0
        self.arrived = 0

    def checkpoint(self, rows: Sequence[Row], before: int, after: int, clock: int, tasks: int) -> list[Any]:
        """Return late rows, results while rows came, and results behind them, of each task."""
        self.state.parallelism = tasks
        done = []
        rows = [(*row, self.arrived + number) for number, row in enumerate(rows)]
        self.arrived += len(rows)
        for task in range(tasks):
            mine = [row for row in rows if task_of(row[0], tasks) == task]
            group, operator = self.state.open(task, before), window_operator(self.spec)
            batch = GroupBatch([row[0] for row in mine], [row[2:] for row in mine], [row[1] for row in mine])
            fired = list(operator.advance_processing_time(group, clock))
            fired += operator.process(group, batch)
            done.append((*self._told(fired), self._told(operator.advance_watermark(group, after))[1]))
            self.late_dropped += operator.late_dropped
        self.state.write()
        return done

    def _told(self, chunks: Iterable[OutputChunk]) -> tuple[list[Any], list[Result]]:
        late: list[Any] = []
        results: list[Result] = []
        for chunk in chunks:
            if chunk.tag == "late":
                late += [
                    (key, time, *value[:2])
                    for key, time, value in zip(chunk.keys, chunk.timestamps, chunk.values, strict=True)
                ]
            else:
                assert chunk.windows is not None
                results += zip(chunk.keys, chunk.windows, map(tuple, chunk.values), chunk.timestamps, strict=True)
        return late, results


class ByColumns:
    """The same by columns: rows are added up in several parts, and travel."""

    def __init__(
        self,
        spec: WindowSpec,
        keys: Sequence[pa.Field],
        policy: MergePolicy,
        cut: random.Random,
        own: ArrowAggregateFunction | None = None,
    ) -> None:
        assert isinstance(spec.function, SqlAggregates)
        self.spec, self.keys, self.cut = spec, keys, cut
        sql = ColumnAggregates(spec.function.aggregates, ARGUMENTS, merges_by_time(spec.assigner))
        aggregates: ColumnAggregates | FunctionAggregation = sql
        if own is not None:
            assert by_record(replace(spec, function=ArrowAggregateWindow(own))) is None
            aggregates = FunctionAggregation("own", own, ("v", "w"), OWN_RESULT)
        else:
            assert by_record(spec) is None
        names = tuple(key.name for key in keys)
        time = "t" if spec.assigner.is_event_time() else None
        rows = (names, time, ("v", "w"), aggregates, spec.assigner, key_hashes)
        kinds = [
            result_type(each, None if each.column is None else ARGUMENTS[int(each.column)], "windows")
            for each in spec.function.aggregates
        ]
        self.results = [pa.field(f"r{number}", kind) for number, kind in enumerate(kinds)]
        output, late = ResultColumns(keys, self.results), (*names, "t", "v", "w")
        self.windows: ColumnWork
        if isinstance(spec.assigner, FixedSessions):
            self.windows = ColumnSessions(spec, SessionAggregation(*rows), output, late)
        else:
            self.windows = ColumnWindows(spec, SliceAggregation(*rows), output, late)
        self.partial: RowAggregation = self.windows.partial
        self.state = ScratchState(GROUPS, policy=policy)
        self.late_dropped = 0
        self.was_cut = False

    def checkpoint(self, rows: Sequence[Row], before: int, after: int, clock: int, tasks: int) -> list[Any]:
        self.state.parallelism = tasks
        parts: list[Partials] = []
        alone: list[pa.RecordBatch] = []
        place = before_them = self.state.open(0, before).arrived
        while rows:
            size = self.cut.randrange(1, 30)
            batch, rows = self._batch(rows[:size]), rows[size:]
            places = pa.array(range(place, place + batch.num_rows), pa.int64())
            batch, place = batch.append_column(PLACE, places), place + batch.num_rows
            slices = self.partial.times(batch, clock)
            if self.windows.singly:
                fired = self.windows.alone(slices, before)
                alone.append(batch.take(indices_of(np.flatnonzero(fired))))
                batch, slices = batch.take(indices_of(np.flatnonzero(~fired))), slices[~fired]
            if batch.num_rows:
                parts.append(SentPartials.of(self.partial.of(batch, slices)).unpacked())
        done = []
        for task in range(tasks):
            group, operator = self.state.open(task, before), self.windows.operator()
            assert group.arrived == before_them
            group.arrived = place if self.partial.places else 0
            fired = list(operator.advance_processing_time(group, clock))
            own = [part.take(np.flatnonzero(of_task(part.hashes, task, tasks))) for part in parts]
            operator.take(group, list(map(SentPartials.of, own)))
            if alone:
                (whole,) = pa.Table.from_batches(alone).combine_chunks().to_batches() or [alone[0]]
                columns = [whole.column(name) for name in self.partial.keys]
                hashes = key_hashes(columns) if columns else np.zeros(whole.num_rows, np.uint64)
                mine = whole.take(indices_of(np.flatnonzero(of_task(hashes, task, tasks))))
                if mine.num_rows:
                    parts_of_mine = list(pieces(mine))
                    self.was_cut |= len(parts_of_mine) > 1
                    for piece in parts_of_mine:
                        fired += operator.take_rows(group, piece)
            done.append((*self._told(fired), self._told(operator.advance_watermark(group, after))[1]))
            operator.store(group)
            self.late_dropped += operator.late_dropped
        self.state.write()
        return done

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        keys = [row[0] if len(self.keys) > 1 else (row[0],) for row in rows]
        columns = [pa.array([key[i] for key in keys], field.type) for i, field in enumerate(self.keys)]
        columns.append(pa.array([row[1] * 1000 for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC")))
        columns += [pa.array([row[2 + i] for row in rows], kind) for i, kind in enumerate(ARGUMENTS)]
        return pa.RecordBatch.from_arrays(columns, [*(field.name for field in self.keys), "t", "v", "w"])

    def _told(self, chunks: Iterable[Any]) -> tuple[list[Any], list[Result]]:
        late: list[Any] = []
        results: list[Result] = []
        for chunk in chunks:
            assert isinstance(chunk, ColumnChunk)
            rows = chunk.rows.to_pylist()
            for row, time in zip(rows, chunk.times.tolist(), strict=True):
                parts = tuple(row[field.name] for field in self.keys)
                key = parts if len(parts) > 1 else parts[0] if parts else None
                if chunk.tag == "late":
                    late.append((key, time, row["v"], row["w"]))
                else:
                    window = ms(row["window_start"]), ms(row["window_end"])
                    results.append((key, window, tuple(row[field.name] for field in self.results), time))
        return late, results


def ms(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def of_task(hashes: Any, task: int, tasks: int) -> Any:
    return groups_of(hashes, GROUPS) * tasks // GROUPS == task


@examples(30)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_a_function_of_columns_does_is_what_sql_does(data: st.DataObject, seed: int) -> None:
    compare(data, seed, Own())


@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:  # few rows of a window at a time, or all
        patch.setattr(partials, "_AT_ONCE", data.draw(st.sampled_from([3, 1 << 17])))
        compare(data, seed, None)


NESTED = (pa.list_(pa.float64()), pa.struct([("n", pa.int64()), ("texts", pa.list_(pa.string()))]))
LISTS = [None, [], [None], [1.0], [1.0, None], [1.0, 2.0], [-1.0, 9.0], [2.0]]
STRUCTS = [None, *({"n": n, "texts": texts} for n in (None, 1) for texts in (None, [], ["x"], ["x", "y"], ["y"]))]
NESTED_IN_ANY_ORDER = [
    SqlAggregate(kind="min", column=0),
    SqlAggregate(kind="max", column=1),
    SqlAggregate(kind="count_distinct", column=0),
    SqlAggregate(kind="count_distinct", column=1),
    SqlAggregate(kind="min_by", column=1, by=1),
    SqlAggregate(kind="max_by", column=0, by=0),
]
NESTED_IN_ORDER = [
    SqlAggregate(kind="first", column=1),
    SqlAggregate(kind="min_by", column=0, by=1),
    SqlAggregate(kind="max_by", column=1, by=0),
]


@examples(30)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_with_nested_values_is_what_records_do(data: st.DataObject, seed: int) -> None:
    def nested_row(dice: random.Random, kind: str, now: int) -> Any:
        return (*row(dice, kind, now)[:2], dice.choice(LISTS), dice.choice(STRUCTS))

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ARGUMENTS", NESTED), ("ANY_ORDER", NESTED_IN_ANY_ORDER), ("IN_ORDER", NESTED_IN_ORDER)):
            patch.setattr(sys.modules[__name__], name, value)
        compare(data, seed, None, nested_row)


def test_a_window_of_many_checkpoints_is_decoded_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partials, "_AT_ONCE", 100)
    decoded: list[int] = []
    real = ColumnAggregates.decode

    def counted(self: ColumnAggregates, values: pa.Array) -> Any:
        decoded.append(len(values))
        return real(self, values)

    spec = WindowSpec(assigner=TumblingEventTimeWindows("1 d"), function=SqlAggregates([SqlAggregate(kind="count")]))
    other = ByColumns(spec, KEYS["text"], MergePolicy(fan_in=100), random.Random(1), None)
    for _ in range(10):
        rows = [(f"key-{number}", 1000, 1, "x") for number in range(200)]
        assert other.checkpoint(rows, MIN, MIN, 0, 1) == [([], [], [])]
    monkeypatch.setattr(ColumnAggregates, "decode", counted)
    ((_, _, fired),) = other.checkpoint([], MIN, 1 << 40, 0, 1)
    assert [values for *_, values, _ in fired] == [(10,)] * 200
    assert max(decoded) < 50, "of 2,000 rows no more than some of a run at a time"


def compare(
    data: st.DataObject,
    seed: int,
    own: ArrowAggregateFunction | None,
    row_of: Callable[[random.Random, str, int], Row] | None = None,
) -> None:
    dice = random.Random(seed)
    assigner = data.draw(st.sampled_from(WINDOWS))
    event_time = assigner.is_event_time()
    in_order = not event_time or type(assigner) is TumblingEventTimeWindows
    aggregates = (
        [*OWN_SQL, LISTED]
        if own
        else data.draw(st.lists(st.sampled_from(ANY_ORDER + IN_ORDER), min_size=1, max_size=4))
    )
    gap = assigner.gap_ms if isinstance(assigner, EventTimeSessionWindows) else 0
    lateness = data.draw(st.sampled_from([0, 3_000, 12_000, 1 << 62])) if event_time else 0
    end = EventTimeTrigger() if event_time else ProcessingTimeTrigger()
    spec = WindowSpec(
        assigner=assigner,
        function=SqlAggregates(aggregates),
        trigger=data.draw(st.sampled_from([None, end, PurgingTrigger(end)])),
        allowed_lateness_ms=lateness,
        late_tag=data.draw(st.sampled_from([None, "late"])) if event_time else None,
    )
    kind = data.draw(st.sampled_from(list(KEYS)))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    assert own is not None or by_record(spec) is None
    one, other = ByRecord(spec, policy), ByColumns(spec, KEYS[kind], policy, dice, own)
    now, before = 0, MIN
    one_key = data.draw(st.booleans())  # has most of the rows, so that many are in one window
    for _ in range(data.draw(st.integers(1, 8))):
        now += dice.choice([0, 1, dice.randrange(9_000)])
        if not event_time and isinstance(other.partial, SliceAggregation) and dice.random() < 0.5:
            now += other.partial.width - 1 - (now - assigner.offset_ms) % other.partial.width  # the last of a slice
        rows = [(row_of or row)(dice, kind, now) for _ in range(dice.randrange(60))]
        if one_key:
            rows = [each if dice.random() < 0.2 else (rows[0][0], *each[1:]) for each in rows]
        if gap:  # those that may be late come behind the others
            rows.sort(key=lambda each: each[1] + gap - 1 <= before)
        after = before if dice.random() < 0.1 else max(before, now - dice.randrange(8_000))
        tasks = dice.choice([1, 2, 3])
        for mine, theirs in zip(
            one.checkpoint(rows, before, after, now, tasks),
            other.checkpoint(rows, before, after, now, tasks),
            strict=True,
        ):
            late, again, fired = mine
            if own is not None and not in_order:  # a list is in any order
                again, fired = sorted_lists(again), sorted_lists(fired)
                theirs = theirs[0], sorted_lists(theirs[1]), sorted_lists(theirs[2])
            assert sorted(theirs[0], key=repr) == sorted(late, key=repr)
            if not event_time:  # they end by the clock before rows come, in any order of keys
                assert [each[1][1] for each in theirs[1]] == [each[1][1] for each in again]
            if other.was_cut or not event_time:  # each piece goes through its windows
                theirs, again = (theirs[0], sorted(theirs[1], key=repr), theirs[2]), sorted(again, key=repr)
            assert theirs[1] == again, "each late row makes its windows fire, in the order the rows came"
            assert sorted(theirs[2], key=repr) == sorted(fired, key=repr)
            assert [each[1][1] for each in theirs[2]] == [each[1][1] for each in fired], "windows fire by their ends"
        before = after
    assert other.late_dropped == one.late_dropped


def sorted_lists(results: list[Result]) -> list[Result]:
    return [(key, window, (*values[:2], sorted(values[2])), time) for key, window, values, time in results]


def test_a_session_with_a_new_row_within_its_bounds_comes_out_once() -> None:
    counted = spec(assigner=EventTimeSessionWindows("20 s"))
    one, other = ByRecord(counted, MergePolicy()), ByColumns(counted, KEYS["text"], MergePolicy(), random.Random(1))
    before = MIN
    for rows, after in (([-17_213, -1_362], 6_117), ([-2_072], 19_977), ([], 40_000)):
        given_rows: list[Row] = [("a", time, 1, "x") for time in rows]
        mine, theirs = (each.checkpoint(given_rows, before, after, 0, 1) for each in (one, other))
        assert theirs == mine
        before = after


def test_a_late_row_makes_its_session_fire_again_or_live_again() -> None:
    for purging in (False, True):
        late_by = spec(
            assigner=EventTimeSessionWindows("10 s"),
            allowed_lateness_ms=30_000,
            late_tag="late",
            trigger=PurgingTrigger(EventTimeTrigger()) if purging else None,
        )
        columns = ByColumns(late_by, KEYS["text"], MergePolicy(), random.Random(1))
        seen = []
        # Of each checkpoint its rows, and the watermark behind it.
        for times, before, after in (
            ([50_000], MIN, 70_000),
            ([45_000, 34_000, 20_000], 70_000, 70_000),  # joins what fired, begins a session, is late
            ([62_000], 70_000, 73_000),  # would end behind the watermark, and fires when that is there
            ([40_000], 73_000, 73_000),  # makes one of both sessions
            ([52_000], 73_000, 200_000),  # another one joins
        ):
            rows: list[Row] = [("a", time, 1, "x") for time in times]
            ((late, again, fired),) = columns.checkpoint(rows, before, after, 0, 1)
            seen.append(
                ([time for _, time, *_ in late], *([(w, n) for _, w, (n,), _ in each] for each in (again, fired)))
            )
        assert seen == [
            ([], [], [((50_000, 60_000), 1)]),
            ([20_000], [((45_000, 60_000), 1 if purging else 2), ((34_000, 44_000), 1)], []),
            ([], [], [((62_000, 72_000), 1)]),
            ([], [((34_000, 60_000), 1 if purging else 4)], []),
            ([], [((34_000, 72_000), 1 if purging else 6)], []),
        ]
        assert not columns.state.described()["state"], "what is too old for any row is gone"


def test_a_window_that_purges_holds_nothing_after_it_fired() -> None:
    purging = PurgingTrigger(EventTimeTrigger())
    late_by = spec(trigger=purging, assigner=CUMULATIVE, allowed_lateness_ms=30_000, late_tag="late")
    columns = ByColumns(late_by, KEYS["text"], MergePolicy(), random.Random(1))
    fired = [("a", (40_000, 45_000), (1,), 44_999), ("a", (40_000, 50_000), (1,), 49_999)]
    assert columns.checkpoint([("a", 41_000, 1, "x")], MIN, 50_000, 0, 1) == [([], [], fired)]
    rows: list[Row] = [("a", 42_000, 1, "x"), ("a", 47_000, 1, "x")]
    ((_, again, _),) = columns.checkpoint(rows, 50_000, 50_000, 0, 1)
    assert again == [*fired, fired[1]], "each row alone"
    ((_, _, last),) = columns.checkpoint([], 50_000, 60_000, 0, 1)
    assert [values for *_, values, _ in last] == [(3,), (3,)], "what did not fire yet holds all"
    assert not columns.state.described()["state"]
    ((late, again, _),) = columns.checkpoint([("a", 43_000, 1, "x")], 60_000, 60_000, 0, 1)
    assert [values for *_, values, _ in again] == [(1,)] * 4
    assert (late, columns.state.described()["state"]) == ([], {})


def test_a_session_that_fired_grows_beyond_the_watermark_and_fires_then() -> None:
    for purging in (False, True):
        late_by = spec(
            assigner=EventTimeSessionWindows("10 s"),
            allowed_lateness_ms=30_000,
            trigger=PurgingTrigger(EventTimeTrigger()) if purging else None,
        )
        columns = ByColumns(late_by, KEYS["text"], MergePolicy(), random.Random(1))
        assert columns.checkpoint([("a", 50_000, 1, "x")], MIN, 60_000, 0, 1)[0][2][0][2] == (1,)
        assert columns.checkpoint([("a", 58_000, 1, "x")], 60_000, 60_000, 0, 1) == [([], [], [])]
        fired = [("a", (50_000, 68_000), (1 if purging else 2,), 67_999)]
        assert columns.checkpoint([], 60_000, 70_000, 0, 1) == [([], [], fired)]
        assert columns.checkpoint([], 70_000, 90_000, 0, 1) == [([], [], [])]


@pytest.mark.parametrize(
    ("purging", "script", "counts"),
    [
        # The session of the first row is too old, although its bucket is there.
        (False, [([50_000], 65_000), ([], 90_000), ([59_000], 90_000)], [((50_000, 60_000), 1), ((59_000, 69_000), 1)]),
        # A row that came out with a session that purged is not in what another row makes of that and an open one.
        (
            True,
            [([50_000, 60_500], 65_000), ([48_000, 52_000], 80_000)],
            [((50_000, 60_000), 1), ((48_000, 60_000), 1), ((48_000, 70_500), 2)],
        ),
    ],
)
def test_what_a_late_row_does_not_find(purging: bool, script: Any, counts: Any) -> None:
    late_by = spec(
        assigner=EventTimeSessionWindows("10 s"),
        allowed_lateness_ms=30_000,
        trigger=PurgingTrigger(EventTimeTrigger()) if purging else None,
    )
    columns = ByColumns(late_by, KEYS["text"], MergePolicy(), random.Random(1))
    record, before, seen = ByRecord(late_by, MergePolicy()), MIN, []
    for times, after in script:
        rows: list[Row] = [("a", time, 1, "x") for time in times]
        mine, theirs = (each.checkpoint(rows, before, after, 0, 1) for each in (record, columns))
        assert theirs == mine
        seen += [(window, n) for some in theirs[0][1:] for _, window, (n,), _ in some]
        before = after
    assert seen == counts


def test_rows_on_time_are_not_looked_for_among_all_sessions_that_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    late_by = spec(assigner=EventTimeSessionWindows("10 s"), allowed_lateness_ms=86_400_000, late_tag="late")
    columns = ByColumns(late_by, KEYS["text"], MergePolicy(fan_in=100), random.Random(1))
    watermark = MIN
    for hour in range(20):
        before, watermark = watermark, hour * 3_600_000
        columns.checkpoint([("a", watermark, 1, "x")], before, watermark, 0, 1)
    looked: list[tuple[str, Any]] = []
    real = OperatorState.look_up

    def counted(self: OperatorState, name: str, namespace: Any, hashes: Any, keys: Any) -> Any:
        looked.append((name, namespace))
        return real(self, name, namespace, hashes, keys)

    monkeypatch.setattr(OperatorState, "look_up", counted)
    columns.checkpoint([("a", watermark + 60_000, 1, "x")], watermark, watermark + 1, 0, 1)
    assert len(looked) < 3
    looked.clear()
    ((_, again, _),) = columns.checkpoint([("a", 2 * 3_600_000 + 1, 1, "x")], watermark + 1, watermark + 1, 0, 1)
    assert [values for *_, values, _ in again] == [(2,)]
    assert len(looked) > 10


@pytest.mark.parametrize(("assigner", "table"), [(EventTimeSessionWindows("10 s"), "fired"), (TUMBLING, "contents")])
def test_windows_that_fired_go_where_the_lateness_was_taken_away(assigner: Any, table: str) -> None:
    late_by = spec(assigner=assigner, allowed_lateness_ms=30_000, late_tag="late")
    columns = ByColumns(late_by, KEYS["text"], MergePolicy(), random.Random(1))
    columns.checkpoint([("a", 50_000, 1, "x")], MIN, 60_000, 0, 1)
    assert columns.state.described()["state"][table]["count"] == 1
    without = ByColumns(replace(late_by, allowed_lateness_ms=0), KEYS["text"], MergePolicy(), random.Random(1))
    without.state = columns.state
    ((late, again, fired),) = without.checkpoint([("a", 45_000, 1, "x")], 60_000, 70_000, 0, 1)
    assert ([time for _, time, *_ in late], again, fired) == ([45_000], [], [])
    assert not columns.state.described()["state"]


def test_what_a_purging_trigger_empties_is_gone_before_its_lateness_is_over() -> None:
    purging = PurgingTrigger(EventTimeTrigger())
    for assigner in (TUMBLING, SlidingEventTimeWindows("10 s", "5 s"), CUMULATIVE):
        windows = spec(assigner=assigner, trigger=purging, allowed_lateness_ms=60_000)
        columns = ByColumns(windows, KEYS["text"], MergePolicy(), random.Random(1))
        columns.checkpoint([("a", 1_000, 1, "x")], MIN, 30_000, 0, 1)
        ((_, again, fired),) = columns.checkpoint([("a", 1_000, 1, "x")] * 2, 30_000, 31_000, 0, 1)
        expected = [("a", tuple(window), (1,), window.end - 1) for window in assigner.windows_at(1_000)]
        assert again == expected * 2, "each row alone"
        assert fired == []
        assert columns.state.open().namespaces(CONTENTS) == []


def test_by_the_clock_rows_of_the_last_millisecond_are_a_firing_of_their_own() -> None:
    windows = spec(assigner=SlidingProcessingTimeWindows("10 s", "5 s"))
    columns = ByColumns(windows, KEYS["text"], MergePolicy(), random.Random(1))
    fired = []
    for clock, count in ((7_000, 1), (9_999, 2), (9_999, 4), (12_000, 8), (30_000, 0)):
        ((_, again, _),) = columns.checkpoint([("a", 0, 1, "x")] * count, MIN, MIN, clock, 1)
        fired.append([(window, values) for _, window, values, _ in again])
    assert fired == [
        [],
        [((0, 10_000), (1,))],
        [((0, 10_000), (2,))],
        [((0, 10_000), (4,))],
        [((5_000, 15_000), (15,)), ((10_000, 20_000), (8,))],
    ]
    assert [columns.state.open().namespaces(table) for table in (CONTENTS, UNFIRED)] == [[], []]


@pytest.mark.parametrize(
    "assigner",
    [TUMBLING, SlidingEventTimeWindows("10 s", "5 s"), CUMULATIVE, EventTimeSessionWindows("20 s")],
)
@pytest.mark.parametrize("kind", ["max_by", "first"])
@pytest.mark.parametrize("apart", [False, True])
def test_the_row_that_was_read_first_counts_though_it_is_of_a_later_slice(
    assigner: Any, kind: Any, apart: bool
) -> None:
    by = SqlAggregates([SqlAggregate(kind=kind, column=1, by=0 if kind == "max_by" else None)])
    columns = ByColumns(spec(assigner=assigner, function=by), KEYS["text"], MergePolicy(), random.Random(1))
    rows: list[Row] = [("a", 7_000, 5, "read first"), ("a", 2_000, 5, "earlier")]
    for some in [[each] for each in rows] if apart else [rows]:
        assert columns.checkpoint(some, MIN, MIN, 0, 1) == [([], [], [])]
    ((_, _, fired),) = columns.checkpoint([], MIN, 1 << 40, 0, 1)
    both = [values for _, (start, end), values, _ in fired if start <= 2_000 and end > 7_000]
    assert both == [("read first",)] * len(both)
    assert both


def row(dice: random.Random, kind: str, now: int) -> Row:
    key: Any = {
        "text": f"key-{dice.randrange(6)}" * dice.choice([1, 1, 8]),
        "number": dice.randrange(-3, 3),
        "both": (f"a{dice.randrange(3)}", dice.choice([None, 1])),
        "none": None,
    }[kind]
    value = dice.choice([None, dice.randrange(-50, 50)])
    return key, now + dice.randrange(-25_000, 6_000), value, dice.choice([None, "x", "y", "zz"])


def spec(**changed: Any) -> WindowSpec:
    return WindowSpec(**{"assigner": TUMBLING, "function": SqlAggregates([SqlAggregate(kind="count")]), **changed})


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        (spec(), None),
        (spec(trigger=EventTimeTrigger()), None),
        (spec(trigger=PurgingTrigger(EventTimeTrigger())), None),
        (spec(trigger=PurgingTrigger(EventTimeTrigger()), allowed_lateness_ms=5), None),
        (spec(trigger=PurgingTrigger(CountTrigger(3)), allowed_lateness_ms=5), "its trigger, evictor or windows"),
        (spec(assigner=EventTimeSessionWindows("5 s"), allowed_lateness_ms=5), None),
        (
            spec(
                assigner=EventTimeSessionWindows("5 s"),
                trigger=PurgingTrigger(EventTimeTrigger()),
                allowed_lateness_ms=5,
            ),
            None,
        ),
        (spec(assigner=EventTimeSessionWindows("5 s"), trigger=CountTrigger(3)), "its trigger, evictor or windows"),
        (spec(assigner=ProcessingTimeSessionWindows("5 s")), None),
        (
            spec(assigner=ProcessingTimeSessionWindows("5 s"), trigger=PurgingTrigger(ProcessingTimeTrigger())),
            None,
        ),
        (spec(assigner=DynamicEventTimeSessionWindows(len)), "its trigger, evictor or windows look at each element"),
        (
            spec(trigger=PurgingTrigger(PurgingTrigger(EventTimeTrigger())), allowed_lateness_ms=5),
            "its trigger, evictor or windows",
        ),
        (spec(trigger=CountTrigger(3)), "its trigger, evictor or windows look at each element"),
        (spec(assigner=SlidingEventTimeWindows("5 s", "9 s")), None),
        (spec(assigner=SlidingProcessingTimeWindows("9 s", "3 s")), None),
        (spec(assigner=SlidingProcessingTimeWindows("9 s", "3 s"), function=SqlAggregates(IN_ORDER[:3])), None),
        (spec(assigner=CountSlidingWindows(9, 3)), None),
        (spec(assigner=CountSlidingWindows(9, 3), trigger=CountTrigger(3), evictor=CountEvictor(9)), None),
        (spec(assigner=CountSlidingWindows(9, 3), trigger=CountTrigger(4)), "its trigger, evictor or windows"),
        (spec(assigner=CountSlidingWindows(9, 3), evictor=CountEvictor(8)), "its trigger, evictor or windows"),
        (spec(assigner=CountTumblingWindows(9), evictor=CountEvictor(8)), "its trigger, evictor or windows"),
        (spec(assigner=CUMULATIVE, function=SqlAggregates(IN_ORDER[:6])), None),
        (spec(assigner=EventTimeSessionWindows("5 s"), function=SqlAggregates(IN_ORDER[:6])), None),
    ],
)
def test_who_needs_records_one_by_one_and_why(windows: WindowSpec, reason: str | None) -> None:
    given_reason = by_record(windows)
    assert (given_reason is None) is (reason is None)
    assert reason is None or reason in str(given_reason)


def test_a_row_without_event_time_is_refused_in_words() -> None:
    columns = ByColumns(spec(), KEYS["text"], MergePolicy(), random.Random(1))
    batch = columns._batch([("a", 5, 1, "x"), ("b", 6, 1, "x")])
    times = pa.array([5, None], pa.timestamp("us", "UTC"))
    with pytest.raises(DefinitionError, match="timestamp"):
        columns.partial.times(batch.set_column(1, "t", times), 0)


def test_state_of_the_other_way_is_refused_and_not_passed_over() -> None:
    for first, then in (("columns", "records"), ("records", "columns")):
        state = ScratchState(GROUPS)
        group = state.open()
        rows = ByColumns(spec(), KEYS["text"], MergePolicy(), random.Random(1))
        if first == "columns":
            batch, adding = rows._batch([("a", 5, 1, "x")]), column_operator()
            adding.take(group, [SentPartials.of(rows.partial.of(batch, rows.partial.times(batch, 0)))])
            adding.store(group)
        else:
            list(window_operator(spec()).process(group, GroupBatch(["a"], [(1, "x")], [5])))
        state.write()
        operator = column_operator() if then == "columns" else window_operator(spec())
        kinds = ("slices", "panes") if first == "columns" else ("panes", "slices")
        with pytest.raises(
            TerminalError, match="state 'contents' is kept as {} state and asked for as {}".format(*kinds)
        ):
            list(operator.advance_watermark(state.open(), 50))


def test_aggregates_that_changed_are_refused() -> None:
    state = ScratchState(GROUPS)
    rows = ByColumns(spec(), KEYS["text"], MergePolicy(), random.Random(1))
    operator = column_operator()
    batch = rows._batch([("a", 5, 1, "x")])
    operator.take(state.open(), [SentPartials.of(rows.partial.of(batch, rows.partial.times(batch, 0)))])
    operator.store(state.open())
    state.write()
    other = column_operator(spec(function=SqlAggregates([SqlAggregate(kind="sum", column=0)])))
    with pytest.raises(TerminalError, match="state 'contents' holds count, and sum bigint are asked for"):
        list(other.advance_watermark(state.open(), 50))


@pytest.mark.parametrize("assigner", [SlidingEventTimeWindows("10 s", "5 s"), EventTimeSessionWindows("5 s")])
def test_state_without_places_is_refused(assigner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of min_by there was such state: it would be read as something else."""
    windows = spec(assigner=assigner, function=SqlAggregates([SqlAggregate(kind="min_by", column=0, by=1)]))
    state = ScratchState(GROUPS)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "merges_by_time", lambda _: False)
        rows = ByColumns(windows, KEYS["text"], MergePolicy(), random.Random(1))
    operator = rows.windows.operator()
    batch = rows._batch([("a", 5, 1, "x")])
    operator.take(state.open(), [SentPartials.of(rows.partial.of(batch, rows.partial.times(batch, 0)))])
    operator.store(state.open())
    state.write()
    with pytest.raises(TerminalError, match="and min_by bigint by string in order of arrival are asked for"):
        list(column_operator(windows).advance_watermark(state.open(), 50))


def column_operator(windows: WindowSpec | None = None) -> PartialsOperator:
    return ByColumns(windows or spec(), KEYS["text"], MergePolicy(), random.Random(1)).windows.operator()
