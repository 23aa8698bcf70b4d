"""The one record of how a job is, and the registry of job processes: a file each in the state directory, for all commands of this user.

A file is written whole, and only by the process it is about, or by that process and its supervisor in turn, each while the
other does not; what others do with it is to read it and, long after its end, to remove it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from poundlock.control.process_id import CANCEL, is_alive, process_start
from poundlock.driver.progress import Progress
from poundlock.errors import DefinitionError, TransientError, did_you_mean
from poundlock.storage import is_uri
from poundlock.storage.json_record import ready
from poundlock.storage.storage_errors import is_full, storage_trouble

FOLDER = "jobs"
KEPT = 50
ENDED = frozenset({"FINISHED", "CANCELED", "FAILED"})
ACTIVE, STANDBY = "active", "standby"
_FORMAT = 1
_FILE = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9]+\.json")
_ABANDONED_S = 3600.0
_TROUBLES = 20

Number = Annotated[int, msgspec.Meta(gt=-(1 << 47), lt=1 << 47)]  # anything else is no time in ms, nor a small number


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a process of a job ended, its last word.

    Args:
        failure: the two lines it failed with, as (what, next); None = it did not fail, or nobody knows.
        failure_code: the code of that error, "" where it is not known.
        progress: its newest, as fields of Progress.
    """

    state: str
    exit_code: int
    failure: tuple[str, str] | None = None
    failure_code: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobEntry:
    """One job process, as it is listed on its machine, kept in its checkpoint folder, and shown over REST.

    Args:
        job_id: 32 hex digits; the same for every process that goes on from one checkpoint.
        pid, process_start: the process; see `process_id.process_start`.
        started_ms: when it started, ms since the epoch.
        child: the process of the job where `pid` is its supervisor; None without one, and between two of them.
        command: the command that runs it: "run", or "sql" of a job of a script.
        arguments: its command line behind the program and the command.
        is_shell: whether the process is a shell, which goes on when the job has ended: its signals are not the job's.
        rest: (host, port) of its REST server; None = it has none.
        token_file: file of the bearer token; None without REST.
        rest_certificate: file of the certificate that its REST server shows; None = it speaks plain HTTP.
        failure: the two lines it failed with, as (what, next); (what it was restarted for, "") while it is RESTARTING.
        failure_code: the code of that error, "" where it is not known.
        progress: the newest that is known, as fields of Progress; while it runs, the job itself knows better.
        application: the cluster's id of it where its driver runs there; None = it is a process of a machine.
        attempt: which of the cluster's attempts, from 1.
        spark_application: the cluster's id of the application that its tasks belong to, where its driver is a process of a
            machine; None = they run there too.
        since: when each state was last entered, ms since the epoch.
        troubles: why it was restarted, as (what, ms since the epoch), the newest last.
        written_ms: when its driver wrote this into the checkpoint folder; None where it is no copy of that.
        role: "active", or "standby" while another driver runs the job and this one waits.
        cancel_signal: number of the signal that cancels it; None = its version knows none, and ends by a second SIGINT or SIGTERM.
    """

    job_id: str
    name: str
    pid: Number
    process_start: str
    host: str
    started_ms: Number
    state: str
    checkpoint_dir: str
    log: str
    job_file: str
    command: str = "run"
    arguments: Sequence[str] = ()
    folder: str = ""
    rest: tuple[str, int] | None = None
    token_file: str | None = None
    rest_certificate: str | None = None
    ended_ms: Number | None = None
    exit_code: Number | None = None
    failure: tuple[str, str] | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    child: Number | None = None
    process_restarts: Number = 0
    application: str | None = None
    spark_application: str | None = None
    attempt: Number = 1
    since: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[tuple[str, int], ...] = ()
    written_ms: Number | None = None
    is_shell: bool = False
    role: str = ACTIVE
    failure_code: str = ""
    cancel_signal: Number | None = None

    @property
    def process(self) -> int:
        """The driver's own process, whoever supervises it."""
        return self.child or self.pid

    @property
    def driver(self) -> tuple[str | None, int, str, int, int]:
        """Which driver it is about: of another one it is different."""
        return self.application, self.attempt, self.host, self.process, self.started_ms

    @property
    def here(self) -> bool:
        """Whether the process is one of this machine."""
        return self.application is None and self.host == socket.gethostname()

    @property
    def between(self) -> bool:
        """Whether its supervisor is about to start the next process."""
        return self.state == "RESTARTING" and self.child is None and self.process_restarts > 0

    @property
    def on_cluster(self) -> str | None:
        """The cluster's id of the application, wherever the driver is."""
        return self.application or self.spark_application

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def gone(self) -> bool:
        """Whether it ended without a last word."""
        return self.ended and self.ended_ms is None

    def after(self, progress: Progress) -> JobEntry:
        """Return the entry with newer progress."""
        now = now_ms()
        entered = progress.state != self.state or not self.since
        why = (progress.message, now) if progress.restarts > self.progress.get("restarts", 0) else None
        return replace(
            self,
            state=progress.state,
            failure=None if progress.state != "RESTARTING" else (progress.message, "") if entered else self.failure,
            progress=asdict(progress),
            spark_application=None if self.application else progress.application,
            since={**self.since, progress.state: now} if entered else self.since,
            troubles=(*self.troubles, why)[-_TROUBLES:] if why is not None else self.troubles,
        )

    def ended_with(self, end: JobEnd) -> JobEntry:
        """Return the entry with the last word of its process, which is spoken now."""
        return replace(
            self,
            state=end.state,
            exit_code=end.exit_code,
            failure=end.failure,
            failure_code=end.failure_code,
            progress=dict(end.progress),
            ended_ms=now_ms(),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_bytes(self) -> bytes:
        """Return it as it is kept."""
        return msgspec.json.encode({"v": _FORMAT, **self.to_json()}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> JobEntry:
        """Return what was kept. Raises ValueError if it is something else."""
        return cls.from_json(msgspec.json.decode(data))

    @classmethod
    def from_json(cls, value: Any) -> JobEntry:
        """Return the entry of plain data. Raises ValueError if it is none."""
        if not isinstance(value, dict) or value.get("v") != _FORMAT:
            raise ValueError("no entry of a job, or one of a format that is not known")
        entry = msgspec.convert(value, ready(cls))
        Progress.check(entry.progress)
        return entry


class Registry:
    """The job processes that a state directory knows; `alive` says whether a process of this machine is the one that started then."""

    def __init__(self, state_dir: Path, *, alive: Callable[[int, str], bool] = is_alive, kept: int = KEPT) -> None:
        self.folder = state_dir / FOLDER
        self._alive = alive
        self._kept = kept

    def entries(self) -> list[JobEntry]:
        """Return all entries, the newest start first. One whose process is gone without a last word is FAILED."""
        return [self._looked_at(entry) for entry in self.written()]

    def written(self) -> list[JobEntry]:
        """Return all entries as they stand in their files, the newest start first; nobody is asked, and no process is looked for."""
        entries = [entry for _, entry in self._read()]
        return sorted(entries, key=lambda entry: (entry.started_ms, entry.pid), reverse=True)

    def running(self) -> list[JobEntry]:
        """Return the entries of living processes, the newest start first."""
        return [entry for entry in self.entries() if not entry.ended]

    def of_process(self, pid: int) -> JobEntry | None:
        """Return the newest entry of a process id, None if there is none."""
        return next((entry for entry in self.entries() if entry.pid == pid), None)

    def own(self, pid: int, started_ms: int) -> Registration | None:
        """Return the entry of this very process, which another one wrote for it; None if there is none yet."""
        for path, entry in self._read():
            if (entry.pid, entry.started_ms, entry.host) == (pid, started_ms, socket.gethostname()):
                return Registration(path, entry)
        return None

    def reread(self, entry: JobEntry) -> JobEntry | None:
        """Return how an entry stands now, None if it was removed."""
        current = self._load(self._path(entry))
        return None if current is None else self._looked_at(current)

    def resolve(self, wanted: str) -> JobEntry:
        """Return the job that an id, the beginning of an id, or a name means; a living one before those that ended.

        Of ended jobs with the name, the newest is meant: each restore of a savepoint is another job. Of several drivers of one job it is the
        active one, which is the one to ask.

        Raises:
            DefinitionError: there is none, or there are two.
        """
        entries = self.entries()
        by_name = [entry for entry in entries if entry.name == wanted]
        if by_name and all(entry.ended for entry in by_name):
            by_name = [max(by_name, key=lambda entry: entry.started_ms)]
        for matches in (
            [entry for entry in entries if entry.job_id == wanted.lower()],
            by_name,
            [entry for entry in entries if wanted and entry.job_id.startswith(wanted.lower())],
        ):
            if matches:
                living = [entry for entry in matches if not entry.ended]
                return _only(wanted, [entry for entry in living if entry.role == ACTIVE] or living or matches)
        next = did_you_mean(wanted, [entry.name for entry in entries], "see the jobs there are: poundlock list -a")
        raise DefinitionError(f"there is no job {wanted!r}", next=next)

    def register(self, entry: JobEntry, token: str | None = None) -> Registration:
        """Note a process that starts, and remove the oldest of the ended ones that are too many.

        Args:
            entry: of this process; its `token_file` is filled in where there is a token.

        Raises:
            DefinitionError: the folder cannot be written.
            TransientError: its disk is full.
        """
        path = self._path(entry)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if token is not None:
                file = path.with_suffix(".token")
                write_whole(file, token.encode())
                entry = replace(entry, token_file=str(file.absolute()))
            write_whole(path, entry.to_bytes())
        except OSError as error:
            if is_full(error):
                raise storage_trouble(error, doing=f"listing the job in {self.folder}", starting=True) from error
            raise DefinitionError(
                f"{self.folder} cannot be written: {error.strerror or error}",
                next="set state_dir to a folder of yours: -D state_dir=…",
            ) from error
        self.prune()
        return Registration(path, entry)

    def prune(self) -> None:
        """Remove the oldest of the ended entries beyond those that stay listed, and what belongs to no entry."""
        ended = [(path, entry) for path, entry in self._read() if self._looked_at(entry).ended]
        ended.sort(key=lambda item: (item[1].started_ms, item[1].pid), reverse=True)
        for path, entry in ended:
            if entry.token_file is not None:
                _remove(path.with_suffix(".token"))
        for path, _ in ended[self._kept :]:
            _remove(path)
        old = time.time() - _ABANDONED_S
        for path in self.folder.glob(".tmp-*"):
            with suppress(OSError):
                if path.stat().st_mtime < old:
                    _remove(path)

    def _path(self, entry: JobEntry) -> Path:
        return self.folder / f"{entry.job_id}-{entry.started_ms}-{entry.pid}.json"

    def _read(self) -> list[tuple[Path, JobEntry]]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        paths = [self.folder / name for name in names if _FILE.fullmatch(name)]
        return [(path, entry) for path in paths if (entry := self._load(path)) is not None]

    def _load(self, path: Path) -> JobEntry | None:
        try:
            return JobEntry.from_bytes(path.read_bytes())
        except (OSError, ValueError):
            return None  # removed meanwhile, or another version's: no reason to hide the others

    def _looked_at(self, entry: JobEntry) -> JobEntry:
        if entry.application is not None:
            from poundlock.control.driver_status import polled

            try:
                current = entry if entry.ended else polled(entry)
            except TransientError:  # it stays listed as it was
                return entry
            if current is not entry and current.ended:
                with suppress(OSError):  # its checkpoint folder will be another's to write to
                    write_whole(self._path(entry), current.to_bytes())
            return current
        if entry.ended or (entry.here and self._alive(entry.pid, entry.process_start)):
            return entry
        if not entry.here:
            from poundlock.control.driver_status import elsewhere

            return elsewhere(entry)
        # It may have written its last status between the reading and the looking.
        latest = self._load(self._path(entry))
        if latest is not None and latest.ended:
            return latest
        from poundlock.control.driver_status import gone

        return gone(entry)


class Registration:
    """This process's own entry. Every change replaces the file as a whole; a disk that is full does not fail the job."""

    def __init__(self, path: Path, entry: JobEntry) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.entry = entry

    def update(self, newer: Progress | None = None, **changes: Any) -> None:
        """Take newer progress, and change fields of the entry."""
        self._change(lambda entry: replace(entry if newer is None else entry.after(newer), **changes))

    def end(self, end: JobEnd) -> None:
        """Say the last word; the token is worth nothing from now on."""
        self._change(lambda entry: entry.ended_with(end))
        self._forget_token()

    def _change(self, change: Callable[[JobEntry], JobEntry]) -> None:
        with self._lock:
            if self.entry.ended:
                return
            self.entry = change(self.entry)
            with suppress(OSError):
                write_whole(self._path, self.entry.to_bytes())

    def between(self, *, restarts: int, why: str) -> None:
        """Note that the job's process has crashed and its supervisor will start it again, for the `restarts`-th time: nobody answers until then."""
        self._forget_token()
        self.update(
            state="RESTARTING",
            failure=(why, ""),
            rest=None,
            rest_certificate=None,
            token_file=None,
            child=None,
            process_restarts=restarts,
        )

    def _forget_token(self) -> None:
        if self.entry.token_file is not None:
            _remove(Path(self.entry.token_file))


def now_ms() -> int:
    """Return ms since the epoch."""
    return time.time_ns() // 1_000_000


def registered(
    *,
    job_id: str,
    name: str,
    checkpoint_dir: str,
    log: Path,
    job_file: str,
    arguments: Sequence[str],
    command: str = "run",
    is_shell: bool = False,
) -> JobEntry:
    """Return an entry of this process, which starts now."""
    pid = os.getpid()
    return JobEntry(
        job_id=job_id,
        name=name,
        pid=pid,
        process_start=process_start(pid) or "",
        host=socket.gethostname(),
        started_ms=now_ms(),
        state="INITIALIZING",
        checkpoint_dir=checkpoint_dir if is_uri(checkpoint_dir) else os.path.abspath(checkpoint_dir),
        log=str(log.absolute()),
        job_file=job_file,
        command=command,
        arguments=list(arguments),
        is_shell=is_shell,
        folder=os.getcwd(),
        cancel_signal=int(CANCEL),
    )


def _only(wanted: str, matches: Sequence[JobEntry]) -> JobEntry:
    others = [entry for entry in matches if entry.job_id != matches[0].job_id]
    if others:
        first, second = matches[0], others[0]
        raise DefinitionError(
            f"{wanted!r} means two jobs: {first.job_id} ({first.name}) and {second.job_id} ({second.name})",
            next="give more digits of the id",
        )
    return matches[0]


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file, whole or not at all; the mode says who may read it. A link, a pipe or a device is written to."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)
        return
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
