"""The executors of a cluster: waited for at the start, looked at once by a few tasks, and watched while the job runs.

A cluster that gives no executor, or takes all of them away, would have Spark wait for ever; here it is an error that says so.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.capabilities import TaskFolders, TaskModules
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.threads import has_ended, in_thread

if TYPE_CHECKING:
    from poundlock.plan.plan import Plan
    from poundlock.spark.launch.session import Session


_POLL_S = 0.1
_SETTLE_S = 3.0  # so long the rest of the cores may take to come after the first
_LOOK_S = 1.0
_AFTER_LOSS_S, _AFTER_RACES_S = 60.0, 600.0
_SPREAD_S = 0.2  # a probe takes so long, that no executor is done before the others have one
_NEXT_OWNED = "install it there, or send an environment along: --archives env.tar.gz#env"
_NEXT_USERS = "install it there, or set PYSPARK_PYTHON to a Python that has it before the session is made"
_MODULES = ("pyarrow", "numpy", "msgspec", "poundlock.tasks.entry")


class ApplicationLost(TransientError):
    """The cluster has ended this application, or gives it nothing any more: the next try has to be another application."""


def await_executors(session: Session, *, wanted: int | None, patience: timedelta, say: Callable[[str], None]) -> None:
    """Wait until the cluster has run a first small task, and a moment for the rest of the cores.

    Args:
        wanted: how many cores were asked for; None = it is not known. With dynamic allocation nobody waits for all of them.

    Raises:
        TransientError: no executor was given.
        PoundlockError: an executor was given, and not even a small task runs there.
    """
    context = session.context
    begun = time.monotonic()
    group = f"poundlock-probe-{secrets.token_hex(4)}"
    probe = _first_task(context, group)
    notified = False
    while not has_ended(probe, _POLL_S):
        waited = time.monotonic() - begun
        if not session.alive:
            raise _ended(context)
        if waited > patience.total_seconds():
            with suppress(Exception):
                context.cancelJobGroup(group)
            conf = context.getConf()
            memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", "1")
            raise ApplicationLost(
                f"the cluster {context.master} gave no executor within {_seconds(patience)}",
                next=f"see whether a worker has {memory} of memory and {cores} core(s) free; ask for less with --conf "
                "spark.executor.memory=…, or wait longer with -D executor_timeout=…",
            )
        if waited > _SETTLE_S and not notified:
            notified = True
            say(f"Waiting for an executor of {context.master}")
    if (failure := probe.exception()) is not None:
        raise (_unfit(failure) if session.alive else _ended(context)) from failure
    if wanted is None or context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return  # more of them come where tasks wait, and not before
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline and context.defaultParallelism < wanted:
        time.sleep(_POLL_S)
    cores_given = context.defaultParallelism
    if cores_given < wanted:
        given = f"The cluster gave {cores_given} core(s) so far, and {wanted} were asked for"
        say(f"{given}: tasks run one after the other")


def _first_task(context: Any, group: str) -> Future[int]:
    """Run a job of one task that does nothing, in a thread of its own: it ends once there is an executor."""

    def run() -> int:
        context.setJobGroup(group, "poundlock: waiting for an executor")
        return int(context.parallelize([None], 1).count())

    return in_thread(run, "poundlock-probe")


# --- what they are looked at for ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a job's tasks need of the machine they run on: local folders in which the driver has to find what they write, and they what the
    driver writes, and local folders or files that they read."""

    modules: Sequence[str] = _MODULES
    written: Sequence[str] = ()
    read: Sequence[str] = ()


def modules_of(plan: Plan) -> Sequence[str]:
    """Return what the sources and sinks of a job import in tasks and need not be installed with poundlock, each once."""
    ends = (*plan.sinks.values(), *plan.sources.values())
    return list(dict.fromkeys(name for end in ends if isinstance(end, TaskModules) for name in end.task_modules))


def needs_of(plan: Plan, checkpoint: str) -> Needs:
    """Return what the tasks of a job need; in the checkpoint folder they keep state, and what a stream of Spark's gave, where there is any."""
    written: list[str] = [checkpoint] if plan.keyed or plan.has_streams else []
    read: list[str] = []
    for parts, folders in ((plan.sinks, written), (plan.sources, read)):
        for part in parts.values():
            folders += part.task_folders if isinstance(part, TaskFolders) else ()
    return Needs(modules=[*dict.fromkeys((*_MODULES, *modules_of(plan)))], written=_local(written), read=_local(read))


def _local(paths: Collection[str]) -> Sequence[str]:
    from poundlock.storage import LocalStorage, open_storage

    result = (open_storage(path) for path in dict.fromkeys(paths))
    return [storage.root for storage in result if isinstance(storage, LocalStorage)]


def check_executors(session: Session, needs: Needs) -> None:
    """Run a small task on each core of the cluster and see whether the job's tasks could work there.

    Raises:
        DefinitionError: another Python, a module is not installed, or a local folder is not the driver's.
        PoundlockError: the tasks failed otherwise.
    """
    marks = {folder: f".poundlock-{secrets.token_hex(8)}" for folder in needs.written}
    try:
        for folder, mark in marks.items():
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, mark), "xb"):
                pass
        context = session.context
        tasks = max(1, context.defaultParallelism)
        looked = context.parallelize(range(tasks), tasks).mapPartitions(partial(_probe, needs=needs, marks=marks))
        seen = looked.setName("poundlock: what the executors have").collect()
    except PoundlockError:
        raise
    except OSError as error:
        if error.filename is None:
            raise _unfit(error) from error
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
    for report in seen:
        _judge(report, _NEXT_OWNED if session.owned else _NEXT_USERS)


def _probe(elements: Iterator[int], *, needs: Needs, marks: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Task: report what this machine has, once per core."""
    for _ in elements:
        pass
    report = look(needs, marks)
    time.sleep(_SPREAD_S)
    yield report


def look(needs: Needs, marks: dict[str, str]) -> dict[str, Any]:
    """Task: return what of the needs is missing here; `marks` are, per folder that tasks write to, the name of a file that the driver put there."""
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


def _judge(answer: dict[str, Any], install: str) -> None:
    host, python = answer["host"], answer["python"]
    for name, why in answer["missing"].items():
        raise DefinitionError(f"{python} on {host} cannot import {name}: {why}", next=install)
    for folder in answer["unseen"]:
        raise DefinitionError(
            f"{folder} is a folder of one machine: the tasks on {host} do not see what the driver writes there",
            next="use a place that all machines share: hdfs://…, s3://…, or a folder mounted at the same path everywhere",
        )
    for path in answer["absent"]:
        raise DefinitionError(
            f"{path} is on this machine, and the tasks on {host} do not find it",
            next="put the input where all machines see it under the same path",
        )


def _unfit(error: BaseException) -> PoundlockError:
    """Return why not even a small task could run."""
    from poundlock.spark.error_translation import explain

    text = str(error)
    if versions := re.search(r"PYTHON_VERSION_MISMATCH.*|Python in worker has different version.*", text, re.DOTALL):
        ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
        others = [number for number in re.findall(r"\b3\.[0-9]+\b", versions[0]) if number != ours]
        return DefinitionError(
            f"the cluster's tasks run Python {others[0] if others else 'of another version'}, and the driver runs {ours}",
            next="send the driver's environment along with --archives env.tar.gz#env, or name a Python of the same "
            "version there: --conf spark.pyspark.python=/path/to/python",
        )
    if (program := re.search(r'Cannot run program "([^"]+)"', text)) is not None:
        return DefinitionError(
            f"the cluster's machines have no {program[1]}",
            next="send an environment along with --archives env.tar.gz#env, or name the Python there: "
            "--conf spark.pyspark.python=/path/to/python",
        )
    if (module := re.search(r"No module named '([^']+)'", text)) is not None:
        return DefinitionError(f"the Python of the cluster's tasks has no module {module[1]}", next=_NEXT_OWNED)
    return explain(error)


# --- while the job runs ----------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Looks once a second whether the cluster still runs the application."""

    session: Session
    patience: timedelta
    _looked: float = 0.0
    _waiting_since: float | None = None
    _waiting: Sequence[tuple[int, int]] = ()
    _lost: bool = False
    _swept: float | None = None

    @cached_property
    def _races(self) -> bool:
        # Spark's context copies its settings at each look, call by call into the JVM.
        return bool(self.session.context.getConf().get("spark.speculation", "false") == "true")

    @property
    def leaves_leftovers(self) -> bool:
        """Whether attempts may have died, or lost a race, without tidying up, since this was last true; at most now and then."""
        now = time.monotonic()
        self._swept = now if self._swept is None else self._swept
        if not (self._lost or self._races) or now - self._swept < (_AFTER_LOSS_S if self._lost else _AFTER_RACES_S):
            return False
        self._swept, self._lost = now, False
        return True

    def check(self) -> None:
        """Raise ApplicationLost if the cluster has ended the application, or runs none of the tasks that wait."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        context = self.session.context
        if not self.session.alive:
            if self.session.jvm_alive:
                raise _ended(context)
            return  # a call into it says so
        tracker = context.statusTracker()
        stages = [stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage is not None]
        self._lost = self._lost or any(stage.numFailedTasks for stage in stages)
        waiting = [(stage.stageId, stage.numCompletedTasks) for stage in stages]
        if not waiting or any(stage.numActiveTasks for stage in stages):
            self._waiting_since = None
        elif self._waiting_since is None or waiting != self._waiting:
            self._waiting_since = now
        self._waiting = waiting
        if self._waiting_since is not None and now - self._waiting_since > self.patience.total_seconds():
            raise ApplicationLost(
                f"the cluster {context.master} has given no executor for {_seconds(self.patience)}",
                next="see that its master and a worker run; the job registers with it again and goes on",
            )


def _ended(context: Any) -> ApplicationLost:
    return ApplicationLost(
        f"the cluster {context.master} has ended the application",
        next="see the cluster's own page for why; the job is started again as its restart strategy says",
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
