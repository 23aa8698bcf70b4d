"""The driver: checks the job, claims its checkpoint, starts Spark, and keeps the loop running until it is done.

Everything is checked before anything is touched; a failure leads back to recovery, which needs the checkpoint and the sinks only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from poundlock.checkpoint.capabilities import Closable, Inspectable, NeedsJvm, Preflight, check_tasks
from poundlock.checkpoint.epoch import Epoch, EpochTaken
from poundlock.checkpoint.identity import Identity, open_identity, rename
from poundlock.checkpoint.participant import Occasion
from poundlock.config import Settings, load_settings
from poundlock.driver.autoscaler import autoscaler_of, check_autoscaler
from poundlock.driver.context import Assembly
from poundlock.driver.failures.attempts import Attempts, CheckpointTimedOut
from poundlock.driver.failures.failure_record import FailureRecord
from poundlock.driver.progress import Progress, State, StopRequest, Tracker
from poundlock.driver.requests import Requests
from poundlock.driver.restart import (
    ExponentialDelayRestart,
    RestartState,
    RestartStrategy,
    restart_strategy,
)
from poundlock.driver.savepoints.checkpoint_as_savepoint import described, savepoint_of
from poundlock.driver.savepoints.checkpoint_deletion import delete_checkpoint, finish_deletion
from poundlock.driver.savepoints.handover import leave, refuse_left
from poundlock.driver.savepoints.requested import Saved
from poundlock.driver.savepoints.restore import Beginning, begin, has_begun
from poundlock.driver.savepoints.retained_checkpoints import newest_whole
from poundlock.driver.standby.lease import LeaseKeeper
from poundlock.driver.standby.standby import Standby, StandbyMode, ended_elsewhere, refuse_standby
from poundlock.driver.standby.watch import ActiveDriver, Vacant
from poundlock.driver.standing import Standing, begin_look, look
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.job import Job
from poundlock.metrics.timeline import FailedCheckpoint, Timeline
from poundlock.plan.guarantees import check_required
from poundlock.plan.plan import Plan, make_plan, refuse_read, refuse_swept
from poundlock.savepoint.operator_ids import refuse_changed
from poundlock.savepoint.restore import settle_claim
from poundlock.spark.error_translation import as_caught, explain
from poundlock.spark.executors import ApplicationLost
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session import Session, jvm_gone, refuse_second_session
from poundlock.state.runs.run import DamagedRunError, from_whole
from poundlock.storage import Storage, open_checkpoint, open_storage
from poundlock.storage.storage_errors import refuse_unreachable
from poundlock.threads import call_all
from poundlock.values import duration

CHECKPOINTING = (
    "checkpoint_interval", "checkpoint_min_pause", "checkpoint_timeout", "tolerable_failed_checkpoints",
    "checkpoint_retention", "checkpoints_retained", "checkpointing_mode",
)  # fmt: skip
SET_FROM_OUTSIDE = ("on_error", "dead_letters", "parallelism", *CHECKPOINTING)
_TOLERATED_S = 1.0
_CLAIM_AGAIN_S = 5.0


def checkpoint_dir(job: Job, settings: Settings) -> str:
    """Return the folder of a job's checkpoint: from the settings, the job, or below the state directory.

    Raises:
        DefinitionError: it is no folder, on a store that a checkpoint cannot be on, or where a source of the job would read it.
    """
    folder = settings.checkpoint_dir or job.checkpoint_dir or str(settings.state_dir / "checkpoints" / job.name)
    open_checkpoint(folder)
    refuse_read(job.sinks, folder, "the job's own checkpoint", job.name)
    if job.checkpoints_retained > 1:
        refuse_swept({node.id: node.sink for node in job.sinks}, folder, "copies of the checkpoint", job.name)
    return folder


def run(
    job: Job,
    *,
    settings: Settings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: StopRequest | None = None,
    requests: Requests | None = None,
    on_claim: Callable[[Identity], None] | None = None,
    beginning: Beginning | None = None,
    session: Session | None = None,
    read_only: bool = False,
    standby: StandbyMode | None = None,
) -> Progress:
    """Run a job until its input ends or `stop` asks for it; restart it as its strategy says when it fails.

    Args:
        settings: the machine's and the run's settings; default: file and environment.
        on_progress: called with every checkpoint and change of state, from this process's threads.
        on_claim: called with whose checkpoint it is, once this process is the only one that runs it and before Spark starts.
        session: the user's Spark session to run in; None = the job has one of its own.
        read_only: whether sources are not to learn what was read.
        standby: stand by while another driver runs the job, and keep a lease as the active one; None = run it, or be refused.

    Raises:
        PoundlockError: the job cannot run, or failed for good.
    """
    settings = settings or load_settings()
    job = with_settings(job, settings)
    if standby is not None:
        refuse_standby(job, settings)
    plan = make_plan(job)
    check_required(plan)
    requests = requests or Requests()
    timeout = job.checkpoint_timeout
    driver = Driver(
        job=job,
        plan=plan,
        settings=settings,
        tracker=Tracker(on_progress),
        requests=requests,
        session=session,
        attempts=Attempts(None if timeout is None else duration(timeout), job.tolerable_failed_checkpoints),
        read_only=read_only,
        stop=stop or StopRequest(),
        on_claim=on_claim or (lambda identity: None),
        beginning=beginning,
        standby=standby,
        stands_by=standby is not None,
    )
    try:
        if session is None:
            _check_master(job, settings)
        if standby is None:
            driver.look_ahead()
        folders = {"the checkpoint": open_storage(checkpoint_dir(job, settings))}
        if beginning is not None:
            folders["the savepoint"] = open_checkpoint(beginning.path, "savepoint")
        preflight(plan, *(partial(refuse_unreachable, folder, what=what) for what, folder in folders.items()))
        progress = driver.run()
    except BaseException as error:
        requests.close(error if isinstance(error, PoundlockError) else None)
        raise
    finally:
        for sink in plan.sinks.values():
            if isinstance(sink, Closable):
                sink.close()  # what connections it holds in this process
    requests.close()
    return progress


def _check_master(job: Job, settings: Settings) -> None:
    """Raise unless the master is there and the job can run on it, with a session of its own."""
    refuse_second_session()
    master = Master.of(settings.master)
    if settings.deploy_mode == "cluster":
        master.refuse_cluster_mode()
        raise DefinitionError(
            "this process would be the driver, and deploy_mode=cluster has the cluster run it",
            next=f"type: poundlock run {job.script} --deploy-mode cluster, or leave deploy_mode out",
            job=job.name,
        )
    master.check()


def strategy_of(job: Job, settings: Settings) -> RestartStrategy:
    """Return when a job is started again: as the settings say, or the job."""
    return restart_strategy(settings) or job.restart or ExponentialDelayRestart()


def with_settings(job: Job, settings: Settings) -> Job:
    """Return the job with what the settings say instead of it."""
    for name in SET_FROM_OUTSIDE:
        value = getattr(settings, name)
        if value is not None:
            setattr(job, name, value)
    job.autoscaler = autoscaler_of(job, settings)
    return job


def preflight(plan: Plan, *others: Callable[[], object]) -> None:
    """Ask every source whether it can work, beside other questions, and then every sink, for sinks make their folders.

    Args:
        others: what else must be so before anything is made; each raises where it is not.

    Raises:
        DefinitionError: a source or a sink cannot work.
    """
    if any(isinstance(part, NeedsJvm) and part.jvm for part in (*plan.sources.values(), *plan.sinks.values())):
        from poundlock.spark import jdbc_gateway as jdbc

        jdbc.install()
    with two_lines(plan):
        sources, sinks = (
            [part.preflight for part in parts.values() if isinstance(part, Preflight)]
            for parts in (plan.sources, plan.sinks)
        )
        call_all(*others, *sources, name="poundlock-preflight")
        call_all(*sinks, name="poundlock-preflight")
    check_tasks(plan.sinks, plan.job.parallelism or 1)
    if plan.job.autoscaler is not None:
        check_autoscaler(plan, plan.job.autoscaler)


@dataclass(kw_only=True)
class Driver(Assembly):
    """One driver process's work on one job; see `run` for what it is given."""

    on_claim: Callable[[Identity], None]
    beginning: Beginning | None
    standby: StandbyMode | None = None
    _claim_settled: bool = False
    _looking: Future[Standing | None] | None = None

    def run(self) -> Progress:
        """Run until done; see `run`."""
        storage = open_storage(checkpoint_dir(self.job, self.settings))
        with two_lines(self.plan):
            try:
                while self.standby is not None:
                    turn = self._stand_by(storage, self.standby)
                    if isinstance(turn, Progress):
                        return turn
                    try:
                        return self._run(storage, succeeds=turn)
                    except TransientError as error:
                        if self.lease is not None:
                            raise
                        self._not_claimed(error)
                return self._run(storage)
            finally:
                self.end_session()

    def _run(self, storage: Storage, succeeds: int | None = None) -> Progress:
        """Run the job in a life of its own, which `succeeds` that one; None = whichever there is."""
        standing = self._standing(storage)
        life = standing.life
        identity = open_identity(storage, name=self.job.name, clock=self.clock, kept=standing.identity)
        refuse_changed(storage.root, identity, life, standing.newest, self.plan)
        sinks = {
            name: sink.describe_json() for name, sink in self.sinks(identity).items() if isinstance(sink, Inspectable)
        }
        with Epoch.claim(
            storage,
            clock=self.clock,
            sinks=sinks,
            operators=described(self.plan),
            after=None if life is None else life.epoch,
            succeeds=succeeds,
            lease_ms=None if self.standby is None else round(self.settings.lease_duration.total_seconds() * 1000),
        ) as epoch:
            with self._keeping_lease(storage, epoch) as self.lease:
                refuse_left(storage, self.job.script, self.job.command)  # now that nobody else can begin anything here
                if identity.name != self.job.name:
                    self.say(f"Job {identity.job_id} was called {identity.name} and is {self.job.name} now")
                    identity = rename(storage, identity, self.job.name)
                self.on_claim(identity)
                progress = self._keep_running(storage, identity, epoch)
            self.end_session()
            if progress.state == "CANCELED" and self._deleted_when_canceled:
                self._delete(storage, identity, epoch)
                progress = replace(self.tracker.progress, state="CANCELED")
            return progress

    def _not_claimed(self, error: TransientError) -> None:
        """Wait where this driver could not take over, as on a full disk; another one that was faster is waited for in any case."""
        if not isinstance(error, EpochTaken):
            self.say(f"{error.what}; {error.next}. Tried again in {_CLAIM_AGAIN_S:g} s")
            self.stop.wait(_CLAIM_AGAIN_S)

    def _stand_by(self, storage: Storage, mode: StandbyMode) -> Progress | int:
        """Wait while another driver runs the job; return the number of the life to succeed, or how the job, or the wait, ended."""
        standby = Standby(
            storage=storage,
            active=ActiveDriver(storage=storage),
            stop=self.stop,
            lasts=self.settings.lease_duration,
            warm=partial(self.warm, storage),
            say=self.say,
            on_waiting=mode.on_waiting,
        )
        turn = standby.wait()
        return turn.succeeds if isinstance(turn, Vacant) else ended_elsewhere(turn, self.tracker)

    def _keeping_lease(self, storage: Storage, epoch: Epoch) -> AbstractContextManager[LeaseKeeper | None]:
        if self.standby is None:
            return nullcontext()
        lasts, hands_over = self.settings.lease_duration, self.standby.hands_over
        keeper = LeaseKeeper(storage=storage, epoch=epoch, lasts=lasts, hands_over=hands_over, clock=self.clock)
        return keeper.keeping(self.tracker)

    def look_ahead(self) -> None:
        """Begin to look at what the checkpoint folder has, beside the checks of sources and sinks; where it is not made of a savepoint first."""
        if self.beginning is None:
            storage = open_storage(checkpoint_dir(self.job, self.settings))
            self._looking = begin_look(storage, self.job.script, self.job.command)

    def _standing(self, storage: Storage) -> Standing:
        """Return what the checkpoint folder has, made of the savepoint that was given, and with no deletion half done."""
        if self.beginning is not None:
            finish_deletion(self.plan, storage, clock=self.clock, say=self.say)
            self._begin(storage)
        looking, self._looking = self._looking, None
        standing = self._look(storage) if looking is None else looking.result()
        while standing is None:
            finish_deletion(self.plan, storage, clock=self.clock, say=self.say)
            standing = self._look(storage)
        return standing

    def _look(self, storage: Storage) -> Standing | None:
        return look(storage, self.job.script, self.job.command)

    @property
    def _deleted_when_canceled(self) -> bool:
        return self.job.checkpoint_retention == "DELETE_ON_CANCELLATION"

    @property
    def _session_goes_on(self) -> bool:
        """Whether tasks do not end with the job's session."""
        return self.session is not None and not self.session.owned

    def _delete(self, storage: Storage, identity: Identity, epoch: Epoch) -> None:
        coordinator = self.coordinator(storage, identity, epoch)
        try:
            delete_checkpoint(storage, identity, self.sinks(identity), coordinator, epoch)
        except (PoundlockError, OSError) as failure:
            error = explain(failure, list(self.plan.sources.values()))
            self.tracker.state("CANCELED", f"Checkpoint {storage.root} could not be deleted: {error.what}")
        else:
            self.tracker.state("CANCELED", f"Deleted the checkpoint {storage.root}")

    def _begin(self, storage: Storage) -> None:
        """Make the checkpoint folder that of a job which goes on from the savepoint, or checkpoint, that was given."""
        assert self.beginning is not None
        if has_begun(storage, self.beginning, self.job, say=self.say):
            return
        with savepoint_of(self.beginning, storage, self.plan, clock=self.clock, say=self.say) as (given, say):
            begin(self.plan, storage, given, clock=self.clock, say=say)

    def _keep_running(self, storage: Storage, identity: Identity, epoch: Epoch) -> Progress:
        restarts = RestartState(strategy_of(self.job, self.settings))
        failures = self._follow_failures(FailureRecord(storage, epoch.number, identity.job_id, self.say))
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
                if self.attempts.tolerates(error) and not self.stop.stopping:
                    delay: timedelta | None = timedelta(seconds=_TOLERATED_S)
                else:
                    delay = restarts.next_delay(
                        self.clock.now_ms(), rng, error, transient=isinstance(error, TransientError)
                    )
                if delay is None or self.stop.stopping:
                    self.tracker.state("FAILED")
                    raise error from as_caught(failure)
                again = f"again in {delay.total_seconds():.1f} s" + (f"; {error.next}" if error.next else "")
                failures.restarted()
                self.tracker.state("RESTARTING", f"{error.what} ({again})", restarts=1)
                self.stop.wait(delay.total_seconds())
                if self.stop.canceling:
                    return self._canceled()

    def _follow_failures(self, record: FailureRecord) -> FailureRecord:
        """Have failed checkpoints written down and shown; what a cancel ends has not failed."""

        def failed(checkpoint: FailedCheckpoint, timeline: Timeline) -> None:
            if not self.stop.canceling:
                record.failed(checkpoint)
                self.tracker.failed(record.failures.checkpoints, record.failures.newest, timeline)

        self.attempts.on_failure = failed
        known = record.failures
        self.tracker.failures_before(known.checkpoints, known.newest, known.restarts)
        return record

    def _explained(self, failure: Exception) -> PoundlockError:
        """Return the error to show; a call into a JVM that is gone can fail as anything, even as storage trouble."""
        error = explain(failure, list(self.plan.sources.values()))
        unsure = isinstance(failure, ConnectionError) or isinstance(failure.__cause__, ConnectionError)
        if self.session is not None and not self.session.jvm_alive and (unsure or type(error) is PoundlockError):
            return jvm_gone()
        if isinstance(error, DamagedRunError):
            whole = newest_whole(open_storage(checkpoint_dir(self.job, self.settings)))
            if whole is not None:
                error.next = from_whole(*whole, self.job.script, self.job.command)
        return error

    def _one_life(self, storage: Storage, identity: Identity, epoch: Epoch, restarts: RestartState) -> Progress:
        self.start_ahead(storage)
        coordinator = self.coordinator(storage, identity, epoch)
        coordinator.tasks_follow = True
        recovery = coordinator.recover()
        self.tracker.rolled(recovery.files)
        with self.reading(recovery) as sources:
            loop = self.loop(
                storage, identity, coordinator, sources, on_checkpoint=lambda: self._completed(storage, restarts)
            )
            self.tracker.state("RUNNING")
            try:
                ended = loop.wait(self.stop)
            except BaseException as error:
                loop.kill()
                if isinstance(error, ApplicationLost) or (isinstance(error, CheckpointTimedOut) and loop.hangs):
                    self.kill_session()
                loop.await_tasks()  # the next life's recovery counts on no task writing any more
                raise
            if ended is None:
                if self._deleted_when_canceled or self._session_goes_on:
                    loop.kill()
                    loop.await_tasks()  # what a task still writes would stay behind
                return self._canceled()
            if isinstance(ended, Saved):
                try:
                    loop.await_tasks()
                    return self._ended_with(ended, storage, identity, epoch)
                except BaseException:
                    loop.kill()  # the job has not ended with it: the next life is asked for another one
                    raise
            if loop.checkpoints.ended and self.tracker.progress.checkpoint is None:
                self.say("Nothing was left to read")
            loop.checkpoints.roll(Occasion.END)
            loop.await_tasks()
            coordinator.sweep()
            self.tracker.state("FINISHED")
            return self.tracker.progress

    def _completed(self, storage: Storage, restarts: RestartState) -> None:
        """A checkpoint is complete: a savepoint that was claimed is no longer needed."""
        restarts.checkpoint_completed()
        self.attempts.completed()
        if not self._claim_settled:
            self._claim_settled = True
            message = settle_claim(storage)
            if message is not None:
                self.say(message)

    def _ended_with(self, saved: Saved, storage: Storage, identity: Identity, epoch: Epoch) -> Progress:
        """Leave everything to the savepoint: hidden data goes, and who runs the job without it is refused."""
        leave(storage, self.sinks(identity), saved.path, job_id=identity.job_id, check=epoch.check)
        state: State = "CANCELED" if saved.trigger.then == "cancel" else "FINISHED"
        self.tracker.state(state, f"Savepoint completed. Path: {saved.path}")
        saved.trigger.complete(saved.path)
        return replace(self.tracker.progress, state=state)

    def _canceled(self) -> Progress:
        self.kill_session()
        self.tracker.state("CANCELED")
        return replace(self.tracker.progress, state="CANCELED")


@contextmanager
def two_lines(plan: Plan) -> Iterator[None]:
    """Let nothing but a PoundlockError out."""
    try:
        yield
    except PoundlockError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise explain(error, list(plan.sources.values())) from error
