"""What Spark's own files in a savepoint or checkpoint say, and the one change made to them: where a source stands.

Nothing is written here; a log that cannot be read is an error that names it, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError
from poundlock.plan.uses import spark_name, use_of
from poundlock.storage import Storage

__all__ = [
    "PROVIDER",
    "OffsetLog",
    "StateOperator",
    "newest_offsets",
    "read_offsets",
    "state_operators",
    "watermark_ms",
]

NONE = "-"  # how Spark writes that a source has no position
_VERSION = "v2"  # with the sources by name
_PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """One file of Spark's offset log.

    Args:
        header: the batch's watermark, and the settings Spark keeps for ever.
        positions: by use of a source, where it stands, as JSON text.
    """

    header: JSON
    positions: Mapping[str, str]

    @property
    def partitions(self) -> int | None:
        """In how many partitions Spark keeps state; None where the log does not say."""
        found = self.header.get("conf", {}).get(_PARTITIONS)
        return None if found is None else int(found)

    @property
    def provider(self) -> str:
        """The class that keeps the state, "" where the log does not say."""
        return str(self.header.get("conf", {}).get(PROVIDER, ""))

    def position(self, use: str) -> Any:
        """Return where a use of a source stands, None if the log does not say."""
        text = self.positions.get(use, NONE)
        return None if text == NONE else json.loads(text)

    def at(self, use: str, position: Any) -> OffsetLog:
        """Return the log with another position of a use; None = it does not have that use."""
        positions = {name: text for name, text in self.positions.items() if name != use or position is not None}
        if position is not None:
            positions[use] = json.dumps(position, separators=(",", ":"))
        return replace(self, positions=positions)

    def text(self) -> str:
        """Return it as Spark writes it."""
        lines = [f"{spark_name(use)}:{text}" for use, text in self.positions.items()]
        return "\n".join([_VERSION, json.dumps(self.header, separators=(",", ":")), *lines])

    @classmethod
    def parse(cls, text: str) -> OffsetLog:
        """Return what a text says. Raises ValueError."""
        version, header, *lines = text.splitlines()
        if version != _VERSION:
            raise ValueError(f"format {version!r} is not known")
        pairs = [line.partition(":") for line in lines]
        return cls(json.loads(header), {use_of(name): position for name, _, position in pairs})


@dataclass(frozen=True, slots=True)
class StateOperator:
    """One of Spark's own operators that keep state: its number, Spark's name for it, and the bytes of its files."""

    number: str
    name: str
    bytes: int


def read_offsets(storage: Storage, batch: int) -> OffsetLog:
    """Return Spark's offset log of a batch. Raises DefinitionError if it cannot be read."""
    path = f"spark/offsets/{batch}"
    try:
        return OffsetLog.parse(storage.read(path).decode())
    except (OSError, ValueError) as error:
        raise DefinitionError(
            f"{storage.root}/{path} cannot be read: {error}", next="give another savepoint, or copy this one again"
        ) from None


def newest_offsets(storage: Storage) -> OffsetLog | None:
    """Return Spark's newest offset log, None if no batch was planned."""
    newest = max(_numbers(storage, "spark/offsets"), default=None)
    return None if newest is None else read_offsets(storage, newest)


def watermark_ms(storage: Storage) -> int | None:
    """Return the watermark of the next batch, ms since the epoch; None where there is none."""
    committed, planned = (max(_numbers(storage, f"spark/{log}"), default=-1) for log in ("commits", "offsets"))
    found = 0
    if committed >= 0:
        try:
            _, _, text = storage.read(f"spark/commits/{committed}").decode().partition("\n")
            found = int(json.loads(text or "{}").get("nextBatchWatermarkMs", 0))
        except (OSError, ValueError, AttributeError) as error:
            raise DefinitionError(
                f"{storage.root}/spark/commits/{committed} cannot be read: {error}",
                next="give another savepoint, or copy this one again",
            ) from None
    if planned >= 0:
        found = max(found, int(read_offsets(storage, planned).header.get("batchWatermarkMs", 0)))
    return found or None


def state_operators(storage: Storage) -> list[StateOperator]:
    """Return what keeps state in Spark, in the order of Spark's numbers."""
    sizes: dict[str, int] = {}
    for entry in storage.list("spark/state"):
        number = entry.path.removeprefix("spark/state/").partition("/")[0]
        sizes[number] = sizes.get(number, 0) + entry.bytes
    return [
        StateOperator(number, _operator_name(storage, number), sizes[number])
        for number in sorted(sizes, key=lambda text: (not text.isdigit(), text.zfill(9)))
    ]


def _operator_name(storage: Storage, number: str) -> str:
    folder = f"spark/state/{number}/_metadata"
    found = [f"{folder}/metadata", *sorted((e.path for e in storage.list(f"{folder}/v2")), reverse=True)]
    for path in found:
        try:
            return str(json.loads(storage.read(path).decode().splitlines()[1])["operatorInfo"]["operatorName"])
        except (OSError, ValueError, KeyError, IndexError):
            continue  # a name for people; its absence is no reason to refuse
    return ""


def _numbers(storage: Storage, folder: str) -> list[int]:
    return [int(name) for name in storage.names(folder) if name.isdigit()]
