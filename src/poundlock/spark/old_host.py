"""What only the old host, which runs jobs as streaming queries, needs of a session; it goes away together with that host.

All of it is private API of Spark's.
"""

from __future__ import annotations

import os
import time
from typing import Any

from poundlock.errors import TerminalError
from poundlock.spark.session import quieten_query_loggers

__all__ = ["await_tasks", "check_callbacks", "quieten_queries"]

_TASKS_S, _POLL_S = 20.0, 0.05
_SELECT_FILES = 1024  # FD_SETSIZE of the C library


def quieten_queries() -> None:
    """Keep what Spark's Python side prints of failed queries off the terminal; they are told by the driver, in two lines."""
    from pyspark import util

    util.print_exec = lambda stream: None  # of what cannot be pickled
    quieten_query_loggers()


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


def await_tasks(spark: Any, patience_s: float = _TASKS_S) -> bool:
    """Wait until no executor runs a task, at most so long; return whether none does."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
            if not any(executor.numRunningTasks() for executor in executors):
                return True
        except Exception:
            return True  # the JVM is going away, and its tasks with it
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
