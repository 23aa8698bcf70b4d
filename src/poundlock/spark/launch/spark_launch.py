"""Starting Spark for a job: its Java, its jars, its logs and its settings. Whoever runs or replays a job starts it in one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poundlock.config import Settings
from poundlock.control import cluster_driver as submitted
from poundlock.job import Job
from poundlock.spark.executors import await_executors
from poundlock.spark.launch import class_archive as cds
from poundlock.spark.launch.dependencies import archive_conf, python_of_tasks, shipped_files
from poundlock.spark.launch.jars import JarPlaces, jar_set
from poundlock.spark.launch.java import java_of
from poundlock.spark.launch.jvm import write_log4j2
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session import Session, SessionStart
from poundlock.spark.launch.session_conf import SessionSpec, StoreNeeds, executor_settings, needs_of
from poundlock.storage import Storage

# Garbage of an exchange lies in the old generation until a heap is full, so that a larger one only keeps more of it. Spark starts with
# 450 MB and no less.
_PLANNING_HEAP, _EXCHANGING_HEAP = "512m", "768m"
# How much of a heap may be free behind a collection; by default the old generation nearly doubles each time that garbage fills it.
_TIGHT = ("-XX:MinHeapFreeRatio=15", "-XX:MaxHeapFreeRatio=30")


@dataclass(frozen=True)
class SparkStart:
    """Spark on its way: Java starts beside what its driver does meanwhile."""

    job: Job
    settings: Settings
    master: Master
    started: SessionStart
    say: Callable[[str], None]

    def session(self) -> Session:
        """Wait until Spark is there; raises as `begin_spark`. Called once."""
        session = self.started.session()
        if not self.master.local:
            patience = self.settings.executor_timeout
            try:
                await_executors(session, wanted=self.job.parallelism, patience=patience, say=self.say)
            except BaseException:
                session.stop()
                raise
        return session

    def cancel(self) -> None:
        """End it, where nobody will ask for the session."""
        self.started.cancel()


def begin_spark(
    job: Job,
    settings: Settings,
    *,
    log: str,
    quick_start: bool,
    exchanges: bool,
    store: Storage | None = None,
    streams: bool = False,
    modules: Sequence[str] = (),
    say: Callable[[str], None],
) -> SparkStart:
    """Begin to start a session, and return while Java starts.

    Args:
        log: name of the JVM's log in the folder of logs; the only one who writes it.
        quick_start: whether no row enters the JVM, see `SessionSpec`.
        exchanges: whether rows go from one stage to another, through the JVM's heap.
        streams: whether streaming queries keep their checkpoints on the store.
        modules: what tasks import that takes long.

    Raises:
        DefinitionError: there is no Java, or, once the session is asked for, Spark does not start.
        TransientError: likewise, the master cannot be reached, or gives no executor.
    """
    master = Master.of(settings.master).with_cores(job.most_tasks)
    master.check()
    java = java_of(settings)
    places = JarPlaces.of(settings)
    needs = needs_of(store) if streams and store is not None else StoreNeeds()
    # A driver that was submitted came with its jars and modules, and the tasks have them from the cluster.
    away = submitted.container() is not None
    wanted = () if away else sorted(needs.jar_sets)
    jars = [jar for name in wanted for jar in jar_set(name, progress=say, places=places)]
    path = settings.logs / log
    path.parent.mkdir(parents=True, exist_ok=True)
    user = {**job.spark, **settings.spark}
    small = quick_start and master.local
    spec = SessionSpec(
        name=job.name,
        master=master,
        cores=job.most_tasks,
        files=() if master.local or away else shipped_files(settings),
        archives=archive_conf(settings),
        task_python=None if master.local else python_of_tasks(settings, user),
        jvm_log=path,
        log4j=write_log4j2(path.with_suffix(".properties"), path),
        jvm_options=_jvm_options(cds.jvm_options(java, jars, cache=settings.cache_dir), small and exchanges)
        if master.local
        else (),
        java_home=java.home,
        jars=jars,
        driver_memory=heap(settings, small=small, exchanges=exchanges),
        worker_modules=modules,
        quick_start=quick_start,
        user=user,
        store={**executor_settings(), **needs.settings},
    )
    return SparkStart(job, settings, master, SessionStart(spec), say)


def _jvm_options(archive: Sequence[str], tight: bool) -> Sequence[str]:
    """Return the options of a JVM on this machine: its class archive, and whether its heap is kept from growing."""
    return [*archive, *(_TIGHT if tight else ())]


def heap(settings: Settings, *, small: bool, exchanges: bool) -> str:
    """Return the heap of the driver's JVM, such as "512m": what the settings say, else what the job's work asks for.

    Args:
        small: whether the JVM only plans tasks that run beside it on this machine.
        exchanges: see `begin_spark`.
    """
    if "driver_memory" in settings.model_fields_set or not small:
        return settings.driver_memory
    return _EXCHANGING_HEAP if exchanges else _PLANNING_HEAP


def on_this_machine(settings: Settings) -> Settings:
    """Return the settings for what is done here whatever the job's master is: it is one piece of work, with files of this machine."""
    return settings if settings.master.startswith("local") else settings.model_copy(update={"master": "local[*]"})
