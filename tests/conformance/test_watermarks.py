"""Watermarks against the conformance cases: generators, several inputs combined, partitions of a source, the idle timer."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from poundlock import WatermarkStrategy
from poundlock.operators.generators import IdlenessTimer
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import MIN, SourceInput, SourceTime, SplitTimes
from poundlock.operators.watermarks import Input, SourceWatermark, StatusWatermarkValve, combine
from support.partition_watermarks import PartitionWatermarks
from support.watermark_generator import GeneratorHarness

CASES = json.loads((Path(__file__).parent / "data" / "watermarks.json").read_text())["cases"]
KINDS = ("watermark_generator", "watermark_combine", "partition_watermark", "idleness_timer")


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def strategy(delay_ms: int) -> WatermarkStrategy:
    return WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=delay_ms))


def test_every_kind_is_run() -> None:
    assert {case["kind"] for case in CASES} == set(KINDS)


@pytest.mark.parametrize("case", of_kind("watermark_generator"))
def test_generator(case: dict[str, Any]) -> None:
    harness = GeneratorHarness(strategy(case["out_of_orderness_ms"]))
    harness.events(case["timestamps"])
    assert harness.emit() == case["expected"]
    if case["out_of_orderness_ms"] == 0:
        in_order = GeneratorHarness(WatermarkStrategy.for_monotonous_timestamps())
        in_order.events(case["timestamps"])
        assert in_order.emit() == case["expected"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("case", of_kind("watermark_combine"))
def test_combine(case: dict[str, Any], restart: bool) -> None:
    channels = [str(number) for number in range(case["channels"])]
    valve = StatusWatermarkValve(channels)
    found = []
    for step in case["steps"]:
        if restart:
            state = json.loads(json.dumps(valve.to_json()))
            before, valve = valve, StatusWatermarkValve(channels)
            valve.restore(state, before.watermark)
        channel = str(step["channel"])
        if "watermark" in step:
            found.append(valve.input_watermark(channel, step["watermark"]))
        else:
            found.append(valve.input_status(channel, step["status"]))
    assert found == case["expected"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("case", of_kind("partition_watermark"))
def test_partitions(case: dict[str, Any], restart: bool) -> None:
    source = PartitionWatermarks(strategy(0), [str(name) for name in case["partitions"]])
    found: list[int | None] = []
    for step in case["steps"]:
        if restart:
            state = json.loads(json.dumps(source.to_json()))
            source = PartitionWatermarks(strategy(0))
            source.restore(state)
        name = str(step["partition"])
        if "watermark" in step:
            source.emit(name, step["watermark"])
        elif "idle" in step:
            source.mark_idle(name)
        elif "removed" in step:
            source.remove(name)
        else:
            source.add(name)
        found.append(None if source.watermark == MIN else source.watermark)
    assert found == case["expected"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("case", of_kind("partition_watermark"))
def test_partitions_of_a_stream(case: dict[str, Any], restart: bool) -> None:
    source = SourceWatermark(strategy(0))
    for name in case["partitions"]:
        source.add(str(name))
    watermarks: list[int | None] = []
    for step in case["steps"]:
        if restart:
            state = msgspec.json.decode(msgspec.json.encode(source.state()), type=SourceTime)
            source = SourceWatermark(strategy(0), state)
        name = str(step["partition"])
        if "watermark" in step:
            source.emit(name, step["watermark"])
        elif "idle" in step:
            source.mark_idle(name)
        elif "removed" in step:
            source.remove(name)
        else:
            source.add(name)
        watermarks.append(None if source.watermark == MIN else source.watermark)
    assert watermarks == case["expected"]


@pytest.mark.parametrize("case", of_kind("watermark_generator"))
def test_generator_of_a_job_in_tasks(case: dict[str, Any]) -> None:
    """Each event is seen by another task, of a checkpoint of its own; in the end all are seen in one."""
    name = TimeNode("time", ("in",), strategy(case["out_of_orderness_ms"]), ("in",), kept=True)
    times = StreamTimes(TimeGraph((TimeNode("in", ()), name)))
    there = {"in": SourceInput(("p",))}
    reports = [SplitTimes("time", "in", "p", n, at, 1) for n, at in enumerate(case["timestamps"])]
    state = times.initial()
    for report in reports:
        state = times.advance(times.directive(state, 0, there), [report]).state
    together = times.advance(times.directive(times.initial(), 0, there), reports)
    assert together.watermarks["time"].after == case["expected"]
    assert (case["expected"] if state.sources else MIN) == together.watermarks["time"].after
    if reports:
        assert state == msgspec.structs.replace(together.state, streams=state.streams)


def _combined(case: dict[str, Any]) -> list[int]:
    """Return what goes downstream last of each step, by the function that a step with several inputs is combined by."""
    inputs = {str(n): Input(MIN, False, None, MIN, False) for n in range(case["channels"])}
    watermark, state, after = MIN, {}, []
    for step in case["steps"]:
        name = str(step["channel"])
        before = inputs[name]
        at = max(before.watermark, step.get("watermark", MIN)) if not before.idle else before.watermark
        idle = step["status"] == "idle" if "status" in step else before.idle
        inputs[name] = Input(at, idle, None, at, idle)
        combined = combine(inputs, watermark, state)
        watermark, state = combined.input.watermark, combined.channels
        after.append(watermark)
    return after


@pytest.mark.parametrize("case", [each for each in of_kind("watermark_combine") if each.values[0]["channels"] > 1])
def test_combine_streams(case: dict[str, Any]) -> None:
    expected, last = [], MIN
    for emitted in case["expected"]:
        last = max([last, *(each for each in emitted if isinstance(each, int))])
        expected.append(last)
    assert _combined(case) == expected


@pytest.mark.parametrize("case", of_kind("idleness_timer"))
def test_idleness(case: dict[str, Any]) -> None:
    timer, now = IdlenessTimer(case["idle_timeout_ms"]), 0
    found: list[bool | None] = []
    for step in case["steps"]:
        now += step.get("advance_ms", 0)
        if "activity" in step:
            timer.activity()
        found.append(timer.is_idle(now) if "check" in step else None)
    assert found == case["expected"]
