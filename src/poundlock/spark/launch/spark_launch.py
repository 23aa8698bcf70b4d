"""Starting Spark for a job: its Java, its jars, its logs and its settings. Whoever runs or replays a job starts it in one way."""

from __future__ import annotations

from collections.abc import Callable

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
from poundlock.spark.launch.session import Session, start_session
from poundlock.spark.launch.session_conf import SessionSpec, StoreNeeds, executor_settings, needs_of
from poundlock.storage import Storage


def start_spark(
    job: Job,
    settings: Settings,
    *,
    log: str,
    quick_start: bool,
    store: Storage | None = None,
    streams: bool = False,
    say: Callable[[str], None],
) -> Session:
    """Start a session and return it.

    Args:
        log: name of the JVM's log in the folder of logs; the only one who writes it.
        streams: whether streaming queries keep their checkpoints there.

    Raises:
        DefinitionError: there is no Java, or Spark does not start.
        TransientError: the master cannot be reached, or gives no executor.
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
    spec = SessionSpec(
        name=job.name,
        master=master,
        cores=job.most_tasks,
        files=() if master.local or away else shipped_files(settings),
        archives=archive_conf(settings),
        task_python=None if master.local else python_of_tasks(settings, user),
        jvm_log=path,
        log4j=write_log4j2(path.with_suffix(".properties"), path),
        jvm_options=cds.jvm_options(java, jars, cache=settings.cache_dir) if master.local else (),
        java_home=java.home,
        jars=jars,
        driver_memory=settings.driver_memory,
        quick_start=quick_start,
        user=user,
        store={**executor_settings(), **needs.settings},
    )
    session = start_session(spec)
    if not master.local:
        try:
            await_executors(session, wanted=job.parallelism, patience=settings.executor_timeout, say=say)
        except BaseException:
            session.stop()
            raise
    return session


def on_this_machine(settings: Settings) -> Settings:
    """Return the settings for what is done here whatever the job's master is: it is one piece of work, with files of this machine."""
    return settings if settings.master.startswith("local") else settings.model_copy(update={"master": "local[*]"})
