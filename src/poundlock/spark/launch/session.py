"""The Spark session of one driver: one of our own, which writes to log files only, or the user's, which is never changed.

A job's tasks run as RDD jobs, so a session is a SparkContext; its SQL side, which takes seconds to start, is made when something asks.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from poundlock.control import cluster_driver as submitted
from poundlock.errors import DefinitionError, TransientError
from poundlock.spark import private
from poundlock.spark.launch.jvm import Jvm
from poundlock.spark.launch.session_conf import DEFAULTS, FIXED, ONE_THREAD, SessionSpec

_END_S = 10.0


class _ContainerJvm:
    """The JVM of a submitted driver: its parent, which the cluster ends together with the driver."""

    @property
    def alive(self) -> bool:
        return submitted.jvm_alive()

    def end(self, patience_s: float) -> None:
        """It ends when this process does."""

    def kill(self) -> None:
        submitted.give_up()


def _quieten_query_loggers() -> None:
    """Keep what Spark's Python side prints of failed queries off the terminal; the driver reports them, in two lines."""
    from pyspark import util

    util.print_exec = lambda stream: None  # of what cannot be pickled
    if not find_spec("pyspark.logger"):
        return  # Spark 3.5 logs none
    from pyspark.logger import PySparkLogger

    # Spark's own loggers of failed queries come with a handler that prints, so they are made first and it is taken away.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        printing = PySparkLogger.getLogger(name)
        printing.handlers[:] = [logging.NullHandler()]
        printing.propagate = False


class Session:
    """A SparkContext in which a job's tasks run, and its JVM; without one the session is the user's, and is neither stopped nor configured."""

    def __init__(self, context: Any, jvm: Jvm | _ContainerJvm | None, sql: Any = None) -> None:
        self.context = context
        self._process = jvm
        self._sql = sql

    @property
    def sql(self) -> Any:
        """The SparkSession of the job over this context, made at first use.

        In a user's session it is one beside it, with settings, views and functions of its own.
        """
        if self._sql is None:
            with _without_pandas():
                from pyspark.sql import SparkSession

            self.quieten()
            self._sql = SparkSession(self.context) if self.ours else _sql_beside()
        return self._sql

    def quieten(self) -> None:
        """Keep what Spark's Python side prints of failed queries off the terminal, where the process is our own."""
        if self.ours:
            _quieten_query_loggers()

    @property
    def ours(self) -> bool:
        """Whether it was started by us and not by the user."""
        return self._process is not None

    @property
    def owned(self) -> bool:
        """Whether it was started for the job, so that it ends with it."""
        return self.ours

    def lent(self) -> Session:
        """Return it as a job gets it that is one of several in it, one after the other: none of them ends it."""
        return _LentSession(self.context, self._process)

    @property
    def local(self) -> bool:
        """Whether its tasks run on this machine."""
        return str(self.context.master).startswith("local")

    @property
    def jvm_alive(self) -> bool:
        """Whether its JVM runs; of a user's session, whether it answers."""
        return self._process.alive if self._process is not None else self.alive

    @property
    def alive(self) -> bool:
        """Whether it can still be used: its JVM runs, and nobody has ended the application."""
        if self._process is not None and not self._process.alive:
            return False
        try:
            self.context.defaultParallelism  # noqa: B018  # a context that was stopped refuses it
        except Exception:
            return False  # it was stopped, or its JVM is going away
        return True

    def stop(self, patience_s: float = _END_S) -> None:
        """End the application and the JVM, which is killed after so many seconds; does not raise. A session of the user's goes on."""
        if self._process is None:
            return
        if self._process.alive and not self.local:
            with suppress(Exception):
                self.context.stop()  # the cluster learns how the application ended
        self._process.end(patience_s)
        self._forget()

    def kill(self) -> None:
        """End the JVM at once, as a crash would. A session of the user's goes on."""
        if self._process is None:
            return
        self._process.kill()
        self._forget()

    def _forget(self) -> None:
        private.forget_session()
        self._sql = None


class _LentSession(Session):
    """A session of our own that goes on when the job ends; whoever has lent it ends it."""

    @property
    def owned(self) -> bool:
        return False

    def stop(self, patience_s: float = _END_S) -> None:
        """It goes on."""

    def kill(self) -> None:
        """It goes on."""


def _sql_beside() -> Any:
    """Return a new session beside the user's: the settings that segments were made for are its own."""
    from pyspark.sql import SparkSession

    made = SparkSession.builder.getOrCreate().newSession()
    given = {key for key, _ in made.sparkContext.getConf().getAll()}
    for key, value in {**DEFAULTS, **FIXED}.items():
        if (key in FIXED or key not in given) and made.conf.isModifiable(key):
            made.conf.set(key, value)
    return made


def refuse_second_session() -> None:
    """Raise DefinitionError if a session is active in this process."""
    if private.another_session():
        raise DefinitionError(
            "a Spark session is running in this process already, and there can be only one",
            next="give it, as in job.start(spark) or stream.preview(5, spark=spark); or end it: spark.stop(), of a job handle.stop()",
        )


class SessionStart:
    """A session that is being started: its JVM runs or is about to, and nothing was asked of it yet.

    Raises:
        DefinitionError: another session is active in this process, or there is no Java.
    """

    def __init__(self, spec: SessionSpec) -> None:
        refuse_second_session()
        settings = spec.settings() | {"spark.driver.memory": spec.driver_memory}
        self._settings = {"spark.master": spec.master.text, "spark.app.name": spec.name, **settings}
        self._spec = spec
        self._process = None if submitted.container() is not None else Jvm.start(spec, self._settings)

    def session(self) -> Session:
        """Wait until it is there; see `start_session`. Called once."""
        jvm = self._process
        try:
            with _without_pandas():
                from pyspark import SparkConf, SparkContext
            _quieten_loggers()
            conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
            gateway: Mapping[str, str] = {}  # YARN has set the variables
            if jvm is not None:
                gateway = private.gateway_variables(*jvm.await_gateway())
                private.forget_session()  # a JVM that an earlier, stopped session left behind
            with _without_pandas(), _environment(self._spec, gateway):
                context = SparkContext(conf=conf)
            private.quieten_accumulators(context)
            for file in self._spec.files:
                context.addPyFile(file)
        except Exception as error:
            if jvm is None:
                refused = f"Spark did not start: {error}"
                raise DefinitionError(refused, next="read the log of the application") from error
            failure = jvm.not_started(error)
            jvm.kill()
            private.forget_session()
            raise failure from error
        return Session(context, jvm or _ContainerJvm())

    def cancel(self) -> None:
        """End its JVM, where nobody will ask for the session."""
        if self._process is not None:
            self._process.kill()


def start_session(spec: SessionSpec) -> Session:
    """Start a session; nothing of it reaches the terminal.

    Raises:
        DefinitionError: another session is active in this process, or the JVM did not start; the message has its last line.
        TransientError: the JVM was killed before it had started, or memory or time was short.
    """
    return SessionStart(spec).session()


def active_session() -> Session | None:
    """Return the user's session that is active in this process; None if there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    return None if spark is None else user_session(spark)


def user_session(spark: Any) -> Session:
    """Return the user's own session as one that a job can run in.

    Args:
        spark: a SparkSession or SparkContext.

    Raises:
        DefinitionError: it was stopped, or it is one of Spark Connect, which runs no RDD jobs.
    """
    with _without_pandas():
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    context = spark if isinstance(spark, SparkContext) else None
    if isinstance(spark, SparkSession):
        try:
            context = spark.sparkContext
        except Exception:  # Spark Connect has none, and says so by an error of its own
            context = None
    if context is None:
        raise DefinitionError(
            f"a job cannot run in {type(spark).__name__} of {type(spark).__module__}: it has no SparkContext",
            next="use a classic session, such as SparkSession.builder.master(…).getOrCreate(), or job.run()",
        )
    session = Session(context, None)
    if not session.alive:
        raise DefinitionError("the Spark session was stopped", next="make a new one and give it: job.start(spark)")
    return session


@contextmanager
def _environment(spec: SessionSpec, gateway: Mapping[str, str]) -> Iterator[None]:
    """Set what pyspark reads from the environment while a context is made, and put it back."""
    threads = {name: os.environ.get(name, "1") for name in ONE_THREAD}
    wanted = {"PYSPARK_PYTHON": spec.task_python or sys.executable, **threads, **gateway}
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted.keys() - before:
            os.environ.pop(name, None)
        os.environ.update(before)


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


def _quieten_loggers() -> None:
    """Keep what py4j says of failures off the terminal; the driver reports them, in two lines."""
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    # py4j also speaks through the root logger, which sets itself up to print unless it has a handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


def jvm_gone() -> TransientError:
    """Return what to raise when the JVM is gone."""
    return TransientError(
        "the Java process of Spark ended unexpectedly",
        next="see the JVM's log; if it was killed, the machine may be short of memory; nothing is lost",
    )
