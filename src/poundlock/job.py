"""Job: the graph a user builds, its settings, and the three things one can do with it: run, explain, look at.

Building a job touches nothing and imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.arguments import MAPPING, TEXT, WHOLE, check_kind, check_object
from poundlock.checkpoint.capabilities import participant_of
from poundlock.connectors.base import SparkSource, SplitSource
from poundlock.errors import DefinitionError
from poundlock.stream.nodes import KeyedNode, SinkNode, SourceNode, WindowNode, walk
from poundlock.stream.stream import DataStream
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import checkpoint_retention, checkpointing_mode, duration

if TYPE_CHECKING:
    from poundlock.driver.interactive.handle import JobHandle


LOADING = ContextVar("LOADING", default=False)
"""Whether a file is being read for the job in it; a job that ran itself then would run twice."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(eq=False)
class Job:
    """A pipeline with a name: sources, transforms and sinks that run as one Spark query and commit under one decision.

    Args:
        name: what the job is called; also names its checkpoint folder. Letters, digits, ".", "_", "-".
        checkpoint_interval: time between checkpoints, such as "10 s"; "0 s" = one after the other, as always where every source
            ends.
        checkpoint_dir: folder of the job's checkpoint and ledger; default: `checkpoints/<name>` in the state directory.
        on_error: what becomes of a record that cannot be parsed, placed or written: "dead_letter", "fail" or "skip" (counted).
        dead_letters: folder of the dead-letter files; default: `_dead_letters` in the first file sink's folder.
        parallelism: number of tasks; default: the cores of the master.
        restart: restart strategy, one of the four kinds, such as `poundlock.FixedDelayRestart`; default: exponential delay, as Flink.
        require: refuse to run unless every way from a source to a sink promises at least this: "exactly-once", "effectively-once"
            or "at-least-once"; default: `explain` says what is promised, and nothing is refused.
        spark: further Spark settings, name to value.
        checkpoint_min_pause: at least so long between the end of a checkpoint and the beginning of the next, such as "5 s".
        checkpoint_timeout: a checkpoint that takes longer is aborted and the query started again; None or "0 s" = no limit.
        tolerable_failed_checkpoints: so many checkpoints in a row may time out, or fail when they are to be decided, before that
            counts for the restart strategy.
        checkpoint_retention: what becomes of the checkpoint when the job is cancelled: "RETAIN_ON_CANCELLATION" or
            "DELETE_ON_CANCELLATION".
        checkpoints_retained: how many of the newest checkpoints can be restored; 1 = the newest, which is the folder itself.
        max_parallelism: number of key groups, into which the keys of our own operators are divided: no more tasks than that can
            share them. It stays the same for the life of the state.
        runtime_mode: what rolling aggregates give, as Flink's `execution.runtime-mode`: "streaming" one record for each that comes
            in, "batch" one for each key at the end, for which every source must be bounded; "automatic" is batch where it can be.
        checkpointing_mode: "EXACTLY_ONCE", or "AT_LEAST_ONCE", as Flink's `execution.checkpointing.mode`: rows are written without waiting
            for decisions, of which there is one each `checkpoint_interval`; after a crash those since the newest come again. For jobs
            without state or watermarks, and sinks that show rows at once.
        autoscaler: a `poundlock.Autoscaler`, by which the parallelism follows the input; None = it stays as it is.
    """

    name: str
    checkpoint_interval: str | timedelta = "10 s"
    checkpoint_dir: str | None = None
    on_error: Literal["dead_letter", "fail", "skip"] = "dead_letter"
    dead_letters: str | None = None
    parallelism: int | None = None
    restart: Any = None
    require: Literal["exactly-once", "effectively-once", "at-least-once"] | None = None
    spark: dict[str, str] = field(default_factory=dict)
    checkpoint_min_pause: str | timedelta = "0 s"
    checkpoint_timeout: str | timedelta | None = None
    tolerable_failed_checkpoints: int = 0
    checkpoint_retention: str = "RETAIN_ON_CANCELLATION"
    checkpoints_retained: int = 1
    max_parallelism: int = 128
    runtime_mode: Literal["automatic", "streaming", "batch"] = "automatic"
    autoscaler: Any = None
    checkpointing_mode: str = "EXACTLY_ONCE"
    sources: list[SourceNode] = field(default_factory=list, init=False, repr=False)
    sinks: list[SinkNode] = field(default_factory=list, init=False, repr=False)
    unnamed: set[str] = field(default_factory=set, init=False, repr=False)
    command: str = field(default="run", init=False, repr=False)  # the command that runs it
    script: str = field(default="JOB.PY", init=False, repr=False)  # what was typed behind that, quoted for a shell
    # names operators that are given no name, by their kind; None where it has none for them
    naming: Callable[[str], str | None] | None = field(default=None, init=False, repr=False)
    # what the state of operators is made of, by their ids, where that is said otherwise than by their steps
    made_of: dict[str, Mapping[str, Any]] = field(default_factory=dict, init=False, repr=False)
    _sql: Any = field(default=None, init=False, repr=False)  # what SQL has defined in it
    _ids: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"{self.name!r} is not a job name", next='use letters, digits, ".", "_" and "-", such as "event-log"'
            )
        for name, what, known in (
            ("on_error", "known", ("dead_letter", "fail", "skip")),
            ("require", "a guarantee", (None, "exactly-once", "effectively-once", "at-least-once")),
            ("runtime_mode", "known", ("automatic", "streaming", "batch")),
        ):
            value = getattr(self, name)
            if value not in known:
                *others, last = [f'"{each}"' for each in known if each is not None]
                raise DefinitionError(f"{name}={value!r} is not {what}", next=f"use {', '.join(others)} or {last}")
        check_kind("Job", MAPPING, {"spark": self.spark})
        check_kind(
            "Job", TEXT, {each: getattr(self, each) for each in ("checkpoint_dir", "dead_letters")}, optional=True
        )
        check_kind("Job", WHOLE, {"parallelism": self.parallelism}, optional=True)
        if self.parallelism is not None and self.parallelism < 1:
            raise DefinitionError(f"parallelism={self.parallelism} is no number of tasks", next="give 1 or more")
        self._check_strategies()
        self.checkpoint_interval = duration(self.checkpoint_interval)
        self.checkpoint_min_pause = duration(self.checkpoint_min_pause)
        if self.checkpoint_timeout is not None:
            self.checkpoint_timeout = duration(self.checkpoint_timeout)
        self.checkpoint_retention = checkpoint_retention(self.checkpoint_retention)
        self.checkpointing_mode = checkpointing_mode(self.checkpointing_mode)
        groups = self.max_parallelism
        if isinstance(groups, bool) or not isinstance(groups, int) or not 1 <= groups <= 32_768:
            raise DefinitionError(f"max_parallelism={groups!r} is not a number of key groups", next="give 1 to 32,768")
        for name, least in (("tolerable_failed_checkpoints", 0), ("checkpoints_retained", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DefinitionError(f"{name}={value!r} is not a number of checkpoints", next=f"give {least} or more")

    def _check_strategies(self) -> None:
        if self.restart is not None:
            from poundlock.driver.restart import RestartStrategy

            next = 'write such as restart=FixedDelayRestart(attempts=3, delay="10 s"), or leave it out'
            check_object(self.restart, "restart strategy", (RestartStrategy,), next)
        if self.autoscaler is not None:
            from poundlock.driver.autoscaler import Autoscaler

            next = "write such as autoscaler=Autoscaler(max_parallelism=8), or leave it out"
            check_object(self.autoscaler, "autoscaler", (Autoscaler,), next)

    def from_source(
        self, source: Any, watermark_strategy: WatermarkStrategy | None = None, *, name: str | None = None
    ) -> DataStream:
        """Add a source and return its stream. Name it: the name is the key of its position in checkpoints.

        Args:
            source: what is read.
            watermark_strategy: where event time comes from; the same as `assign_timestamps_and_watermarks` on the stream.
            name: of the source.
        """
        kinds = (SplitSource, SparkSource)
        check_object(source, "source", kinds, "give a FileSource, KafkaSource, PostgresSource or your own")
        node = SourceNode(self.operator_id("source", name), [], source)
        self.sources.append(node)
        stream = DataStream(self, node)
        if watermark_strategy is None:
            return stream
        return stream.assign_timestamps_and_watermarks(watermark_strategy, name=f"{node.id}-time")

    def create_temporary_view(self, name: str, stream: DataStream, *, schema: str | None = None) -> None:
        """Make a stream a table of SQL, which `sql` reads by its name. Event time is carried over: its column is a time attribute.

        A stream with a column `row_kind`, such as one of `top_n`, is a table that changes.

        Args:
            name: of the table.
            stream: one of this job's.
            schema: DDL of its columns, such as "user string, n bigint"; where it is left out they are those of the stream, whose
                types have to be known.

        Raises:
            DefinitionError: the name is taken or none, the columns are not known, or the stream replaces rows without giving
                those that are replaced.
        """
        self._sql_of().create_temporary_view(name, stream, schema)

    def sql(self, script: str) -> Any:
        """Give the job statements of Flink SQL, such as "SELECT …", one or several.

        Statements that define tables hold for the job. Each INSERT adds a sink to it, under the one decision of its checkpoints.

        Args:
            script: statements, separated by ";"; a query may be the last one.

        Returns:
            The stream of the query, None where there is none. Where its rows change, their kind of change is the column `row_kind`.

        Raises:
            DefinitionError: a statement is wrong, or none for a job of Python; it says line and column.
        """
        return self._sql_of().run(script)

    def _sql_of(self) -> Any:
        if self._sql is None:
            from poundlock.sql.running.in_job import JobSql

            self._sql = JobSql(self)
        return self._sql

    def operator_id(self, kind: str, name: str | None) -> str:
        """Return the stable id of a new operator: its name, or one made of its kind and how many of the kind came before.

        Raises:
            DefinitionError: the name is taken or not a name.
        """
        if name is None and self.naming is not None:
            name = self.naming(kind)
        if name is not None:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise DefinitionError(
                    f"{name!r} is not an operator name", next='use letters, digits, ".", "_" and "-"', job=self.name
                )
            if name in self._ids:
                raise DefinitionError(f"two operators are called {name!r}", next="name them apart", job=self.name)
            self._ids[name] = 1
            return name
        count = self._ids.get(f"#{kind}", 0)
        self._ids[f"#{kind}"] = count + 1
        made = f"{kind}-{count}"
        if made in self._ids:
            return self.operator_id(kind, None)
        self._ids[made] = 1
        self.unnamed.add(made)
        return made

    def free_id(self, wanted: str) -> str:
        """Return an id that no operator has: the wanted one, or that with a number behind it."""
        number, made = 1, wanted
        while made in self._ids:
            number += 1
            made = f"{wanted}-{number}"
        return made

    def unnamed_operators(self) -> list[str]:
        """Return the ids of sources, sinks and operators with state that were made up: they may change with the job."""
        kept = (SourceNode, SinkNode, WindowNode, KeyedNode)
        return [node.id for node in walk(self.sinks) if node.id in self.unnamed and isinstance(node, kept)]

    @property
    def most_tasks(self) -> int | None:
        """How many tasks it may come to have at once; None = as many as the cores of the master."""
        most: int | None = self.parallelism if self.autoscaler is None else self.autoscaler.max_parallelism
        return most

    def add_sink(self, node: SinkNode) -> None:
        """Note a sink that `DataStream.sink_to` made."""
        self.sinks.append(replace(node, sink=participant_of(node.sink)))

    def graph(self) -> Sequence[SinkNode]:
        """Return the sinks, from which every node can be reached.

        Raises:
            DefinitionError: the job has no source or no sink.
        """
        if not self.sinks:
            raise DefinitionError(f"job {self.name!r} has no sink", next="end a stream with .sink_to(…)", job=self.name)
        return list(self.sinks)

    def explain(self) -> str:
        """Return the plan as text: which stages there are, where each step runs, and why."""
        from poundlock.plan.explain import explain

        return explain(self)

    def run(self, **options: Any) -> Any:
        """Run the job in this process until it ends, is stopped, or fails; see `poundlock.driver.driver.run`."""
        self._refuse_while_loading("runs its job")
        from poundlock.driver.driver import run

        return run(self, **options)

    def start(self, spark: Any = None, **options: Any) -> JobHandle:
        """Start the job in the background, in a Spark session that exists, and return its handle at once.

        Args:
            spark: the session; it goes on when the job ends, and nothing is set in it. Default: the active one, or where
                there is none, one that is started for the job.
            options: see `poundlock.driver.interactive.handle.start`.
        """
        self._refuse_while_loading("starts its job")
        from poundlock.driver.interactive.handle import start

        return start(self, spark, **options)

    def preview(self, stream: DataStream, n: int = 20, **options: Any) -> list[dict[str, Any]]:
        """Return the first rows of one of the job's streams, without a sink; see `DataStream.preview`."""
        from poundlock.driver.interactive.preview import preview

        return preview(stream, n, **options)

    def _refuse_while_loading(self, what: str) -> None:
        if LOADING.get():
            raise DefinitionError(
                f"the file {what} while it is being loaded",
                next='put it under: if __name__ == "__main__":',
                job=self.name,
            )
