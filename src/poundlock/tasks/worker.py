"""What a Python worker of Spark's needs: to be quick at small tasks, and errors that cross to the JVM.

What was measured to cost more than the task itself is done away with from within a task, so that it also holds in a session that
is the user's. The text of an error must be UTF-8, or the worker and the JVM wait for each other for ever.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import socket
import stat
import traceback
import zipimport
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FREEZES = 4  # each stage of a job loads something at its first task
_prepared_pid = _tasks = 0
# glibc's mallopt: what a program may say of its memory, and bytes. The columns of a chunk are some megabytes that come and go; by
# default each is mapped and given back, and touching its pages again was an eighth of a worker's CPU.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MEMORY = {_M_MMAP_THRESHOLD: 32 << 20, _M_TOP_PAD: 4 << 20, _M_TRIM_THRESHOLD: 32 << 20}
_MUCH = 16 << 20  # bytes that Arrow has held at once, from which on giving back is worth a look


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
        _keep_freed_memory()
    if _tasks < _FREEZES:
        _tasks += 1
        gc.freeze()
    _acknowledge_quickly()
    _return_unused()


def _keep_freed_memory() -> None:
    """Have this process use the memory it freed again instead of returning it, up to 32 MB; nothing where malloc is not glibc's."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        for what, size in _MEMORY.items():
            library.mallopt(what, size)


def _return_unused() -> None:
    """Return what Arrow keeps of the last task's columns: this one may need the memory for other things than Arrow's."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    if pool.max_memory() > _MUCH:
        pool.release_unused()


def executor_name() -> str:
    """Return what tells the executor that this task runs in from others: its machine, and the daemon that makes its workers."""
    return f"{socket.gethostname()}:{os.getppid()}"


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


@contextmanager
def utf8_errors() -> Iterator[None]:
    """Let nothing out that could not cross to the JVM."""
    try:
        yield
    except Exception as error:
        fit = _utf8_error(error)
        if fit is error:
            raise
        raise fit from None


def _utf8_error(error: Exception) -> Exception:
    """Return an error whose text is UTF-8: this one, its characters that UTF-8 lacks written as escapes, or one with its text.

    Names of files and values of JSON may hold lone surrogates.
    """
    if isinstance(error, StopIteration):  # a generator makes another error of it, which says nothing of the place
        return RuntimeError(_escaped(repr(error))).with_traceback(error.__traceback__)
    if _is_utf8(_printed(error)):
        return error
    link: BaseException | None = error
    while link is not None:
        link.args = tuple(_escaped(part) if isinstance(part, str) else part for part in link.args)
        link = link.__cause__ or link.__context__
    if _is_utf8(_printed(error)):
        return error
    # It makes its text of something else than its arguments, or holds further errors.
    text = _escaped("".join(traceback.format_exception_only(error)).strip())
    return RuntimeError(text).with_traceback(error.__traceback__)


def _printed(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _is_utf8(text: str) -> bool:
    return _escaped(text) == text


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
