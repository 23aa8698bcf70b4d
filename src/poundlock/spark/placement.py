"""Where the tasks of keyed stages run on a cluster: each on the executor where it ran last, which has the state of its key groups.

PySpark has no call that says where a task is to run. But a task goes where a cached partition lies that it reads through narrow
dependencies alone; so what is sent to a keyed task is zipped with a cached partition of one number, its anchor. Of what was tried,
`union` and `cogroup` with it do not have that effect. An executor that is gone takes its anchors along: they are made again where
their tasks run then. It is a preference; when no core of that executor is free within `spark.locality.wait`, another one is taken.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from pyspark import StorageLevel

from poundlock.tasks.entry import apart, one_for_each, unzipped


class TaskPlacement:
    """The anchors of the keyed tasks of one attempt of a job; all its stages share them, so that a number means one executor."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._anchors: Any = None

    def placed(self, sent: Any, parallelism: int, senders: int) -> Any:
        """Return what is sent to the tasks of a keyed stage so that each of them runs where its anchor is.

        Args:
            senders: how many tasks send.
        """
        anchors = self._of(parallelism).mapPartitions(partial(one_for_each, senders=senders))
        return anchors.zip(sent.mapPartitions(partial(apart, senders=senders))).mapPartitions(unzipped)

    def _of(self, parallelism: int) -> Any:
        if self._anchors is None or self._anchors.getNumPartitions() != parallelism:
            self.forget()
            made = self._context.parallelize(range(parallelism), parallelism)
            self._anchors = made.setName("poundlock: where keyed tasks run").persist(StorageLevel.MEMORY_AND_DISK)
        return self._anchors

    def forget(self) -> None:
        """Let Spark spread the tasks over the executors there are now; they stay where the next checkpoint has them."""
        anchors, self._anchors = self._anchors, None
        if anchors is not None:
            with suppress(Exception):  # the JVM may be gone
                anchors.unpersist()
