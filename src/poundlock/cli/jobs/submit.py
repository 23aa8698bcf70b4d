"""`poundlock run --deploy-mode cluster`: a job whose driver the cluster runs is submitted, and followed through its checkpoint.

Ctrl-C asks that driver for what it asks one of this machine for. Whoever ends this process otherwise ends nothing on the cluster.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from poundlock.checkpoint.identity import new_job_id
from poundlock.cli.job_loader import load_job, split_target
from poundlock.cli.job_lookup import folder_channel
from poundlock.cli.jobs.detach import UNDER_WAY
from poundlock.cli.jobs.run import typed_beginning
from poundlock.cli.output import Output
from poundlock.cli.progress_display import Watcher, watcher
from poundlock.cli.signals import signals_asking
from poundlock.config import Settings
from poundlock.control import spark_submit as submission
from poundlock.control.channel import Forwarding
from poundlock.control.driver_status import polled
from poundlock.control.logs import stamped
from poundlock.control.registry import JobEntry, Registry, registered
from poundlock.driver.driver import checkpoint_dir, with_settings
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import PoundlockError, TransientError
from poundlock.job import Job
from poundlock.plan.guarantees import check_required
from poundlock.plan.plan import make_plan
from poundlock.redaction import redact_text
from poundlock.spark.launch.dependencies import add_to_path
from poundlock.spark.launch.java import java_of
from poundlock.storage import open_checkpoint, open_storage
from poundlock.storage.storage_errors import refuse_unreachable

_LOOK_S = 1.0
_ASK_S = 5.0
_PATIENCE_S = 60.0  # so long the checkpoint folder of a job that is over may be away


def submit(
    target: str,
    typed: Sequence[str],
    settings: Settings,
    beginning: Beginning | None,
    output: Output,
    *,
    detached: bool,
) -> int:
    """Submit a job and follow its driver until that has ended; return the exit code.

    Raises:
        PoundlockError: the job cannot run there, or was not taken.
    """
    add_to_path(settings)
    job = with_settings(load_job(target), settings)
    checkpoint = checkpoint_dir(job, settings)
    plan = make_plan(job)
    check_required(plan)
    submission.check(settings, checkpoint, beginning)
    refuse_unreachable(open_storage(checkpoint), what="the checkpoint")
    if beginning is not None:
        refuse_unreachable(open_checkpoint(beginning.path, "savepoint"), what="the savepoint")
    file, name = split_target(target)
    log = settings.logs / stamped(job.name, ".submit.log")
    output.note(f"Submitting {job.name} to {settings.master}")
    what = submission.Submission(
        job=job,
        settings=settings,
        file=file,
        name=name,
        checkpoint=checkpoint,
        job_id=new_job_id(),
        arguments=typed_beginning(beginning),
        jars=submission.jars_of(plan, checkpoint, settings, say=output.note),
    )
    try:
        application = submission.submit(what, java_of(settings).home, log)
    except KeyboardInterrupt:
        if (asked_for := submission.named_in(log)) is not None:
            output.note(f"The cluster may run it all the same; end it with: yarn application -kill {asked_for}")
        raise
    output.note(f"Submitted application {application}")
    stop = StopRequest()
    following = _Following(
        job=job,
        settings=settings,
        application=application,
        checkpoint=checkpoint,
        log=log,
        stop=stop,
        typed=[target, *typed],
    )
    if detached:
        return _detach(following, output)
    with watcher(job.name, log, output) as watch:
        return _follow(following, watch, output)


def _detach(following: _Following, output: Output) -> int:
    while True:
        now = following.look()
        if now.ended or now.state in UNDER_WAY:
            break
        time.sleep(_LOOK_S)
    if now.state == "FAILED":
        return _failed(now, output)
    data = {name: getattr(now, name) for name in ("job_id", "name", "application", "state")}
    output.show(f"Job has been submitted with JobID {now.job_id}", {**data, "log": str(following.log)})
    return 0


def _follow(following: _Following, watch: Watcher, output: Output) -> int:
    shown_id = ""
    shown: Progress | None = None
    with signals_asking(following.stop, watch.say, following.job) as signals:
        while True:
            now = following.look()
            if now.job_id and now.job_id != shown_id:
                shown_id = now.job_id
                watch.say(f"Job has been submitted with JobID {shown_id}")
            progress = _progress(now)
            if progress != shown and now.job_id:
                watch.update(progress)
                shown = progress
            if now.ended:
                break
            following.hand_on(watch.say)
            if following.stop.stopping:
                time.sleep(_LOOK_S)
            else:
                following.stop.wait(_LOOK_S)
        if now.state == "FAILED":
            return _failed(now, output)
        watch.done(progress)
    if now.state == "CANCELED":
        return 128 + (signals.newest or signal.SIGINT)
    return now.exit_code or 0


def _failed(now: JobEntry, output: Output) -> int:
    what, next = now.failure or (f"job {now.name} failed", "")
    output.error(
        PoundlockError(what, next=next or f"type: yarn logs -applicationId {now.application}", code=now.failure_code)
    )
    return now.exit_code or 1


def _progress(now: JobEntry) -> Progress:
    try:
        return Progress.of({**now.progress, "state": now.state})
    except TypeError:  # of another version
        return Progress(now.state)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class _Following:
    """A driver that was submitted, as it is seen from here."""

    job: Job
    settings: Settings
    application: str
    checkpoint: str
    log: Path
    typed: Sequence[str]
    stop: StopRequest
    entry: JobEntry | None = None
    _forwarding: Forwarding | None = None
    _looked: float = field(default_factory=time.monotonic)
    _away: float | None = None

    def look(self) -> JobEntry:
        """Return how the driver goes; an entry of ours where it has written none, also where it has ended without.

        Raises:
            TransientError: it has ended, and how could not be read for a while.
        """
        at, entry = time.monotonic(), self.entry or self._ours
        ask = at - self._looked > _ASK_S
        if ask:
            self._looked = at
        try:
            return self._kept(polled(entry, ask=ask))
        except TransientError:
            self._away = self._away or at
            if at - self._away > _PATIENCE_S:
                raise
            return entry

    @cached_property
    def _ours(self) -> JobEntry:
        made = registered(
            job_id="",
            name=self.job.name,
            checkpoint_dir=self.checkpoint,
            log=self.log,
            job_file=self.typed[0],
            arguments=[redact_text(word, self.settings.secrets()) for word in self.typed],
        )
        return replace(made, application=self.application)

    def _kept(self, now: JobEntry) -> JobEntry:
        """List the job on this machine as soon as its id is known, and keep there how it ended."""
        registry = Registry(self.settings.state_dir)
        if now.job_id and self.entry is None:
            self.entry = registry.register(replace(self._ours, job_id=now.job_id)).entry
        if self.entry is not None and now.ended:
            registry.reread(self.entry)
        return now

    def hand_on(self, say: Callable[[str], None]) -> None:
        """Ask the driver for what was asked here, once it can be asked; whoever asked is shown where that fails."""
        if self.entry is None:
            return
        if self._forwarding is None:
            self._forwarding = Forwarding(self.entry, folder_channel(self.entry), self.stop, say=say)
        self._forwarding.hand_on()
