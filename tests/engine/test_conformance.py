"""Every conformance case of windows, bounded input and state again, in Spark: a step is a micro-batch, a snapshot a restart.

All cases run in one query, each in key groups of its own, so that every step of every case takes the way through packs, state
on disk and the host that a job's takes; only watermark and clock are each case's own.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.keys import group_of
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import Batch, OutputChunk
from poundlock.operators.process.make import process_operator
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.windows.make import window_operator
from poundlock.operators.windows.spec import WindowSpec
from poundlock.plan.emitted import TAG
from poundlock.plan.hosting import LATE_DROPPED, NEXT_TIMER, Host, Times, hosted
from poundlock.plan.packing import CONTROL, GROUP, PAYLOAD, PLACE, SIDE, pack_bytes, unpack_rows
from support.process_cases import (
    LETTERS,
    BroadcastLetters,
    CountToSide,
    RunningSum,
    SharedCountAndTimer,
    StatesBefore,
    SumToSide,
    TwoSides,
    concatenated,
)
from support.window_cases import WAYS, assigner_of, evictor_of, function_of, trigger_of

pytestmark = pytest.mark.engine

DATA = Path(__file__).parent.parent / "conformance/data"
WINDOWS, BOUNDED, STATE = (
    json.loads((DATA / f"{name}.json").read_text())["cases"] for name in ("windows", "bounded", "state")
)
SIDES = {"left": 0, "right": 1, "broadcast": 1}


@dataclass
class Step:
    """What one case has in one micro-batch: elements, then a watermark or a clock."""

    elements: list[tuple[int, Any, Mapping[str, Any]]] = field(
        default_factory=list
    )  # (group within the case, key, element)
    watermark: int | None = None
    now: int | None = None
    restart: bool = False


@dataclass
class Script:
    """One case: its operator, its steps, and the key groups it has in the query."""

    name: str
    operator: KeyedOperator
    steps: list[Step]
    case: Mapping[str, Any]
    groups: int = 1
    first: int = 0


# --- cases as scripts ------------------------------------------------------------------------------------------------


def windows_of(case: Mapping[str, Any], number: int) -> KeyedOperator:
    """Return a case's operator; the ways to say its function take turns."""
    ways = [way for way in WAYS if function_of(case["function"], way) is not None]
    return window_operator(
        WindowSpec(
            assigner=assigner_of(case["window"]),
            function=function_of(case["function"], ways[number % len(ways)]),
            trigger=trigger_of(case["trigger"]),
            evictor=evictor_of(case["evictor"]),
            allowed_lateness_ms=case["allowed_lateness_ms"],
            late_tag="late",
        )
    )


def window_scripts() -> Iterator[Script]:
    for number, case in enumerate(case for case in WINDOWS if case["kind"] == "window_script"):
        steps = []
        for said in case["steps"]:
            ((kind, value),) = said.items()
            steps.append(
                Step([(0, value["key"], value)]) if kind == "element"
                else Step(watermark=value) if kind == "watermark"
                else Step(now=value) if kind == "processing_time"
                else Step(watermark=MAX) if kind == "end_of_input"
                else Step(restart=True)
            )  # fmt: skip
        yield Script(case["id"], windows_of(case, number), steps, case)


def bounded_scripts() -> Iterator[Script]:
    for number, case in enumerate(BOUNDED):
        elements = [(0, said["key"], said) for said in case["elements"]]
        steps = [Step(elements, watermark=MAX)]
        if case["watermarks"] != "end_of_input":
            times = [said["ts"] for said in case["elements"]]
            steps = [Step([element], watermark=max(times[: i + 1])) for i, element in enumerate(elements)]
            steps.append(Step(watermark=MAX))
        yield Script(case["id"], windows_of(case, number), steps, case)


def state_scripts() -> Iterator[Script]:
    tags = ("side", "side1", "side2")
    makers = {
        "running_sum": lambda case: ProcessOperator(RunningSum(case["state"])),
        "states_before": lambda case: ProcessOperator(StatesBefore()),
        "shared_count_and_timer": lambda case: ProcessOperator(SharedCountAndTimer()),
        "broadcast_letters": lambda case: ProcessOperator(BroadcastLetters(), broadcast=[LETTERS]),
        "two_sides": lambda case: ProcessOperator(TwoSides(), tags=tags),
        "sum_to_side": lambda case: ProcessOperator(SumToSide(), tags=tags),
        "count_to_side": lambda case: ProcessOperator(CountToSide(), tags=tags),
        "rolling_concat": lambda case: process_operator(
            concatenated().node, bounded=case.get("only_last_per_key", False)
        ),
    }
    in_memory = (
        "shared_count_and_timer",
        "broadcast_letters",
    )  # they keep something in the object, so one batch has all
    for case in STATE:
        groups, turns = case["parallelism"], 0
        elements = []
        for said in case["elements"]:
            if said["side"] == "broadcast":
                elements += [(group, None, said) for group in range(groups)]
                continue
            keyed = case["function"] not in ("broadcast_letters", "two_sides")
            key = said["key"] if keyed else None
            elements.append((group_of(key, groups) if keyed else turns % groups, key, said))
            turns += 1
        if case["function"] in in_memory:
            groups = 1  # an object of the function for each instance, and a task has one for all its groups
            elements = [(0, key, said) for group, key, said in elements if group == 0 or said["side"] != "broadcast"]
        steps = [Step(elements)] if case["function"] in in_memory else [Step([element]) for element in elements]
        if case["function"] == "broadcast_letters" and case["parallelism"] > 1:
            continue  # what it waits for is in the object of one instance
        yield Script(case["id"], makers[case["function"]](case), [*steps, Step(watermark=MAX)], case, groups)


# --- the query -------------------------------------------------------------------------------------------------------


class Dispatch:
    """The operators of all cases as one: each key group belongs to a case."""

    late_dropped = 0

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.by_group = {script.first + i: script.operator for script in scripts for i in range(script.groups)}

    def open(self) -> None:
        for operator in set(self.by_group.values()):
            operator.open()

    def close(self) -> None:
        for operator in set(self.by_group.values()):
            operator.close()

    def _named(self, group: KeyGroup, chunks: Iterator[OutputChunk]) -> Iterator[OutputChunk]:
        for chunk in chunks:
            yield OutputChunk(chunk.tag, [(group.number, key) for key in chunk.keys], *chunk[2:])

    def process(self, group: KeyGroup, batch: Batch) -> Iterator[OutputChunk]:
        return self._named(group, self.by_group[group.number].process(group, batch))

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        return self._named(group, self.by_group[group.number].advance_watermark(group, watermark))

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        return self._named(group, self.by_group[group.number].advance_processing_time(group, now))


class Elements:
    """Elements as their cases say them, in JSON."""

    whole = ("not a column",)

    def batch(self, rows: pa.RecordBatch, side: int) -> Batch:
        said = [json.loads(text) for text in rows.column("said").to_pylist()]
        values = [{"key": element["key"], "value": element["value"]} for _, element in said]
        times = [element.get("ts") for _, element in said]
        return Batch([key for key, _ in said], values, times, range(len(said)), side)


class Results:
    """What came out, in JSON."""

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        windows = chunk.windows or [None] * len(chunk)
        texts = [
            json.dumps([group, chunk.tag, key, value, at, window])
            for (group, key), value, at, window in zip(chunk.keys, chunk.values, chunk.timestamps, windows, strict=True)
        ]
        return pa.record_batch({"said": texts})


class ScriptHost(Host):
    """A host whose groups are told the time of their own case."""

    def times(self, payload: bytes) -> Times:
        return Times(*json.loads(payload))


def write_steps(folder: Path, scripts: Sequence[Script]) -> int:
    """Write a file for each micro-batch with the packs of all cases; return how many there are."""
    folder.mkdir()
    count = max(len(script.steps) for script in scripts)
    times = {script.name: (MIN, 0) for script in scripts}
    for number in range(count):
        rows: list[tuple[int, int, str, bytes]] = []
        for script in scripts:
            before, now = times[script.name]
            step = script.steps[number] if number < len(script.steps) else Step()
            after = before if step.watermark is None else max(before, step.watermark)
            now = now if step.now is None else max(now, step.now)
            times[script.name] = after, now
            for i, (group, key, said) in enumerate(step.elements):
                pack = pack_bytes(pa.record_batch({"said": [json.dumps([key, said])]}))
                rows.append((script.first + group, SIDES[said.get("side", "left")], f"{i:06d}", pack))
            clock = json.dumps([before, after, now]).encode()
            rows += [(script.first + group, CONTROL, "", clock) for group in range(script.groups)]
        columns = list(zip(*rows, strict=True))
        kinds = (pa.int32(), pa.int32(), pa.string(), pa.binary())
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.table(arrays, names=[GROUP, SIDE, PLACE, PAYLOAD]), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    return count


def run_steps(spark: Any, root: Path, scripts: Sequence[Script]) -> list[list[Any]]:
    """Run all cases; return what came out in each micro-batch."""
    count = write_steps(root / "steps", scripts)
    restarts = sorted({n for script in scripts for n, step in enumerate(script.steps) if step.restart} | {count - 1})
    found: list[list[Any]] = [[] for _ in range(count)]
    stop_at = 0

    def batch(frame: Any, number: int) -> None:
        if number > stop_at:
            raise InterruptedError("the query is to be started again before this one")
        texts = [text for row in frame.collect() for text in unpack_rows(bytes(row[1])).column("said").to_pylist()]
        found[number] = [json.loads(text) for text in texts]

    for stop_at in restarts:  # noqa: B007 - the batches look at it
        packed = (
            spark.readStream.schema(f"{GROUP} int, {SIDE} int, {PLACE} string, {PAYLOAD} binary")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(root / "steps"))
        )
        host = ScriptHost(Dispatch(scripts), [Elements(), Elements()], _Everything())  # type: ignore[arg-type]
        frame = hosted(packed, host).where(f"{TAG} NOT IN ('{LATE_DROPPED}', '{NEXT_TIMER}')")
        query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(root / "checkpoint")).start()
        with suppress(Exception):  # the one that asks for a start; whether all was done is seen below
            query.processAllAvailable()
        query.stop()
        failed = query.exception()
        assert failed is None or "started again" in str(failed), str(failed)
    return found


class _Everything(dict[str, Any]):
    """The same output for every tag."""

    def get(self, tag: str, default: Any = None) -> Any:
        return Results()


# --- what is compared ------------------------------------------------------------------------------------------------


def frozen(value: Any, unordered: bool) -> Any:
    if isinstance(value, list):
        items = [frozen(item, unordered) for item in value]
        return ("list", *(sorted(items, key=repr) if unordered else items))
    return value


def check_windows(script: Script, step: int | None, out: Sequence[Any]) -> None:
    """Compare what came out in a step, or in all, with what the case says."""
    case = script.case
    unordered = case["window"]["type"].startswith("session")
    expected = [e for e in case["expected"] if step is None or e["step"] == step]
    late = [e for e in case["late"] if step is None or e["step"] == step]
    check = next(
        (name for name in ("window", "window_start") if case["expected"] and name in case["expected"][0]), None
    )
    ts = step is not None

    def shown(window: Any) -> Any:
        if check is None or not isinstance(window, list):
            return None
        return tuple(window) if check == "window" else window[0]

    def wanted(e: Mapping[str, Any]) -> Any:
        value = e.get(check or "")
        return tuple(value) if isinstance(value, list) else value

    assert Counter(
        (key, frozen(value["value"], unordered), shown(window), at if ts else None)
        for _, tag, key, value, at, window in out if tag == ""
    ) == Counter(
        (e["key"], frozen(e["result"], unordered), wanted(e), e["ts"] if ts else None) for e in expected
    ), (script.name, step)  # fmt: skip
    assert [(key, value["value"], at) for _, tag, key, value, at, _ in out if tag == "late"] == [
        (e["key"], e["value"], e["ts"]) for e in late
    ], (script.name, step)


def check_state(script: Script, out: Sequence[Any]) -> None:
    def counted(values: Sequence[Any]) -> Counter[str]:
        return Counter(json.dumps(value, sort_keys=True) for value in values)

    rolling = script.case["function"] == "rolling_concat"
    main = [value for _, tag, _, value, _, _ in out if tag == ""]
    found = [[value["value"], value["key"]] for value in main] if rolling else main
    assert counted(found) == counted(script.case["expected"]), script.name
    for name, expected in script.case["expected_side"].items():
        assert counted([value for _, tag, _, value, _, _ in out if tag == name]) == counted(expected), script.name


@pytest.fixture
def shipped() -> Iterator[None]:
    """Send what the cases are made of along with the plan: workers do not know the folders of tests."""
    modules = [sys.modules[name] for name in (__name__, "support.window_cases", "support.process_cases")]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.usefixtures("shipped")
def test_every_case_in_spark(jvm: Any, tmp_path: Path) -> None:
    scripts = [*window_scripts(), *bounded_scripts(), *state_scripts()]
    first = 0
    for script in scripts:
        script.first, first = first, first + script.groups
    of_group = {script.first + i: script for script in scripts for i in range(script.groups)}
    found: dict[str, list[list[Any]]] = {script.name: [] for script in scripts}
    assert len(found) == len(scripts) == 68
    for batch in run_steps(jvm, tmp_path, scripts):
        for of_script in found.values():
            of_script.append([])
        for row in batch:
            found[of_group[row[0]].name][-1].append(row)
    for script in scripts:
        steps = found[script.name]
        if script.case["kind"] == "process":
            check_state(script, [row for step in steps for row in step])
        elif script.case["kind"] == "bounded_window":
            check_windows(script, None, [row for step in steps for row in step])
        else:
            for number, step in enumerate(steps):
                check_windows(script, number, step)
