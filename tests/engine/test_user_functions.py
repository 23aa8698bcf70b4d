"""A user's functions in every place of a job: those that fail for some records, by choice, and objects with open and close."""

from __future__ import annotations

import asyncio
import json
import os
import socketserver
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

from poundlock import (
    DatagenSource,
    FileSink,
    FixedDelayRestart,
    FixedDelayRetry,
    Job,
    KeyedProcessFunction,
    RichFunction,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.storage import open_storage

pytestmark = pytest.mark.engine

ROWS = 300


class Checked(RichFunction):
    """Fails for every tenth number, and gives text for 5, 25, 45 …; leaves a line for each open and close."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.file: Path | None = None

    def open(self) -> None:
        self.file = Path(self.folder, f"{os.getpid()}-{uuid.uuid4().hex}")
        self.file.write_text("open\n")

    def close(self) -> None:
        assert self.file is not None
        self.file.write_text(self.file.read_text() + "close\n")
        self.file = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.file is None:
            raise RuntimeError("not opened")
        if row["n"] % 10 == 0:
            raise ValueError(f"{row['n']} is a ten")
        return {"n": "five" if row["n"] % 20 == 5 else row["n"], "t": 1_545_184_226_000 + row["n"]}


def few_as_text(row: dict[str, Any]) -> dict[str, Any]:
    return {"many": row["many"] if row["many"] > 130 else "few"}


def no_sevens(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 7 in batch.column("n").to_pylist():
        raise ValueError("seven")
    return batch


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [p for p in folder.rglob("*") if p.is_file() and not any(q.startswith(".") for q in p.parts[-2:])]
    return [json.loads(line) for path in files for line in path.read_bytes().splitlines()]


def ended(job: Job, tmp_path: Path) -> str:
    """Run a job to its end, and return how it ended."""
    settings = [
        f"state_dir={tmp_path}/state",
        f"checkpoint_dir={tmp_path}/checkpoint",
        "master=local[2]",
        "driver_memory=1g",
    ]
    return run(job, settings=load_settings(settings)).state


def test_records_that_a_function_fails_for_are_dead_letters_wherever_it_stands(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    opened.mkdir()
    job = Job(
        "functions",
        checkpoint_interval="0 s",
        dead_letters=str(tmp_path / "dead"),
        restart=FixedDelayRestart(attempts=0),
    )
    columns = "n bigint, t bigint"

    def numbers(name: str) -> Any:
        source = DatagenSource("n bigint", fields={"n": "sequence"}, count=ROWS, rows_per_split=50)
        made = job.from_source(source, name=name)
        return made.map(Checked(str(opened)), schema=columns, on_error="bad_record", name=f"{name}-checked")

    direct = numbers("direct")
    direct.sink_to(FileSink(f"{tmp_path}/direct", format="json"), name="all")
    batches = direct.map_batches(no_sevens, schema=columns, on_error="bad_record", name="no-sevens")
    batches.sink_to(FileSink(f"{tmp_path}/batches", format="json"), name="batches")
    numbers("sql").where("n < 100").sink_to(FileSink(f"{tmp_path}/sql", format="json"), name="few")
    windows = (
        numbers("timed")
        .assign_timestamps_and_watermarks(_strategy())
        .key_by("n % 2")
        .window(TumblingEventTimeWindows("1 h"))
    )
    counts = windows.aggregate("count(*) as many")
    counts.sink_to(FileSink(f"{tmp_path}/windows", format="json"), name="windows")
    later = counts.map(few_as_text, schema="many bigint", on_error="bad_record", name="later")
    later.sink_to(FileSink(f"{tmp_path}/later", format="json"), name="later-out")

    assert ended(job, tmp_path) == "FINISHED"

    good = [n for n in range(ROWS) if n % 10 and n % 20 != 5]
    assert sorted(row["n"] for row in rows(tmp_path / "direct")) == good
    assert sorted(row["n"] for row in rows(tmp_path / "batches")) == [n for n in good if n != 7]
    assert sorted(row["n"] for row in rows(tmp_path / "sql")) == [n for n in good if n < 100]
    assert sum(row["many"] for row in rows(tmp_path / "windows")) == len(good)

    assert rows(tmp_path / "later") == [{"many": 135}]

    letters = rows(tmp_path / "dead")
    misfits = [letter for letter in letters if " gave a record that does not fit: column '" in letter["reason"]]
    assert Counter(letter["operator"] for letter in misfits) == {
        "direct-checked": 15, "sql-checked": 15, "timed-checked": 15, "later": 1,
    }  # fmt: skip
    assert {json.loads(letter["value"])["n"] % 20 for letter in misfits if letter["operator"] != "later"} == {5}
    by_operator = Counter(letter["operator"] for letter in letters if " raised " in letter["reason"])
    assert by_operator == {"direct-checked": 30, "sql-checked": 30, "timed-checked": 30, "no-sevens": 1}
    assert len(letters) == len(misfits) + sum(by_operator.values())
    [seven] = [letter for letter in letters if letter["reason"].startswith("no-sevens")]
    assert seven["operator"] == "no-sevens"
    assert seven["reason"] == "no-sevens raised ValueError: seven"
    assert json.loads(seven["value"])["n"] == 7
    for record in Ledger(open_storage(f"{tmp_path}/checkpoint")):
        for sink in record.sinks.values():
            assert sink.counts.balanced(), record
    logs = [path.read_text() for path in opened.iterdir()]
    assert logs
    assert set(logs) == {"open\nclose\n"}


@dataclass
class Numbered:
    n: int


class Half(NamedTuple):
    n: int
    half: float


class CountPairs(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", 0))

    def process_element(self, value: Half, ctx: Any) -> Iterator[Any]:
        assert type(value) is Half
        self.rows.update(self.rows.value() + 1)
        yield (ctx.get_current_key(), self.rows.value(), value.half)


def halved(row: Numbered) -> Half:
    return Half(row.n, row.n / 2)


def no_tens(batch: pd.DataFrame) -> pd.DataFrame:
    return batch[batch.n % 10 != 0]


class Asked(RichFunction):
    """Asks a server on a line of its own connection, as often as it is let; the server's answers double a number."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        self.free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        for _ in range(8):
            self.free.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))

    async def close(self) -> None:
        while not self.free.empty():
            _, writer = self.free.get_nowait()
            writer.close()
            await writer.wait_closed()

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        reader, writer = await self.free.get()
        try:
            writer.write(f"{row['n']}\n".encode())
            answer = await reader.readline()
        finally:
            self.free.put_nowait((reader, writer))
        if answer == b"again\n":
            raise ConnectionError("the server is busy")
        return {"n": row["n"], "doubled": int(answer)}


class Doubles(socketserver.StreamRequestHandler):
    """Doubles numbers; the first answer to every fifth is that it is busy, and 13 it never answers."""

    asked: ClassVar[set[int]] = set()

    def handle(self) -> None:
        for line in self.rfile:
            n = int(line)
            if n == 13:
                self.wfile.write(b"again\n")
            elif n % 5 == 0 and n not in self.asked:
                self.asked.add(n)
                self.wfile.write(b"again\n")
            else:
                self.wfile.write(f"{2 * n}\n".encode())


class Doubling(socketserver.ThreadingTCPServer):
    """A server on the loopback."""

    daemon_threads = True


def test_a_service_is_asked_for_many_records_at_once(tmp_path: Path) -> None:
    with Doubling(("127.0.0.1", 0), Doubles) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        job = Job("asked", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"))
        source = DatagenSource("n bigint", fields={"n": "sequence"}, count=ROWS, rows_per_split=100)
        answers = job.from_source(source, name="numbers").async_map(
            Asked(server.server_address[1]),
            schema="n bigint, doubled bigint",
            capacity=20,
            ordered=False,
            retry=FixedDelayRetry(attempts=2, delay="1 ms"),
            on_error="bad_record",
            name="asked",
        )
        answers.sink_to(FileSink(f"{tmp_path}/out", format="json"), name="out")
        assert ended(job, tmp_path) == "FINISHED"
        server.shutdown()
    expected = [{"n": n, "doubled": 2 * n} for n in range(ROWS) if n != 13]
    assert sorted(rows(tmp_path / "out"), key=lambda row: row["n"]) == expected
    (dead,) = rows(tmp_path / "dead")
    assert dead["reason"] == "asked raised ConnectionError: the server is busy"


def test_records_and_batches_of_a_type_go_through_a_job(tmp_path: Path) -> None:
    job = Job("typed", checkpoint_interval="0 s", restart=FixedDelayRestart(attempts=0))
    source = DatagenSource("n bigint, extra string", fields={"n": "sequence"}, count=ROWS, rows_per_split=50)
    halves = job.from_source(source, name="numbers").map(halved, schema="n bigint, half double", name="halved")
    few = halves.map_batches(no_tens, schema="n bigint, half double", name="no-tens")
    counts = few.key_by("n % 2").process(CountPairs(), schema="odd bigint, rows bigint, half double", name="pairs")
    counts.sink_to(FileSink(f"{tmp_path}/out", format="json"), name="out")
    assert ended(job, tmp_path) == "FINISHED"
    good = [n for n in range(ROWS) if n % 10]
    result = rows(tmp_path / "out")
    assert sorted(row["half"] for row in result) == [n / 2 for n in good]
    for odd in (0, 1):
        of_key = [row["rows"] for row in result if row["odd"] == odd]
        assert sorted(of_key) == list(range(1, len([n for n in good if n % 2 == odd]) + 1))


def _strategy() -> Any:
    from poundlock import WatermarkStrategy

    return WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp_millis(t)")
