"""Every use of Spark that is not public API, each with its reason; a test lists them, and there are at most five.

They only start, quieten and forget a session of our own: a session that is the user's is used by public API alone.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from poundlock.errors import TerminalError

USES = {
    "gateway": "pyspark starts its JVM with the driver's own output and without telling its process, so we start it and say where it listens",
    "class attributes of SparkContext and SparkSession": "pyspark has no way to forget a session whose JVM is gone, without which no other one can be started",
    "accumulator server": "it prints a stack trace to the terminal when its JVM dies, and its shutdown waits half a second",
    "call sites": "what its shuffle or `collect` makes is named by a line of our code, whatever the public property says, and nobody knows a stage by that",
    "pyspark.daemon": "workers that are forked from a process which has imported what they need start in no time and share memory",
}
"""What is used, and why."""

STAGE_NAME = "callSite.short"  # the public property that Spark's UI takes the name of a stage from
GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
GATEWAY_RESOURCE = "pyspark-shell"
_SELECT_FILES = 1024  # FD_SETSIZE of the C library


def gateway_environment(info: Path) -> Mapping[str, str]:
    """Return the variables with which a JVM writes into a file where it listens."""
    return {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(info), "SPARK_CONNECT_MODE": "0"}


def gateway_address(info: Path) -> tuple[int, str]:
    """Return port and secret from such a file; the JVM puts it in place whole."""
    data = info.read_bytes()
    port, size = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + size].decode()


def check_callbacks() -> None:
    """Look whether Spark can call this process: py4j waits for calls by `select`, which knows no file behind the 1,023rd.

    Raises:
        TerminalError: too many files were open when Spark began; no batch of a stream would ever come.
    """
    from pyspark import SparkContext

    server: Any = getattr(SparkContext._gateway, "_callback_server", None)
    if server is None or server.server_socket.fileno() < _SELECT_FILES:
        return
    raise TerminalError(
        f"this process has so many files open ({server.server_socket.fileno():,}) that Spark cannot call it",
        next=f"start it again; see what it keeps open: ls -l /proc/{os.getpid()}/fd",
    )


def gateway_variables(port: int, secret: str) -> Mapping[str, str]:
    """Return the variables with which pyspark uses the JVM that listens there; YARN tells it of one by the same."""
    return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}


def another_session() -> bool:
    """Return whether a session is active in this process."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def forget_session() -> None:
    """Drop every trace of a session that has ended, so that another one can be started in this process."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:
        threading.Thread(target=server.shutdown, name="poundlock-accumulators", daemon=True).start()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
    if gateway is not None:
        with suppress(Exception):  # there may be nobody any more to say goodbye to
            gateway.close()


def quieten_accumulators(context: Any) -> None:
    """Have the server that takes updates of accumulators, of which we use none, print nothing when its JVM dies."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


@contextmanager
def named_stage(context: Any, words: str) -> Iterator[None]:
    """Have the stage in front of a shuffle that is made within, or of rows that are collected within, named by words."""
    from pyspark.traceback_utils import SCCallSiteSync

    with SCCallSiteSync(context):  # type: ignore[no-untyped-call]
        context.setLocalProperty(STAGE_NAME, words)
        yield


def run_daemon() -> None:
    """Be the process that Spark forks its Python workers from."""
    from pyspark.daemon import manager

    manager()
