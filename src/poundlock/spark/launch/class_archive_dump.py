"""The run from which a class archive is made: a session as jobs have it, and the RDD jobs that checkpoints are.

It ends only when its JVM has ended, because the JVM writes the archive as the last thing it does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_TASKS = 2
_WRITE_S = 600.0


def main(java_home: str, log: Path, jars: Sequence[str], options: Sequence[str]) -> None:
    """Run the jobs."""
    from poundlock.spark.launch.master import Master
    from poundlock.spark.launch.session import start_session
    from poundlock.spark.launch.session_conf import SessionSpec

    spec = SessionSpec(
        name="warm",
        master=Master.of("local[2]"),
        jvm_log=log,
        java_home=java_home,
        jars=jars,
        quick_start=True,
        jvm_options=options,
    )
    session = start_session(spec)
    try:
        context = session.context
        elements = context.parallelize(range(_TASKS), _TASKS)
        elements.mapPartitions(_count).collect()
        elements.map(_pair).partitionBy(_TASKS, int).mapPartitions(_count).collect()
        context.statusTracker().getActiveStageIds()
    except BaseException:
        session.kill()  # or it would go on and write an archive of half a run
        raise
    session.stop(_WRITE_S)


def _pair(number: int) -> tuple[int, bytes]:
    return number, bytes(8)


def _count(elements: Iterator[Any]) -> Iterator[int]:
    yield sum(1 for _ in elements)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [jar for jar in sys.argv[3].split(":") if jar], sys.argv[4:])
