"""Lines of JSON into Parquet files on S3: poundlock by uploads that its driver completes, Spark by its own file sink to `s3a://`.

Both cut the input into as many checkpoints, which are kept on the local disk. Every object is read afterwards, and its rows are
written as the lines they came from: the hash of all of them has to be that of the input.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Case, program
from benchmarks.data import LINE_BYTES, Input, WrongOutput, fingerprint
from benchmarks.measure import process_cpu_s, run
from benchmarks.result import Result
from poundlock.errors import PoundlockError
from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.session_conf import needs_of
from poundlock.storage.s3 import S3Storage
from poundlock.testing.minio import EmbeddedMinio
from poundlock.testing.s3 import EmbeddedS3

__all__ = ["CASES", "as_lines", "prove", "s3_server"]

_NAME = "parquet_to_s3"
_CHECKPOINTS = 4


@contextmanager
def s3_server() -> Iterator[EmbeddedS3]:
    """Yield MinIO, built where there is Go; else moto's, which answers one request at a time."""
    server: EmbeddedS3 = EmbeddedMinio(progress=lambda line: print(line, flush=True))
    try:
        server.start()
    except PoundlockError as error:
        server.close()
        print(f"measured on moto's server, which answers one request at a time: {error}", flush=True)
        server = EmbeddedS3()
    with server, server.in_environment():
        yield server


def as_lines(table: pa.Table) -> bytes:
    """Return rows as the lines of the input that they were.

    Args:
        table: columns `timestamp`, `event` and `uuid`.
    """
    milliseconds = pc.cast(pc.round(pc.multiply(table["timestamp"], 1000.0)), pa.int64())
    digits = pc.cast(milliseconds, pa.string())
    lines = pc.binary_join_element_wise(
        '{"timestamp":', pc.utf8_slice_codeunits(digits, 0, -3), ".", pc.utf8_slice_codeunits(digits, -3),
        ',"event":"', pc.cast(table["event"], pa.string()), '","uuid":"', pc.cast(table["uuid"], pa.string()), '"}\n', "",
    )  # fmt: skip
    if lines.null_count:
        raise WrongOutput(f"{lines.null_count} rows have a column that is null")
    return b"".join(_text(chunk) for chunk in lines.chunks if len(chunk))


def _text(chunk: pa.Array) -> bytes:
    """Return the strings of an array one after the other."""
    _, offsets, data = chunk.buffers()
    ends = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[ends[chunk.offset] : ends[chunk.offset + len(chunk)]])


def prove(storage: S3Storage, given: Input) -> int:
    """Read every object and return how many hold rows.

    Args:
        storage: the folder that was written to.
        given: what the rows have to be.

    Raises:
        WrongOutput: a row is missing, twice or changed, or a hidden object or an upload was left.
    """
    rows, total, objects = 0, 0, 0
    for entry in storage.list():
        if entry.path.startswith("_"):  # Spark's log of its sink
            continue
        if Path(entry.path).name.startswith("."):
            raise WrongOutput(f"left behind: {entry.path}")
        objects += 1
        with storage.open(entry.path) as handle:
            file = pq.ParquetFile(handle)
            for batch in file.iter_batches(batch_size=200_000):
                block = as_lines(pa.Table.from_batches([batch]))
                rows += len(block) // LINE_BYTES
                total = (total + fingerprint(block)) % (1 << 64)
    if left := [upload.path for upload in storage.uploads()]:
        raise WrongOutput(f"uploads left behind: {left}")
    if (rows, total) != (given.rows, given.fingerprint):
        raise WrongOutput(f"{rows} rows came out of {given.rows}, or others than went in")
    return objects


def _measured(bench: Bench, engine: str, command: Callable[[S3Storage, Path], list[str]], jars: str = "") -> Result:
    name, given = f"{_NAME}/{engine}", bench.lines
    work = bench.folder(name.replace("/", "-"))
    with s3_server() as server:
        server.bucket("events")
        storage = server.storage("events", "out")
        settings = json.dumps(needs_of(storage).settings)
        env = bench.environment(work, **server.environment, BASELINE_JARS=jars, BASELINE_SETTINGS=settings)
        # The server is no child of what is measured: its CPU is in the wall time only, and told apart.
        before = process_cpu_s(server.pid or 0)
        usage = run(command(storage, work), env=env, log=bench.log(name))
        server_cpu_s = process_cpu_s(server.pid or 0) - before
        objects = prove(storage, given)
    shutil.rmtree(work)
    return Result.of(name, given.rows, usage, figures={"objects": objects, "CPU s of the S3 server": server_cpu_s})


def poundlock(bench: Bench) -> Result:
    """The rows on poundlock, exactly once."""
    bench.warm()
    folder = bench.lines.folder
    size = sum(file.stat().st_size for file in folder.iterdir()) // _CHECKPOINTS + 1

    def command(storage: S3Storage, work: Path) -> list[str]:
        return program("jobs/parquet_to_s3.py", folder, storage.root, work / "checkpoints", f"{size} B")

    return _measured(bench, "poundlock", command)


def spark(bench: Bench) -> Result | None:
    """The rows on Spark's file sink; None where Hadoop's S3 client cannot be had."""
    try:
        jars = ",".join(jar_set("s3a", progress=print))
    except PoundlockError as error:
        print(f"not measured: {error}", flush=True)
        return None
    folder = bench.lines.folder
    files = len(list(folder.iterdir())) // _CHECKPOINTS

    def command(storage: S3Storage, work: Path) -> list[str]:
        return program(
            "spark_s3_sink.py", folder, f"s3a://{storage.root.removeprefix('s3://')}", work / "checkpoints", files
        )

    return _measured(bench, "spark_file_sink", command, jars)


CASES: tuple[Case, ...] = (Case(f"{_NAME}/poundlock", poundlock), Case(f"{_NAME}/spark_file_sink", spark))
