"""What is produced once more after it was aborted from outside, matched by rows and digest.

Nothing is taken for a repetition that does not have just the rows that were lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from poundlock.checkpoint.participant import JSON, Prepared
from poundlock.errors import TerminalError


class SumDigest:
    """The sum, modulo 2**64, of a hash of each row, and how many rows and bytes there were: such digests add up."""

    __slots__ = ("_sum", "bytes", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._sum = 0

    @property
    def text(self) -> str:
        """The digest as 16 hex digits."""
        return f"{self._sum & ((1 << 64) - 1):016x}"


def match(
    again: Sequence[JSON], done: Sequence[JSON], prepared: Sequence[Prepared], *, rows: str = "rows"
) -> tuple[Sequence[Prepared], Sequence[Prepared]]:
    """Match what was produced once more, for tasks are numbered again each time; see `Repeatable.match`.

    Where nothing is visible yet the rows may be cut into transactions otherwise than before: digests add up.

    Args:
        again, done, prepared: payloads with "rows" and "digest".
        rows: what the sink calls its rows.

    Raises:
        TerminalError: it is not the same data.
    """
    lost, visible = Counter(map(_content, again)), Counter(map(_content, done))
    keep, drop, strange = [], [], 0
    for item in prepared:
        content = _content(item.payload)
        if lost[content]:
            lost[content] -= 1
            keep.append(item)
        elif visible[content]:
            visible[content] -= 1
            drop.append(item)
        else:
            strange += 1
    if not strange and not lost.total() and not visible.total():
        return keep, drop
    if not done and _total(again) == _total([item.payload for item in prepared]):
        return list(prepared), []
    raise TerminalError(
        f"what was aborted had {_total(again)[0]} {rows}, and the tasks did not produce the same again",
        next="make what stands before the sink deterministic: no current time, no random values, no other tables; "
        "and keep the parallelism until the job has gone on",
    )


def _content(payload: JSON) -> tuple[int, str]:
    return payload["rows"], payload["digest"]


def _total(payloads: Sequence[JSON]) -> tuple[int, int]:
    return sum(p["rows"] for p in payloads), sum(int(p["digest"], 16) for p in payloads) % (1 << 64)
