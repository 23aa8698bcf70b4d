"""The driver: checks the job, claims its checkpoint, starts Spark, and keeps the query running until it is done.

Everything is checked before anything is touched; a failure leads back to recovery, which needs the checkpoint and the sinks only.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity, open_identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.outcome import Recovery
from poundlock.checkpoint.participant import Inspectable, Occasion, bound
from poundlock.config import Settings, load_settings
from poundlock.connectors.base import BindableSource, SourceReading, SplitSource
from poundlock.errors import PoundlockError
from poundlock.job import Job
from poundlock.plan.guarantees import check_required
from poundlock.plan.plan import Plan, make_plan
from poundlock.plan.uses import source_of
from poundlock.runtime import session as sessions
from poundlock.runtime.attempts import Attempts, CheckpointTimedOut
from poundlock.runtime.backends import check_backend, forget_undecided, refuse_other_backend, state_backend_of
from poundlock.runtime.checkpoint_as_savepoint import described, savepoint_of
from poundlock.runtime.failures import explain, is_transient
from poundlock.runtime.leaving import leave, refuse_left
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.partitions import PARTITIONS, kept_note, wanted_partitions
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.progress import Progress, State, StopRequest
from poundlock.runtime.query import Query, Saved, files_made
from poundlock.runtime.requests import Requests
from poundlock.runtime.rescaling import rescale
from poundlock.runtime.restart import ExponentialDelayRestart, RestartState, RestartStrategy, restart_strategy
from poundlock.runtime.restoring import Beginning, begin, has_begun
from poundlock.runtime.retained import Retained
from poundlock.runtime.retention import delete_checkpoint, finish_deletion
from poundlock.runtime.saving import cut
from poundlock.runtime.starting import start_spark, stop_spark
from poundlock.runtime.tracker import Tracker
from poundlock.savepoint.claim import settle_claim
from poundlock.savepoint.take import Cut
from poundlock.storage import Storage, open_storage
from poundlock.storage.local import LocalStorage
from poundlock.values import Clock, SystemClock, duration

__all__ = ["checkpoint_dir", "run"]

IGNORE_LEDGER = "POUNDLOCK_TEST_IGNORE_LEDGER"
SET_FROM_OUTSIDE = (
    "on_error",
    "dead_letters",
    "parallelism",
    "checkpoint_interval",
    "checkpoint_min_pause",
    "checkpoint_timeout",
    "tolerable_failed_checkpoints",
    "checkpoint_retention",
    "checkpoints_retained",
    "state_backend",
)
_TOLERATED_S = 1.0


def checkpoint_dir(job: Job, settings: Settings) -> str:
    """Return the folder of a job's checkpoint: from the settings, the job, or below the state directory."""
    return settings.checkpoint_dir or job.checkpoint_dir or str(settings.state_dir / "checkpoints" / job.name)


def run(
    job: Job,
    *,
    settings: Settings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: StopRequest | None = None,
    requests: Requests | None = None,
    on_claim: Callable[[Identity], None] | None = None,
    beginning: Beginning | None = None,
) -> Progress:
    """Run a job until its input ends or `stop` asks for it; restart it as its strategy says when it fails.

    Args:
        job: what to run.
        settings: the machine's and the run's settings; default: file and environment.
        on_progress: told of every checkpoint and change of state, from this process's threads.
        stop: how to end it; see StopRequest.
        requests: what others ask of it while it runs.
        on_claim: told whose checkpoint it is, once this process is the only one that runs it and before Spark starts.
        beginning: the savepoint to begin with.

    Raises:
        PoundlockError: the job cannot run, or failed for good.
    """
    settings = settings or load_settings()
    job = with_settings(job, settings)
    plan = make_plan(job)
    check_required(plan)
    preflight(plan)
    requests = requests or Requests()
    driver = Driver(
        job,
        plan,
        settings,
        Tracker(on_progress),
        stop or StopRequest(),
        requests=requests,
        on_claim=on_claim or (lambda identity: None),
        beginning=beginning,
    )
    try:
        progress = driver.run()
    except BaseException as error:
        requests.close(error if isinstance(error, PoundlockError) else None)
        raise
    requests.close()
    return progress


def strategy_of(job: Job, settings: Settings) -> RestartStrategy:
    """Return when a job is started again: as the settings say, or the job."""
    return restart_strategy(settings) or job.restart or ExponentialDelayRestart()


def with_settings(job: Job, settings: Settings) -> Job:
    """Return the job with what the settings say instead of it."""
    for name in SET_FROM_OUTSIDE:
        value = getattr(settings, name)
        if value is not None:
            setattr(job, name, value)
    return job


def preflight(plan: Plan) -> None:
    """Ask every source and sink whether it can work. Raises DefinitionError."""
    for part in (*plan.sources.values(), *plan.sinks.values()):
        check = getattr(part, "preflight", None)
        if check is not None:
            check()


@dataclass
class Driver:
    """One driver process's work on one job."""

    job: Job
    plan: Plan
    settings: Settings
    tracker: Tracker
    stop: StopRequest
    clock: Clock = field(default_factory=SystemClock)
    requests: Requests = field(default_factory=Requests)
    on_claim: Callable[[Identity], None] = lambda identity: None
    beginning: Beginning | None = None
    _spark: Any = None
    _claim_settled: bool = False
    _attempts: Attempts = field(init=False)

    def __post_init__(self) -> None:
        timeout = self.job.checkpoint_timeout
        self._attempts = Attempts(None if timeout is None else duration(timeout), self.job.tolerable_failed_checkpoints)

    def run(self) -> Progress:
        """Run until done; see `run`."""
        storage = open_storage(checkpoint_dir(self.job, self.settings))
        backend = state_backend_of(self.job, self.settings)
        with two_lines(self.plan):
            finish_deletion(self.plan, storage, clock=self.clock, say=self._say)
            if self.beginning is None:
                refuse_left(storage)
            else:
                self._begin(storage, backend)
            check_backend(
                open_storage(f"{storage.root}/spark"),
                backend,
                what=f"the checkpoint {storage.root}",
                next="begin anew in another checkpoint_dir",
            )
            identity = open_identity(storage, name=self.job.name, clock=self.clock)
            self._note_partitions(storage)
            sinks = {
                name: sink.describe_json()
                for name, sink in self._sinks(identity).items()
                if isinstance(sink, Inspectable)
            }
            with Epoch.claim(storage, clock=self.clock, sinks=sinks, operators=described(self.plan)) as epoch:
                refuse_left(storage)  # now that nobody else can begin anything here
                try:
                    self.on_claim(identity)
                    progress = self._keep_running(storage, identity, epoch)
                finally:
                    self._end_session()
                if progress.state == "CANCELED" and self._deleted_when_canceled:
                    self._delete(storage, identity, epoch)
                    progress = replace(self.tracker.progress, state="CANCELED")
                return progress

    @property
    def _deleted_when_canceled(self) -> bool:
        return self.job.checkpoint_retention == "DELETE_ON_CANCELLATION"

    def _delete(self, storage: Storage, identity: Identity, epoch: Epoch) -> None:
        coordinator = self._coordinator(storage, identity, epoch)
        try:
            delete_checkpoint(storage, identity, self._sinks(identity), coordinator, epoch)
        except (PoundlockError, OSError) as failure:
            error = explain(failure, list(self.plan.sources.values()))
            self.tracker.state("CANCELED", f"Checkpoint {storage.root} could not be deleted: {error.what}")
        else:
            self.tracker.state("CANCELED", f"Deleted the checkpoint {storage.root}")

    def _begin(self, storage: Storage, backend: str) -> None:
        """Make the checkpoint folder that of a job which goes on from the savepoint, or checkpoint, that was given."""
        assert self.beginning is not None
        if has_begun(storage, self.beginning, say=self._say):
            return
        with savepoint_of(self.beginning, storage, self.plan, clock=self.clock, say=self._say) as (given, say):
            refuse_other_backend(given.path, backend)
            begin(
                self.plan,
                storage,
                given,
                clock=self.clock,
                say=say,
                partitions=wanted_partitions(self.job, self.settings),
                rescale=lambda wanted: rescale(self.job, self.settings, storage.root, wanted, say=self._say),
            )

    def _note_partitions(self, storage: Storage) -> None:
        """Say it where somebody asks for another number of state partitions than there are."""
        if self.settings.parallelism is not None or PARTITIONS in self.settings.spark:
            note = kept_note(storage, wanted_partitions(self.job, self.settings))
            if note is not None:
                self._say(note)

    def _sinks(self, identity: Identity) -> dict[str, Any]:
        """Return the sinks as this job owns them."""
        return {name: bound(sink, job_id=identity.job_id, sink=name) for name, sink in self.plan.sinks.items()}

    def _keep_running(self, storage: Storage, identity: Identity, epoch: Epoch) -> Progress:
        restarts = RestartState(strategy_of(self.job, self.settings))
        rng = random.Random(identity.job_id)
        while True:
            if self.stop.canceling:
                return self._canceled()
            try:
                return self._one_life(storage, identity, epoch, restarts)
            except Exception as failure:
                error = self._explained(failure)
                if self.stop.canceling:
                    return self._canceled()
                if self._attempts.tolerates(error) and not self.stop.stopping:
                    delay: timedelta | None = timedelta(seconds=_TOLERATED_S)
                else:
                    delay = restarts.next_delay(self.clock.now_ms(), rng, error, transient=is_transient(error))
                if delay is None or self.stop.stopping:
                    self.tracker.state("FAILED")
                    raise error from failure
                again = f"again in {delay.total_seconds():.1f} s" + (f"; {error.next}" if error.next else "")
                self.tracker.state("RESTARTING", f"{error.what} ({again})", restarts=1)
                self.stop.wait(delay.total_seconds())
                if self.stop.canceling:
                    return self._canceled()

    def _explained(self, failure: Exception) -> PoundlockError:
        """Return the error to show; a call into a JVM that is gone can fail as anything, even as storage trouble."""
        error = explain(failure, list(self.plan.sources.values()))
        unsure = isinstance(failure, ConnectionError) or isinstance(failure.__cause__, ConnectionError)
        if self._spark is not None and not sessions.jvm_alive() and (unsure or type(error) is PoundlockError):
            return sessions.jvm_gone()
        return error

    def _one_life(self, storage: Storage, identity: Identity, epoch: Epoch, restarts: RestartState) -> Progress:
        SparkLog(open_storage(f"{storage.root}/spark")).check_within(Ledger(storage).newest())
        coordinator = self._coordinator(storage, identity, epoch)
        recovery = coordinator.recover()
        with self._reading(recovery) as sources:
            query = self._query(storage, identity, coordinator, recovery, sources)
            query.on_checkpoint = lambda: self._completed(storage, restarts)
            self.tracker.state("RUNNING")
            query.start()
            try:
                ended = query.wait(self.stop)
            except BaseException as error:
                query.kill()
                if isinstance(error, CheckpointTimedOut) and query.hangs:
                    sessions.kill_jvm()
                sessions.await_tasks(query.session)  # the next life's recovery counts on no task writing any more
                raise
            if ended is None:
                if self._deleted_when_canceled:
                    query.kill()
                    sessions.await_tasks(query.session)  # what a task still writes would stay behind
                return self._canceled()
            if isinstance(ended, Saved):
                try:
                    sessions.await_tasks(query.session)
                    return self._ended_with(ended, storage, identity, epoch)
                except BaseException:
                    query.kill()  # the job has not ended with it: the next life is asked for another one
                    raise
            outcome = coordinator.roll(Occasion.END)
            if outcome is not None:
                self.tracker.rolled(files_made(outcome))
            sessions.await_tasks(query.session)
            coordinator.sweep()
            self.tracker.state("FINISHED")
            return self.tracker.progress

    def _coordinator(self, storage: Storage, identity: Identity, epoch: Epoch) -> Coordinator:
        kept = self.settings.ledger_retention
        return Coordinator(
            identity=identity,
            epoch=epoch,
            ledger=Ledger(storage, retention_ms=None if kept is None else int(kept.total_seconds() * 1000)),
            participants=self._sinks(identity),
            clock=self.clock,
            ignore_ledger=os.environ.get(IGNORE_LEDGER) == "1",
        )

    def _completed(self, storage: Storage, restarts: RestartState) -> None:
        """A checkpoint is complete: a savepoint that was claimed is no longer needed."""
        restarts.checkpoint_completed()
        self._attempts.completed()
        if not self._claim_settled:
            self._claim_settled = True
            said = settle_claim(storage)
            if said is not None:
                self._say(said)

    def _ended_with(self, saved: Saved, storage: Storage, identity: Identity, epoch: Epoch) -> Progress:
        """Leave everything to the savepoint: hidden data goes, and who runs the job without it is told."""
        leave(storage, self._sinks(identity), saved.path, job_id=identity.job_id, check=epoch.check)
        state: State = "CANCELED" if saved.trigger.then == "cancel" else "FINISHED"
        self.tracker.state(state, f"Savepoint completed. Path: {saved.path}")
        saved.trigger.complete(saved.path)
        return replace(self.tracker.progress, state=state)

    @contextmanager
    def _reading(self, recovery: Recovery) -> Iterator[Mapping[str, Any]]:
        """Give the sources as this start reads them, and let go of them afterwards."""
        sources: dict[str, Any] = {}
        try:
            for name, source in self.plan.sources.items():
                found = recovery.sources.get(name)
                if isinstance(source, BindableSource):
                    previous = found.identity if found is not None else None
                    source = source.bind(job=self.job.name, name=name, previous=previous)
                sources[name] = source
                if found is not None:
                    self.tracker.state(self.tracker.progress.state, f"Source {name} {source.describe(found.end)}")
            yield sources
        finally:
            for source in sources.values():
                if isinstance(source, SourceReading):
                    source.close()

    def _query(
        self,
        storage: Storage,
        identity: Identity,
        coordinator: Coordinator,
        recovery: Recovery,
        sources: Mapping[str, Any],
    ) -> Query:
        positions = {name: found.end for name, found in recovery.sources.items()}
        reads = {n: s.spark_read(positions.get(n)) for n, s in sources.items() if not isinstance(s, SplitSource)}
        spark = self._session(storage, {jars for read in reads.values() for jars in read.jars})
        from poundlock.plan.lower import Lowering

        root = checkpoint_dir(self.job, self.settings)
        lowered = Lowering(
            plan=self.plan,
            spark=spark,
            job_id=identity.job_id,
            sources=sources,
            reads=reads,
            sinks=self._sinks(identity),
            parallelism=self.job.parallelism or spark.sparkContext.defaultParallelism,
        ).lower()
        spark_storage = open_storage(f"{root}/spark")
        forget_undecided(spark_storage, recovery.checkpoint, spark)

        def save(directory: str, retained: str | None = None) -> Cut:
            said = {"state_backend": state_backend_of(self.job, self.settings)}
            return cut(
                self.plan, storage, coordinator, identity, directory, spark=said, clock=self.clock, retained=retained
            )

        return Query(
            plan=self.plan,
            lowered=lowered,
            sources={use: sources[source_of(use)] for use in lowered.uses},
            spark_log=SparkLog(spark_storage),
            checkpoint_path=spark_storage.root,
            coordinator=coordinator,
            tracker=self.tracker,
            planner=SplitPlanner(
                {name: source for name, source in sources.items() if isinstance(source, SplitSource)},
                lambda: coordinator.sources,
                lambda name: open_storage(f"{root}/sources/{name}"),
            ),
            interval=duration(self.job.checkpoint_interval),
            clock=self.clock,
            save=lambda directory: save(directory or f"{self.settings.state_dir}/savepoints"),
            requests=self.requests,
            min_pause=duration(self.job.checkpoint_min_pause),
            attempts=self._attempts,
            retained=Retained(
                storage, job_id=identity.job_id, keep=self.job.checkpoints_retained, cut=save, say=self._say
            ),
        )

    def _session(self, storage: Storage, jar_sets: Collection[str]) -> Any:
        if self._spark is not None and sessions.jvm_alive():
            return self._spark
        if self._spark is not None:
            sessions.forget_session()
            self._spark = None
        self._spark = start_spark(
            self.job,
            self.settings,
            jar_sets,
            log=f"{self.job.name}.jvm.log",
            quick_start=self.plan.only_fused,
            local_checkpoint=isinstance(storage, LocalStorage),
            say=self._say,
        )
        return self._spark

    def _say(self, line: str) -> None:
        self.tracker.state(self.tracker.progress.state, line)

    def _canceled(self) -> Progress:
        sessions.kill_jvm()
        self.tracker.state("CANCELED")
        return replace(self.tracker.progress, state="CANCELED")

    def _end_session(self) -> None:
        if self._spark is not None:
            stop_spark(self._spark)
            self._spark = None


@contextmanager
def two_lines(plan: Plan) -> Iterator[None]:
    """Let nothing but a PoundlockError out."""
    try:
        yield
    except PoundlockError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise explain(error, list(plan.sources.values())) from error
