"""The file sink's hot loop alone: lines in memory to segments on disk, rows per CPU-second of this process.

Prints one line a case; nothing is asserted, since a figure means something only beside another of the same minutes.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import uuid

import numpy as np

from poundlock.checkpoint.participant import Reject, WriterContext
from poundlock.connectors.files.buckets import EventTimeBucketAssigner
from poundlock.connectors.files.rolling import RollingPolicy
from poundlock.connectors.files.sink import FileSink
from poundlock.formats.chunk import Lines

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


def main(rows: int) -> None:
    day = 86400.0
    ordered = events(rows, 0.01, 1)
    spread = events(rows, 3 * day / rows, 2)
    random.Random(3).shuffle(spread)
    bad = [b"not json" + row[:60] + b"\n" if i % 1000 == 500 else row for i, row in enumerate(ordered)]
    cases = {"one bucket": ordered, "scattered over 3": spread, "0.1 % malformed": bad}
    for name, data in cases.items():
        for zone in ("UTC", "Asia/Shanghai"):
            best = 0.0
            for _ in range(5):
                folder = tempfile.mkdtemp(prefix="poundlock-kernel-")
                try:
                    used, written = run(blocks(data), folder, zone)
                finally:
                    shutil.rmtree(folder)
                best = max(best, rows / used)
            print(f"{name:18} {zone:14} {best / 1e6:5.2f} M rows per CPU-s, {written} of {rows} written")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
