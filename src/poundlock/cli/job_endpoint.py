"""A running job's presence outside its process: the files of `control/control_files.py` in its checkpoint folder, its entry in
the registry and its REST server; in a container of a cluster, where nobody finds the other two, the files alone.

They begin when the process is the only one on its checkpoint, so that no job ever stands there twice, and end with it.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import Settings
from poundlock.control.cluster_driver import container, end_fenced
from poundlock.control.control_files import SETUP, TROUBLE, put
from poundlock.control.control_logs import LogCopy
from poundlock.control.control_server import ControlServer
from poundlock.control.logs import JobLog
from poundlock.control.operations_log import OperationsLog
from poundlock.control.registry import ACTIVE, ENDED, STANDBY, JobEntry, Registration, Registry, now_ms, registered
from poundlock.control.supervisor import Ending, Supervised
from poundlock.driver.driver import CHECKPOINTING, checkpoint_dir, strategy_of
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.driver.restart import strategy_name
from poundlock.errors import PoundlockError
from poundlock.job import Job
from poundlock.plan.graph import JobGraph, job_graph
from poundlock.redaction import redact_text
from poundlock.rest.access.access import Access
from poundlock.rest.figures import Figures
from poundlock.rest.observed import JobSetup, Observed, Vertex
from poundlock.rest.server import RestServer, not_installed, take_port
from poundlock.storage import LocalStorage, open_storage
from poundlock.telemetry.variables import Wanted, wanted
from poundlock.telemetry.variables import not_installed as telemetry_missing

if TYPE_CHECKING:
    from poundlock.telemetry.export import Telemetry


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
    _access: Access = dataclasses.field(default_factory=Access)
    _server: RestServer | None = None
    _entry: Registration | None = None
    _files: ControlServer | None = None
    _observed: Observed | None = None
    _newest: Progress | None = None
    _exported: Wanted | None = None
    _telemetry: Telemetry | None = None

    def take_port(self) -> None:
        """Take the REST server's port, what it is reached by, and what OpenTelemetry's variables ask for, before anything is touched.

        Raises:
            DefinitionError: that cannot be.
        """
        self._exported = self._wanted()
        if not self.settings.rest_enabled:
            return
        if (missing := not_installed()) is not None:
            self.log.logger.info(f"REST is off: {missing.what}", next=missing.next)
            return
        listening = take_port(self.settings.rest_bind_address, self.settings.rest_port)
        try:
            self._access = Access.of(self.settings, listening.getsockname()[0])
        except BaseException:
            listening.close()
            raise
        self._listening = listening

    def standing_by(self, identity: Identity) -> None:
        """Take whose checkpoint another driver runs, while this one waits: list it in that role, and answer those who look.

        Nothing is written into the checkpoint folder, where the active driver is asked.
        """
        folder = checkpoint_dir(self.job, self.settings)
        entry = dataclasses.replace(self._new_entry(identity, folder), role=STANDBY)
        self._answer(self._listed(entry, Registry(self.settings.state_dir)), folder)

    def claimed(self, identity: Identity) -> None:
        """Take whose checkpoint this process runs: list it, and begin to answer."""
        folder = checkpoint_dir(self.job, self.settings)
        if self._entry is not None:  # it stood by
            self._entry.update(role=ACTIVE)
            if self._observed is not None:
                self._observed.entry = dataclasses.replace(self._observed.entry, role=ACTIVE)
            self._serve_files(self._entry.entry, folder)
            return
        entry = self._new_entry(identity, folder)
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
        self._answer(own, folder)

    def _new_entry(self, identity: Identity, folder: str) -> JobEntry:
        secret = self.settings.secrets()
        return registered(
            job_id=identity.job_id,
            name=self.job.name,
            checkpoint_dir=folder,
            log=self.log.path,
            job_file=self.job_file,
            command=self.command,
            arguments=[redact_text(argument, secret) for argument in self.arguments],
            is_shell=self.is_shell,
        )

    def _answer(self, entry: JobEntry, folder: str) -> None:
        """Begin to answer over HTTP, where there is a server, and to export metrics, where somebody asks for them."""
        if self._server is None and not self._exported:
            return
        figures = Figures(Ledger(open_storage(folder)))
        self._observed = Observed(
            entry=entry, setup=self._setup, figures=figures, stop=self.stop, requests=self.requests
        )
        if self._exported:
            from poundlock.telemetry.export import Telemetry

            self._telemetry = Telemetry(self._observed, self._exported, os.environ)
            self._telemetry.start()
        if self._server is not None:
            self._server.start(self._observed)
            self.log.logger.info("REST", address=self._server.url)

    def _wanted(self) -> Wanted | None:
        """Return what OpenTelemetry's variables ask for; None where they ask for nothing, or its SDK is not installed."""
        asked = wanted(os.environ)
        if asked and (missing := telemetry_missing()) is not None:
            self.log.logger.warning(f"OpenTelemetry is off: {missing.what}", next=missing.next)
            return None
        return asked or None

    def _listed(self, entry: JobEntry, registry: Registry) -> JobEntry:
        """List the job on this machine; return its entry with the way to its REST server."""
        token = None
        if self._listening is not None:
            token = secrets.token_urlsafe(32)
            self.log.hide([token])
            self._server = RestServer(self._listening, token, self._access, self._operations(entry))
            certificate = self._access.certificate
            entry = dataclasses.replace(
                entry,
                rest=self._server.address,
                rest_certificate=None if certificate is None else str(certificate.certificate),
            )
        self._entry = registry.register(entry, token)
        return self._entry.entry

    def _operations(self, entry: JobEntry) -> OperationsLog:
        """Return the log of what is asked of this job; that of a container's driver goes with its own log."""
        path = None if entry.application is not None else self.settings.operations_log
        return OperationsLog(path=path, job_id=entry.job_id, job=entry.name, say=self.log.logger.info)

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
            self._operations(entry),
        )
        self._files.start()
        try:
            put(storage, SETUP, msgspec.json.encode(self._setup, enc_hook=str))
        except TROUBLE as error:
            self.log.logger.warning(f"{folder}/{SETUP} cannot be written: {error}")

    def update(self, progress: Progress) -> None:
        """Take how the job goes."""
        before, self._newest = self._newest, progress
        if self.supervised is not None and progress.last_ms is not None:
            self.supervised.checkpointed()
        for each in (self._observed, self._files, self._telemetry):
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
        # Once it ran, its own restart strategy had the word; the supervisor writes down what becomes of the job.
        end = Ending(
            state=state,
            exit_code=exit_code,
            final=self._entry is not None,
            failure=failure,
            failure_code=failure_code,
            progress=progress,
        )
        if self.supervised is not None:
            self.supervised.end(end)
        for place in (self._entry if self.supervised is None else None, self._files):
            if place is not None:
                place.end(end)
        if self._telemetry is not None:
            self._telemetry.close()
        if self._server is not None:
            self._server.close()
        elif self._listening is not None:
            self._listening.close()

    def _fenced(self) -> None:
        self.log.logger.error("another driver has taken over: this one ends, and nothing is lost")
        end_fenced()

    @cached_property
    def _setup(self) -> JobSetup:
        """What the job is made of, planned once: its folder and its server are given the same."""
        folder = checkpoint_dir(self.job, self.settings)
        shown = {name: str(getattr(self.job, name)) for name in CHECKPOINTING}
        return JobSetup(
            parallelism=self.job.parallelism,
            restart_strategy=strategy_name(strategy_of(self.job, self.settings)),
            settings={**self.settings.shown(), "checkpoint_dir": folder, **shown},
            vertices=[
                *(Vertex(name=n.id, kind="source", description=type(n.source).__name__) for n in self.job.sources),
                *(Vertex(name=n.id, kind="sink", description=type(n.sink).__name__) for n in self.job.sinks),
            ],
            graph=self._graph(),
        )

    def _graph(self) -> JobGraph:
        """Return the job as a picture; it is a help, and no job fails for want of it."""
        try:
            return job_graph(self.job)
        except PoundlockError as error:
            self.log.logger.warning(f"the job cannot be drawn: {error.what}")
            return JobGraph()
