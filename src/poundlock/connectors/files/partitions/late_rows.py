"""Rows of buckets that are sealed, in a task: what becomes of them, by what was decided before the checkpoint began.

A task and the decision behind it judge by the same watermark and clock, those of the newest decision: a sealed bucket never gets a file unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from poundlock.connectors.files.partitions.sealed import SealingRule
from poundlock.values import utc_text


@dataclass(slots=True)
class LateRows:
    """What becomes of rows of one task's checkpoint that come behind the seal of their bucket."""

    rule: SealingRule
    # of the newest decision: ms; None = none yet
    watermark: int | None
    clock_ms: int | None
    _places: dict[str, str] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)

    def places(self, buckets: Sequence[str]) -> Sequence[str]:
        """Return where the rows of these buckets are written."""
        if self.rule.settings.late != "folder":
            return buckets
        return [self._place(each) for each in buckets]

    def refused(self, buckets: Sequence[str]) -> dict[int, str]:
        """Return why rows are bad records, by the numbers of their buckets."""
        if self.rule.settings.late != "dead-letter":
            return {}
        reasons = ((number, self._reason(each)) for number, each in enumerate(buckets))
        return {number: reason for number, reason in reasons if reason}

    def _place(self, bucket: str) -> str:
        if (known := self._places.get(bucket)) is not None:
            return known
        folder = self.rule.settings.late_folder
        late = self._is_late(bucket)
        place = self._places[bucket] = (f"{folder}/{bucket}" if bucket else folder) if late else bucket
        return place

    def _reason(self, bucket: str) -> str:
        if (known := self._reasons.get(bucket)) is not None:
            return known
        reached = self.watermark if self.rule.needs_event_time else self.clock_ms
        what = "watermark" if self.rule.needs_event_time else "clock"
        late = self._is_late(bucket)
        reason = self._reasons[bucket] = (
            f"late: bucket {bucket!r} is sealed, {what} {utc_text(reached)}" if late else ""
        )
        return reason

    def _is_late(self, bucket: str) -> bool:
        return self.rule.is_late(bucket, self.watermark, self.clock_ms)
