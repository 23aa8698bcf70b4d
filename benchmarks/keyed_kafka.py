"""Work by key over lines of JSON in a topic: windows of ten seconds of 1,000 to ten million keys, sliding windows, sessions, a function.

The rows are those of keyed.py, with a value in quarters, in three partitions; poundlock and Flink read the same topic to its end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput, finished
from benchmarks.keyed import rows_of
from benchmarks.keyed_rows import VALUES, columns_of
from benchmarks.measure import process_cpu_s, run
from benchmarks.result import Result
from benchmarks.topics import fill

__all__ = ["CASES", "blocks", "prove"]

_KEYS = {"1k": 1_000, "100k": 100_000, "1M": 1_000_000, "10M": 10_000_000}
_WORK = {"100k": ("window", "sliding", "sessions", "process")}
_TOPIC, _BLOCK = "keyed_", 100_000
_WINDOWS_OF_A_ROW = {"sliding": 6}
_RESULT = pj.ParseOptions(
    explicit_schema=pa.schema([("n", pa.int64()), *((name, pa.float64()) for name in ("total", "low", "high"))]),
    unexpected_field_behavior="ignore",
)


def blocks(rows: int, keys: int) -> Iterator[list[bytes]]:
    """Yield the lines as blocks, in the order of event time."""
    values = pa.array([str(number / 4) for number in range(VALUES)])
    parts = rows // _BLOCK
    for part in range(parts):
        at, key, value = columns_of(rows, keys, part, parts)
        digits = pc.cast(pa.array(at), pa.string())
        columns = (
            '{"timestamp":', pc.utf8_slice_codeunits(digits, 0, 10), ".", pc.utf8_slice_codeunits(digits, 10, 13),
            ',"key":"user-', pc.utf8_lpad(pc.cast(pa.array(key), pa.string()), 8, "0"),
            '","value":', values.take(pa.array(value)), "}",
        )  # fmt: skip
        yield pc.cast(pc.binary_join_element_wise(*columns, ""), pa.binary()).to_pylist()


def place(bench: Bench, keys: int) -> str:
    """Return where the rows by so many keys are; the topic is made when it is first asked for, and that of other keys deleted."""
    name = f"{_TOPIC}{keys}"
    there = bench.broker.admin.list_topics(timeout=30).topics
    for other in (each for each in there if each.startswith(_TOPIC) and each != name):
        bench.broker.delete_topic(other)
    if name not in there:
        fill(bench.broker, name, blocks(rows_of(bench), keys))
    return f"{bench.broker.bootstrap_servers}/{name}"


def prove(folder: Path, rows: int, work: str) -> int:
    """Return how many results there are.

    Raises:
        WrongOutput: their counts or sums are not those of the rows, or the least or greatest value is another.
    """
    tables = [pj.read_json(path, parse_options=_RESULT) for path in finished(folder) if path.stat().st_size]
    if not tables:
        raise WrongOutput("there is no result")
    results = pa.concat_tables(tables)
    times = _WINDOWS_OF_A_ROW.get(work, 1)
    expected: dict[str, float] = {"n": rows * times}
    found: dict[str, float] = {"n": pc.sum(results["n"]).as_py()}
    if work in ("window", "sliding"):
        # Quarters, so that a sum of doubles is exact.
        expected |= {"total": times * int((np.arange(rows) % VALUES).sum()) / 4}
        expected |= {"low": 0.0, "high": (VALUES - 1) / 4}
        sums = (("total", pc.sum), ("low", pc.min), ("high", pc.max))
        found |= {name: function(results[name]).as_py() for name, function in sums}
    if found != expected:
        raise WrongOutput(f"{len(results)} results come to {found} instead of {expected}")
    return len(results)


def measured(
    bench: Bench, name: str, command: Sequence[str], work: str, size: str, *, rows: int | None = None
) -> Result:
    """Run a program that is given WORK, the topic's place, OUT and CHECKPOINTS as well; prove its output, return its figures.

    Args:
        bench: see Bench.
        name: "case/engine".
        command: the program with its first arguments.
        work: what it does.
        size: by how many keys.
        rows: how many it reads; None = all there are.
    """
    folder = bench.folder(name.replace("/", "-"))
    rows = rows_of(bench) if rows is None else rows
    words = [work, place(bench, _KEYS[size]), str(folder / "out"), str(folder / "checkpoints")]
    pid = bench.broker.pid
    assert pid is not None
    before = process_cpu_s(pid)
    usage = run([*command, *words], env=bench.environment(folder), log=bench.log(name))
    broker_cpu_s = process_cpu_s(pid) - before
    figures = {"results": prove(folder / "out", rows, work)}
    shutil.rmtree(folder)
    return Result.of(name, rows, usage, broker_cpu_s=broker_cpu_s, figures=figures)


def poundlock(bench: Bench, work: str, size: str) -> Result:
    """One kind of work on poundlock."""
    bench.warm()
    return measured(bench, f"keyed_kafka/{work}_{size}", program("jobs/keyed_kafka.py"), work, size)


def flink(bench: Bench, work: str, size: str) -> Result | None:
    """The same on Flink; None where it is not installed."""
    if bench.flink is None:
        return None
    return measured(bench, f"keyed_kafka/flink_{work}_{size}", bench.flink.command("KeyedKafka"), work, size)


def pyflink(bench: Bench, size: str) -> Result | None:
    """The process function in PyFlink, on the first million rows of the topic; None where it is not installed."""
    if bench.pyflink is None:
        return None
    each = (150_000 if bench.quick else 1_000_000) // 3
    command = bench.pyflink.command("pyflink_keyed.py", each)
    return measured(bench, f"keyed_kafka/pyflink_process_{size}", command, "process", size, rows=each * 3)


def _cases() -> Iterator[Case]:
    """Yield the cases of a topic together, what is compared side by side."""
    for size in _KEYS:
        for work in _WORK.get(size, ("window",)):
            yield Case(f"keyed_kafka/{work}_{size}", partial(poundlock, work=work, size=size))
            yield Case(f"keyed_kafka/flink_{work}_{size}", partial(flink, work=work, size=size))
            if work == "process":
                yield Case(f"keyed_kafka/pyflink_process_{size}", partial(pyflink, size=size))


CASES: tuple[Case, ...] = tuple(_cases())
