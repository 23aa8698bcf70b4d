"""A replay: one checkpoint's input read once more, through the job's own chain up to its sinks, and compared with the ledger.

Nothing outside is written: no sink is reached, nothing is decided or locked, so the job may run meanwhile.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poundlock.checkpoint.comparison import Difference, Measure, ReplayReport, SinkReplay, compare
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Measurable, Occasion, Prepared, bound
from poundlock.checkpoint.records import checkpoint_records, state_of
from poundlock.checkpoint.written import written
from poundlock.config import Settings
from poundlock.connectors.base import BindableSource, RangeSource, SourceReading, SparkRead, SplitSource
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.job import Job
from poundlock.plan.measuring import SHOWN, MeasuredSink
from poundlock.plan.plan import DEAD_LETTER, Plan, make_plan
from poundlock.plan.ranges import RangeLowering
from poundlock.plan.splits import pack
from poundlock.plan.stage import PROPERTY
from poundlock.plan.uses import source_of
from poundlock.runtime.driver import checkpoint_dir, two_lines
from poundlock.runtime.execution import observed_rows
from poundlock.runtime.failures import explain
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.results import Gathered
from poundlock.runtime.starting import on_this_machine, start_spark, stop_spark
from poundlock.storage import Storage, open_storage

__all__ = ["replay"]


def replay(
    job: Job,
    identity: Identity,
    checkpoint: int,
    *,
    settings: Settings,
    show: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> ReplayReport:
    """Run one checkpoint's input once more and compare.

    Args:
        job: the job as it is now, with what the settings say of it.
        identity: whose checkpoint it is.
        checkpoint: its number.
        settings: of the machine and the run.
        show: so many records of each sink are part of the report.
        say: told of what takes long.

    Raises:
        DefinitionError: the ledger does not have this checkpoint, or it cannot be replayed; says why.
        SourceGoneError: its input is not there any more.
        PoundlockError: the job's own code fails on it.
    """
    plan = make_plan(job)
    with two_lines(plan):
        root = checkpoint_dir(job, settings)
        ledger = Ledger(open_storage(root))
        records = checkpoint_records(ledger, checkpoint)
        decision = records[0]
        before = ledger.read(decision.number - 1) if decision.number > ledger.first() else None
        cut, left_out = _stateless(plan)
        with _scratch() as folder:
            work = _Replay(job, cut, settings, identity, decision, before, root, folder, show, say, bool(left_out))
            results = work.run()
            return work.report(results, plan, left_out, [record.number for record in records[1:]])


def _stateless(plan: Plan) -> tuple[Plan, Mapping[str, str]]:
    """Return the plan without the branches that depend on earlier checkpoints, and which sinks that leaves out.

    Raises:
        DefinitionError: nothing is left.
    """
    with_state = [branch for branch in plan.branches if not replace(plan, branches=[branch]).stateless]
    if not with_state:
        return plan, {}
    why = "windows and DataFrame functions before it keep rows of earlier checkpoints"
    left_out = {sink.id: why for branch in with_state for sink in branch.sinks}
    kept = [branch for branch in plan.branches if branch not in with_state]
    kept = [branch for branch in kept if any(sink.id not in left_out for sink in branch.sinks)]
    if not kept:
        raise DefinitionError(
            f"no sink of job {plan.job.name!r} can be replayed: {why.replace('before it', 'before them')}",
            next="compare what the sinks hold with the ledger instead: poundlock audit",
        )
    if DEAD_LETTER in plan.sinks:
        left_out[DEAD_LETTER] = "it takes records of branches that are left out"
    return replace(plan, branches=kept), left_out


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="poundlock-replay-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Replay:
    """One replay.

    Args:
        job, plan, settings: what runs, branches that are left out taken away.
        identity: of the job's checkpoint.
        decision, before: the checkpoint's record, and the one before it where it is kept.
        root: the job's checkpoint folder.
        folder: the only place that is written to.
        show: so many records of each sink.
        say: told of what takes long.
        partial: whether branches are left out: which use of a source is whose is not known then.
    """

    job: Job
    plan: Plan
    settings: Settings
    identity: Identity
    decision: Decision
    before: Decision | None
    root: str
    folder: Path
    show: int
    say: Callable[[str], None]
    partial: bool
    _measuring: dict[str, Any] = field(default_factory=dict)

    def run(self) -> TaskResults:
        """Run the tasks and return what they report."""
        with self._reading() as sources:
            reads = self._reads(sources)
            spark = self._session({jars for read in reads.values() for jars in read.jars})
            try:
                return self._collect(spark, sources, reads)
            except Exception as failure:  # told while the JVM is there to be asked
                raise self._told(explain(failure, list(sources.values()))) from failure
            finally:
                stop_spark(spark)

    def _told(self, error: PoundlockError) -> PoundlockError:
        error.checkpoint = self.decision.checkpoint if error.checkpoint is None else error.checkpoint
        if error.next.startswith("see the log"):
            error.next = f"read {self.settings.logs / self._log}"
        return error

    @property
    def _log(self) -> str:
        return f"{self.job.name}.replay.jvm.log"

    @contextmanager
    def _reading(self) -> Iterator[Mapping[str, Any]]:
        names = {node.id for branch in self.plan.branches for node in branch.sources}
        sources: dict[str, Any] = {}
        try:
            for name in sorted(names):
                source = self.plan.sources[name]
                if name not in self.decision.sources:
                    raise DefinitionError(
                        f"checkpoint {self.decision.checkpoint} did not read source {name!r}",
                        next=f"it read {', '.join(self.decision.sources)}; name the source as it was",
                    )
                if isinstance(source, BindableSource):
                    previous = self.decision.sources[name].identity
                    source = source.bind(job=self.job.name, name=name, previous=previous)
                sources[name] = source
            yield sources
        finally:
            for source in sources.values():
                if isinstance(source, SourceReading):
                    source.close()

    def _reads(self, sources: Mapping[str, Any]) -> dict[str, SparkRead]:
        """Return how each use of a Spark source is read."""
        reads = {}
        for name, source in sources.items():
            if isinstance(source, SplitSource):
                continue
            if not isinstance(source, RangeSource):
                raise DefinitionError(
                    f"source {name!r} cannot be read from one offset to another: {type(source).__name__}",
                    next="checkpoints of Kafka, file and generator sources can be replayed",
                )
            uses = {use: span for use, span in self.decision.sources.items() if source_of(use) == name}
            if self.partial and any((s.start, s.end) != (uses[name].start, uses[name].end) for s in uses.values()):
                raise DefinitionError(
                    f"checkpoint {self.decision.checkpoint} read different ranges of source {name!r} for the sinks that"
                    " are left out and for the others",
                    next="choose another checkpoint; most read the same",
                )
            for use, span in uses.items():
                reads[use] = source.range_read(span.start, span.end, span.identity)
        return reads

    def _session(self, jar_sets: set[str]) -> Any:
        local = on_this_machine(self.settings)
        return start_spark(
            self.job,
            local,
            jar_sets,
            log=self._log,
            quick_start=self.plan.only_fused,
            store=None,
            say=self.say,
        )

    def _collect(self, spark: Any, sources: Mapping[str, Any], reads: Mapping[str, SparkRead]) -> TaskResults:
        # As many as then, whatever this machine has: how rows are cut into files depends on it.
        tasks = self.decision.tasks or self.job.parallelism or spark.sparkContext.defaultParallelism
        lowered = RangeLowering(
            plan=self.plan,
            spark=spark,
            job_id=self.identity.job_id,
            sources=sources,
            reads=reads,
            sinks={name: self._measured(name, sink) for name, sink in self.plan.sinks.items()},
            parallelism=tasks,
        ).lower()
        splits, given = self._splits(sources, lowered.uses, tasks)
        directive = self._directive(splits)
        spark.sparkContext.setLocalProperty(PROPERTY, json.dumps(directive, separators=(",", ":")))
        found = Gathered()
        found.add(row[0] for row in lowered.frame.collect())
        found.check_splits({b.head.id: given.get(b.head.id, 0) for b in self.plan.branches if b.placement == "fused"})
        if any(lowered.observed.values()):
            found.count_before_stage(lowered, observed_rows(lowered.frame._jdf.queryExecution()).rows)
        return found.results(self.plan.shared)

    def _measured(self, name: str, sink: Any) -> Any:
        """Return what stands for a sink in the tasks."""
        owned = bound(sink, job_id=self.identity.job_id, sink=name)
        if isinstance(owned, Measurable):
            place = self.folder / str(len(self._measuring))
            place.mkdir()
            self._measuring[name] = owned.measuring(str(place))
        return MeasuredSink(sink, self._measuring.get(name), self.show)

    def _splits(
        self, sources: Mapping[str, Any], uses: Sequence[str], tasks: int
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Return what the directive says of each use of a split-planned source, and how many splits that are."""
        planned = {name: source for name, source in sources.items() if isinstance(source, SplitSource)}
        planner = SplitPlanner(planned, lambda: self.decision.sources, self._workspace)
        said, given = {}, {}
        for use in uses:
            name = source_of(use)
            if name in planned:
                work = planner.splits(name, self.decision.sources[name])
                said[use], given[use] = pack(work, 0, tasks), len(work)
        return said, given

    def _workspace(self, name: str) -> Storage:
        return open_storage(f"{self.root}/sources/{name}")

    def _directive(self, splits: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the tasks were told then, as far as the ledger knows it."""
        decision = self.decision
        took = sum(decision.durations_ms.get(name, 0) for name in ("run", "verify"))
        return {
            "checkpoint": decision.checkpoint,
            "epoch": decision.epoch,
            "started_ms": decision.time_ms - took if decision.started_ms is None else decision.started_ms,
            "decided": False,
            "sinks": {
                name: {} if self.before is None else self._directive_of(name, self.before) for name in self.plan.sinks
            },
            "splits": splits,
        }

    def _directive_of(self, name: str, before: Decision) -> Any:
        sink = self._measuring.get(name)
        return {} if sink is None else sink.directive(state_of(before, name))

    # --- what came of it ---------------------------------------------------------------------------------------------

    def report(
        self, results: TaskResults, whole: Plan, left_out: Mapping[str, str], again: Sequence[int]
    ) -> ReplayReport:
        """Compare the tasks' results with the decision."""
        decision = self.decision
        names = [name for name in self.plan.sinks if name not in left_out]
        shown = {
            name: [text for item in results.prepared if item.sink == name for text in item.payload.pop(SHOWN, ())][
                : self.show
            ]
            for name in names
        }
        sinks = {
            name: SinkReplay(committed=self._committed(name), now=self._now(name, results), shown=shown[name])
            for name in names
        }
        found = [wrong for name, sink in sinks.items() for wrong in compare(name, sink.committed, sink.now)]
        gone = [name for name, part in decision.sinks.items() if name not in whole.sinks and any(_figures(part))]
        found += [Difference(name, "sink", "there", "not in the job") for name in gone]
        rows = {
            name: (span.rows, results.rows_read.get(name))
            for name, span in decision.sources.items()
            if source_of(name) in self.plan.sources
        }
        return ReplayReport(
            job=self.job.name,
            checkpoint=decision.checkpoint,
            record=decision.number,
            time_ms=decision.time_ms,
            again=again,
            rows_read=rows,
            sinks=sinks,
            left_out=left_out,
            differences=found,
        )

    def _committed(self, name: str) -> Measure:
        part = self.decision.sinks.get(name, SinkDecision([], {}))
        sink = self._measuring.get(name)
        places = {} if sink is None else sink.places(part.committables, part.state, self.decision.checkpoint)
        full = self.decision.started_ms is not None and sink is not None
        return Measure(counts=part.counts, wrote=part.wrote, places=places, full=full)

    def _now(self, name: str, results: TaskResults) -> Measure:
        prepared = [item for item in results.prepared if item.sink == name]
        return Measure(
            counts=results.counts.get(name, Counts()),
            wrote=written(prepared).get(name),
            places=self._places(name, prepared),
            full=name in self._measuring,
        )

    def _places(self, name: str, prepared: Sequence[Prepared]) -> Mapping[str, int]:
        sink = self._measuring.get(name)
        if sink is None:
            return {}
        staged = sink.stage({}, prepared, Occasion.CHECKPOINT, self.decision.time_ms)
        found: Mapping[str, int] = sink.places(staged.committables, staged.state, self.decision.checkpoint)
        return found


def _figures(part: SinkDecision) -> Sequence[int]:
    return list(part.counts.to_json().values())
