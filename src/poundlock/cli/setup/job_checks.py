"""What `poundlock doctor job.py` looks at: all that the job at hand needs, or each job of a script of SQL, from packages to the clocks of its servers.

Nothing is made that stays: a sink is asked by `Examinable`, and one that cannot be asked so is not asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from poundlock.cli.setup.check import LEAST_DISK, Check, tried
from poundlock.cli.setup.job_packages import file_paths, jar_checks, package_checks
from poundlock.errors import PoundlockError
from poundlock.values import format_bytes, format_duration, size

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.job import Job
    from poundlock.plan.plan import Plan
    from poundlock.sql.connectors.table import RowLookup
    from poundlock.storage import Storage

MOST_APART_MS = 2000
"""A clock that is kept by NTP is within some milliseconds; S3 refuses a request that is 15 minutes off, Kerberos one that is five."""


@dataclass(frozen=True)
class LoadedJob:
    """A job as it would run.

    Args:
        target: where it is written.
        settings: with which it would run.
        lookups: the tables of SQL that its steps look up in, by their names.
        extras: of poundlock, that its tables of SQL use, each with what uses it.
    """

    target: str
    job: Job
    plan: Plan
    settings: Settings
    lookups: Mapping[str, RowLookup] = field(default_factory=dict)
    extras: Mapping[str, str] = field(default_factory=dict)


def load_python_job(target: str, settings: Settings) -> list[LoadedJob]:
    """Return the one job of `job.py` or `job.py:name`, planned.

    Raises:
        PoundlockError: it cannot be read, or planned.
    """
    from poundlock.cli.job_loader import load_job

    return [planned(target, load_job(target), settings)]


def planned(target: str, job: Job, settings: Settings) -> LoadedJob:
    """Return a job with its plan. Raises DefinitionError: it has none."""
    from poundlock.driver.driver import with_settings
    from poundlock.plan.guarantees import check_required
    from poundlock.plan.plan import make_plan

    plan = make_plan(with_settings(job, settings))
    check_required(plan)
    return LoadedJob(target, job, plan, settings)


class JobChecks:
    """What a job needs, or the jobs of a script.

    Args:
        load: gives the jobs; raises PoundlockError where they cannot be read.
        settings: of the command.
    """

    def __init__(self, load: Callable[[], Sequence[LoadedJob]], settings: Settings) -> None:
        self._load, self._settings = load, settings

    @property
    def heap(self) -> int:
        """Bytes of heap that the JVM of a driver would get, of the job that gets most: those of a script run one behind the other."""
        loaded = self._loaded
        if isinstance(loaded, PoundlockError) or not loaded:
            return size(self._settings.driver_memory)
        return max(map(_heap, loaded))

    def checks(self) -> Iterator[Check]:
        """Yield all that is looked at, what is the same for several jobs once; of what cannot be read, why."""
        loaded = self._loaded
        if isinstance(loaded, PoundlockError):
            yield Check(name="job", ok=False, result=loaded.what, next=loaded.next)
            return
        shown = set[Check]()
        for one in loaded:
            for check in _OneJob(one).checks():
                if check not in shown:
                    shown.add(check)
                    yield check

    @cached_property
    def _loaded(self) -> Sequence[LoadedJob] | PoundlockError:
        from poundlock.spark.launch.dependencies import add_to_path

        try:
            add_to_path(self._settings)
            return self._load()
        except PoundlockError as error:
            return error


def _heap(loaded: LoadedJob) -> int:
    from poundlock.plan.outline import enters_jvm
    from poundlock.spark.launch.master import Master
    from poundlock.spark.launch.spark_launch import heap

    plan, settings = loaded.plan, loaded.settings
    small = not enters_jvm(plan) and Master.of(settings.master).local
    return size(heap(settings, small=small, exchanges=plan.exchanges))


class _OneJob:
    """What one job needs."""

    def __init__(self, loaded: LoadedJob) -> None:
        self._loaded, self._settings = loaded, loaded.settings

    def checks(self) -> Iterator[Check]:
        """Yield all that is looked at."""
        from poundlock.checkpoint.capabilities import LimitsTasks

        job, plan = self._loaded.job, self._loaded.plan
        ends = [f"{len(plan.sources)} source(s)", f"{len(plan.sinks)} sink(s)"]
        ends += [f"{len(self._loaded.lookups)} table(s) looked up in"] if self._loaded.lookups else []
        yield Check(name="job", ok=True, result=f"{job.name}: {', '.join(ends)} ({self._loaded.target})")
        yield from package_checks(plan, self._checkpoint, self._loaded.extras)
        if self._settings.rest_enabled:
            yield _rest()
        yield from jar_checks(job, plan, self._settings, self._checkpoint)
        yield tried("master", self._master)
        yield from self._places(plan)
        if job.autoscaler is not None or any(isinstance(sink, LimitsTasks) for sink in plan.sinks.values()):
            yield tried("tasks", partial(_tasks, job, plan))

    def _master(self) -> str:
        from poundlock.spark.launch.master import Master

        master = Master.of(self._settings.master)
        master.check()
        return f"{master.text} {'is this machine' if master.local else 'answers'}"

    @cached_property
    def _checkpoint(self) -> str | PoundlockError:
        """Folder of the job's checkpoint."""
        from poundlock.driver.driver import checkpoint_dir

        try:
            return checkpoint_dir(self._loaded.job, self._settings)
        except PoundlockError as error:
            return error

    def _places(self, plan: Plan) -> Iterator[Check]:
        """Yield checkpoint, sources and sinks, each asked in a thread of its own: one that does not answer keeps no other waiting."""
        from poundlock.checkpoint.capabilities import Closable, NeedsJvm
        from poundlock.connectors.examination import Examination
        from poundlock.threads import in_thread

        if any(isinstance(part, NeedsJvm) and part.jvm for part in (*plan.sources.values(), *plan.sinks.values())):
            from poundlock.spark import jdbc_gateway as jdbc

            jdbc.install()
        asked: dict[str, Future[tuple[str, Examination]]] = {}
        if isinstance(self._checkpoint, PoundlockError):
            yield Check(name="checkpoint", ok=False, result=self._checkpoint.what, next=self._checkpoint.next)
        else:
            asked["checkpoint"] = in_thread(partial(_folder, self._checkpoint), "poundlock-doctor")
        roles: dict[str, Mapping[str, Any]] = {
            "source": plan.sources, "lookup": self._loaded.lookups, "sink": plan.sinks
        }  # fmt: skip
        for role, parts in roles.items():
            for name, part in parts.items():
                look = partial(_ask, part, source=role == "source")
                asked[f"{role} {name}"] = in_thread(look, "poundlock-doctor")
        clocks: dict[str, int] = {}
        for name, answer in asked.items():
            try:
                result, seen = answer.result()
            except Exception as failure:
                yield _refused(name, failure, plan)
                continue
            later = f"; the job's start makes {', '.join(seen.to_make)}" if seen.to_make else ""
            yield Check(name=name, ok=True, result=result + later)
            if seen.ms_ahead is not None:
                clocks[seen.clock] = seen.ms_ahead
        for sink in plan.sinks.values():
            if isinstance(sink, Closable):
                sink.close()
        # A local disk has this machine's clock, unless it is mounted from another.
        yield from (
            _clock(of, ahead) for of, ahead in clocks.items() if not of.startswith("/") or abs(ahead) > MOST_APART_MS
        )
        yield from _room(self._checkpoint, plan)


# --- sources, sinks, folders, clocks -------------------------------------------------------------------------------------


def _rest() -> Check:
    from poundlock.rest.server import not_installed

    missing = not_installed()  # a job runs without it all the same
    result = "is served" if missing is None else f"off: {missing.what}; {missing.next}"
    return Check(name="REST", ok=True, result=result)


def _ask(part: Any, *, source: bool) -> tuple[str, Any]:
    """Ask a source or a sink whether it could work. Raises whatever it raises."""
    from poundlock.checkpoint.capabilities import Describable, HasPlace, Preflight
    from poundlock.connectors.examination import Examinable, Examination

    shown = part.describe() if isinstance(part, Describable) and not source else type(part).__name__
    if source and isinstance(part, HasPlace) and part.place:
        shown = f"{shown} {part.place}"
    if isinstance(part, Examinable):
        return f"{shown}: can be used", part.examine()
    if source and isinstance(part, Preflight):
        part.preflight()
        return f"{shown}: can be used", Examination()
    if isinstance(part, Preflight):
        return f"{shown}: not asked, since its preflight may make something; the job's start asks it", Examination()
    return f"{shown}: has nothing to be asked", Examination()


def _folder(path: str) -> tuple[str, Any]:
    """See that the checkpoint can be written. Raises PoundlockError."""
    from poundlock.connectors.examination import Examination
    from poundlock.storage import open_storage
    from poundlock.storage.probe import standing, try_writing
    from poundlock.storage.storage_errors import explained, refuse_unreachable

    storage = open_storage(path)
    refuse_unreachable(storage, what="the checkpoint")
    with explained(f"trying to write in {path}", starting=True):
        there = standing(storage)
        ahead = try_writing(there)
    made = [] if there.root == storage.root else [f"the folder {storage.root}"]
    return f"{path}: can be written", Examination(made, ahead, there.root)


def _refused(name: str, failure: Exception, plan: Plan) -> Check:
    from poundlock.spark.error_translation import explain

    error = explain(failure, list(plan.sources.values()))
    return Check(name=name, ok=False, result=error.what, next=error.next or f"see that {name} can be reached")


def _clock(of: str, ahead: int) -> Check:
    apart = timedelta(seconds=round(abs(ahead) / 1000, 1))
    if abs(ahead) <= MOST_APART_MS:
        return Check(
            name="clock",
            ok=True,
            result=f"{of}: as here" if abs(ahead) < 100 else f"{of}: within {apart.total_seconds():.1f} s",
        )
    how = "ahead of" if ahead > 0 else "behind"
    return Check(
        name="clock",
        ok=False,
        result=f"{of}: {format_duration(apart)} {how} this machine's clock",
        next="have the clocks of both machines kept by NTP: timedatectl set-ntp true",
    )


def _room(checkpoint: str | PoundlockError, plan: Plan) -> Iterator[Check]:
    """Yield the free space of each local folder that the job writes to."""
    from poundlock.storage import LocalStorage, open_storage
    from poundlock.storage.probe import standing

    places: dict[str, Callable[[], Storage]] = {}
    if isinstance(checkpoint, str):
        places["disk of the checkpoint"] = partial(open_storage, checkpoint)
    places |= {
        f"disk of sink {name}": partial(open_storage, path) for role, name, path in file_paths(plan) if role == "sink"
    }
    for name, opened in places.items():
        storage = opened()
        if isinstance(storage, LocalStorage):
            free = shutil.disk_usage(standing(storage).root).free
            result = f"{storage.root}, {format_bytes(free)} free; at least {format_bytes(LEAST_DISK)} is needed"
            yield Check(
                name=name, ok=free >= LEAST_DISK, result=result, next="free some space there, or choose another folder"
            )


def _tasks(job: Job, plan: Plan) -> str:
    """See that sinks take as many tasks as the job has. Raises PoundlockError."""
    from poundlock.checkpoint.capabilities import check_tasks
    from poundlock.driver.autoscaler import check_autoscaler

    check_tasks(plan.sinks, job.parallelism or 1)
    if job.autoscaler is not None:
        check_autoscaler(plan, job.autoscaler)
    return f"the sinks take {job.parallelism or 'as many as the master gives'}"
