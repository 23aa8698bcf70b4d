"""A running job's presence outside its process: the files of `control/control_files.py` in its checkpoint folder, its entry in
the registry and its REST server; in a container of a cluster, where nobody finds the other two, the files alone.

They begin when the process is the only one on its checkpoint, so that no job ever stands there twice, and end with it.
"""

from __future__ import annotations

import dataclasses
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import Settings
from poundlock.control.cluster_driver import container, end_fenced
from poundlock.control.control_files import SETUP, TROUBLE, put
from poundlock.control.control_logs import LogCopy
from poundlock.control.control_server import ControlServer
from poundlock.control.logs import JobLog
from poundlock.control.registry import ENDED, JobEntry, Registration, Registry, now_ms, registered
from poundlock.control.supervisor import Ending, Supervised
from poundlock.driver.driver import CHECKPOINTING, checkpoint_dir
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import PoundlockError
from poundlock.job import Job
from poundlock.redaction import redact_text
from poundlock.rest.figures import Figures
from poundlock.rest.observed import JobSetup, Observed, Vertex
from poundlock.rest.server import RestServer, not_installed, read_token, take_port
from poundlock.storage import LocalStorage, open_storage


@dataclass(kw_only=True)
class Presence:
    """What others can see of this job and ask of it."""

    job: Job
    settings: Settings
    log: JobLog
    stop: StopRequest
    requests: Requests
    job_file: str
    arguments: Sequence[str]
    command: str = "run"
    is_shell: bool = False
    supervised: Supervised | None = None
    _listening: socket.socket | None = None
    _token: str | None = None
    _server: RestServer | None = None
    _entry: Registration | None = None
    _files: ControlServer | None = None
    _observed: Observed | None = None
    _newest: Progress | None = None

    def take_port(self) -> None:
        """Take the REST server's port and token before anything is touched. Raises DefinitionError if that cannot be."""
        if not self.settings.rest_enabled:
            return
        if (missing := not_installed()) is not None:
            self.log.logger.info(f"REST is off: {missing.what}", next=missing.next)
            return
        self._token = read_token(self.settings.rest_token_file)
        self._listening = take_port(self.settings.rest_bind_address, self.settings.rest_port)

    def claimed(self, identity: Identity) -> None:
        """Take whose checkpoint this process runs: list it, and begin to answer."""
        folder = checkpoint_dir(self.job, self.settings)
        secret = self.settings.secrets()
        entry = registered(
            job_id=identity.job_id,
            name=self.job.name,
            checkpoint_dir=folder,
            log=self.log.path,
            job_file=self.job_file,
            command=self.command,
            arguments=[redact_text(argument, secret) for argument in self.arguments],
            is_shell=self.is_shell,
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
                troubles=tuple(its.troubles),
            )
        place = container()
        if place is not None:
            entry = dataclasses.replace(entry, application=place.application, attempt=place.attempt)
        else:
            entry = self._listed(entry, Registry(self.settings.state_dir))
        own = dataclasses.replace(entry, started_ms=now_ms())  # of this process, whoever supervises it
        self._serve_files(own, folder)
        if self._server is not None:
            figures = Figures(Ledger(open_storage(folder)))
            self._observed = Observed(
                entry=own, setup=self._setup(folder), figures=figures, stop=self.stop, requests=self.requests
            )
            self._server.start(self._observed)
            host, port = self._server.address
            self.log.logger.info("REST", address=f"http://{host}:{port}")

    def _listed(self, entry: JobEntry, registry: Registry) -> JobEntry:
        """List the job on this machine; return its entry with the way to its REST server."""
        token = None
        if self._listening is not None:
            token = self._token or secrets.token_urlsafe(32)
            self.log.hide([token])
            self._server = RestServer(self._listening, token)
            entry = dataclasses.replace(entry, rest=self._server.address)
        self._entry = registry.register(entry, token)
        return self._entry.entry

    def _serve_files(self, entry: JobEntry, folder: str) -> None:
        """Begin to answer through the checkpoint folder, for those who are on another machine."""
        storage = open_storage(folder)
        away = entry.application is not None or not isinstance(storage, LocalStorage)
        self._files = ControlServer(
            storage,
            entry,
            self.stop,
            self.requests,
            self.log.logger.warning,
            self._fenced if entry.application is not None else lambda: None,
            LogCopy(self.log.path, entry.started_ms) if away else None,
        )
        self._files.start()
        try:
            put(storage, SETUP, msgspec.json.encode(self._setup(folder), enc_hook=str))
        except TROUBLE as error:
            self.log.logger.warning(f"{folder}/{SETUP} cannot be written: {error}")

    def update(self, progress: Progress) -> None:
        """Take how the job goes."""
        before, self._newest = self._newest, progress
        if self.supervised is not None and progress.last_ms is not None:
            self.supervised.checkpointed()
        for each in (self._observed, self._files):
            if each is not None:
                each.update(progress)
        changed = before is None or (before.state, before.application) != (progress.state, progress.application)
        if self._entry is not None and changed and progress.state not in ENDED:  # the last word has the exit code
            self._entry.update(progress)

    def end(self, exit_code: int, error: BaseException | None = None) -> None:
        """Write down how it ended, and close the port."""
        failure, failure_code = None, ""
        if isinstance(error, PoundlockError):
            failure, failure_code = (error.what, error.next), error.code
        elif error is not None:
            failure = (repr(error), "")
        state = self._newest.state if self._newest is not None and error is None else "FAILED"
        progress = dataclasses.asdict(self._newest) if self._newest is not None else {}
        if self.supervised is not None:
            # Once it ran, its own restart strategy had the word; the supervisor writes down what becomes of the job.
            final = self._entry is not None
            self.supervised.end(
                Ending(
                    state=state,
                    exit_code=exit_code,
                    final=final,
                    failure=failure,
                    failure_code=failure_code,
                    progress=progress,
                )
            )
        for place in (self._entry if self.supervised is None else None, self._files):
            if place is not None:
                place.end(state, exit_code, failure=failure, failure_code=failure_code, progress=progress)
        if self._server is not None:
            self._server.close()
        elif self._listening is not None:
            self._listening.close()

    def _fenced(self) -> None:
        self.log.logger.error("another driver has taken over: this one ends, and nothing is lost")
        end_fenced()

    def _setup(self, folder: str) -> JobSetup:
        shown = {name: str(getattr(self.job, name)) for name in CHECKPOINTING}
        return JobSetup(
            parallelism=self.job.parallelism,
            settings={**self.settings.shown(), "checkpoint_dir": folder, **shown},
            vertices=[
                *(Vertex(name=n.id, kind="source", description=type(n.source).__name__) for n in self.job.sources),
                *(Vertex(name=n.id, kind="sink", description=type(n.sink).__name__) for n in self.job.sinks),
            ],
        )
