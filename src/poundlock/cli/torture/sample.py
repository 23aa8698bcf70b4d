"""The sample of a job's input: what its sources had when the torture began, so that every run reads the same.

Files are copied. Of Kafka the offsets are noted, and the records stay where they are; of a generator how many rows it makes.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poundlock.cli.output import plural
from poundlock.cli.torture.sandbox import InputSample
from poundlock.connectors.datagen.source import DatagenSource
from poundlock.connectors.files.source.source import FileSource
from poundlock.connectors.kafka.offsets import Offsets
from poundlock.connectors.kafka.source.partition_discovery import PartitionDiscovery
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.errors import DefinitionError, TransientError
from poundlock.job import Job
from poundlock.stream.nodes import SourceNode, walk
from poundlock.values import format_bytes

_PATIENCE_S = 10.0
_BROKER_S, _AGAIN_S = 60.0, 1.0


@dataclass(frozen=True, kw_only=True)
class SampleSize:
    """How much is taken.

    Args:
        records: of each partition of Kafka, the newest; of each generator, the first.
        files: of each file source, the newest.
        checkpoints: into how many the sample is cut, about.
    """

    records: int
    files: int
    checkpoints: int


def samples_of(job: Job, root: Path, limits: SampleSize) -> dict[str, InputSample]:
    """Take the sample of each source into a folder.

    Raises:
        DefinitionError: a source has nothing to read.
        TransientError: a broker does not answer.
    """
    nodes = [node for node in walk(job.graph()) if isinstance(node, SourceNode)]
    return {node.id: _sample(node.source, root / "input" / node.id, node.id, limits) for node in nodes}


def _sample(source: Any, folder: Path, name: str, limits: SampleSize) -> InputSample:
    if isinstance(source, FileSource):
        return _of_files(source, folder, name, limits)
    if isinstance(source, KafkaSource):
        return _of_kafka(source, name, limits)
    assert isinstance(source, DatagenSource)
    rows = limits.records if source.count is None else min(source.count, limits.records)
    return InputSample(kind="generated", rows=rows, checkpoints=limits.checkpoints, says=f"{plural(rows, 'row')} made")


def _of_files(source: FileSource, folder: Path, name: str, limits: SampleSize) -> InputSample:
    storage, entries = source.files()
    there = sorted(entries, key=lambda each: (each.modified_ms, each.path))
    if not there:
        raise _nothing(name, f"no file in {source.path}")
    taken, size = there[-limits.files :], 0
    for entry in taken:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with storage.open(entry.path) as content, path.open("wb") as copied:
            shutil.copyfileobj(content, copied)
            size += copied.tell()
        os.utime(path, (entry.modified_ms / 1000,) * 2)  # files are taken in this order
    of = "" if len(taken) == len(there) else f" of {len(there):,}"
    return InputSample(
        kind="files",
        folder=str(folder),
        files=len(taken),
        bytes=size,
        checkpoints=limits.checkpoints,
        says=f"{plural(len(taken), 'file')}{of}, {format_bytes(size)}",
    )


def _of_kafka(source: KafkaSource, name: str, limits: SampleSize) -> InputSample:
    start, oldest, newest, end = _asked_patiently(source)
    end = {each: min(offset, newest[each]) for each, offset in end.items()}
    start = {each: max(start[each], oldest[each], end[each] - limits.records) for each in end}
    count = sum(end[each] - start[each] for each in end)
    if count <= 0:
        raise _nothing(name, f"no record in {source.place}")
    return InputSample(
        kind="kafka",
        start=_by_topic(start),
        end=_by_topic(end),
        rows=count,
        checkpoints=limits.checkpoints,
        says=f"{plural(count, 'offset')} of {plural(len(end), 'partition')} of {source.place}",
    )


def _asked_patiently(source: KafkaSource) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Ask for the offsets again where a broker does not answer: nothing would ask it later, as a job's restart does."""
    deadline = time.monotonic() + _BROKER_S
    while True:
        try:
            return _offsets(source)
        except TransientError as error:
            if time.monotonic() > deadline:
                raise TransientError(error.what, next="see that the broker runs, and torture the job again") from error
            time.sleep(_AGAIN_S)


def _offsets(source: KafkaSource) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Return where the job begins, the oldest and the newest offsets, and where it ends."""
    cluster = source.cluster()
    try:
        partitions = PartitionDiscovery(source, cluster).partitions(_PATIENCE_S)
        oldest = cluster.begin(partitions)
        # A job that begins with what comes next has nothing to read in a sample, so it is given what is there.
        words = source.start.kind in ("latest", "committed")
        start = oldest if words else source.start.resolve(partitions, cluster, group=source.group)
        newest = cluster.end(partitions)
        end = newest if source.end is None else source.end.resolve(partitions, cluster, group=source.group, end=True)
        return start, oldest, newest, end
    finally:
        cluster.close()


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def _nothing(name: str, what: str) -> DefinitionError:
    return DefinitionError(
        f"source {name!r} has nothing to read: {what}", next="torture the job when there is input, or a sample of it"
    )
