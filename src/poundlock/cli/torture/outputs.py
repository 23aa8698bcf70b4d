"""What stands in a sandbox behind a run, as readers see it, and in what two runs differ.

Of files each record with the bucket it is in, of topics each record that a read_committed reader gets: how often each is there. Names of
part files, offsets and times of writing may differ, and are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poundlock.cli.torture.sandbox import Sandbox
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.job import Job
from poundlock.testing.audit import finished_files, lines_of

EXAMPLES = 5
Records = Counter[str]


@dataclass(frozen=True, kw_only=True)
class SinkComparison:
    """What differs in one sink.

    Args:
        records: how many the undisturbed run wrote.
        lost: records of it that the tortured run has less often.
        doubled: records that the tortured run has more often.
        hidden: files in progress that nobody will finish, and that nobody removed.
        may_repeat: whether the sink promises no more than at-least-once, so that records may come twice.
        uncompared: why nothing was compared; "" if it was.
        examples: some of the records that differ.
    """

    sink: str
    records: int = 0
    lost: int = 0
    doubled: int = 0
    hidden: int = 0
    may_repeat: bool = False
    uncompared: str = ""
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs that must not."""
        return not (self.lost or self.hidden or (self.doubled and not self.may_repeat))


def compare(sink: str, wanted: Records, seen: Records, *, hidden: int = 0, may_repeat: bool = False) -> SinkComparison:
    """Hold what a tortured run wrote beside what an undisturbed one did."""
    lost, doubled = wanted - seen, seen - wanted
    examples = {"lost": _some(lost), "doubled": _some(doubled)}
    return SinkComparison(
        sink=sink,
        records=wanted.total(),
        lost=lost.total(),
        doubled=doubled.total(),
        hidden=hidden,
        may_repeat=may_repeat,
        examples={name: some for name, some in examples.items() if some},
    )


def comparisons(job: Job, sandbox: Sandbox, runs: tuple[str, str]) -> list[SinkComparison]:
    """Compare all sinks of two runs, the undisturbed one first; dead letters are one of them where there are any."""
    compared = []
    for node in job.sinks:
        sink = node.sink
        if isinstance(sink, FileSink):
            folders = [sandbox.output(run, node.id) for run in runs]
            compared.append(_of_folders(node.id, *folders))
        elif isinstance(sink, KafkaSink):
            wanted, seen = (records_of_topic(sink, sandbox.topic(run, node.id)) for run in runs)
            compared.append(compare(node.id, wanted, seen, may_repeat=sink.guarantee != "exactly-once"))
        else:
            compared.append(SinkComparison(sink=node.id, uncompared="it prints, and nobody keeps that"))
    letters = [sandbox.folder(run) / "dead-letters" for run in runs]
    return [*compared, _of_folders("dead-letter", *letters)] if letters[0].exists() or letters[1].exists() else compared


def _of_folders(sink: str, wanted: Path, seen: Path) -> SinkComparison:
    return compare(sink, records_of_folder(wanted), records_of_folder(seen), hidden=len(hidden_files(seen)))


def hidden_files(folder: Path) -> list[Path]:
    """Return the files in progress of a folder."""
    return finished_files(folder)[1] if folder.exists() else []


def records_of_folder(folder: Path) -> Records:
    """Return the records of all finished files with their buckets, also of dead letters below it, and success files."""
    records: Records = Counter()
    if not folder.exists():
        return records
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in below.parts):
            continue
        place = below.parent.as_posix()
        prefix = "" if place == "." else f"{place}: "
        if path.name.startswith("_"):
            records[f"{prefix}{path.name}"] += 1
        else:
            records.update(prefix + text for text in _texts(path))
    return records


def _texts(path: Path) -> Iterator[str]:
    """Yield the records of a file as texts."""
    with path.open("rb") as opened:
        magic = opened.read(4)
    if magic == b"PAR1":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches():
            yield from (json.dumps(row, default=repr) for row in batch.to_pylist())
    elif magic == b"Obj\x01":
        from fastavro import reader

        with path.open("rb") as opened:
            yield from (json.dumps(row, default=repr) for row in reader(opened))
    else:
        yield from (line.decode("utf-8", "backslashreplace") for line in lines_of(path))


def records_of_topic(sink: KafkaSink, topic: str) -> Records:
    """Return the records of a topic that a read_committed reader gets, with their keys and headers."""
    from poundlock.cli.torture.topics import SandboxTopics

    records: Records = Counter()
    for record in SandboxTopics(sink).read(topic):
        parts = [_shown(record.key), _shown(record.value), *(f"{name}={_shown(v)}" for name, v in record.headers)]
        records[" ".join(parts)] += 1
    return records


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "backslashreplace")


def _some(records: Records) -> tuple[str, ...]:
    return tuple(sorted(records)[:EXAMPLES])
