"""The hot loops of a task without Spark: lines to segments, and files through a Python function per record to segments.

Prints one line a case; nothing is asserted, since a figure means something only beside another of the same minutes.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from poundlock.checkpoint.participant import Reject, WriterContext
from poundlock.connectors.base import Split
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner, PythonBucketAssigner
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.source import FileSource
from poundlock.formats.chunk import Lines
from poundlock.formats.ddl import parse
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.operators.user_functions import MapRecords
from poundlock.tasks.report import Directive, SourceSplit, TaskReport, TaskWork
from poundlock.tasks.rows_stage import SourceHead, SourceStage
from poundlock.tasks.stage import SinkStep, StageBody

BLOCK = 1 << 20
START = 1545184226.432


def events(rows: int, step: float, seed: int) -> list[bytes]:
    """Return events of the reference job, `step` seconds apart."""
    chance = random.Random(seed)
    names = ("page_view", "adv_click", "thumbs_up")
    return [
        f'{{"timestamp":{START + step * i:.3f},"event":"{chance.choice(names)}",'
        f'"uuid":"{uuid.UUID(int=chance.getrandbits(128))}"}}\n'.encode()
        for i in range(rows)
    ]


def blocks(rows: list[bytes]) -> list[bytes]:
    """Return whole lines in blocks of about 1 MiB."""
    out: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row)
        if size >= BLOCK:
            out.append(b"".join(held))
            held, size = [], 0
    return [*out, b"".join(held)] if held else out


def cpu_s() -> float:
    """Return user and system CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(data: list[bytes], folder: str, zone: str) -> tuple[float, int]:
    """Write blocks as one task does; return CPU seconds and rows written."""
    rejects: list[Reject] = []
    sink = FileSink(
        folder, row="value", bucket=EventTimeBucketAssigner("timestamp", zone=zone), rolling=RollingPolicy(size=None)
    )
    context = WriterContext("0" * 32, "out", 1, 0, 0, uuid.uuid4().hex, {}, rejects.append, 0)
    writer = sink.open_writer(context)
    before = cpu_s()
    written = 0
    for block in data:
        # The reader's work of finding the line ends belongs to the loop.
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
        written += writer.write(Lines(memoryview(block), ends))
    writer.prepare()
    return cpu_s() - before, written


def with_day(event: dict[str, Any]) -> dict[str, Any]:
    return {"dt": datetime.fromtimestamp(event["timestamp"], UTC).strftime("%Y%m%d"), **event}


def run_map(data: list[bytes], folder: str, function: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[float, int]:
    """Read JSON lines from a file, give each record to a function, write JSON lines; return as `run` does."""
    file = Path(folder, "events.json")
    file.write_bytes(b"".join(data))
    size, columns = file.stat().st_size, "timestamp double, event string, uuid string"
    part = {"root": folder, "path": file.name, "start": 0, "end": size, "bytes": size}
    split = Split(id="0", payload={"ddl": columns, "parts": [part]})
    sink = FileSink(f"{folder}/out", format="json", bucket=PythonBucketAssigner(lambda event: f"dt={event['dt']}"))
    steps = [
        Step("events", Pass(), ()),
        Step("map", MapRecords("map", function, parse(f"dt string, {columns}")), (Edge("events"),)),
        Step("out", SinkStep("out"), (Edge("map"),)),
    ]
    body = StageBody(0, "0" * 32, steps, {"out": sink}, "fail")
    stage = SourceStage(body, {"events": SourceHead(FileSource(folder, format="json", schema=columns), "records")})
    time = TimeDirective(TimeState(), 0, {})
    before = cpu_s()
    directive = Directive(checkpoint=0, epoch=1, started_ms=0, run="run", sinks={"out": {}}, time=time)
    running = stage.run(TaskWork(0, [SourceSplit("events", split, 0)]), directive, attempt="attempt")
    try:
        while True:
            next(running)  # nothing goes to a later stage
    except StopIteration as ended:
        report: TaskReport = ended.value
    return cpu_s() - before, report.steps["out"].rows_out[""]


def best(rows: int, work: Callable[[str], tuple[float, int]]) -> str:
    """Return the figures of the best of five runs, each in a folder of its own."""
    runs = []
    for _ in range(5):
        folder = tempfile.mkdtemp(prefix="poundlock-kernel-")
        try:
            runs.append(work(folder))
        finally:
            shutil.rmtree(folder)
    used, written = min(runs)
    return f"{rows / used / 1e6:5.2f} M rows per CPU-s, {written} of {rows} written"


def main(rows: int) -> None:
    day = 86400.0
    ordered = events(rows, 0.01, 1)
    spread = events(rows, 3 * day / rows, 2)
    random.Random(3).shuffle(spread)
    bad = [b"not json" + row[:60] + b"\n" if i % 1000 == 500 else row for i, row in enumerate(ordered)]
    cases = {"one bucket": ordered, "scattered over 3": spread, "0.1 % malformed": bad}
    for name, data in cases.items():
        for zone in ("UTC", "Asia/Shanghai"):
            print(f"{name:18} {zone:14}", best(rows, partial(run, blocks(data), zone=zone)))
    maps = {"day by strftime": with_day, "nothing": lambda event: {"dt": "20181219", **event}}
    for name, function in maps.items():
        print(f"{'Python map':18} {name:15}", best(rows, partial(run_map, ordered, function=function)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
