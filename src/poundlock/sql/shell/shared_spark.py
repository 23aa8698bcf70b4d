"""One Spark for all statements of a shell: Java starts while the first one is typed, and again only when it has gone."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from poundlock.config import Settings
from poundlock.job import Job
from poundlock.spark.launch.session import Session
from poundlock.spark.launch.spark_launch import SparkStart, begin_spark
from poundlock.threads import in_thread

_NAME = "sql-shell"


@dataclass
class SharedSpark:
    """Starts a Spark session and lends it to one job after the other.

    Args:
        parallelism: of the jobs to which settings give none.
    """

    settings: Settings
    parallelism: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: SparkStart | None = None
    _starting: Future[Session] | None = None
    _ended: bool = False

    def begin(self) -> None:
        """Begin to start it, and return at once; nothing where it is there or on its way."""
        with self._lock:
            if self._starting is None and not self._ended:
                self._starting = in_thread(self._start, "poundlock-spark")

    def session(self) -> Session:
        """Return the session for one job, which does not end it; waits until it is there.

        Raises:
            DefinitionError: there is no Java, or Spark does not start.
            TransientError: likewise, memory was short or the master cannot be reached.
        """
        self.begin()
        starting = self._starting
        assert starting is not None, "the shell has not ended"
        try:
            session = starting.result()
        except BaseException:
            self._starting = None  # what was wrong may be mended before the next statement
            raise
        if not session.alive:
            session.stop()
            self._starting = None
            return self.session()
        return session.lent()

    def kill(self) -> None:
        """End it at once: whatever runs in it fails. The next job starts another one."""
        if self._starting is not None and self._starting.done() and self._starting.exception() is None:
            self._starting.result().kill()

    def end(self) -> None:
        """End it for good."""
        with self._lock:
            self._ended = True
        starting = self._starting
        if starting is None:
            return
        if starting.done() and starting.exception() is None:
            starting.result().stop()
        elif self._begun is not None:
            self._begun.cancel()

    def _start(self) -> Session:
        job = Job(_NAME, parallelism=self.parallelism)
        log = f"{_NAME}.jvm.log"
        # No row of SQL enters the JVM: functions are computed in Python's processes, by columns.
        begun = begin_spark(job, self.settings, log=log, quick_start=True, exchanges=True, say=lambda line: None)
        with self._lock:
            self._begun = begun
            if self._ended:
                begun.cancel()
        return begun.session()
