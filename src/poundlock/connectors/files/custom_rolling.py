"""A rolling policy of the user's: when a part file is finished is a matter of the rows themselves, of its size, its age, or the checkpoint.

It is asked in tasks about rows, many at a time, and in the driver about time and checkpoints. The same part, rows and times give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poundlock.arguments import function_name
from poundlock.errors import TerminalError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PartFile:
    """A part file that is not finished.

    Args:
        bucket: it is in; "" = the sink's folder.
        bytes: what has reached the file. Of Parquet, ORC and compressed files some rows have not yet.
        rows: how many it has; 0 = it is about to be begun.
        created_ms, last_write_ms: begin of the checkpoints with its first row and its last one, ms since the epoch.
    """

    bucket: str
    bytes: int
    rows: int
    created_ms: int
    last_write_ms: int


class CustomRollingPolicy:
    """When a part file is finished, by methods of your own; what is not written never finishes one. Picklable, and without a state.

    Whatever the policy says, a part is finished at the end of the input, at a clean stop, and when it consists of 500 segments; files of formats that
    are written as a whole at each checkpoint.
    """

    def should_roll_on_event(self, part: PartFile, rows: pa.RecordBatch) -> int | None:
        """Return the number of the first of these rows that is to begin a new part; None = all of them go into this one. Called in tasks.

        It is asked again for the rows from there on, with a part that has no row; into that one goes at least one.

        Args:
            rows: the next rows of the bucket, at least one: the columns that are written, or of formats that are lines the column `value` with the bytes
                of each line and its line end.
        """
        return None

    def should_roll_on_checkpoint(self, part: PartFile) -> bool:
        """Return whether a part is finished at a checkpoint. Called in the driver."""
        return False

    def roll_at_ms(self, part: PartFile) -> int | None:
        """Return the time of the clock, ms since the epoch, from which a part is finished, also between checkpoints; None = never by the clock.

        Called in the driver.
        """
        return None

    def describe(self) -> str:
        """Return it for people, one line."""
        return f"by {type(self).__name__}"


def rows_before_roll(policy: CustomRollingPolicy, part: PartFile, rows: pa.RecordBatch) -> int:
    """Return how many of these rows go into a part before it is finished; all of them = it is not.

    Raises:
        TerminalError: the policy gives what is no number of a row.
    """
    first = policy.should_roll_on_event(part, rows)
    if first is None:
        return int(rows.num_rows)
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise TerminalError(
            f"{function_name(policy)}.should_roll_on_event gives {first!r}",
            next="return the number of the first row of a new part file, from 0, or None",
        )
    return min(first if part.rows else max(first, 1), int(rows.num_rows))
