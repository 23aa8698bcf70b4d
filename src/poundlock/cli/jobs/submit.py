"""`poundlock run --deploy-mode cluster`: a job whose driver the cluster runs is submitted, and followed through its checkpoint.

Ctrl-C asks that driver for what it asks one of this machine for. Whoever ends this process otherwise ends nothing on the cluster.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from poundlock.cli.output import Output, Text
from poundlock.errors import PoundlockError, TransientError

if TYPE_CHECKING:
    from poundlock.cli.progress_display import Watcher
    from poundlock.config import Settings
    from poundlock.control.control_files import Word
    from poundlock.control.registry import JobEntry
    from poundlock.driver.progress import Progress, StopRequest
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.job import Job


_LOOK_S = 1.0
_ASK_S = 5.0
_PATIENCE_S = 60.0  # so long the checkpoint folder of a job that is over may be away
_UNDER_WAY = ("RUNNING", "RESTARTING", "FINISHED")


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

    Args:
        target: the job's file, with `:name` where it holds several.
        typed: what else `run` was given.
        settings: of the run.
        beginning: the savepoint to begin with.
        output: where it is shown.
        detached: return as soon as the driver runs.

    Raises:
        PoundlockError: the job cannot run there, or was not taken.
    """
    from poundlock.checkpoint.identity import new_job_id
    from poundlock.cli.job_loader import load_job, split_target
    from poundlock.cli.jobs.run import typed_beginning
    from poundlock.cli.progress_display import watcher
    from poundlock.control import spark_submit as submission
    from poundlock.control.log_names import stamped
    from poundlock.driver.driver import checkpoint_dir, with_settings
    from poundlock.driver.progress import StopRequest
    from poundlock.plan.guarantees import check_required
    from poundlock.plan.plan import make_plan
    from poundlock.spark.launch.dependencies import add_to_path
    from poundlock.spark.launch.java import find_java, newest_java
    from poundlock.storage import open_storage
    from poundlock.storage.storage_errors import refuse_unreachable

    add_to_path(settings)
    job = with_settings(load_job(target), settings)
    checkpoint = checkpoint_dir(job, settings)
    plan = make_plan(job)
    check_required(plan)
    submission.check(settings, checkpoint, beginning)
    refuse_unreachable(open_storage(checkpoint), what="the checkpoint")
    if beginning is not None:
        refuse_unreachable(open_storage(beginning.path), what="the savepoint")
    file, name = split_target(target)
    log = settings.logs / stamped(job.name, ".submit.log")
    environment = {**os.environ, **({"JAVA_HOME": str(settings.java_home)} if settings.java_home else {})}
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
        application = submission.submit(what, find_java(environment, newest=newest_java()).home, log)
    except KeyboardInterrupt:
        if (asked_for := submission.named_in(log)) is not None:
            output.note(f"The cluster may run it all the same; end it with: yarn application -kill {asked_for}")
        raise
    output.note(f"Submitted application {application}")
    stop = StopRequest()
    following = _Following(
        job=job, settings=settings, application=application, checkpoint=checkpoint, log=log, stop=stop,
        typed=[target, *typed],
    )  # fmt: skip
    if detached:
        return _detach(following, output)
    with watcher(job.name, log, output) as watch:
        return _follow(following, watch, output)


def _detach(following: _Following, output: Output) -> int:
    while True:
        word = following.look()
        if word.ended or word.state in _UNDER_WAY:
            break
        time.sleep(_LOOK_S)
    if word.state == "FAILED":
        return _failed(word, output)
    entry = following.entry
    data = {"job_id": word.job_id, "name": word.name, "application": word.application, "state": word.state}
    output.show(
        Text(
            text=f"Job has been submitted with JobID {word.job_id}",
            data={**data, "log": entry.log if entry is not None else str(following.log)},
        )
    )
    return 0


def _follow(following: _Following, watch: Watcher, output: Output) -> int:
    from poundlock.cli.signals import signals_asking

    told = ""
    shown: Progress | None = None
    with signals_asking(following.stop, watch.say, following.job) as signals:
        while True:
            word = following.look()
            if word.job_id and word.job_id != told:
                told = word.job_id
                watch.say(f"Job has been submitted with JobID {told}")
            progress = _progress(word)
            if progress != shown and word.job_id:
                watch.update(progress)
                shown = progress
            if word.ended:
                break
            following.hand_on(watch.say)
            if following.stop.stopping:
                time.sleep(_LOOK_S)
            else:
                following.stop.wait(_LOOK_S)
        if word.state == "FAILED":
            return _failed(word, output)
        watch.done(progress)
    if word.state == "CANCELED":
        return 128 + (signals.newest or signal.SIGINT)
    return word.exit_code or 0


def _failed(word: Word, output: Output) -> int:
    what, next = word.failure or (f"job {word.name} failed", "")
    output.error(PoundlockError(what, next=next or f"type: yarn logs -applicationId {word.application}"))
    return word.exit_code or 1


def _progress(word: Word) -> Progress:
    from poundlock.driver.progress import Progress

    try:
        return Progress(**{**word.progress, "state": word.state})
    except TypeError:  # of another version
        return Progress(word.state)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class _Following:
    """A driver that was submitted, as it is seen from here.

    Args:
        job, settings: what was submitted.
        application: the cluster's id of it.
        checkpoint: the job's checkpoint folder.
        log: what spark-submit said.
        typed: what `run` was given, the job's file first.
        stop: what is asked of the driver here.
    """

    job: Job
    settings: Settings
    application: str
    checkpoint: str
    log: Path
    typed: Sequence[str]
    stop: StopRequest
    entry: JobEntry | None = None
    _asked: set[str] = field(default_factory=set)
    _looked: float = field(default_factory=time.monotonic)
    _over: float | None = None
    _since: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def look(self) -> Word:
        """Return the driver's newest word; one of ours where it has none, also where it has ended without.

        Raises:
            TransientError: it has ended, and how could not be read for a while.
        """
        from poundlock.control import yarn
        from poundlock.control.control_files import Word
        from poundlock.control.driver_status import heard_from, heard_last, lost

        word = heard_from(self.application, self.checkpoint)
        if word is not None and word.ended:
            return self._kept(word)
        now = time.monotonic()
        known = None
        if now - self._looked > _ASK_S:
            self._looked = now
            known = yarn.ask(self.application)
        if known is not None and known.over:
            self._over = self._over or now
            try:
                word = heard_last(self.application, self.checkpoint) or word
            except TransientError:
                if now - self._over > _PATIENCE_S:
                    raise
                known = None  # it may have ended well
        if word is None:
            word = Word(
                job_id="", name=self.job.name, application=self.application, state="INITIALIZING",
                started_ms=self._since, said_ms=self._since,
            )  # fmt: skip
        if known is not None and known.over and not word.ended:
            error = lost(known)
            ended = time.time_ns() // 1_000_000
            word = replace(
                word, state="FAILED", ended_ms=ended, exit_code=error.exit_code, failure=(error.what, error.next)
            )
        return self._kept(word)

    def _kept(self, word: Word) -> Word:
        """List the job on this machine as soon as its id is known, and keep its last word there."""
        from poundlock.control.registry import Registry, registered
        from poundlock.redaction import redact_text

        if word.job_id and self.entry is None:
            made = registered(
                job_id=word.job_id,
                name=word.name,
                checkpoint_dir=self.checkpoint,
                log=self.log,
                job_file=self.typed[0],
                arguments=[redact_text(word, self.settings.secrets()) for word in self.typed],
            )
            made = replace(made, application=self.application)
            self.entry = Registry(self.settings.state_dir).register(made).entry
        if self.entry is not None and word.ended:
            Registry(self.settings.state_dir).reread(self.entry)
        return word

    def hand_on(self, say: Callable[[str], None]) -> None:
        """Ask the driver for what was asked here, once it can be asked; whoever asked is told where that fails."""
        if self.entry is None or not self.stop.stopping:
            return
        kind = "cancel" if self.stop.canceling else "stop"
        if kind in self._asked:
            return
        self._asked.add(kind)
        from poundlock.cli.job_lookup import folder_client

        client = folder_client(self.entry)
        assert client is not None

        def ask() -> None:
            try:
                client.ask(kind)
            except (TransientError, OSError) as error:
                say(f"the driver could not be asked to {kind}: {error}")
                time.sleep(_ASK_S)
            except PoundlockError:
                pass  # it ended before that, or failed, which is shown; or the next attempt began, which is asked then
            else:
                return
            self._asked.discard(kind)

        threading.Thread(target=ask, name=f"poundlock-{kind}", daemon=True).start()
