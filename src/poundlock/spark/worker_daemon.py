"""The process from which Spark forks its Python workers, with what every worker imports loaded once, before the first fork.

It starts no thread of its own, so that a fork is as safe as in Spark's daemon, whose place it takes.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

MODULE = "poundlock.spark.worker_daemon"
MODULES_VARIABLE = "POUNDLOCK_WORKER_MODULES"
"""The environment variable that names what else workers of this job import, separated by spaces."""
_WORKER = "pyspark.worker"
PRELOADED = (
    "numpy",
    "pyarrow",
    "msgspec",
    "pyspark.worker",
    "poundlock.tasks.entry",
    "poundlock.tasks.keyed_stage",
    "poundlock.tasks.rows_stage",
    "poundlock.connectors.files.sink.writer",
)


def preload() -> None:
    """Import what workers need; something that is not installed here is left to the worker to miss."""
    for name in (*PRELOADED, *os.environ.get(MODULES_VARIABLE, "").split()):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    # Forked workers share these pages as long as no collection walks over them.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from poundlock.spark.private import run_daemon

    # Spark starts one such process per kind of worker; other kinds run once and import what they need.
    if sys.argv[1:2] == [_WORKER]:
        preload()
    run_daemon()
