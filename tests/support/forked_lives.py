"""A life of a driver without Spark: a process that is forked where everything is imported, so that it costs a tenth of a second."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess

__all__ = ["KILLED", "live"]

KILLED = -9
_PATIENCE_S = 300.0
_LATER = (
    "kafka.admin",
    "psycopg",
    "poundlock.connectors.kafka.sink.transactional_senders",
    "poundlock.connectors.kafka.sink.writer",
    "poundlock.connectors.postgres.sink.writer",
)
"""What a life imports only where it needs it."""


def live(life: Callable[..., None], *arguments: object) -> int:
    """Live in a process of its own; return its exit code.

    Args:
        life: a function of a module, with its arguments, which are pickled. The first one that lives chooses what is imported ahead.

    Raises:
        AssertionError: it takes too long; it is ended then.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([life.__module__, *_LATER])
    process: BaseProcess = context.Process(target=life, args=arguments)
    process.start()
    process.join(_PATIENCE_S)
    code = process.exitcode
    if code is None:
        process.kill()
        raise AssertionError(f"a life takes more than {_PATIENCE_S:.0f} s")
    return code
