"""The sandbox of a torture: a folder that has the sample of the input, and for each run its checkpoint and its output.

The job file is loaded as `poundlock run` loads it, and the job in it gets other sources and sinks of the same kinds: nothing of it reads
anything but the sample, and nothing is written outside the sandbox and its topics. What cannot be redirected is refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from poundlock.cli.job_loader import load_job
from poundlock.connectors.datagen.source import DatagenSource
from poundlock.connectors.files.partitions.commit import PartitionCommit
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.discovery import Selection
from poundlock.connectors.files.source.source import FileSource
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.connectors.print_sink import PrintSink
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.stream.nodes import Node, SinkNode, SourceNode

PLAN = "sandbox.json"
UNDISTURBED, TORTURED = "undisturbed", "tortured"
RUNS = (UNDISTURBED, TORTURED)
SOURCES = "FileSource, KafkaSource and DatagenSource"
SINKS = "FileSink, KafkaSink and PrintSink"


class InputSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a source reads in both runs.

    Args:
        folder: of files, where the copies are.
        start, end: of Kafka, the offset of each partition, by topic.
        rows: of a generator, how many; of Kafka, how many offsets at most.
        files: of files, how many.
        bytes: of files, how large they are together.
        checkpoints: into how many the sample is cut, about.
        says: what it is, for people.
    """

    kind: Literal["files", "kafka", "generated"]
    folder: str = ""
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    rows: int = 0
    files: int = 0
    bytes: int = 0
    checkpoints: int = 1
    says: str = ""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox, as both runs load it.

    Args:
        target: the job file, with `:name` where it has several.
        root: the folder.
        samples: per source.
        streaming: whether the job's own input has no end, so that its results are those of a stream.
        topics: per Kafka sink, the name that its topics in the sandbox begin with, and how many partitions they have.
    """

    target: str
    root: str
    samples: dict[str, InputSample]
    streaming: bool
    topics: dict[str, tuple[str, int]] = {}

    def save(self) -> Path:
        """Write it into its folder; return the file."""
        path = Path(self.root, PLAN)
        path.write_bytes(msgspec.json.encode(self))
        return path

    @classmethod
    def of(cls, path: Path) -> Sandbox:
        """Return the sandbox that a file describes."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def folder(self, run: str) -> Path:
        """Return the folder of a run."""
        return Path(self.root, run)

    def output(self, run: str, sink: str) -> Path:
        """Return the folder of a file sink in a run."""
        return self.folder(run) / "output" / sink

    def topic(self, run: str, sink: str) -> str:
        """Return the topic of a Kafka sink in a run."""
        return f"{self.topics[sink][0]}-{run}"


def sandboxed_job(plan: str, run: str) -> Job:
    """Return a job that reads the sample and writes into the folder of a run. Called by the file that stands for the job."""
    sandbox = Sandbox.of(Path(plan))
    job = load_job(sandbox.target)
    redirect(job, sandbox, run)
    return job


def job_file(sandbox: Sandbox, run: str) -> Path:
    """Write the file that `poundlock run` gets in a run, and return it."""
    path = sandbox.folder(run) / "sandboxed_job.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'"""The job of {sandbox.target}, in a sandbox."""\n\n'
        "from poundlock.cli.torture.sandbox import sandboxed_job\n\n"
        f"job = sandboxed_job({str(Path(sandbox.root, PLAN))!r}, {run!r})\n",
        encoding="utf-8",
    )
    return path


def redirect(job: Job, sandbox: Sandbox, run: str) -> None:
    """Give a job the sources and sinks of the sandbox, and its folders."""

    def source_of(node: SourceNode) -> Any:
        return sampled(node.source, sandbox.samples[node.id])

    def sink_of(node: SinkNode) -> Any:
        if isinstance(node.sink, FileSink):
            return replace(node.sink, path=str(sandbox.output(run, node.id)))
        if isinstance(node.sink, KafkaSink):
            topic = sandbox.topic(run, node.id)
            return replace(node.sink, topic=topic, create_topic=None, marker_topic=f"{topic}-markers")
        assert isinstance(node.sink, PrintSink)
        return replace(node.sink, target="stderr")  # standard output has the progress

    job.sinks = _with(job.sinks, source_of, sink_of)
    job.sources = [node for node in _every(job.sinks) if isinstance(node, SourceNode)]
    job.checkpoint_dir = str(sandbox.folder(run) / "checkpoint")
    job.dead_letters = None if job.dead_letters is None else str(sandbox.folder(run) / "dead-letters")
    job.autoscaler = None
    if sandbox.streaming and job.runtime_mode == "automatic":
        job.runtime_mode = "streaming"


def sampled(source: Any, sample: InputSample) -> Any:
    """Return a source that reads a sample, cut into checkpoints that are the same in both runs."""
    made = copy.copy(source)
    values: dict[str, Any]
    if isinstance(source, FileSource):
        split, most_bytes, most_files = source.limits
        part = max(1, -(-sample.bytes // sample.checkpoints))
        files = max(1, sample.files // sample.checkpoints)
        limits = (min(split, part), min(most_bytes, part), min(most_files, max(files, 1)))
        values = {"path": sample.folder, "watch": False, "selection": Selection(), "limits": limits}
    elif isinstance(source, KafkaSource):
        part = max(1, -(-sample.rows // sample.checkpoints))
        most = source.max_records_per_checkpoint
        values = {
            "topics": None,
            "pattern": None,
            "partitions": {topic: sorted(map(int, of)) for topic, of in sample.end.items()},
            "start": _offsets(sample.start),
            "end": _offsets(sample.end),
            "group_id": "",  # it commits no offsets of the user's group
            "max_records_per_checkpoint": part if most is None else min(most, part),
        }
    else:
        part = max(1, -(-sample.rows // sample.checkpoints))
        values = {"count": sample.rows, "rate": None, "rows_per_checkpoint": min(source.rows_per_checkpoint, part)}
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def refuse_what_stays_outside(job: Job) -> None:
    """Raise DefinitionError for a source whose input cannot be sampled, or a sink that cannot be redirected; names it."""
    for node in _every(job.graph()):
        if isinstance(node, SourceNode) and type(node.source) not in (FileSource, KafkaSource, DatagenSource):
            raise DefinitionError(
                f"the input of source {node.id!r} cannot be sampled: it is a {type(node.source).__name__}",
                next=f"torture a job with another source in its place: {SOURCES} can be",
                job=job.name,
            )
        if isinstance(node, SinkNode) and (why := _stays_outside(node.sink)) is not None:
            raise DefinitionError(f"sink {node.id!r} cannot be redirected: {why[0]}", next=why[1], job=job.name)


def _stays_outside(sink: Any) -> tuple[str, str] | None:
    """Return why a sink would write outside the sandbox and what to do; None if it does not."""
    if type(sink) not in (FileSink, KafkaSink, PrintSink):
        return f"it is a {type(sink).__name__}", f"torture a job with another sink in its place: {SINKS} can be"
    if isinstance(sink, KafkaSink) and not isinstance(sink.topic, str):
        return "each record says its topic", "torture a job whose KafkaSink has one topic in its place"
    if isinstance(sink, FileSink) and sink.partition_commit is not None and _calls_others(sink.partition_commit):
        return "its partition commit calls a function of yours", 'leave policies at "success-file" for the torture'
    return None


def _calls_others(commit: PartitionCommit) -> bool:
    return any(callable(policy) for policy in commit.policies)


def _offsets(sample: Mapping[str, Mapping[str, int]]) -> StartingOffsets:
    return StartingOffsets.offsets({(topic, int(p)): n for topic, of in sample.items() for p, n in of.items()})


def _every(roots: Any) -> Iterator[Node]:
    from poundlock.stream.nodes import walk

    return walk(roots)


def _with(
    sinks: list[SinkNode], source_of: Callable[[SourceNode], Any], sink_of: Callable[[SinkNode], Any]
) -> list[SinkNode]:
    """Return the graph with other sources and sinks; each node is made once, however many read from it."""
    made: dict[int, Node] = {}
    for node in _every(sinks):  # a node comes behind those that it reads from
        inputs = [made[id(each)] for each in node.inputs]
        if isinstance(node, SourceNode):
            made[id(node)] = replace(node, inputs=inputs, source=source_of(node))
        elif isinstance(node, SinkNode):
            made[id(node)] = replace(node, inputs=inputs, sink=sink_of(node))
        else:
            made[id(node)] = replace(node, inputs=inputs)
    return [made[id(sink)] for sink in sinks]  # type: ignore[misc]
