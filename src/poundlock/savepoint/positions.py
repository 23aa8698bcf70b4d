"""What the position of a source says when the source itself is not at hand: how far it is, and what it is counted in.

A position of a form that is not known here is shown as it is, never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from poundlock.errors import PoundlockError
from poundlock.storage import Storage, open_storage

Kind = Literal["kafka", "files", "generated", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far a source was read.

    Args:
        kind: what the form of the position tells of the source.
        counted: how far each part of it is: by "topic:partition", or under one name.
        unit: what that is counted in; "" where nothing is.
        details: of files: how many were read whole, how many are known, and which is next from which byte on.
    """

    kind: Kind
    position: Any
    counted: Mapping[str, int] = field(default_factory=dict)
    unit: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "position": self.position,
            "counted": dict(self.counted),
            "unit": self.unit,
            **self.details,
        }

    def lines(self) -> list[str]:
        """Return it for people."""
        if self.kind == "kafka":
            return [f"{name}  offset {offset}" for name, offset in self.counted.items()] or ["nothing yet"]
        if self.kind == "generated":
            return [f"{self.counted['row']} rows"]
        if self.kind == "files" and "files_known" in self.details:
            read, known, then = (self.details[name] for name in ("files_read", "files_known", "next"))
            more = f", then {then} from byte {self.details['byte']} on" if then is not None else ""
            return [f"{read} of {known} known files read, {self.counted['bytes']} bytes{more}"]
        return [json.dumps(self.position, separators=(",", ":"), ensure_ascii=False)]


def is_kafka(position: Any) -> bool:
    """Return whether a position is an offset for each partition of topics."""
    return (
        isinstance(position, dict)
        and bool(position)
        and all(
            isinstance(offsets, dict)
            and all(str(p).isdecimal() and type(offset) is int for p, offset in offsets.items())
            for offsets in position.values()
        )
    )


def reading(savepoint: Storage, source: str, position: Any) -> SourceProgress:
    """Return what a position says.

    Args:
        savepoint: whose it is; a file source keeps in it which files it has met.
    """
    if is_kafka(position):
        from poundlock.connectors.kafka.offsets import from_json

        offsets = sorted(from_json(position).items())
        return SourceProgress(
            kind="kafka", position=position, counted={f"{t}:{p}": o for (t, p), o in offsets}, unit="records"
        )
    if isinstance(position, dict) and {"row"} <= position.keys() <= {"row", "from_ms"}:
        return SourceProgress(
            kind="generated", position=position, counted={"row": int(position["row"])}, unit="records"
        )
    if isinstance(position, dict) and position.keys() == {"log", "file", "offset"}:
        return _files(savepoint, source, position)
    return SourceProgress(kind="other", position=position)


def _files(savepoint: Storage, source: str, position: dict[str, Any]) -> SourceProgress:
    from poundlock.connectors.files.source.discovery import DiscoveryLog
    from poundlock.connectors.files.source.enumerator import Position

    at = Position.of(position)
    try:
        log = DiscoveryLog(open_storage(f"{savepoint.root}/sources/{source}"))
        entries = [log.files(number) for number in range(len(log))]
    except (PoundlockError, OSError, ValueError, KeyError):
        return SourceProgress(kind="files", position=position)
    if at.log > len(entries) or (at.log == len(entries) and at[1:] != (0, 0)):
        return SourceProgress(kind="files", position=position)  # what it has read is not in the log that came along
    before = [file for files in entries[: at.log] for file in files]
    here = entries[at.log] if at.log < len(entries) else ()
    before += here[: at.file]
    then = here[at.file].name if at.file < len(here) else None
    return SourceProgress(
        kind="files",
        position=position,
        counted={"bytes": sum(file.bytes for file in before) + at.offset},
        unit="bytes",
        details={"files_read": len(before), "files_known": sum(map(len, entries)), "next": then, "byte": at.offset},
    )
