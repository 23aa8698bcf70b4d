"""Key groups from batch to batch as Spark hands them out, without Spark: only the state and the rows are stand-ins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from poundlock import DefinitionError, KeyedProcessFunction, ValueStateDescriptor
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.process import ProcessOperator
from poundlock.plan.emitted import TAG, RecordRows
from poundlock.plan.hosting import NEXT_TIMER, Host, Input, Times
from poundlock.plan.packing import CONTROL, GROUP, PAYLOAD, PLACE, SIDE, Packing, check_keys, pack_task, unpack_rows
from poundlock.plan.rows import EVENT_TIME, OFFSET, PARTITION, TOPIC

MIN, MAX = -(1 << 63), (1 << 63) - 1


class Told(Host):
    """A host that is told the times by a test."""

    now: Times

    def times(self, payload: bytes) -> Times:
        return self.now


class Blob:
    """A ValueState of Spark's."""

    def __init__(self) -> None:
        self.row: tuple[Any, ...] | None = None

    def getValueState(self, name: str, schema: str) -> Blob:
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.row

    def update(self, row: tuple[Any, ...]) -> None:
        self.row = row

    def clear(self) -> None:
        self.row = None


class Count(KeyedProcessFunction):
    """Counts the records of a key, and says so a second after each."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", default=0))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"n": self.count.value()}


class Batches:
    """One key group of a Count, batch by batch."""

    def __init__(self, key: pa.DataType) -> None:
        self.schema = pa.schema([("k", key), (EVENT_TIME, pa.timestamp("us", "UTC"))])
        self.blob = Blob()

    def run(self, rows: Sequence[tuple[Any, int]], before: int, after: int, now: int = 0) -> list[Mapping[str, Any]]:
        """Return what comes out of rows of (key, time in ms)."""
        outputs = {MAIN: RecordRows("count", pa.schema([("n", pa.int64())]))}
        given = Input(keys=["k"], time=EVENT_TIME, columns=["k"])
        host = Told(ProcessOperator(Count()), [given], outputs)
        host.now = Times(before, after, now)
        host.init(self.blob)
        columns = [[key for key, _ in rows], [time * 1000 for _, time in rows]]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        packs = pack_task(Packing(keys=["k"], time=EVENT_TIME, groups=1))(iter([batch]))
        frames = [pack.to_pandas() for pack in packs]
        frames.append(pd.DataFrame({GROUP: [0], SIDE: [CONTROL], PLACE: [""], PAYLOAD: [b"0"]}))
        found: list[Mapping[str, Any]] = []
        for frame in host.handleInputRows((0,), iter(frames), None):
            for tag, payload in zip(frame[TAG], frame[PAYLOAD], strict=True):
                if tag != NEXT_TIMER:
                    found += unpack_rows(payload).drop_columns([EVENT_TIME]).to_pylist()
        host.close()
        return found


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.string(), None),
        (pa.float64(), math.nan),
        (pa.float32(), math.nan),
        (pa.float64(), -0.0),
        (pa.bool_(), True),
        (pa.decimal128(10, 2), Decimal("1.10")),
        (pa.timestamp("us", "UTC"), 1_700_000_000_000_000),
        (pa.timestamp("us", "Europe/Berlin"), 1_700_000_000_000_000),
        (pa.binary(), b"\xff"),
    ],
)
def test_a_key_is_the_same_in_the_next_batch(kind: pa.DataType, key: Any) -> None:
    batches = Batches(kind)
    assert batches.run([(key, 1000)], MIN, 500) == []
    assert batches.run([(key, 1200)], 500, 1100) == []
    assert batches.run([], 1100, 5000) == [{"n": 2}, {"n": 2}]


class Order(KeyedProcessFunction):
    """Hands on what came."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"n": value["n"]}


def pack(packing: Packing, *batches: Sequence[tuple[int, int]]) -> list[pd.DataFrame]:
    """Return the packs of one task's batches of rows: the offset in Kafka and a number."""
    kinds = {"n": pa.int64(), TOPIC: pa.string(), PARTITION: pa.int32(), OFFSET: pa.int64()}
    made = [
        pa.RecordBatch.from_pydict(
            {
                "n": [n for _, n in rows],
                TOPIC: ["t"] * len(rows),
                PARTITION: [0] * len(rows),
                OFFSET: [o for o, _ in rows],
            },
            schema=pa.schema(kinds),
        )
        for rows in batches
    ]
    return [found.to_pandas() for found in pack_task(packing)(iter(made))]


def test_packs_are_worked_on_in_the_same_order_however_they_arrive() -> None:
    packing = Packing(keys=["n"], time=None, groups=1)
    of_one_task = pack(packing, [(5, 1), (5, 2)], [(5, 3)], [(7, 4)])
    of_another = pack(packing, [(5, 5), (5, 6)])
    orders = set()
    for frames in permutations([*of_one_task, *of_another]):
        host = Told(
            ProcessOperator(Order()),
            [Input(keys=["n"], time=None, columns=["n"])],
            {MAIN: RecordRows("order", pa.schema([("n", pa.int64())]))},
        )
        host.now = Times(MIN, MIN, 0)
        host.init(Blob())
        control = pd.DataFrame({GROUP: [0], SIDE: [CONTROL], PLACE: [""], PAYLOAD: [b"0"]})
        found = [
            row["n"]
            for frame in host.handleInputRows((0,), iter([*frames, control]), None)
            for payload in frame[PAYLOAD]
            for row in unpack_rows(payload).to_pylist()
        ]
        host.close()
        orders.add(tuple(found))
    assert len(orders) == 1
    assert [n for n in orders.pop() if n < 5] == [1, 2, 3, 4]


INTEGER, LONG, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.string()


@pytest.mark.parametrize(
    ("one", "other"), [(TEXT, TEXT), (INTEGER, LONG), (pa.float32(), DOUBLE), (pa.date32(), pa.date32())]
)
def test_keys_that_meet(one: pa.DataType, other: pa.DataType) -> None:
    check_keys("join", [["a"], ["b"]], [pa.schema([("x", one)]), pa.schema([("x", other)])])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (INTEGER, TEXT),
        (INTEGER, DOUBLE),
        (pa.bool_(), INTEGER),
        (pa.decimal128(10, 1), pa.decimal128(10, 2)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    ],
)
def test_keys_that_would_never_meet_are_refused(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(DefinitionError, match="never meet"):
        check_keys("join", [["a"], ["b"]], [pa.schema([("x", one)]), pa.schema([("x", other)])])


@pytest.mark.parametrize("kind", [pa.list_(TEXT), pa.struct([("a", TEXT)]), pa.map_(TEXT, TEXT)])
def test_keys_with_parts_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(DefinitionError, match="step: the key tags is of type"):
        check_keys("step", [["user", "tags"]], [pa.schema([("x", TEXT), ("y", kind)])])


def test_a_log_that_knows_no_watermark_for_the_batch_before_opens_nothing_again() -> None:
    batches = Batches(pa.string())
    assert batches.run([("a", 1000)], MIN, 1500) == []
    assert batches.run([("a", 0)], MIN, MIN) == []
    assert batches.run([], MIN, 1500) == [], "no timer fires at a watermark that was there before"
    assert batches.run([], 1500, 2000) == [{"n": 2}, {"n": 2}]


def test_what_goes_on_behind_the_end_of_the_input_has_timers_again() -> None:
    batches = Batches(pa.string())
    assert batches.run([("a", 1000)], MIN, MAX) == [{"n": 1}]
    assert batches.run([("a", 3000)], 999, 2999) == []
    assert batches.run([], 2999, 4000) == [{"n": 2}]
