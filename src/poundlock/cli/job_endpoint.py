"""A running job's presence outside its process: its entry in the registry and its REST server. In a container of a cluster,
where nobody finds either, it is the files of `control/control_files.py`.

They begin when the process is the only one on its checkpoint, so that no job ever stands there twice, and end with it.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poundlock.errors import PoundlockError

if TYPE_CHECKING:
    from poundlock.checkpoint.identity import Identity
    from poundlock.config import Settings
    from poundlock.control.cluster_driver import Container
    from poundlock.control.control_server import Reachable
    from poundlock.control.logs import JobLog
    from poundlock.control.registry import Registration
    from poundlock.control.supervisor_link import Supervised
    from poundlock.driver.progress import Progress, StopRequest
    from poundlock.driver.requests import Requests
    from poundlock.job import Job
    from poundlock.rest.observed import Observed
    from poundlock.rest.server import RestServer


_SHOWN = (
    "checkpoint_interval",
    "checkpoint_min_pause",
    "checkpoint_timeout",
    "tolerable_failed_checkpoints",
    "checkpoint_retention",
    "checkpoints_retained",
)


@dataclass(kw_only=True)
class Presence:
    """What others can see of this job and ask of it.

    Args:
        job: which job.
        settings: of the run.
        log: of the run.
        stop, requests: how it is asked.
        job_file: what was given to `run`.
        arguments: the command line of `run` behind the program.
        supervised: the line to the supervisor; None without one.
    """

    job: Job
    settings: Settings
    log: JobLog
    stop: StopRequest
    requests: Requests
    job_file: str
    arguments: Sequence[str]
    supervised: Supervised | None = None
    _listening: socket.socket | None = None
    _token: str | None = None
    _server: RestServer | None = None
    _entry: Registration | None = None
    _reachable: Reachable | None = None
    _observed: Observed | None = None
    _newest: Progress | None = None

    def take_port(self) -> None:
        """Take the REST server's port and token before anything is touched. Raises DefinitionError if that cannot be."""
        if not self.settings.rest_enabled:
            return
        from poundlock.rest.server import missing_packages, read_token, take_port

        missing = missing_packages()
        if missing:
            self.log.logger.info(
                "REST is off: not installed: " + ", ".join(missing), next='python -m pip install "poundlock[rest]"'
            )
            return
        self._token = read_token(self.settings.rest_token_file)
        self._listening = take_port(self.settings.rest_bind_address, self.settings.rest_port)

    def claimed(self, identity: Identity) -> None:
        """Be told whose checkpoint this process runs: list it, and begin to answer."""
        from poundlock.control.cluster_driver import container
        from poundlock.control.registry import Registry, registered
        from poundlock.driver.driver import checkpoint_dir
        from poundlock.redaction import redact_text

        folder = checkpoint_dir(self.job, self.settings)
        if (place := container()) is not None:
            self._reachable = self._reached(place, identity, folder)
            self._reachable.start()
            return
        now = time.time_ns() // 1_000_000
        secret = self.settings.secrets()
        entry = registered(
            job_id=identity.job_id,
            name=self.job.name,
            checkpoint_dir=folder,
            log=self.log.path,
            job_file=self.job_file,
            arguments=[redact_text(argument, secret) for argument in self.arguments],
        )
        if self.supervised is not None:
            # To the outside the supervisor is the job's process: it gets the signals, and stays.
            its = self.supervised.situation
            entry = dataclasses.replace(
                entry,
                pid=its.pid,
                process_start=its.process_start,
                started_ms=its.started_ms,
                child=entry.pid,
                process_restarts=its.restarts,
            )
        token = None
        if self._listening is not None:
            from poundlock.rest.server import RestServer

            token = self._token or secrets.token_urlsafe(32)
            self.log.hide([token])
            self._server = RestServer(self._listening, token)
            entry = dataclasses.replace(entry, rest=self._server.address)
        self._entry = Registry(self.settings.state_dir).register(entry, token)
        if self._server is not None:
            self._observed = self._observe(identity, folder, now)
            self._server.start(self._observed)
            host, port = self._server.address
            self.log.logger.info("REST", address=f"http://{host}:{port}")

    def update(self, progress: Progress) -> None:
        """Be told how the job goes."""
        before, self._newest = self._newest, progress
        if self.supervised is not None and progress.last_ms is not None:
            self.supervised.checkpointed()
        if self._observed is not None:
            self._observed.update(progress)
        if self._reachable is not None:
            self._reachable.update(progress)
        if self._entry is not None and progress.application != (before.application if before else None):
            self._entry.update(spark_application=progress.application)
        if self._entry is not None and (before is None or before.state != progress.state):
            from poundlock.control.registry import ENDED

            if progress.state not in ENDED:  # the last word has the exit code
                why = (progress.message, "") if progress.state == "RESTARTING" else None
                self._entry.update(state=progress.state, failure=why)

    def end(self, exit_code: int, error: BaseException | None = None) -> None:
        """Say how it ended, and let go of the port."""
        failure = None
        if error is not None:
            failure = (error.what, error.next) if isinstance(error, PoundlockError) else (repr(error), "")
        state = self._newest.state if self._newest is not None and error is None else "FAILED"
        progress = dataclasses.asdict(self._newest) if self._newest is not None else {}
        if self.supervised is not None:
            from poundlock.control.supervisor_link import Ending

            # Once it ran, its own restart strategy had the word; the supervisor writes down what becomes of the job.
            final = self._entry is not None
            self.supervised.end(
                Ending(state=state, exit_code=exit_code, final=final, failure=failure, progress=progress)
            )
        elif self._entry is not None:
            self._entry.end(state, exit_code, failure=failure, progress=progress)
        elif self._reachable is not None:
            self._reachable.end(state, exit_code, failure=failure, progress=progress)
        if self._server is not None:
            self._server.close()
        elif self._listening is not None:
            self._listening.close()

    def _reached(self, place: Container, identity: Identity, folder: str) -> Reachable:
        from poundlock.control.control_files import Word
        from poundlock.control.control_server import Reachable
        from poundlock.storage import open_storage

        now = time.time_ns() // 1_000_000
        first = Word(
            job_id=identity.job_id,
            name=self.job.name,
            application=place.application,
            attempt=place.attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            state="INITIALIZING",
            started_ms=now,
            said_ms=now,
        )
        return Reachable(open_storage(folder), first, self.stop, self.requests, self.log.logger.warning, self._fenced)

    def _fenced(self) -> None:
        from poundlock.control.cluster_driver import end_fenced

        self.log.logger.error("another driver has taken over: this one ends, and nothing is lost")
        end_fenced()

    def _observe(self, identity: Identity, folder: str, started_ms: int) -> Observed:
        from poundlock.checkpoint.ledger.ledger import Ledger
        from poundlock.rest.figures import Figures
        from poundlock.rest.observed import Observed, Trouble, Vertex
        from poundlock.storage import open_storage

        its = self.supervised.situation if self.supervised is not None else None
        return Observed(
            job_id=identity.job_id,
            name=self.job.name,
            started_ms=started_ms,
            process_restarts=None if its is None else its.restarts,
            earlier=() if its is None else [Trouble(what=what, at_ms=at_ms) for what, at_ms in its.troubles],
            parallelism=self.job.parallelism,
            settings={
                **self.settings.shown(),
                "checkpoint_dir": folder,
                **{name: str(getattr(self.job, name)) for name in _SHOWN},
            },
            vertices=[
                *(Vertex(name=n.id, kind="source", description=type(n.source).__name__) for n in self.job.sources),
                *(Vertex(name=n.id, kind="sink", description=type(n.sink).__name__) for n in self.job.sinks),
            ],
            figures=Figures(Ledger(open_storage(folder))),
            stop=self.stop,
            requests=self.requests,
        )
