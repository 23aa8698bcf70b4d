"""Watermarks against the conformance cases: generators, several inputs combined, partitions of a source, the idle timer."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from poundlock import WatermarkStrategy
from poundlock.testing.watermarks import (
    MIN,
    GeneratorHarness,
    IdlenessTimer,
    PartitionWatermarks,
    StatusWatermarkValve,
)

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
