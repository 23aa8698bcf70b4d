"""Calls of a user's function that wait for something else, many at once."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import (
    DatagenSource,
    DefinitionError,
    ExponentialDelayRetry,
    FixedDelayRetry,
    Job,
    RichFunction,
    TransientError,
)
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, FileOrigin
from poundlock.formats.reject import Reject
from poundlock.metrics.user import counter
from poundlock.operators.asynchronous.calls import GROUP
from poundlock.operators.asynchronous.operator import AsyncMapRecords
from poundlock.operators.chain import Chain, Edge, Emit, Pass, Step
from poundlock.operators.factory import operator_of
from poundlock.stream.functions.asynchronous import async_options
from poundlock.stream.nodes import PythonNode
from support.chain_account import account

SCHEMA = pa.schema([("n", pa.int64())])


class Collect:
    """A terminal step that keeps numbers, their places, and how they were cut."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[int] = []
        self.sizes: list[int] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        records = convert.to_records(chunk)
        index = records.index or range(len(records.rows))
        self.numbers += [row["n"] for row in records.rows]
        self.places += [records.origin.at(i)["offset"] for i in index]
        self.sizes.append(len(chunk))


def numbers(count: int) -> Batch:
    """Return the numbers 0, 1, …, each in its place: its own value."""
    origin = FileOrigin("f", list(range(count)))  # type: ignore[arg-type]
    return Batch(pa.record_batch({"n": pa.array(range(count), pa.int64())}), origin)


def operator(function: Any, *, rejects: bool = False, **given: Any) -> AsyncMapRecords:
    options = {"capacity": 100, "timeout": "60 s", "ordered": True, "retry": None, "on_timeout": None} | given
    return AsyncMapRecords("op", function, SCHEMA, options=async_options(function, **options), rejects=rejects)


def ran(*operators: AsyncMapRecords, count: int = 20, chunks: int = 1) -> tuple[Collect, list[Reject], Chain]:
    """Send numbers through operators, and return what came out, and what was rejected."""
    seen, rejects = Collect(), []
    steps = [Step("source", Pass(), [])]
    for number, each in enumerate(operators):
        steps.append(Step(f"op{number}", each, [Edge(steps[-1].id)]))
    chain = Chain([*steps, Step("sink", seen, [Edge(steps[-1].id)])], rejects.append)
    try:
        for _ in range(chunks):
            chain.push(numbers(count))
    finally:
        chain.close()
    return seen, rejects, chain


class AtOnce:
    """Doubles, and knows how many of its calls waited at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        return {"n": record["n"] * 2}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_as_many_calls_wait_at_once_as_the_capacity_says(capacity: int, ordered: bool) -> None:
    function = AtOnce()
    seen, _, _ = ran(operator(function, capacity=capacity, ordered=ordered), count=50, chunks=2)
    assert function.most == min(capacity, 50)
    assert sorted(seen.numbers) == sorted(2 * n for n in range(50) for _ in range(2))
    assert seen.numbers == [2 * place for place in seen.places]


async def later_ones_first(record: dict[str, Any]) -> dict[str, Any]:
    for _ in range(200 - record["n"]):
        await asyncio.sleep(0)
    return record


def test_rows_go_on_in_their_order_however_calls_end() -> None:
    seen, _, _ = ran(operator(later_ones_first), count=100, chunks=2)
    assert seen.numbers == [*range(100), *range(100)]
    assert seen.sizes == [100, 100]


def test_without_an_order_rows_do_not_wait_for_the_slowest() -> None:
    released = asyncio.Event()

    async def first_one_last(record: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        if record["n"] == 0:
            await released.wait()
        elif record["n"] == 2 * GROUP:
            released.set()
        return record

    seen, _, _ = ran(operator(first_one_last, ordered=False), count=3 * GROUP)
    assert len(seen.sizes) > 1
    assert seen.numbers[0] != 0
    assert sorted(seen.numbers) == list(range(3 * GROUP))
    assert seen.numbers == seen.places


def test_one_behind_another_has_a_loop_of_its_own() -> None:
    first, second = AtOnce(), AtOnce()
    seen, _, _ = ran(operator(first, ordered=False), operator(second), count=3 * GROUP)
    assert sorted(seen.numbers) == [4 * n for n in range(3 * GROUP)]
    assert second.most > 1


@given(st.lists(st.sampled_from(["good", "bad", "late", "again"]), max_size=60), st.integers(1, 9), st.booleans())
def test_each_row_has_one_outcome(script: list[str], capacity: int, ordered: bool) -> None:
    tries: dict[int, int] = {}

    async def scripted(record: dict[str, Any]) -> dict[str, Any]:
        n = record["n"]
        tries[n] = tries.get(n, 0) + 1
        await asyncio.sleep(0)
        if script[n] == "bad" or (script[n] == "again" and tries[n] < 3):
            raise ValueError(f"{n} is bad")
        if script[n] == "late":
            raise TimeoutError("its own")
        return record

    retry = FixedDelayRetry(attempts=2, delay="0 ms", on_exception=lambda error: isinstance(error, ValueError))
    made = operator(scripted, capacity=capacity, ordered=ordered, retry=retry, rejects=True)
    seen, rejects, chain = ran(made, count=len(script))
    fine = [n for n, what in enumerate(script) if what in ("good", "again")]
    assert sorted(seen.numbers) == fine
    assert seen.numbers == seen.places
    assert sorted(each.where["offset"] for each in rejects) == sorted(set(range(len(script))) - set(fine))
    assert {n: tries[n] for n in tries} == {n: 3 if w in ("bad", "again") else 1 for n, w in enumerate(script)}
    assert account(chain, "sink") == (len(script), 0, 0, len(script) - len(fine))


def test_a_call_that_takes_too_long_is_an_error_of_its_record() -> None:
    async def never_for_three(record: dict[str, Any]) -> dict[str, Any]:
        if record["n"] == 3:
            await asyncio.Event().wait()
        return record

    seen, (reject,), _ = ran(operator(never_for_three, timeout="50 ms", rejects=True))
    assert reject.reason == "op0 raised TimeoutError: no answer within 0.05 s"
    assert seen.numbers == [n for n in range(20) if n != 3]
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        ran(operator(never_for_three, timeout="50 ms"))
    seen, rejects, _ = ran(operator(never_for_three, timeout="50 ms", on_timeout=lambda record: {"n": -1}))
    assert seen.numbers == [-1 if n == 3 else n for n in range(20)]
    assert not rejects


def test_the_first_error_ends_all_calls() -> None:
    cancelled = []

    async def fails_at_three(record: dict[str, Any]) -> dict[str, Any]:
        if record["n"] == 3:
            raise ValueError("three")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(record["n"])
            raise
        return record

    with pytest.raises(ValueError, match="three"):
        ran(operator(fails_at_three, timeout=None))
    assert sorted(cancelled) == [n for n in range(20) if n != 3]


def test_what_is_no_error_of_a_row_fails_the_task_and_is_not_repeated() -> None:
    tries = []

    async def away(record: dict[str, Any]) -> dict[str, Any]:
        tries.append(record["n"])
        raise TransientError("the service is away", next="wait")

    with pytest.raises(TransientError, match="the service is away"):
        ran(operator(away, rejects=True, retry=FixedDelayRetry(delay="0 ms")), count=1)
    assert tries == [0]


def test_a_result_may_be_worth_a_repetition() -> None:
    tries: list[int] = []

    async def third_time(record: dict[str, Any]) -> dict[str, Any]:
        tries.append(record["n"])
        return {"n": tries.count(record["n"])}

    retry = ExponentialDelayRetry(attempts=2, initial="0 ms", on_result=lambda result: result["n"] < 5)
    seen, _, _ = ran(operator(third_time, retry=retry), count=4)
    assert seen.numbers == [3, 3, 3, 3]


def test_delays_grow_up_to_their_maximum() -> None:
    retry = ExponentialDelayRetry(attempts=5, initial="1 s", maximum="5 s", multiplier=2)
    assert [retry.delay_s(done) for done in range(5)] == [1, 2, 4, 5, 5]


def test_an_ordinary_function_is_called_in_threads() -> None:
    together = threading.Barrier(4, timeout=30)

    def waits_for_three_others(record: dict[str, Any]) -> dict[str, Any]:
        together.wait()
        return record

    seen, _, _ = ran(operator(waits_for_three_others, capacity=4))
    assert seen.numbers == list(range(20))


class Client(RichFunction):
    """Opens and closes within the loop that its calls run in."""

    def __init__(self) -> None:
        self.loops: list[Any] = []

    async def open(self) -> None:
        self.loops.append(asyncio.get_running_loop())

    async def close(self) -> None:
        self.loops.append(asyncio.get_running_loop())

    async def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        counter("calls").inc()
        self.loops.append(asyncio.get_running_loop())
        return record


def test_a_client_is_opened_and_closed_in_the_loop_of_its_calls() -> None:
    client = Client()
    _, _, chain = ran(operator(client), count=3, chunks=2)
    assert len(client.loops) == 8
    assert len(set(map(id, client.loops))) == 1
    assert client.loops[0].is_closed()
    assert chain.metrics.reported().counters == {"op0": {"calls": 6}}


def test_the_operator_travels_to_the_tasks(tmp_path: Path) -> None:
    job = Job("async", checkpoint_dir=str(tmp_path / "checkpoint"))
    source = job.from_source(DatagenSource("n bigint", count=3), name="numbers")
    stream = source.async_map(
        Client(), schema="n bigint", capacity=5, ordered=False, retry=FixedDelayRetry(), name="ask"
    )
    assert isinstance(stream.node, PythonNode)
    made = pickle.loads(pickle.dumps(operator_of(stream.node, SCHEMA)))
    seen, _, _ = ran(made, count=3)
    assert seen.numbers == [0, 1, 2]


REFUSED: dict[str, tuple[Callable[[Any], Any], dict[str, Any], str]] = {
    "capacity": (AtOnce(), {"capacity": 0}, "async_map: capacity=0 is below 1"),
    "timeout": (AtOnce(), {"timeout": "0 s"}, "async_map: timeout is not above 0"),
    "on_timeout": (
        AtOnce(),
        {"timeout": None, "on_timeout": lambda record: record},
        "async_map: on_timeout has no effect, because timeout is None",
    ),
    "retry": (AtOnce(), {"retry": 3}, "3 is no async_map: retry"),
    "ordered": (AtOnce(), {"ordered": 1}, "async_map: ordered=1 is not true or false"),
    "arguments": (lambda: None, {}, r"async_map: <lambda>\(\) cannot be called as <lambda>\(record\)"),
    "on_error": (AtOnce(), {"on_error": "drop"}, "async_map: on_error='drop' is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_where_it_is_written(case: str, tmp_path: Path) -> None:
    function, given, text = REFUSED[case]
    job = Job("async", checkpoint_dir=str(tmp_path / "checkpoint"))
    source = job.from_source(DatagenSource("n bigint", count=3), name="numbers")
    with pytest.raises(DefinitionError, match=text):
        source.async_map(function, schema="n bigint", **given)


def test_attempts_and_delays_are_checked() -> None:
    with pytest.raises(DefinitionError, match="FixedDelayRetry: attempts=0 is below 1"):
        FixedDelayRetry(attempts=0)
    with pytest.raises(DefinitionError, match="ExponentialDelayRetry: maximum is below initial"):
        ExponentialDelayRetry(initial="1 min")
    with pytest.raises(DefinitionError, match="ExponentialDelayRetry: multiplier="):
        ExponentialDelayRetry(multiplier=0.5)


def test_a_function_that_gives_a_coroutine_is_told_to_be_async() -> None:
    client = AtOnce()
    with pytest.raises(DefinitionError, match="op: the function returned coroutine, which nobody waits for") as raised:
        ran(operator(lambda record: client(record)), count=1)
    assert raised.value.next == "write it with async def"
