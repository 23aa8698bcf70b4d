"""The Spark session of one driver: a JVM that writes to log files only, with the settings the design was measured with.

Everything a user set by hand wins; what the protocol needs to be correct cannot be set otherwise.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.runtime import submitted
from poundlock.runtime.daemon import MODULE as DAEMON
from poundlock.runtime.masters import Master

__all__ = ["SessionSpec", "check_callbacks", "forget_session", "start_session"]

_TASKS_S, _POLL_S = 20.0, 0.05
_SELECT_FILES = 1024  # FD_SETSIZE of the C library
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_FIRST_COMPILER_ONLY = ("-XX:TieredStopAtLevel=1",)
# Eight times the JVM's own thresholds: with them the optimising compiler takes a sixth of the processor time of a job that
# catches up for a quarter of a minute, and gives back less. What stays hot is still compiled.
_SECOND_COMPILER_LATER = (
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=80000",
    "-XX:Tier4BackEdgeThreshold=320000",
)
# Needed for correctness: times mean the same in every zone the driver may run in.
FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
# Measured defaults; a user's setting wins.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.task.maxFailures": "4",
}
_ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Where YARN unpacks what HADOOP_CONF_DIR holds here: tasks that are given hdfs://nameservice find it there.
HADOOP_CONF = "{{PWD}}/__spark_conf__/__hadoop_conf__"
# One thread each in the workers: tasks already fill the cores, and idle pools cost start-up.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS")


@dataclass(frozen=True)
class SessionSpec:
    """What a session is started with.

    Args:
        name: shown as Spark's application name.
        master: the Spark master.
        cores: how many cores the cluster is asked for; None = as many as it gives.
        files: modules and zips that every task of a cluster can import from.
        archives: the setting that has archives unpacked beside a cluster's tasks.
        task_python: the Python of a cluster's tasks, where it is not at the path of the driver's.
        java_home: folder of the Java runtime; None = the machine's own.
        jars: paths of jars to put on Spark's class path.
        driver_memory: heap of the driver's JVM, such as "2g".
        jvm_options: further options of the driver's JVM.
        quick_start: compile only as far as C1, and nothing per query: right where no record enters the JVM, wrong where rows pass through it.
        local_checkpoint: whether checkpoints are on a local disk, where a faster checkpoint writer is safe behind our ledger.
        state: settings of the state backend.
        store: settings of the store that checkpoints are on.
        user: the user's own Spark settings.
        jvm_log: file for whatever the JVM prints.
        log4j: log4j2 properties file.
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
    quick_start: bool = False
    local_checkpoint: bool = True
    state: Mapping[str, str] = field(default_factory=dict)
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
        conf = {**DEFAULTS, **self.state, **self.store, **FIXED, **self.archives}
        if self.master.loopback:
            conf |= _ON_LOOPBACK
        if self.local_checkpoint:
            conf["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
        conf["spark.pyspark.python"] = sys.executable
        conf["spark.pyspark.driver.python"] = sys.executable
        if self.quick_start:
            conf["spark.sql.codegen.wholeStage"] = "false"  # a row a task is not worth compiling a class for
        if self.jars:
            conf["spark.driver.extraClassPath"] = os.pathsep.join(self.jars)
        if self.local:
            conf["spark.python.daemon.module"] = DAEMON
        else:
            conf |= self._of_a_cluster()
        conf.update(self.user)
        if self.task_python is not None:
            # Spark runs a little Python of the job's on the driver too, which keeps the driver's own.
            conf["spark.pyspark.python"] = sys.executable
            conf["spark.sql.execution.pyspark.python"] = self.task_python
        conf["spark.driver.extraJavaOptions"] = " ".join(
            [*self._jvm(), self.user.get("spark.driver.extraJavaOptions", "")]
        ).strip()
        return conf

    def _of_a_cluster(self) -> dict[str, str]:
        conf = dict(self.master.asked_for(self.cores, self.user))
        if self.jars:
            conf["spark.jars"] = ",".join(self.jars)
        if self.master.kind == "yarn":
            conf["spark.executorEnv.HADOOP_CONF_DIR"] = HADOOP_CONF
        return conf | {f"spark.executorEnv.{name}": "1" for name in _ONE_THREAD}

    @property
    def local(self) -> bool:
        """Whether driver and tasks share one JVM, so that tasks see the driver's class path."""
        return self.master.local

    def _jvm(self) -> list[str]:
        # 16 MB stacks: Spark's classification of Py4J errors overflows smaller ones when a query is stopped.
        options = ["-Xss16m"]
        if self.log4j is not None:
            options.append(f"-Dlog4j2.configurationFile={self.log4j}")
        if self.local:
            options.append("-XX:+UseSerialGC")
            options += _FIRST_COMPILER_ONLY if self.quick_start else _SECOND_COMPILER_LATER
        return [*options, *self.jvm_options]


def start_session(spec: SessionSpec) -> Any:
    """Start the JVM and return its SparkSession; nothing of it reaches the terminal.

    Raises:
        DefinitionError: the JVM could not be started; the message has its last line.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise DefinitionError(
            "a Spark session is running in this process already, and a job needs one of its own",
            next="stop it first: spark.stop(), or run the job with: poundlock run job.py",
        )
    settings = spec.settings()
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(spec.master.text).setAppName(spec.name)
    conf.setAll(list(settings.items()))
    conf.set("spark.driver.memory", spec.driver_memory)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if spec.java_home is not None:
        os.environ["JAVA_HOME"] = spec.java_home
    if spec.master.loopback:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    spec.jvm_log.parent.mkdir(parents=True, exist_ok=True)
    with spec.jvm_log.open("ab") as log:
        try:
            # In a process group of its own: a signal to the driver's group asks the driver to stop, and Java would just end.
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "process_group": 0})  # type: ignore[no-untyped-call]
            with _without_pandas():
                context = SparkContext(gateway=gateway, conf=conf)
            _quiet(context)
            for file in spec.files:
                context.addPyFile(file)
        except Exception as error:
            forget_session()
            said = _last_line(spec.jvm_log)
            less = "ask for less: --conf spark.executor.memory=…" if "above the max threshold" in said else ""
            raise DefinitionError(
                f"Spark did not start: {said or error}",
                next=less or f"read {spec.jvm_log}, or type: poundlock doctor",
            ) from error
    return SparkSession(context)


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep pyspark's start from importing pandas only to see whether it could: more than a second of every start."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]


def _quiet(context: Any) -> None:
    """Keep what Spark's Python side prints of failures off the terminal; they are told by the driver, in two lines."""
    from pyspark import util
    from pyspark.logger import PySparkLogger

    util.print_exec = lambda stream: None  # of what cannot be pickled
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    # Spark's own loggers of failed queries come with a handler that prints, so they are made first and it is taken away.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        printing = PySparkLogger.getLogger(name)
        printing.handlers[:] = [logging.NullHandler()]
        printing.propagate = False
    # py4j also speaks through the root logger, which sets itself up to print unless it has a handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


def forget_session() -> None:
    """Drop every trace of a session whose JVM is gone, so that another one can be started in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    process: Any = getattr(gateway, "proc", None)
    try:
        if gateway is not None:
            gateway.shutdown()
    except Exception:
        pass  # the JVM is gone; there is nobody to tell
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def jvm_alive() -> bool:
    """Return whether the session's JVM process runs."""
    from pyspark import SparkContext

    if submitted.container() is not None:
        return submitted.jvm_alive()
    process: Any = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is None


def in_use(session: Any) -> bool:
    """Return whether a session can still be used: its JVM runs, and nobody has ended the application."""
    if not jvm_alive():
        return False
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False  # its JVM is going away


def check_callbacks() -> None:
    """Look whether Spark can call this process: py4j waits for calls by `select`, which knows no file behind the 1,023rd.

    Raises:
        TerminalError: too many files were open when Spark began; no checkpoint would ever be taken.
    """
    from pyspark import SparkContext

    server: Any = getattr(SparkContext._gateway, "_callback_server", None)
    if server is None or server.server_socket.fileno() < _SELECT_FILES:
        return
    raise TerminalError(
        f"this process has so many files open ({server.server_socket.fileno():,}) that Spark cannot call it",
        next=f"start it again; what it keeps open is told by: ls -l /proc/{os.getpid()}/fd",
    )


def await_tasks(session: Any, patience_s: float = _TASKS_S) -> bool:
    """Wait until no executor runs a task: those of a failed stage are told to end and take a moment. Returns whether none is left."""
    deadline = time.monotonic() + patience_s
    while jvm_alive():
        try:
            executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
            if not any(executor.numRunningTasks() for executor in executors):
                return True
        except Exception:
            break  # the JVM is going away, and its tasks with it
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def kill_jvm() -> None:
    """End the JVM at once, as a crash would."""
    from pyspark import SparkContext

    if submitted.container() is not None:
        submitted.give_up()
        return
    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def jvm_gone() -> TransientError:
    """Return what to raise when the JVM is gone."""
    return TransientError(
        "the Java process of Spark ended unexpectedly",
        next="see the JVM's log; if it was killed, the machine may be short of memory; nothing is lost",
    )


def _last_line(path: Path) -> str:
    handle: IO[str]
    try:
        with path.open(errors="replace") as handle:
            lines = [line.strip() for line in handle if line.strip()]
    except OSError:
        return ""
    return next(
        (line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[-1] if lines else ""
    )
