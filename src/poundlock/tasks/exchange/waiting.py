"""What a task is sent, until the last of it has come: only then are the watermark and the order of rows known.

Memory holds a set number of bytes of it. What comes beyond that waits in a file without a name on a local disk, and is mapped: its
pages are the system's to drop and to read again, so memory does not follow the bytes of a checkpoint.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO

from msgspec.structs import replace

from poundlock.operators.time_values import SplitTimes
from poundlock.tasks.exchange.blocks import Block, Delivery

HELD_BYTES = 256 << 20  # of blocks, in memory
_ALIGNED = 64  # Arrow's columns begin at multiples of so many bytes


@dataclass
class Received:
    """Everything that was sent to one task.

    Args:
        reports: what earlier stages saw of event time.
        blocks: the rows; where they are mapped the file goes with the last of them.
    """

    reports: list[SplitTimes] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def receive(deliveries: Iterable[Delivery]) -> Received:
    """Take all deliveries, in any order.

    Raises:
        OSError: there is no room for them on the local disk.
    """
    result, held = Received(), 0
    spilled: list[tuple[int, int, int]] = []  # number of the block, where it begins in the file, and ends
    file: IO[bytes] | None = None
    try:
        for delivery in deliveries:
            result.reports += delivery.reports
            for block in delivery.blocks:
                size = len(block.rows)
                if held + size <= HELD_BYTES:
                    held += size
                    result.blocks.append(block)
                    continue
                file = file or tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115
                start = file.tell()
                file.write(block.rows)
                spilled.append((len(result.blocks), start, start + size))
                file.write(bytes(-size % _ALIGNED))
                result.blocks.append(replace(block, rows=b""))
        if file is not None:
            file.flush()
            mapped = memoryview(mmap.mmap(file.fileno(), file.tell(), access=mmap.ACCESS_READ))
            for number, start, stop in spilled:
                result.blocks[number] = replace(result.blocks[number], rows=mapped[start:stop])
    finally:
        if file is not None:
            file.close()
    return result


def _folder() -> str | None:
    """Return where Spark keeps what it spills, which is meant to be large; None = the system's folder for temporary files."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(folder)]
    return folders[os.getpid() % len(folders)] if folders else None
