"""Makes a Python worker of Spark's quick at small tasks: what was measured to cost more than the task itself.

Everything here is done from within a task, so that it also holds in a session that is the user's.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import zipimport
from contextlib import suppress

_FREEZES = 4  # each stage of a job loads something at its first task
_prepared_pid = _tasks = 0


def prepare_worker() -> None:
    """Prepare this worker process once, and its connections at every task.

    Spark's worker calls `gc.collect()` after each task, over everything that pyarrow, numpy and user modules have loaded:
    freezing that leaves 4 of 15 ms. It is done before the first few tasks, which load what the job needs. Spark 3.5 calls
    `importlib.invalidate_caches()` in each task, which reads the directories of its zip files again: 60 ms and more.
    """
    global _prepared_pid, _tasks
    if _prepared_pid != os.getpid():
        _prepared_pid, _tasks = os.getpid(), 0
        setattr(zipimport.zipimporter, "invalidate_caches", _keep_caches)  # noqa: B010
        gc.collect()
    if _tasks < _FREEZES:
        _tasks += 1
        gc.freeze()
    _acknowledge_quickly()


def _keep_caches(_: zipimport.zipimporter) -> None:
    """Zip files of Spark's do not change while a worker lives."""


def _acknowledge_quickly() -> None:
    """Acknowledge at once on the worker's TCP connections: the JVM waits up to 40 ms for that before it sends a task's input.

    The option does not stick, so it is set at every task. Unix sockets need none.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
