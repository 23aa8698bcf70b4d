"""The events of the reference job against the conformance cases: each into the day of its own time, or rejected with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.stream.windows.builtin_assigners import TumblingProcessingTimeWindows
from poundlock.testing import WindowHarness
from support.sinks import FileSinkHarness, batch, lines

CASES = json.loads((Path(__file__).parent / "data" / "seed_events.json").read_text())["cases"]

ELSEWHERE = {"running_count": "tests/services/test_word_count.py"}


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def zones() -> list[Any]:
    return [
        pytest.param(case, zone, id=f"{case['id']}-{zone}")
        for case in CASES
        if case["kind"] == "event_bucket"
        for zone in case["expected"]
    ]


def sink(folder: Path, zone: str) -> FileSink:
    return FileSink(str(folder), row="value", bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone=zone))


def test_every_kind_is_run_or_named_with_the_reason_why_not() -> None:
    assert {case["kind"] for case in CASES} == {"event_bucket", "float32_trap", "sales_windows"} | set(ELSEWHERE)


@pytest.mark.parametrize(("case", "zone"), zones())
@pytest.mark.parametrize("form", ["lines", "columns"])
def test_event_bucket(case: dict[str, Any], zone: str, form: str, tmp_path: Path) -> None:
    records = [record.encode() for record in case["records"]]
    h = FileSinkHarness(sink(tmp_path, zone))
    written = h.write(lines(*records) if form == "lines" else batch(value=records))
    committables = h.end_checkpoint(Occasion.END)

    where = {row: path.split("/")[0] for path, content in h.finished().items() for row in content.split(b"\n")[:-1]}
    assert [where.get(record) for record in records] == case["expected"][zone]
    assert written == sum(bucket is not None for bucket in case["expected"][zone])
    assert [r.value for r in h.rejects] == [r for r in records if r not in where]
    if "reasons" in case:
        assert [r.reason for r in h.rejects] == case["reasons"]
    if "timestamps_ms" in case:
        assert min(c["min_ms"] for c in committables) == min(case["timestamps_ms"])
        assert max(c["max_ms"] for c in committables) == max(case["timestamps_ms"])


@pytest.mark.parametrize("case", of_kind("event_bucket"))
def test_local_times(case: dict[str, Any]) -> None:
    """The cases' own local times, through the pattern that shows seconds."""
    for zone, local in case.get("local_times", {}).items():
        assigner = EventTimeBucketAssigner("t", "yyyy-MM-dd'T'HH:mm:ss", zone=zone)
        names = buckets(assigner, [ms / 1000 for ms in case["timestamps_ms"]])
        assert names == [text[:19] for text in local]


@pytest.mark.parametrize("case", of_kind("float32_trap"))
def test_float32_trap(case: dict[str, Any], tmp_path: Path) -> None:
    for seconds, exact, bucket, wrong in zip(
        case["seconds"], case["exact_ms"], case["expected_bucket_UTC"], case["wrong_ms"], strict=True
    ):
        h = FileSinkHarness(sink(tmp_path / str(exact), "UTC"))
        assert h.write(lines(json.dumps({"timestamp": seconds}).encode())) == 1
        [committable] = h.end_checkpoint(Occasion.END)
        assert (committable["bucket"], committable["min_ms"], committable["max_ms"]) == (bucket, exact, exact)
        # The case itself can tell: 32-bit floats give what it calls wrong.
        assert int(np.float32(seconds) * np.float32(1000)) == wrong != exact


def reduced(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**a, "profit": a["profit"] + b["profit"], "rows": a["rows"] + b["rows"]}


@pytest.mark.parametrize("case", of_kind("sales_windows"))
def test_sales_windows(case: dict[str, Any]) -> None:
    """Windows of 2 s by the clock, keyed by month: each pane's rows come while its window is open."""
    rows = [dict(zip(case["columns"], row.split(","), strict=True)) for row in case["rows"]]
    elements = [{**row, "profit": int(row["profit"]), "rows": 1} for row in rows]
    with WindowHarness(TumblingProcessingTimeWindows("2 s"), reduced, key="month") as h:
        for number, pane in enumerate(case["panes"]):
            fired = h.set_processing_time(number * 2000 + 500)
            assert (len(fired) > 0) == (number > 0)
            h.process_elements([(element, None) for element in elements[slice(*pane["rows"])]])
        h.set_processing_time(len(case["panes"]) * 2000 + 500)
        h.process_elements([(element, None) for element in elements[slice(*case["rows_never_emitted"])]])
        assert h.end_of_input() == []
    columns = ("month", "product", "category", "profit", "rows")
    found: dict[int, list[list[Any]]] = {}
    for out in h.output:
        found.setdefault(out.window.start // 2000, []).append([out.value[name] for name in columns])
    assert [sorted(found[number]) for number in range(len(case["panes"]))] == [
        sorted(pane["expected"]) for pane in case["panes"]
    ]
    assert len(h.output) == 43


def buckets(assigner: EventTimeBucketAssigner, seconds: list[float]) -> list[str]:
    """Return the bucket names of times."""
    from poundlock.connectors.files.buckets.assignment import BucketRows, EventTimeAssignment

    assignment = EventTimeAssignment(assigner, 0, json=False).assign(BucketRows(None, batch(t=seconds)))
    codes = assignment.codes
    return [assignment.names[codes if isinstance(codes, int) else int(codes[i])] for i in range(len(seconds))]
