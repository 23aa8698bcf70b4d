"""Two stages without Spark: tasks read splits in any share, and every task behind the exchange has the driver's watermarks and the same rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock import WatermarkStrategy
from poundlock.connectors.base import Split
from poundlock.formats.chunk import Batch
from poundlock.operators.stream_times import Advanced, StreamTimes, merged, require_agreement
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import UNKNOWN, SourceInput, SplitTimes, TimeDirective
from poundlock.tasks.event_time import EventTimeAssigner, SplitPlace, SplitTimesRecorder, assigner_for
from poundlock.tasks.exchange.blocks import BlockWriter, Delivery, ExchangeInput, deliveries
from poundlock.tasks.exchange.received import grouped, inputs_of
from support.examples import examples

STRATEGY = WatermarkStrategy.bounded_out_of_orderness("5 ms", timestamp="ms").with_idleness("20 ms")
GROUPS = 8
NODES = (
    TimeNode("in", ()),
    TimeNode("time", ("in",), STRATEGY, ("in",), kept=True),
    TimeNode("counts", ("time",), kept=True),
    TimeNode("again", ("counts",), STRATEGY, (UNKNOWN,), kept=True),
    TimeNode("second", ("again",), kept=True),
)
TIMES = StreamTimes(TimeGraph(NODES))


class Hashing:
    """A number is its own hash."""

    def key_hashes(self, columns: Any) -> Any:
        return np.array(columns[0].to_pylist(), np.uint64)

    def groups_of(self, hashes: Any, max_parallelism: int) -> Any:
        return (hashes % np.uint64(max_parallelism)).astype(np.int32)


def rows_of(split: Split) -> pa.RecordBatch:
    times = [at for at, _ in split.payload["rows"]]
    keys = [key for _, key in split.payload["rows"]]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(times, pa.int64())], names=["k", "ms"])


def source_task(
    splits: list[Split], places: dict[str, SplitPlace], directive: TimeDirective, parallelism: int
) -> dict[int, Delivery]:
    assign = assigner_for("time", STRATEGY, pa.schema({"k": pa.int64(), "ms": pa.int64()}))
    assert isinstance(assign, EventTimeAssigner)
    recorder = SplitTimesRecorder("time", STRATEGY, directive)
    into = ExchangeInput(operator="counts", keys=("k",), max_parallelism=GROUPS)
    writer = BlockWriter(into, Hashing(), parallelism, flush_bytes=200)
    blocks, bad = [], []
    for split in splits:
        timed = assign.assign(Batch(rows_of(split)), directive.clock, bad.append)
        recorder.rows(timed, places[split.id])
        assert isinstance(timed.chunk, Batch)
        blocks += writer.add(timed.chunk.batch, places[split.id])
    assert len(bad) == sum(at is None for split in splits for at, _ in split.payload["rows"])
    blocks += writer.finish()
    return {
        target: pickle.loads(pickle.dumps(each)) for target, each in deliveries(blocks, recorder.reports(), parallelism)
    }


def keyed_task(
    number: int, received: list[Delivery], directive: TimeDirective
) -> tuple[Advanced, list[Any], list[SplitTimes]]:
    """Return the watermarks, the rows, and what goes on to the second stage: what came, and what its own assigner saw."""
    reports = [report for each in received for report in each.reports]
    blocks = inputs_of(block for each in received for block in each.blocks).get(("counts", 0), [])
    rows = grouped(blocks)
    mine: list[Any] = [] if rows is None else rows.select(["k", "ms"]).to_pylist()
    recorder = SplitTimesRecorder("again", STRATEGY, directive)
    assign = assigner_for("again", STRATEGY, pa.schema({"k": pa.int64(), "ms": pa.int64()}))
    assert isinstance(assign, EventTimeAssigner)
    if rows is not None:
        recorder.rows(
            assign.assign(Batch(rows.select(["k", "ms"])), 0, [].append), SplitPlace(UNKNOWN, UNKNOWN, number)
        )
    return TIMES.advance(directive, reports), mine, [*merged(reports), *recorder.reports()]


SPLITS = st.lists(
    st.tuples(
        st.sampled_from(["t-0", "t-1"]),
        st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 500)), st.integers(0, 20)), max_size=6),
    ),
    max_size=6,
)


def run(drawn: list[Any], shared: list[int], directive: TimeDirective, parallelism: int) -> tuple[Advanced, list[Any]]:
    """Return the driver's watermarks and the rows in the order in which tasks have them, after all have agreed."""
    splits = [Split(f"{name}-{n:03d}", {"rows": rows}, name=name) for n, (name, rows) in enumerate(drawn)]
    places = {
        split.id: SplitPlace("in", split.name, n) for n, split in enumerate(sorted(splits, key=lambda each: each.id))
    }
    sent = [
        source_task(
            [s for s, task in zip(splits, shared, strict=True) if task == number], places, directive, parallelism
        )
        for number in range(3)
    ]
    keyed = [keyed_task(n, [each[n] for each in reversed(sent)], directive) for n in range(parallelism)]
    first = [advanced for advanced, _, _ in keyed]
    assert all(each.state == first[0].state for each in first)
    everything = [report for _, _, reports in keyed for report in reports]
    driver = TIMES.advance(directive, everything)
    second = TIMES.advance(directive, reversed(everything))
    assert second.state == driver.state
    # Tasks of the first keyed stage know nothing of what the assigner behind it saw, and run only what is before it.
    require_agreement(driver, [*(each.used(["counts"]) for each in first), second.used(["second"])])
    return driver, [row for _, rows, _ in keyed for row in rows]


@examples(80)
@given(st.lists(SPLITS, min_size=1, max_size=3), st.data())
def test_who_reads_what_makes_no_difference(checkpoints: list[Any], data: Any) -> None:
    state = TIMES.initial()
    for number, drawn in enumerate(checkpoints):
        directive = TIMES.directive(state, number * 15, {"in": SourceInput(("t-0", "t-1"))})
        shares = st.lists(st.integers(0, 2), min_size=len(drawn), max_size=len(drawn))
        one = run(drawn, data.draw(shares), directive, data.draw(st.integers(1, 4)))
        two = run(drawn, data.draw(shares), directive, data.draw(st.integers(1, 4)))
        assert one[0].watermarks == two[0].watermarks
        assert one[0].state == two[0].state
        assert one[1] == two[1]
        state = one[0].state
