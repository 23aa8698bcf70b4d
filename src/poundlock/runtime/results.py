"""What the tasks of one micro-batch report, gathered from the rows of the query and added up.

Rows that vanished, or came to be, in Spark's operators before a stage are counted from what Spark observed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from poundlock.checkpoint.decision import EventTime
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import JSON, Counts, Prepared
from poundlock.errors import TransientError
from poundlock.plan.lowered import BYTES, Lowered
from poundlock.plan.plan import DEAD_LETTER
from poundlock.plan.stage import SPLITS_READ

__all__ = ["Gathered"]


class Gathered:
    """The reports of one micro-batch. Feed it the texts, then ask for the results."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        """Rows read, per branch head."""
        self.event_time: EventTime | None = None
        """What Spark's watermarks saw."""
        self.watermarks: JSON | None = None
        """The watermarks behind the micro-batch."""
        self.times: Mapping[str, str] = {}
        """Event times that Spark counted, as JSON, by the name of the count."""
        self.tasks: int | None = None
        """Over how many tasks splits were spread."""
        self.bytes: dict[str, int] = {}
        """How large what was read is, per source that tells."""
        self._by_source: dict[str, int] = {}
        self._prepared: list[Prepared] = []
        self._counts: dict[str, dict[str, Counts]] = {}
        self._splits: dict[str, int] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Take the texts that tasks yielded."""
        for text in texts:
            item = json.loads(text)
            if item["t"] == "prepared":
                self._prepared.append(Prepared(item["sink"], item["subtask"], item["payload"]))
            elif item["t"] == SPLITS_READ:
                self._splits[item["head"]] = self._splits.get(item["head"], 0) + item["count"]
            else:
                self._count(item)

    def _count(self, item: Mapping[str, Any]) -> None:
        head = item["head"]
        self.read[head] = self.read.get(head, 0) + item["read"]
        if "bytes" in item:
            self.bytes[head] = self.bytes.get(head, 0) + item["bytes"]
        of_head = self._counts.setdefault(head, {})
        for sink, found in item["sinks"].items():
            of_head.setdefault(sink, Counts()).add(Counts.from_json(found))

    def check_splits(self, given: Mapping[str, int]) -> None:
        """Raise TransientError unless the tasks of each fused branch had exactly the splits that were planned for them."""
        for head, count in given.items():
            if self._splits.get(head, 0) != count:
                raise TransientError(
                    f"{count} splits of {head!r} were planned and {self._splits.get(head, 0)} were read",
                    next="nothing was committed; the checkpoint is taken again",
                )

    def count_before_stage(self, lowered: Lowered, observed: Mapping[str, int], *late: Mapping[str, int]) -> None:
        """Add what happened to rows before they came to a stage.

        Args:
            lowered: the query.
            observed: rows that Spark counted, by the name of the count.
            late: per branch head, what was dropped because it came behind the watermark: by Spark, by steps of ours.
        """
        self.bytes.update({n.removeprefix(BYTES): count for n, count in observed.items() if n.startswith(BYTES)})
        for head, names in lowered.observed.items():
            came_in = sum(observed.get(name, 0) for name in names)
            self._by_source.update({name.removeprefix(f"{head}/"): observed.get(name, 0) for name in names})
            lost = came_in - self.read.get(head, 0)
            self.read[head] = came_in
            for sink, found in self._counts.get(head, {}).items():
                if sink == DEAD_LETTER:
                    continue
                found.read += lost
                if lowered.row_wise[head]:
                    found.filtered += lost
                else:
                    behind = sum(counts.get(head, 0) for counts in late)
                    found.produced -= lost - behind
                    found.late += behind

    def results(self, shared: Mapping[str, str] | None = None) -> TaskResults:
        """Return the sums.

        Args:
            shared: head to source, of branches that share a pass over their source, so that each reads all of it.
        """
        rows = {**self.read, **self._by_source}
        rows.update({source: self.read[head] for head, source in (shared or {}).items() if head in self.read})
        total: dict[str, Counts] = {}
        for of_head in self._counts.values():
            for sink, found in of_head.items():
                total.setdefault(sink, Counts()).add(found)
        return TaskResults(
            prepared=self._prepared,
            counts=total,
            rows_read=rows,
            bytes_read=self.bytes,
            event_time=self.event_time,
            tasks=self.tasks,
            watermarks=self.watermarks,
        )
