"""The executors of a cluster: waited for at the start, looked at once by a few tasks, and watched while the job runs.

A cluster that gives no executor, or takes all of them away, would have Spark wait for ever; here it is an error that says so.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError, PoundlockError, TransientError

if TYPE_CHECKING:
    from poundlock.plan.plan import Plan

__all__ = ["ApplicationLost", "Needs", "Watch", "await_executors", "check_executors", "needs_of"]

_POLL_S = 0.1
_SETTLE_S = 3.0  # so long the rest of the cores may take to come after the first
_LOOK_S = 1.0
_AFTER_LOSS_S, _AFTER_RACES_S = 60.0, 600.0
_PROBE = "probe string"
_SPREAD_S = 0.2  # a probe takes so long, that no executor is done before the others have one
_MODULES = ("pyarrow", "numpy", "msgspec", "poundlock.plan.tasks")
_HOSTED = ("pandas", "google.protobuf", "poundlock.plan.hosting")


class ApplicationLost(TransientError):
    """The cluster has ended this application, or gives it nothing any more: the next try has to be another application."""


def executors(session: Any) -> int:
    """Return how many executors a session has."""
    return max(
        0, len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
    )  # the driver is listed too


def await_executors(session: Any, *, wanted: int | None, patience: timedelta, say: Callable[[str], None]) -> None:
    """Wait until the cluster has given an executor, and a moment for the rest of the cores.

    Args:
        session: was just started.
        wanted: how many cores were asked for; None = it is not known.
        patience: how long.
        say: told that it takes long.

    Raises:
        TransientError: it has given none.
    """
    begun = time.monotonic()
    told = False
    while not executors(session):
        waited = time.monotonic() - begun
        if session.sparkContext._jsc.sc().isStopped():
            raise _ended(session)
        if waited > patience.total_seconds():
            conf = session.sparkContext.getConf()
            memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "1")
            raise ApplicationLost(
                f"the cluster {session.sparkContext.master} gave no executor within {_seconds(patience)}",
                next=f"see whether a worker has {memory} of memory and {cores} core(s) free; ask for less with --conf "
                "spark.executor.memory=…, or wait longer with -D executor_timeout=…",
            )
        if waited > _SETTLE_S and not told:
            told = True
            say(f"Waiting for an executor of {session.sparkContext.master}")
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _SETTLE_S
    while wanted is not None and time.monotonic() < deadline and session.sparkContext.defaultParallelism < wanted:
        time.sleep(_POLL_S)
    found = session.sparkContext.defaultParallelism
    if wanted is not None and found < wanted:
        say(f"The cluster gave {found} core(s) so far, and {wanted} were asked for: tasks run one after the other")


# --- what they are looked at for ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a job's tasks need of the machine they run on.

    Args:
        modules: what they import.
        written: local folders in which the driver has to find what they write, and they what the driver writes.
        read: local folders or files that they read.
    """

    modules: Sequence[str] = _MODULES
    written: Sequence[str] = ()
    read: Sequence[str] = ()


def needs_of(plan: Plan, checkpoint: str) -> Needs:
    """Return what the tasks of a job need.

    Args:
        plan: the job.
        checkpoint: its checkpoint folder, in which tasks keep state where the job has any.
    """
    modules = [*_MODULES, *(_HOSTED if plan.hosted else ())]
    written: list[str] = [] if plan.stateless else [checkpoint]
    read: list[str] = []
    for sink in plan.sinks.values():
        modules += getattr(sink, "task_modules", ())
        written += getattr(sink, "task_folders", ())
    for source in plan.sources.values():
        modules += getattr(source, "task_modules", ())
        read += getattr(source, "task_folders", ())
    return Needs(modules=list(dict.fromkeys(modules)), written=_local(written), read=_local(read))


def _local(paths: Collection[str]) -> Sequence[str]:
    from poundlock.storage import LocalStorage, open_storage

    found = (open_storage(path) for path in dict.fromkeys(paths))
    return [storage.root for storage in found if isinstance(storage, LocalStorage)]


def check_executors(session: Any, needs: Needs) -> None:
    """Run a small task on each core of the cluster and see whether the job's tasks could work there.

    Raises:
        DefinitionError: another Python, a module is not installed, or a local folder is not the driver's.
        PoundlockError: the tasks failed otherwise.
    """
    from poundlock.plan.arrow import map_in_arrow

    marks = {folder: f".poundlock-{secrets.token_hex(8)}" for folder in needs.written}
    try:
        for folder, mark in marks.items():
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, mark), "xb"):
                pass
        tasks = max(1, session.sparkContext.defaultParallelism)
        frame = session.range(0, tasks, 1, tasks)
        seen = map_in_arrow(frame, _probe(needs, marks), _PROBE).collect()
    except PoundlockError:
        raise
    except OSError as error:
        raise DefinitionError(
            f"{error.filename} cannot be written: {error.strerror or error}",
            next="give this user the right to write there",
        ) from error
    except Exception as error:
        raise _unfit(error) from error
    finally:
        for folder, mark in marks.items():
            with suppress(OSError):
                os.unlink(os.path.join(folder, mark))
    for said in (json.loads(row[0]) for row in seen):
        _judge(said)


def _probe(needs: Needs, marks: dict[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        said = json.dumps(look(needs, marks))
        time.sleep(_SPREAD_S)
        yield pa.RecordBatch.from_arrays([pa.array([said])], names=[_PROBE.split()[0]])

    return task


def look(needs: Needs, marks: dict[str, str]) -> dict[str, Any]:
    """Task: return what of the needs is missing on this machine.

    Args:
        needs: of the job.
        marks: per folder that tasks write to, the name of a file that the driver has put there.
    """
    from importlib import import_module

    missing = {}
    for name in needs.modules:
        try:
            import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    unseen = [folder for folder, mark in marks.items() if not os.path.exists(os.path.join(folder, mark))]
    absent = [path for path in needs.read if not os.path.exists(path)]
    where = {"host": socket.gethostname(), "python": sys.executable}
    return {**where, "missing": missing, "unseen": unseen, "absent": absent}


def _judge(said: dict[str, Any]) -> None:
    host, python = said["host"], said["python"]
    for name, why in said["missing"].items():
        raise DefinitionError(
            f"{python} on {host} cannot import {name}: {why}",
            next="install it there, or send an environment along: --archives env.tar.gz#env",
        )
    for folder in said["unseen"]:
        raise DefinitionError(
            f"{folder} is a folder of one machine: the tasks on {host} do not see what the driver writes there",
            next="use a place that all machines share: hdfs://…, s3://…, or a folder mounted at the same path everywhere",
        )
    for path in said["absent"]:
        raise DefinitionError(
            f"{path} is on this machine, and the tasks on {host} do not find it",
            next="put the input where all machines see it under the same path",
        )


_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH.*|Python in worker has different version.*", re.DOTALL)
_NUMBER = re.compile(r"\b3\.[0-9]+\b")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"No module named '([^']+)'")


def _unfit(error: Exception) -> PoundlockError:
    """Return why not even a small task could run."""
    from poundlock.runtime.failures import explain

    text = str(error)
    if _VERSIONS.search(text):
        ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
        others = [found for found in _NUMBER.findall(_VERSIONS.search(text)[0]) if found != ours]  # type: ignore[index]
        return DefinitionError(
            f"the cluster's tasks run Python {others[0] if others else 'of another version'}, and the driver runs {ours}",
            next="send the driver's environment along with --archives env.tar.gz#env, or name a Python of the same "
            "version there: --conf spark.pyspark.python=/path/to/python",
        )
    if (program := _NO_PROGRAM.search(text)) is not None:
        return DefinitionError(
            f"the cluster's machines have no {program[1]}",
            next="send an environment along with --archives env.tar.gz#env, or name the Python there: "
            "--conf spark.pyspark.python=/path/to/python",
        )
    if (module := _NO_MODULE.search(text)) is not None:
        return DefinitionError(
            f"the Python of the cluster's tasks has no module {module[1]}",
            next="install it there, or send an environment along: --archives env.tar.gz#env",
        )
    return explain(error)


# --- while the job runs ----------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Looks once a second whether the cluster still runs the application.

    Args:
        session: the job's.
        patience: how long there may be work and no executor.
    """

    session: Any
    patience: timedelta
    _looked: float = 0.0
    _without: float | None = None
    _most: int = field(default=0)
    _lost: bool = False
    _swept: float | None = None

    @property
    def leaves_leftovers(self) -> bool:
        """Whether attempts may have died, or lost a race, without tidying up, since this was last true; at most now and then."""
        now = time.monotonic()
        self._swept = now if self._swept is None else self._swept
        races = self.session.sparkContext.getConf().get("spark.speculation", "false") == "true"
        if now - self._swept < (_AFTER_LOSS_S if self._lost else _AFTER_RACES_S) or not (self._lost or races):
            return False
        self._swept, self._lost = now, False
        return True

    def check(self) -> None:
        """Raise ApplicationLost if the cluster has ended the application, or leaves it without executors."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        context = self.session.sparkContext._jsc.sc()
        if context.isStopped():
            raise _ended(self.session)
        found = executors(self.session)
        if found < self._most:
            self._lost = True
        self._most = found
        if found or not context.statusTracker().getActiveJobIds():
            self._without = None
            return
        self._without = now if self._without is None else self._without
        if now - self._without > self.patience.total_seconds():
            raise ApplicationLost(
                f"the cluster {self.session.sparkContext.master} has given no executor for {_seconds(self.patience)}",
                next="see that its master and a worker run; the job registers with it anew and goes on",
            )


def _ended(session: Any) -> ApplicationLost:
    return ApplicationLost(
        f"the cluster {session.sparkContext.master} has ended the application",
        next="see the cluster's own page for why; the job is started again as its restart strategy says",
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
