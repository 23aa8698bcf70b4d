"""Counters, gauges and histograms of a user's functions: what they take, whose they are, and what they add up to."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.checkpoint.test_coordinator import Bench

from poundlock import KeyedProcessFunction, RichFunction, counter, gauge, histogram
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.metrics.user import MetricGroup
from poundlock.metrics.user_totals import MOST, GaugeValue, HistogramValue, UserMetrics, after, over_tasks
from poundlock.operators.chain import Chain, Edge, Pass, Step
from poundlock.operators.user_functions import Filter, MapRecords
from poundlock.testing import ProcessHarness, collected_metrics

BAD, SIZE, NEWEST = counter("bad"), histogram("size", (1, 10)), gauge("newest", "sum")


def keep(row: dict[str, Any]) -> bool:
    BAD.inc(row["n"] < 0)
    SIZE.update(row["n"])
    return row["n"] >= 0


class Doubled(RichFunction):
    def open(self) -> None:
        counter("opened").inc()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        counter("bad").inc(10)
        NEWEST.set(row["n"])
        return {"n": 2 * row["n"]}


def run(*numbers: int) -> UserMetrics:
    schema = pa.schema([("n", pa.int64())])
    steps = [
        Step("in", Pass(), []),
        Step("keep", Filter(function=keep), [Edge("in")]),
        Step("double", MapRecords(id="double", function=Doubled(), schema=schema), [Edge("keep")]),
    ]
    chain = Chain(pickle.loads(pickle.dumps(steps)))
    chain.push(Records([{"n": n} for n in numbers], NoOrigin("in")))
    chain.close()
    return chain.metrics.reported()


def test_a_metric_is_that_of_the_operator_whose_function_runs() -> None:
    metrics = run(5, -1, 20)
    assert metrics.counters == {"keep": {"bad": 1}, "double": {"opened": 1, "bad": 20}}
    assert metrics.histograms == {"keep": {"size": HistogramValue((1.0, 10.0), (1, 1, 1), 24.0)}}
    assert metrics.gauges == {"double": {"newest": GaugeValue(20.0, "sum")}}
    assert run(1).counters["keep"] == {"bad": 0}, "a counter that nothing was added to is there for alarms"


def test_outside_of_a_task_a_metric_is_refused_in_words_and_a_test_collects_it() -> None:
    with pytest.raises(DefinitionError, match="no function of a job's task runs") as refused:
        BAD.inc()
    assert "collected_metrics" in refused.value.next
    with collected_metrics() as collected:
        keep({"n": -3})
        NEWEST.set(4)
        with pytest.raises(DefinitionError):
            threaded(BAD.inc)
    assert (collected.counters, collected.gauges) == ({"bad": 1}, {"newest": 4.0})
    assert collected.histograms["size"].count == 1


def threaded(call: Any) -> None:
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


class PerKey(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.rows = context.get_metric_group().counter("rows")

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.rows.inc()
        return []


def test_the_harness_collects_what_a_process_function_counts() -> None:
    with ProcessHarness(PerKey(), key="k", instances=2) as harness:
        for key in "abcab":
            harness.process_element({"k": key})
        assert harness.metrics.counters == {"rows": 5}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda g: g.counter("1st"), "no name"),
        (lambda g: g.counter("rows_total"), "call it 'rows'"),
        (lambda g: g.counter("x").inc(-1), "use a gauge"),
        (lambda g: g.counter("x").inc(0.5), "whole number"),
        (lambda g: g.gauge("x", "mean"), '"max", "min" or "sum"'),
        (lambda g: g.gauge("x").set("much"), "finite"),
        (lambda g: g.histogram("x").update(float("nan")), "finite"),
        (lambda g: g.histogram("x", (2, 1)), "rising"),
        (lambda g: (g.counter("x"), g.gauge("x")), "another name"),
        (lambda g: [g.counter(f"user_{i}") for i in range(MOST + 1)], "depend on data"),
        (lambda g: counter("a b"), "letters"),
        (lambda g: histogram("x", ()), "rising"),
    ],
)
def test_what_is_no_metric_is_refused_in_words(wrong: Any, text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        wrong(MetricGroup())
    assert text in f"{refused.value.what} {refused.value.next}"


def part(count: int, value: float, *counts: int) -> UserMetrics:
    return UserMetrics(
        counters={"a": {"n": count}},
        gauges={"a": {"g": GaugeValue(value, "max")}},
        histograms={"a": {"h": HistogramValue((1.0,), counts, value)}},
    )


def test_tasks_add_up_and_checkpoints_do() -> None:
    tasks = over_tasks([part(1, 5.0, 1, 0), part(2, 3.0, 0, 2), UserMetrics()])
    assert tasks == UserMetrics(
        counters={"a": {"n": 3}},
        gauges={"a": {"g": GaugeValue(5.0, "max")}},
        histograms={"a": {"h": HistogramValue((1.0,), (1, 2), 8.0)}},
    )
    later = after(tasks, part(4, 1.0, 1, 1))
    assert later is not None
    assert later.counters == {"a": {"n": 7}}
    assert later.gauges == {"a": {"g": GaugeValue(1.0, "max")}}, "of the newest checkpoint"
    assert later.histograms["a"]["h"] == HistogramValue((1.0,), (2, 3), 9.0)
    assert after(later, UserMetrics()) == later
    assert after(None, UserMetrics()) is None


def test_tasks_that_do_not_agree_are_an_error_and_an_upgrade_begins_again() -> None:
    other = UserMetrics(gauges={"b": {"n": GaugeValue(1.0)}})
    with pytest.raises(DefinitionError, match="'n' is a counter in one function"):
        over_tasks([part(1, 1.0, 1, 0), other])
    with pytest.raises(DefinitionError, match="at most"):
        over_tasks([UserMetrics(counters={"a": {f"n{i}": 1 for i in range(MOST + 1)}})])
    upgraded = after(part(1, 1.0, 1, 0), UserMetrics(histograms={"a": {"h": HistogramValue((7.0,), (1, 0), 1.0)}}))
    assert upgraded is not None
    assert upgraded.histograms["a"]["h"].bounds == (7.0,)
    assert after(part(1, 1.0, 1, 0), other) == UserMetrics(
        gauges={"a": {"g": GaugeValue(1.0)}, "b": {"n": GaugeValue(1.0)}},
        histograms={"a": {"h": HistogramValue((1.0,), (1, 0), 1.0)}},
    )


def test_what_a_failed_checkpoint_counted_is_in_no_decision_and_a_restart_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    counted = bench.tasks

    def tasks(directive: SinkDirectives, **given: Any) -> TaskResults:
        return replace(counted(directive, **given), metrics=part(3, 1.0, 1, 0))

    bench.tasks = tasks  # type: ignore[method-assign]
    coordinator = bench.start()
    bench.take(coordinator, 0)
    bench.sink.verify_fails = TerminalError("the disk is full")
    with pytest.raises(TerminalError):
        bench.take(coordinator, 1)
    bench.sink.verify_fails = None
    coordinator = bench.start()
    assert coordinator.metrics is not None
    assert coordinator.metrics.counters == {"a": {"n": 3}}
    assert bench.take(coordinator, 1).decision.metrics.counters == {"a": {"n": 6}}
    decided = coordinator.newest
    assert Decision.from_json(json.loads(json.dumps(decided.to_json()))).metrics == decided.metrics
    newer = decided.to_json()
    newer["metrics"]["v"] = 2
    with pytest.raises(TerminalError, match="format 2"):
        Decision.from_json(newer)
    bench.stop()
