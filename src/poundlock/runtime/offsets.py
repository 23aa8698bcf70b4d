"""Reads Spark's offset and commit logs of a job's checkpoint: what a micro-batch was planned to read, and which were finished.

Only read, but for one thing: Spark's logs are Spark's. See `SparkLog.wind_back`.
"""

from __future__ import annotations

import json
from typing import Any

from poundlock.checkpoint.decision import Decision
from poundlock.errors import TerminalError
from poundlock.plan.uses import use_of
from poundlock.storage.base import Storage

__all__ = ["SparkLog"]


class SparkLog:
    """The logs below one Spark checkpoint folder.

    Args:
        storage: that folder.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def planned(self, batch: int) -> dict[str, Any]:
        """Return source name to end position of a planned micro-batch. Raises TerminalError if the log cannot be read."""
        path = f"offsets/{batch}"
        try:
            text = self._storage.read(path).decode()
        except FileNotFoundError:
            raise TerminalError(
                f"Spark planned batch {batch} but {self._storage.root}/{path} is missing",
                next="restore the checkpoint folder from a backup",
            ) from None
        version, _, rest = text.partition("\n")
        if version != "v2":
            raise TerminalError(
                f"{self._storage.root}/{path} knows no sources by name (format {version}): this job did not write it",
                next="begin in another checkpoint_dir",
            )
        positions = {}
        for line in rest.splitlines()[1:]:
            name, colon, position = line.partition(":")
            if colon and position and position != "-":
                positions[use_of(name)] = json.loads(position)
        return positions

    def planned_before(self, batch: int) -> dict[str, Any]:
        """Return the end positions of the newest batch before this one; {} if there is none. Numbers may have gaps."""
        if batch > 0 and self._storage.stat(f"offsets/{batch - 1}") is not None:
            return self.planned(batch - 1)
        earlier = [number for number in self._numbers("offsets") if number < batch]
        return self.planned(max(earlier)) if earlier else {}

    def watermark(self, batch: int) -> int:
        """Return Spark's watermark in a planned micro-batch, ms since the epoch; 0 = there was none yet."""
        lines = self._storage.read(f"offsets/{batch}").decode().splitlines()
        return int(json.loads(lines[1]).get("batchWatermarkMs", 0))

    def watermark_before(self, batch: int) -> int:
        """Return Spark's watermark in the newest micro-batch before this one; 0 = there was none yet."""
        if batch > 0 and self._storage.stat(f"offsets/{batch - 1}") is not None:
            return self.watermark(batch - 1)
        earlier = [number for number in self._numbers("offsets") if number < batch]
        return self.watermark(max(earlier)) if earlier else 0

    def wind_back(self, batch: int, watermark_ms: int) -> None:
        """Give every micro-batch from this one on another watermark; none of them may be one that Spark has yet to run again.

        The one exception to what this module promises: behind the end of an input Spark's watermark is the last one, and a job
        that goes on all the same would find every row late.
        """
        for number in [n for n in self._numbers("offsets") if n >= batch]:
            self._change(f"offsets/{number}", "batchWatermarkMs", watermark_ms)
        self._change(f"commits/{batch}", "nextBatchWatermarkMs", watermark_ms)

    def _change(self, path: str, name: str, value: int) -> None:
        lines = self._storage.read(path).decode().split("\n")
        lines[1] = json.dumps({**json.loads(lines[1]), name: value}, separators=(",", ":"))
        folder, _, file = path.rpartition("/")
        self._storage.delete(f"{folder}/.{file}.crc")  # Hadoop's checksum of what was there
        self._storage.replace(path, "\n".join(lines).encode())

    def check_gap(self, batch: int) -> None:
        """Raise TerminalError if the batch before a planned one is missing: where this one begins is not known then."""
        if batch > 0 and self._storage.stat(f"offsets/{batch - 1}") is None:
            raise TerminalError(
                f"{self._storage.root}/offsets has batch {batch}, but batch {batch - 1} is missing",
                next="restore the checkpoint folder from a backup; nothing was committed",
            )

    def committed(self, batch: int) -> bool:
        """Return whether Spark will not deliver a micro-batch again."""
        return self._storage.stat(f"commits/{batch}") is not None

    def newest(self) -> tuple[int, int]:
        """Return the newest planned and the newest committed batch, -1 for none."""
        return self._newest("offsets"), self._newest("commits")

    def check_within(self, newest: Decision | None) -> None:
        """Raise TerminalError if Spark finished a micro-batch the ledger never decided, or its newest cannot be delivered.

        Call it before recovery: records are missing from the ledger's end then, and the hidden files only they name would
        be removed as nobody's.

        Args:
            newest: the ledger's newest decision; None if it is empty, and then Spark cannot even have planned a batch.
        """
        planned, finished = self.newest()
        self.check_gap(planned)
        if planned < 0 <= finished:
            raise TerminalError(
                f"{self._storage.root}/commits has batch {finished}, but offsets beside it is empty",
                next="restore the checkpoint folder from a backup; nothing was touched",
            )
        known = -1 if newest is None else newest.checkpoint
        if finished <= known and (newest is not None or planned < 0):
            return
        said = "is empty" if newest is None else f"ends with checkpoint {known}"
        raise TerminalError(
            f"Spark's log in {self._storage.root} has batch {max(planned, finished)}, but the ledger beside it {said}",
            next="restore ledger/ from a backup, or begin in a new checkpoint_dir; nothing was touched",
        )

    def initial(self, source: str) -> Any | None:
        """Return the position from which Spark first read a source through its connector, where the connector keeps it."""
        for entry in self._storage.list("sources"):
            folder, _, name = entry.path.removeprefix("sources/").partition("/")
            if use_of(folder) == source and name == "0":
                lines = self._storage.read(entry.path).decode().splitlines()
                return json.loads(lines[-1]) if lines else None
        return None

    def _newest(self, folder: str) -> int:
        return max(self._numbers(folder), default=-1)

    def _numbers(self, folder: str) -> list[int]:
        names = (entry.path.rpartition("/")[2] for entry in self._storage.list(folder))
        return [int(name) for name in names if name.isdigit()]
