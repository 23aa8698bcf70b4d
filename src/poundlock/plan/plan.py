"""What a job is made of, checked as far as the graph alone tells: its sources, its sinks, its dead letters.

Pure: it needs no Spark. How the steps are cut into stages is in `poundlock.plan.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.connectors.base import SparkSource
from poundlock.connectors.files.buckets.assigners import BasePathBucketAssigner
from poundlock.connectors.files.sink.names import final_name
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError
from poundlock.plan.known_columns import check_columns
from poundlock.storage import below, open_storage
from poundlock.stream.nodes import CalcNode, KeyedNode, Node, PartitionNode, SinkNode, SourceNode, WindowNode, walk

if TYPE_CHECKING:
    from poundlock.job import Job

__all__ = ["DEAD_LETTER", "Plan", "make_plan", "refuse_read", "refuse_swept"]

_OF_A_CHECKPOINT = ("job.json", "ledger/0.json", "sources/x/log/0.json", "state/x/0.arrow")  # such as these


@dataclass(frozen=True)
class Plan:
    """A job, checked.

    Args:
        nodes: its steps, inputs before readers.
        sinks: every participant by name, dead letters included.
    """

    job: Job
    nodes: Sequence[Node]
    sources: Mapping[str, Any]
    sinks: Mapping[str, Any]

    @property
    def bounded(self) -> bool:
        """Return whether every source ends."""
        return all(source.bounded for source in self.sources.values())

    @property
    def batch(self) -> bool:
        """Return whether only what is known at the end of the input is wanted: the job's `runtime_mode`, "automatic" resolved."""
        return self.bounded and self.job.runtime_mode != "streaming"

    @property
    def keyed(self) -> bool:
        """Whether a step keeps state."""
        return any(isinstance(node, (WindowNode, KeyedNode)) for node in self.nodes)

    @property
    def exchanges(self) -> bool:
        """Whether rows go from tasks to other tasks."""
        return self.keyed or any(isinstance(node, PartitionNode) for node in self.nodes)

    @property
    def program_modules(self) -> Sequence[str]:
        """The modules of the programs that tasks run over columns: loaded before workers are forked, they are loaded once."""
        return list(dict.fromkeys(type(node.program).__module__ for node in self.nodes if isinstance(node, CalcNode)))

    @property
    def has_streams(self) -> bool:
        """Whether a streaming query of Spark's reads a source."""
        return any(isinstance(source, SparkSource) for source in self.sources.values())


def make_plan(job: Job) -> Plan:
    """Return a job as it is to run. Raises DefinitionError if there is no sink, or a source or sink that is not one."""
    sinks = list(job.graph())
    order = list(walk(sinks))
    check_columns(order)
    sources = {node.id: node.source for node in order if isinstance(node, SourceNode)}
    participants = {sink.id: sink.sink for sink in sinks}
    if DEAD_LETTER in participants:
        raise DefinitionError(
            f"the name {DEAD_LETTER!r} is taken by the dead letters", next="name the sink otherwise", job=job.name
        )
    if job.on_error == "dead_letter":
        participants[DEAD_LETTER] = _dead_letter_sink(job, participants)
    _check_places(job, participants)
    _check_mode(job, sources)
    return Plan(job, order, sources, participants)


def _check_mode(job: Job, sources: Mapping[str, Any]) -> None:
    """Refuse to wait for the end of what has none."""
    endless = [name for name, source in sources.items() if not source.bounded]
    if job.runtime_mode == "batch" and endless:
        raise DefinitionError(
            f'runtime_mode="batch" needs sources that end; {endless[0]!r} does not',
            next='make it bounded, or use runtime_mode="automatic"',
            job=job.name,
        )


def _check_places(job: Job, participants: Mapping[str, Any]) -> None:
    """Refuse two file sinks whose files could be taken for each other's, and one whose files a source before it would read."""
    sinks = {name: sink for name, sink in participants.items() if isinstance(sink, FileSink)}
    for (first, a), (name, b) in combinations(sinks.items(), 2):
        if a.prefix != b.prefix:
            continue
        one, other = below(a.storage(), b.storage()), below(b.storage(), a.storage())
        if one == "" or ((one or other) and a.ending == b.ending):
            where = f"{a.path} and {b.path}, one in the other" if one or other else b.path
            raise DefinitionError(
                f"sinks {first!r} and {name!r} both write {a.prefix}-… files to {where}",
                next="give one of them another folder or another prefix=",
                job=job.name,
            )
    for name, sink in sinks.items():
        made = final_name(sink.prefix, 0, 0, sink.ending)
        files = made if isinstance(sink.assigner, BasePathBucketAssigner) else f"*/{made}"
        before = [node for node in job.sinks if name in (node.id, DEAD_LETTER)]
        refuse_read(before, sink.path, f"the files of sink {name!r}", job.name, [files])


def refuse_read(
    ends: Sequence[SinkNode], folder: str, what: str, job: str, names: Sequence[str] = _OF_A_CHECKPOINT
) -> None:
    """Refuse a folder in which files of these names come to be, where a source before these sinks would read them."""
    from poundlock.connectors.files.source.source import FileSource

    for node in walk(ends):
        source = node.source if isinstance(node, SourceNode) else None
        if isinstance(source, FileSource) and source.takes(open_storage(folder), names):
            raise DefinitionError(
                f"source {node.id!r}, which reads {source.path}, would read {what} in {folder}",
                next='give one of them another folder; files and folders whose names begin with "_" or "." are not read',
                job=job,
            )


def refuse_swept(sinks: Mapping[str, Any], folder: str, what: str, job: str) -> None:
    """Refuse a folder for unfinished files' copies in that of a file sink, which removes those that no decision of it names."""
    for name, sink in sinks.items():
        if isinstance(sink, FileSink) and below(open_storage(folder), sink.storage()) is not None:
            raise DefinitionError(
                f"{what} in {folder} would be in the folder of sink {name!r}, {sink.path}, which removes unfinished files there",
                next="give one of them another folder",
                job=job,
            )


def _dead_letter_sink(job: Job, participants: Mapping[str, Any]) -> Any:
    first = next((p.path for p in participants.values() if isinstance(p, FileSink)), None)
    path = job.dead_letters if job.dead_letters is not None or first is None else f"{first}/_dead_letters"
    if path is None:
        raise DefinitionError(
            "there is no place for dead letters: the job has no file sink",
            next='say Job(…, dead_letters="/a/folder"), or on_error="fail"',
            job=job.name,
        )
    return dead_letter_sink(path)


def dead_letter_sink(path: str) -> Any:
    """Return the sink of dead letters in a folder."""
    from poundlock.connectors.files.sink.rolling import RollingPolicy

    return FileSink(path, row="value", prefix="dead", suffix=".jsonl", rolling=RollingPolicy(on_checkpoint=True))
