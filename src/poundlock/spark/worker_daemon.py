"""The process from which Spark forks its Python workers, with what every worker imports loaded once, before the first fork.

It starts no thread of its own, so that a fork is as safe as in Spark's daemon, whose place it takes.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import platform
import sys

MODULE = "poundlock.spark.worker_daemon"
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

# glibc's mallopt: what a program says of its memory, and bytes. Columns of a chunk are some megabytes that come and go; by
# default each is mapped and returned, and touching its pages again was an eighth of a worker's CPU.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MEMORY = {_M_MMAP_THRESHOLD: 32 << 20, _M_TOP_PAD: 16 << 20, _M_TRIM_THRESHOLD: 64 << 20}


def keep_freed_memory() -> None:
    """Have this process and its forks use freed memory again instead of returning it, up to 64 MB; nothing where malloc is not glibc's."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        for what, size in _MEMORY.items():
            library.mallopt(what, size)


def preload() -> None:
    """Import what workers need; something that is not installed here is left to the worker to miss."""
    for name in PRELOADED:
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
        keep_freed_memory()
    run_daemon()
