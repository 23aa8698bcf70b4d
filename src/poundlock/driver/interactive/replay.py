"""A replay: one checkpoint's input read once more, through the job's own chain up to its sinks, and compared with the ledger.

Nothing outside is written: no sink is reached, nothing is decided or locked, so the job may run meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from poundlock.audit.write_totals import Measure, ReplayDifference, ReplayReport, SinkReplay, compare, written
from poundlock.checkpoint.capabilities import Measurable, bound
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import checkpoint_records, state_of
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Kind, Occasion, Prepared
from poundlock.config import Settings
from poundlock.connectors.base import BindableSource, SplitSource
from poundlock.driver.checkpoints import task_results
from poundlock.driver.driver import checkpoint_dir, two_lines
from poundlock.driver.planner import CheckpointPlan, Planner
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.job import Job
from poundlock.operators.time_graph import TimeGraph
from poundlock.operators.time_values import SourceInput, TimeDirective
from poundlock.plan.measuring import SHOWN, MeasuredSink
from poundlock.plan.outline import enters_jvm, is_keyed
from poundlock.plan.plan import DEAD_LETTER, Plan, make_plan
from poundlock.plan.stages import StageChain, stage_chain
from poundlock.spark.batch_job import BatchJobs
from poundlock.spark.error_translation import as_caught, explain
from poundlock.spark.launch.session import Session
from poundlock.spark.launch.spark_launch import begin_spark, on_this_machine
from poundlock.spark.segments import SessionAnalysis
from poundlock.storage import open_storage
from poundlock.stream.nodes import SourceNode, walk
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.report import Directive


def replay(
    job: Job,
    identity: Identity,
    checkpoint: int,
    *,
    settings: Settings,
    show: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> ReplayReport:
    """Run one checkpoint's input once more and compare. `show`: so many records of each sink are part of the report.

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
        with TemporaryDirectory(prefix="poundlock-replay-", ignore_cleanup_errors=True) as folder:
            work = _Replay(job, cut, settings, identity, decision, before, root, Path(folder), show, say)
            results = work.run()
            return work.report(results, plan, left_out, [record.number for record in records[1:]])


def _stateless(plan: Plan) -> tuple[Plan, Mapping[str, str]]:
    """Return the plan without the sinks that depend on earlier checkpoints, and which sinks that leaves out.

    Raises:
        DefinitionError: nothing is left.
    """
    why = "windows and other steps with state before it keep rows of earlier checkpoints"
    left_out = {sink.id: why for sink in plan.job.sinks if any(is_keyed(node) for node in walk([sink]))}
    if not left_out:
        return plan, {}
    if len(left_out) == len(plan.job.sinks):
        raise DefinitionError(
            f"no sink of job {plan.job.name!r} can be replayed: {why.replace('before it', 'before them')}",
            next="compare what the sinks hold with the ledger instead: poundlock audit",
        )
    if DEAD_LETTER in plan.sinks:
        left_out[DEAD_LETTER] = "it takes records of sinks that are left out"
    job = copy(plan.job)
    job.sinks = [sink for sink in plan.job.sinks if sink.id not in left_out]
    return replace(plan, job=job, nodes=list(walk(job.sinks))), left_out


@dataclass
class _Replay:
    """One replay."""

    job: Job
    plan: Plan
    settings: Settings
    identity: Identity
    # the checkpoint's record, and the one before it where it is kept
    decision: Decision
    before: Decision | None
    root: str
    folder: Path
    show: int
    say: Callable[[str], None]
    _measuring: dict[str, Any] = field(default_factory=dict)

    def run(self) -> TaskResults:
        """Run the tasks and return what they report."""
        sources = self._sources()
        with closing(self._planner(sources)) as planner:
            local, quick = on_this_machine(self.settings), not enters_jvm(self.plan)
            session = begin_spark(
                self.job, local, log=self._log, quick_start=quick, exchanges=self.plan.exchanges, say=self.say
            ).session()
            try:
                return self._collect(session, sources, planner)
            except Exception as failure:  # reported while the JVM is there to be asked
                raise self._explained(explain(failure, list(sources.values()))) from as_caught(failure)
            finally:
                session.stop()

    def _explained(self, error: PoundlockError) -> PoundlockError:
        error.checkpoint = self.decision.checkpoint if error.checkpoint is None else error.checkpoint
        if error.next.startswith("see the log"):
            error.next = f"read {self.settings.logs / self._log}"
        return error

    @property
    def _log(self) -> str:
        return f"{self.job.name}.replay.jvm.log"

    @property
    def _needed(self) -> set[str]:
        """The names of the sources that are read."""
        return {node.id for node in self.plan.nodes if isinstance(node, SourceNode)}

    def _sources(self) -> Mapping[str, SplitSource]:
        """Return the sources of the checkpoint; those of sinks that are left out have a part in how work is divided."""
        sources: dict[str, Any] = {}
        for name in sorted(self.plan.sources):
            source = self.plan.sources[name]
            if name not in self.decision.sources:
                if name not in self._needed:
                    continue
                raise DefinitionError(
                    f"checkpoint {self.decision.checkpoint} did not read source {name!r}",
                    next=f"it read {', '.join(self.decision.sources)}; name the source as it was",
                )
            if not isinstance(source, SplitSource):
                raise DefinitionError(
                    f"source {name!r} cannot be read from one offset to another: {type(source).__name__}",
                    next="checkpoints of jobs without Spark sources can be replayed",
                )
            if isinstance(source, BindableSource):
                previous = self.decision.sources[name].identity
                source = source.bind(job=self.job.name, name=name, previous=previous)
            sources[name] = source
        return sources

    @property
    def _tasks(self) -> int | None:
        return self.decision.parallelism or self.decision.tasks or self.job.parallelism

    def _planner(self, sources: Mapping[str, SplitSource]) -> Planner:
        """Return what divides the work as it was divided then."""
        return Planner(
            sources,
            lambda name: open_storage(f"{self.root}/sources/{name}"),
            # As many tasks as then, whatever this machine has: how rows are cut into files depends on it.
            self._tasks or 1,
            whole=TimeGraph.of(list(self.job.graph())).per_record_sources,
            alone=any(sink.kind is Kind.SKIPPING for sink in self.plan.sinks.values()),
            read_only=True,
        )

    def _collect(self, session: Session, sources: Mapping[str, SplitSource], planner: Planner) -> TaskResults:
        chain = stage_chain(
            self.plan,
            job_id=self.identity.job_id,
            sources=sources,
            sinks={name: self._measured(name, sink) for name, sink in self.plan.sinks.items()},
            state_dir=str(self.folder),
            analysis=SessionAnalysis(session),
        )
        whole = planner.plan_again(self.decision.checkpoint, self.decision.sources)
        plan = self._without_left_out(whole)
        planner.check_ranges(plan)
        tasks = min(self._tasks or session.context.defaultParallelism, self.job.max_parallelism)
        directive = self._directive(chain, planner.inputs(whole.ranges), whole.places, tasks)
        reports = BatchJobs(session, self.job.name, chain).run(directive, plan.work)
        planner.check_identity(plan)
        return task_results(chain, plan, reports, watermarks=None, event_time=None)

    def _without_left_out(self, plan: CheckpointPlan) -> CheckpointPlan:
        """Return a plan without what only sinks that are left out read; each task keeps its number."""
        needed = self._needed
        work = [replace(task, splits=[s for s in task.splits if s.source in needed]) for task in plan.work]
        return replace(
            plan,
            ranges={name: span for name, span in plan.ranges.items() if name in needed},
            work=[task for task in work if task.splits],
            splits={name: count for name, count in plan.splits.items() if name in needed},
        )

    def _measured(self, name: str, sink: Any) -> Any:
        """Return what stands for a sink in the tasks."""
        owned = bound(sink, job_id=self.identity.job_id, sink=name)
        if isinstance(owned, Measurable):
            place = self.folder / str(len(self._measuring))
            place.mkdir()
            self._measuring[name] = owned.measuring(str(place))
        return MeasuredSink(sink, self._measuring.get(name), self.show)

    def _directive(
        self, chain: StageChain, inputs: Mapping[str, SourceInput], places: Sequence[SplitPlace], parallelism: int
    ) -> Directive:
        """Return what the tasks were given then, as far as the ledger knows it."""
        decision = self.decision
        took = sum(decision.durations_ms.get(name, 0) for name in ("run", "verify"))
        started_ms = decision.time_ms - took if decision.started_ms is None else decision.started_ms
        time = decision.watermarks
        return Directive(
            checkpoint=decision.checkpoint,
            epoch=decision.epoch,
            started_ms=started_ms,
            run=secrets.token_hex(8),
            sinks={name: self._directive_of(name) for name in self.plan.sinks},
            time=TimeDirective(chain.times.initial(), started_ms, dict(inputs)) if time is None else time.directive,
            parallelism=parallelism,
            places=places if chain.needs_places else (),
        )

    def _directive_of(self, name: str) -> Any:
        sink = self._measuring.get(name)
        return {} if sink is None or self.before is None else sink.directive(state_of(self.before, name))

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
        differences = [wrong for name, sink in sinks.items() for wrong in compare(name, sink.committed, sink.now)]
        gone = [n for n, part in decision.sinks.items() if n not in whole.sinks and any(part.counts.to_json().values())]
        differences += [ReplayDifference(name, "sink", "there", "not in the job") for name in gone]
        rows = {
            name: (span.rows, results.rows_read.get(name))
            for name, span in decision.sources.items()
            if name in self.plan.sources
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
            differences=differences,
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
        places: Mapping[str, int] = sink.places(staged.committables, staged.state, self.decision.checkpoint)
        return places
