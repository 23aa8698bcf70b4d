"""Where a table of Kafka begins and ends: 'scan.startup.…' and 'scan.bounded.…'."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from poundlock.connectors.kafka.source.starting_offsets import Otherwise, StartingOffsets
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError

Scan = Literal["scan.startup", "scan.bounded"]
_STARTS = ("group-offsets", "earliest-offset", "latest-offset", "timestamp", "specific-offsets")
_ENDS = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_RESETS: dict[str, Otherwise] = {"earliest": "earliest", "latest": "latest", "none": "fail"}
_PLACE = re.compile(r"\s*partition:(\d+),offset:(\d+)\s*")


@dataclass(frozen=True, slots=True)
class ScanPlaces:
    """Where reading begins, and where it ends; None where it does not.

    Args:
        topics: that the table names; none where it has a pattern.
        group: that has committed offsets; None where the table names none.
    """

    options: TableOptions
    topics: tuple[str, ...]
    group: str | None

    def start(self) -> StartingOffsets:
        """Return where reading begins at the first start.

        Raises:
            OptionError: the options do not say it.
        """
        mode = self.options.one_of("scan.startup.mode", _STARTS, "group-offsets")
        reset = _RESETS[self.options.one_of("properties.auto.offset.reset", tuple(_RESETS), "none")]
        if mode == "earliest-offset":
            self._place("scan.startup", mode, reset)
            return StartingOffsets.earliest()
        if mode == "group-offsets" and self.group is None:
            if reset == "fail":
                raise OptionError(
                    f"{self.options.table} names neither where it begins nor a group whose offsets say it",
                    next="add 'scan.startup.mode' = 'earliest-offset', or 'properties.group.id' = '…'",
                    kind="missing_option",
                )
            return StartingOffsets.earliest() if reset == "earliest" else StartingOffsets.latest()
        place = self._place("scan.startup", mode, reset)
        assert place is not None
        return place

    def end(self) -> StartingOffsets | None:
        """Return where reading ends; raises as `start`."""
        mode = self.options.one_of("scan.bounded.mode", _ENDS, "unbounded")
        if mode == "group-offsets" and self.group is None:
            raise OptionError(
                f"{self.options.table} ends at the offsets of a group, and names none",
                next="add 'properties.group.id' = '…'",
                kind="missing_option",
            )
        return self._place("scan.bounded", mode, "fail")

    def _place(self, scan: Scan, mode: str, otherwise: Otherwise) -> StartingOffsets | None:
        """Return the place that a mode names, None where it names none."""
        at = self.options.whole(f"{scan}.timestamp-millis")
        written = self.options.text(f"{scan}.specific-offsets")
        if mode == "latest-offset":
            return StartingOffsets.latest()
        if mode == "group-offsets":
            return StartingOffsets.committed(self.group, otherwise=otherwise)
        if mode == "timestamp":
            if at is None:
                raise self._missing(f"{scan}.timestamp-millis", mode, "1767607200000")
            return StartingOffsets.timestamp(at)
        if mode == "specific-offsets":
            if written is None:
                raise self._missing(f"{scan}.specific-offsets", mode, "partition:0,offset:42;partition:1,offset:300")
            return StartingOffsets.offsets(self._offsets(f"{scan}.specific-offsets", written))
        return None

    def _missing(self, option: str, mode: str, such: str) -> OptionError:
        return OptionError(
            f"{self.options.table} has the mode {mode!r}, and no {option!r}",
            next=f"add '{option}' = '{such}'",
            kind="missing_option",
        )

    def _offsets(self, option: str, written: str) -> dict[tuple[str, int], int]:
        """Return the offsets of `partition:0,offset:42;partition:1,offset:300`."""
        if len(self.topics) != 1:
            raise OptionError(
                f"{self.options.table}: {option!r} is of one topic", next="name one in 'topic'", kind="bad_option_value"
            )
        made = {}
        for part in written.split(";"):
            match = _PLACE.fullmatch(part)
            if match is None:
                raise OptionError(
                    f"{self.options.table}: {option!r} = {written!r} cannot be",
                    next="write 'partition:0,offset:42;partition:1,offset:300'",
                    kind="bad_option_value",
                )
            made[self.topics[0], int(match[1])] = int(match[2])
        return made


def read_places(options: TableOptions) -> None:
    """Read the options that say where a table begins and ends, where it is written to."""
    options.text("properties.auto.offset.reset")
    for scan in ("scan.startup", "scan.bounded"):
        for name in ("mode", "timestamp-millis", "specific-offsets"):
            options.text(f"{scan}.{name}")
