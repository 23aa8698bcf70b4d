"""Every conformance case of windows, bounded input and state again, in Spark: a step is a checkpoint, a snapshot a restart.

All cases run in one job, each a keyed operator of its own behind one source, so that every step of every case takes the way
through exchange, key groups, state on disk and the ledger that a job's takes; only watermark and clock are each case's own.
Those that keep something in the object of their function, so that it matters which keys come to it in which order, run in a job
of one key group.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from poundlock import FileSink, Job, KeyedCoProcessFunction, KeyedProcessFunction
from poundlock.connectors.base import ReaderContext, ReplayPromise, Split
from poundlock.driver import context as assembly
from poundlock.driver.driver import run
from poundlock.formats.chunk import Batch as Chunk
from poundlock.formats.chunk import NoOrigin
from poundlock.operators.factory import process_operator, window_operator
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import GroupBatch, OutputChunk
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.windows.base import WindowSpec
from poundlock.plan.stages import StageChain, stage_chain
from poundlock.tasks.keyed_stage import KeyedHead, KeyedStage
from support.jobs_in_threads import settings
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

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

DATA = Path(__file__).parent.parent / "conformance/data"
WINDOWS, BOUNDED, STATE = (
    json.loads((DATA / f"{name}.json").read_text())["cases"] for name in ("windows", "bounded", "state")
)
SCHEMA = "case string, key string, side string, said string"


@dataclass
class Step:
    """What one case has in one checkpoint: elements (key, element), then a watermark or a clock."""

    elements: list[tuple[Any, Mapping[str, Any]]] = field(default_factory=list)
    watermark: int | None = None
    now: int | None = None
    restart: bool = False


@dataclass
class Script:
    """One case: what makes its operator, and its steps.

    Args:
        name: of the case.
        make: makes the operator; each attempt of a task has one of its own.
        steps: in order.
        case: as it was recorded.
        alone: whether it runs in a job of one key group.
    """

    name: str
    make: Callable[[], KeyedOperator]
    steps: list[Step]
    case: Mapping[str, Any]
    alone: bool = False

    @property
    def plain(self) -> bool:
        """Whether its keys are texts; others stand as JSON in the column of keys."""
        return all(isinstance(key, str) for step in self.steps for key, _ in step.elements)

    def key(self, text: str) -> Any:
        """Return a key of the column as the case says it."""
        return text if self.plain else json.loads(text)

    @property
    def two(self) -> bool:
        """Whether it has two inputs."""
        return any(said.get("side", "left") != "left" for step in self.steps for _, said in step.elements)


# --- cases as scripts ------------------------------------------------------------------------------------------------


def windows_of(case: Mapping[str, Any], number: int) -> Callable[[], KeyedOperator]:
    """Return what makes a case's operator; the ways to say its function take turns."""
    ways = [way for way in WAYS if function_of(case["function"], way) is not None]
    spec = WindowSpec(
        assigner=assigner_of(case["window"]),
        function=function_of(case["function"], ways[number % len(ways)]),
        trigger=trigger_of(case["trigger"]),
        evictor=evictor_of(case["evictor"]),
        allowed_lateness_ms=case["allowed_lateness_ms"],
        late_tag="late",
    )
    return lambda: window_operator(spec)


def window_scripts() -> Iterator[Script]:
    for number, case in enumerate(case for case in WINDOWS if case["kind"] == "window_script"):
        steps = []
        for said in case["steps"]:
            ((kind, value),) = said.items()
            steps.append(
                Step([(value["key"], value)]) if kind == "element"
                else Step(watermark=value) if kind == "watermark"
                else Step(now=value) if kind == "processing_time"
                else Step(watermark=MAX) if kind == "end_of_input"
                else Step(restart=True)
            )  # fmt: skip
        yield Script(case["id"], windows_of(case, number), steps, case)


def bounded_scripts() -> Iterator[Script]:
    for number, case in enumerate(BOUNDED):
        elements = [(said["key"], said) for said in case["elements"]]
        steps = [Step(elements, watermark=MAX)]
        if case["watermarks"] != "end_of_input":
            times = [said["ts"] for said in case["elements"]]
            steps = [Step([element], watermark=max(times[: i + 1])) for i, element in enumerate(elements)]
            steps.append(Step(watermark=MAX))
        yield Script(case["id"], windows_of(case, number), steps, case)


def state_scripts() -> Iterator[Script]:
    tags = ("side", "side1", "side2")
    makers: Mapping[str, Callable[[Any], KeyedOperator]] = {
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
    in_memory = ("shared_count_and_timer", "broadcast_letters")  # they keep something in the object
    for case in STATE:
        if case["function"] == "broadcast_letters" and case["parallelism"] > 1:
            continue  # what it waits for is in the object of one instance
        keyed = case["function"] not in ("broadcast_letters", "two_sides")
        elements = [(said["key"] if keyed else None, said) for said in case["elements"]]
        alone = case["function"] in in_memory
        steps = [Step(elements)] if alone else [Step([element]) for element in elements]
        make = partial(makers[case["function"]], case)
        yield Script(case["id"], make, [*steps, Step(watermark=MAX)], case, alone)


# --- the job -----------------------------------------------------------------------------------------------------------


class Scripted:
    """A case's operator in a task, told the case's own watermark and clock; what comes out is one column of JSON.

    Args:
        script: the case.
        now: file with the times of each case in the checkpoint that is planned: before, after, clock.
    """

    def __init__(self, script: Script, now: str) -> None:
        self._script, self._now = script, now
        self._inner = script.make()

    @property
    def late_dropped(self) -> int:
        return self._inner.late_dropped

    def open(self) -> None:
        said = json.loads(Path(self._now).read_text())
        self._step = said["step"]
        self._before, self._after, self._clock = said["times"][self._script.name]
        self._inner.open()

    def close(self) -> None:
        self._inner.close()

    def advance_processing_time(self, group: Any, now: int) -> Iterator[OutputChunk]:
        group.watermark = self._before
        group.processing_time = self._previous(group)
        return self._told(self._inner.advance_processing_time(group, self._clock))

    def _previous(self, group: Any) -> int:
        """Return the clock of the checkpoint before: the operator is to see that it moved."""
        clocks = json.loads(Path(self._now).read_text())["clocks"]
        return int(clocks[self._script.name])

    def process(self, group: Any, batch: GroupBatch) -> Iterator[OutputChunk]:
        said = [json.loads(value["said"]) for value in batch.values]
        values = [{"key": element["key"], "value": element["value"]} for element in said]
        times = [element.get("ts") for element in said]
        given = GroupBatch(batch.keys, values, times, range(len(said)), batch.side)
        return self._told(self._inner.process(group, given))

    def advance_watermark(self, group: Any, watermark: int) -> Iterator[OutputChunk]:
        return self._told(self._inner.advance_watermark(group, self._after))

    def _told(self, chunks: Iterator[OutputChunk]) -> Iterator[OutputChunk]:
        for chunk in chunks:
            windows = chunk.windows or [None] * len(chunk)
            rows = zip(chunk.keys, chunk.values, chunk.timestamps, windows, strict=True)
            texts = [
                json.dumps([self._script.name, self._step, chunk.tag, self._script.key(key), value, at, window])
                for key, value, at, window in rows
            ]
            if texts:
                yield OutputChunk("", chunk.keys, [{"said": text} for text in texts], [None] * len(texts))


class One(KeyedProcessFunction):
    """Stands for a case with one input until its operator takes the place."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class Two(KeyedCoProcessFunction):
    """Stands for a case with two inputs until its operator takes the place."""

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class Steps:
    """A source of one step a checkpoint, of all cases.

    Args:
        scripts: the cases.
        until: the step before which it ends.
        now: file that is told the times of each step when it is planned.
    """

    bounded = True
    replay = ReplayPromise("exact", "it is made of the cases")

    def __init__(self, scripts: Sequence[Script], until: int, now: str) -> None:
        self.rows = [rows_of(scripts, number) for number in range(max(len(script.steps) for script in scripts))]
        self.times = times_of(scripts, len(self.rows))
        self.until, self.now = until, now

    def schema(self) -> pa.Schema:
        return pa.schema([(name.split()[0], pa.string()) for name in SCHEMA.split(", ")])

    def preflight(self) -> None:
        """Nothing is asked."""

    def describe(self, position: Any) -> str:
        return f"step {position}"

    def enumerator(self, workspace: Any) -> Steps:
        return self

    def reader(self, context: ReaderContext) -> Steps:
        return self

    def initial(self) -> Any:
        return 0

    def latest(self, start: Any) -> Any:
        return min(start + 1, self.until)

    def splits(self, start: Any, end: Any) -> Sequence[Split]:
        assert end == start + 1
        times, clocks = self.times[start], {name: clock for name, (_, _, clock) in self.times[start - 1].items()}
        told = {"step": start, "times": times, "clocks": clocks if start else dict.fromkeys(times, 0)}
        Path(self.now).write_text(json.dumps(told))
        half = (len(self.rows[start]) + 1) // 2
        return [Split(f"{start}-{i}", {"step": start, "from": i * half, "to": (i + 1) * half}) for i in range(2)]

    def finished(self, position: Any) -> bool:
        return bool(position >= self.until)

    def committed(self, position: Any) -> None:
        """Nothing is kept."""

    def read(self, split: Split) -> Iterator[Chunk]:
        rows = self.rows[split.payload["step"]][split.payload["from"] : split.payload["to"]]
        if rows:
            yield Chunk(pa.RecordBatch.from_pylist(rows, self.schema()), NoOrigin("steps"))


def rows_of(scripts: Sequence[Script], number: int) -> list[dict[str, str]]:
    return [
        {
            "case": script.name,
            "key": key if script.plain else json.dumps(key),
            "side": said.get("side", "left"),
            "said": json.dumps(said),
        }
        for script in scripts
        if number < len(script.steps)
        for key, said in script.steps[number].elements
    ]


def times_of(scripts: Sequence[Script], count: int) -> list[dict[str, tuple[int, int, int]]]:
    """Return per step the watermark before and after, and the clock, of each case."""
    times = {script.name: (MIN, MIN, 0) for script in scripts}
    result = []
    for number in range(count):
        for script in scripts:
            _, before, now = times[script.name]
            step = script.steps[number] if number < len(script.steps) else Step()
            after = before if step.watermark is None else max(before, step.watermark)
            times[script.name] = before, after, now if step.now is None else max(now, step.now)
        result.append(dict(times))
    return result


def job_of(scripts: Sequence[Script], steps: Steps, folder: Path, groups: int) -> Job:
    job = Job("cases", checkpoint_interval="0 s", on_error="fail", parallelism=2, max_parallelism=groups)
    source: Any = steps
    rows = job.from_source(source, name="steps")
    streams = []
    for script in scripts:
        mine = rows.filter(lambda row, name=script.name: row["case"] == name, name=f"{script.name}-rows")  # type: ignore[misc]
        if script.two:
            left = mine.filter(lambda row: row["side"] == "left", name=f"{script.name}-left")
            right = mine.filter(lambda row: row["side"] != "left", name=f"{script.name}-right")
            both = left.key_by("key").connect(right.key_by("key"))
            streams.append(both.process(Two(), schema="said string", name=script.name))
        else:
            streams.append(mine.key_by("key").process(One(), schema="said string", name=script.name))
    out = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    out.sink_to(FileSink(str(folder / "out"), format="json"), name="out")
    return job


def with_operators(chain: StageChain, scripts: Mapping[str, Script], now: str) -> StageChain:
    """Return the stages of the job with the operators of the cases in their places."""

    def put(head: KeyedHead) -> KeyedHead:
        return replace(head, make=partial(Scripted, scripts[head.id], now))

    later = {
        number: replace(stage, operators=[put(head) for head in stage.operators])
        if isinstance(stage, KeyedStage)
        else stage
        for number, stage in chain.later.items()
    }
    return replace(chain, later=later)


def run_steps(
    folder: Path, scripts: Sequence[Script], monkeypatch: pytest.MonkeyPatch, *, groups: int
) -> dict[str, list[list[Any]]]:
    """Run all cases; return what came out of each in each step."""
    folder.mkdir()
    by_name, now = {script.name: script for script in scripts}, str(folder / "now.json")
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "stage_chain", lambda *a, **k: with_operators(stage_chain(*a, **k), by_name, now))
        count = max(len(script.steps) for script in scripts)
        restarts = {n for script in scripts for n, step in enumerate(script.steps) if step.restart} | {count - 1}
        for last in sorted(restarts):
            steps = Steps(scripts, last + 1, now)
            assert run(job_of(scripts, steps, folder, groups), settings=settings(folder)).state == "FINISHED"
    found: dict[str, list[list[Any]]] = {name: [[] for _ in range(count)] for name in by_name}
    for path in (folder / "out").rglob("part-*"):
        for line in path.read_text().splitlines():
            name, step, *row = json.loads(json.loads(line)["said"])
            found[name][step].append([name, *row])
    return found


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
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("shipped")
def test_every_case_in_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = [*window_scripts(), *bounded_scripts(), *state_scripts()]
    assert len({script.name for script in scripts}) == len(scripts) == 68
    together, alone = [each for each in scripts if not each.alone], [each for each in scripts if each.alone]
    found = run_steps(tmp_path / "together", together, monkeypatch, groups=128)
    found |= run_steps(tmp_path / "alone", alone, monkeypatch, groups=1)
    for script in scripts:
        steps = found[script.name]
        if script.case["kind"] == "process":
            check_state(script, [row for step in steps for row in step])
        elif script.case["kind"] == "bounded_window":
            check_windows(script, None, [row for step in steps for row in step])
        else:
            for number, step in enumerate(steps):
                check_windows(script, number, step)
