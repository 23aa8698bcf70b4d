"""What a session of our own is started with: the settings the design was measured with, the options of its JVM, and what streaming queries
need to keep their checkpoint on a store.

Everything a user set by hand wins; what the protocol needs to be correct cannot be set otherwise. Nothing of a store's is secret: the
JVM looks for credentials as this process does, in its environment, profile or machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark.launch.master import Master
from poundlock.spark.worker_daemon import MODULE as DAEMON
from poundlock.spark.worker_daemon import MODULES_VARIABLE
from poundlock.storage import Storage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import PASSED_ON, S3Address

# No row enters this JVM: what it does is not worth the optimising compiler, and a small heap is never short.
_NO_ROWS = ("-XX:TieredStopAtLevel=1", "-Xms64m", "-XX:MaxNewSize=48m")
# Eight times the JVM's own thresholds: with them the optimising compiler takes a sixth of the processor time of a job that
# catches up for a quarter of a minute, and gives back less. What stays hot is still compiled.
_SECOND_COMPILER_LATER = (
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=80000",
    "-XX:Tier4BackEdgeThreshold=320000",
)
# Needed for correctness: times mean the same in every zone the driver may run in.
FIXED = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.pythonUDF.arrow.enabled": "true"}
# Measured defaults; a user's setting wins.
DEFAULTS = {
    # Without it a task's input waits up to 40 ms for an acknowledgement that the worker's kernel delays.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark remembers of jobs that ended, in the driver's heap; a thousand by default.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.task.maxFailures": "4",
}
_OF_A_CLUSTER = {
    # A keyed task waits so long for a core where its state is; with Spark's 3 s, others would be idle for longer than a download takes.
    "spark.locality.wait": "100ms",
    # With dynamic allocation an idle executor is given back. Spark would keep one for ever that has a cached partition, or a shuffle's
    # data: of the first there is a number for each keyed task, and nothing of the second outlives its checkpoint.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "1min",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1min",
}
# What goes from task to task stays in the page cache: to make it smaller costs more than to keep it.
_ON_ONE_MACHINE = {"spark.shuffle.compress": "false"}
_ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Where YARN unpacks what HADOOP_CONF_DIR holds here: tasks that are given hdfs://nameservice find it there.
HADOOP_CONF = "{{PWD}}/__spark_conf__/__hadoop_conf__"
# One thread each in the workers: tasks already fill the cores, and idle pools cost start-up.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS")


@dataclass(frozen=True)
class SessionSpec:
    """What a session is started with.

    Args:
        cores: how many cores the cluster is asked for; None = as many as it gives.
        files: modules and zips that every task of a cluster can import from.
        task_python: the Python of a cluster's tasks, where it is not at the path of the driver's.
        driver_memory: heap of the driver's JVM, such as "2g".
        worker_modules: modules that all workers on this machine load before they are forked.
        quick_start: compile only as far as C1, and nothing per query: right where no record enters the JVM, wrong where rows pass through it.
    """

    name: str
    master: Master
    jvm_log: Path
    cores: int | None = None
    files: Sequence[str] = ()
    archives: Mapping[str, str] = field(default_factory=dict)
    task_python: str | None = None
    java_home: str | None = None
    jars: Sequence[str] = ()
    driver_memory: str = "1g"
    jvm_options: Sequence[str] = ()
    worker_modules: Sequence[str] = ()
    quick_start: bool = False
    store: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, str] = field(default_factory=dict)
    log4j: Path | None = None

    def settings(self) -> dict[str, str]:
        """Return the Spark settings. Raises DefinitionError where the user's contradict what the protocol needs."""
        for key, value in FIXED.items():
            if self.user.get(key, value) != value:
                raise DefinitionError(
                    f"{key}={self.user[key]} cannot be used with poundlock",
                    next=f"leave {key} out; it has to be {value}",
                )
        conf = {**DEFAULTS, **self.store, **FIXED, **self.archives}
        if self.master.loopback:
            conf |= _ON_LOOPBACK
        conf["spark.pyspark.python"] = sys.executable
        conf["spark.pyspark.driver.python"] = sys.executable
        if self.quick_start:
            conf["spark.sql.codegen.wholeStage"] = "false"  # a row a task is not worth compiling a class for
        if self.jars:
            conf["spark.driver.extraClassPath"] = os.pathsep.join(self.jars)
        if self.local:
            conf |= _ON_ONE_MACHINE
            conf["spark.python.daemon.module"] = DAEMON
            if self.worker_modules:
                conf[f"spark.executorEnv.{MODULES_VARIABLE}"] = " ".join(self.worker_modules)
        else:
            conf |= self._of_a_cluster()
        conf.update(self.user)
        if self.task_python is not None:
            # Spark runs a little Python of the job's on the driver too, which keeps the driver's own.
            conf["spark.pyspark.python"] = sys.executable
            conf["spark.sql.execution.pyspark.python"] = self.task_python
        options = [*self.jvm_arguments(), self.user.get("spark.driver.extraJavaOptions", "")]
        conf["spark.driver.extraJavaOptions"] = " ".join(options).strip()
        return conf

    def _of_a_cluster(self) -> dict[str, str]:
        conf = {**_OF_A_CLUSTER, **self.master.asked_for(self.cores, self.user)}
        if self.jars:
            conf["spark.jars"] = ",".join(self.jars)
        if self.master.kind == "yarn":
            conf["spark.executorEnv.HADOOP_CONF_DIR"] = HADOOP_CONF
            # A socket's path has at most some hundred bytes, and a container's own folder for such files has more.
            conf["spark.python.unix.domain.socket.dir"] = "/tmp"
        return conf | {f"spark.executorEnv.{name}": "1" for name in ONE_THREAD}

    @property
    def local(self) -> bool:
        """Whether driver and tasks share one JVM, so that tasks see the driver's class path."""
        return self.master.local

    def jvm_arguments(self) -> list[str]:
        """Return the options of the driver's JVM, heap and class path left out."""
        # 16 MB stacks: Spark's classification of Py4J errors overflows smaller ones when a query is stopped.
        options = ["-Xss16m"]
        if self.log4j is not None:
            options.append(f"-Dlog4j2.configurationFile={self.log4j}")
        if self.local:
            options.append("-XX:+UseSerialGC")
            options += _NO_ROWS if self.quick_start else _SECOND_COMPILER_LATER
        return [*options, *self.jvm_options]


_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


@dataclass(frozen=True, slots=True)
class StoreNeeds:
    """What Spark needs: sets of jars by name, and settings; a user's win."""

    jar_sets: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def needs_of(storage: Storage) -> StoreNeeds:
    """Return what a streaming query needs to keep its checkpoint on a store."""
    if isinstance(storage, S3Storage):
        return StoreNeeds(("s3a",), _s3a(storage.address))
    return StoreNeeds()


def executor_settings() -> dict[str, str]:
    """Return the settings that tell a cluster's executors where S3 is, as this process has it."""
    return {f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if os.environ.get(name)}


def _s3a(address: S3Address) -> dict[str, str]:
    settings = {"aws.credentials.provider": _CREDENTIALS, "path.style.access": str(address.path_style).lower()}
    if address.endpoint is not None:
        settings["endpoint"] = address.endpoint
        settings["connection.ssl.enabled"] = str(address.endpoint.startswith("https://")).lower()
    if address.region is not None or address.endpoint is not None:
        settings["endpoint.region"] = address.region or "us-east-1"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
