"""The keys that a task has met so far in a checkpoint, with their hashes and bytes: each is hashed and encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.operators.keyed.codec import encode_keys
from poundlock.state.hashing import first_hash, groups_of, hashes_of
from poundlock.state.runs.columns import binary_array


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys that were met together, in the order of their hashes.

    Args:
        hashes: of each, ascending.
        encoded: the bytes of each, large_binary.
    """

    keys: Sequence[Any]
    hashes: npt.NDArray[np.uint64]
    encoded: pa.Array


class KeysInUse:
    """The keys of one operator in one task."""

    def __init__(self, first: int, stop: int, max_parallelism: int) -> None:
        self.batches: list[KeyBatch] = []
        self._first, self._stop, self._groups = first, stop, max_parallelism
        self._low, self._high = first_hash(first, max_parallelism), first_hash(stop, max_parallelism)
        self._places: dict[Any, int] = {}
        self._encoded: list[bytes] = []

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Any) -> bool:
        return key in self._places

    def add(self, keys: Iterable[Any]) -> bool:
        """Take note of keys; return whether any is new.

        Raises:
            TerminalError: a key is in a group of another task.
            DefinitionError: a key is of a type that state cannot keep.
        """
        places = self._places
        new = [key for key in dict.fromkeys(keys) if key not in places]
        if not new:
            return False
        hashes = hashes_of(new)
        encoded = encode_keys(new)
        order = np.argsort(hashes, kind="stable")
        listed = order.tolist()
        ordered = hashes[order]
        self._check(int(ordered[0]), new[listed[0]])
        self._check(int(ordered[-1]), new[listed[-1]])
        self.batches.append(KeyBatch([new[i] for i in listed], ordered, binary_array([encoded[i] for i in listed])))
        places.update(zip(self.batches[-1].keys, range(len(places), len(places) + len(new)), strict=True))
        self._encoded += [encoded[i] for i in listed]
        return True

    def _check(self, hash_: int, key: Any) -> None:
        if not self._low <= hash_ < self._high:
            group = int(groups_of(np.array([hash_], np.uint64), self._groups)[0])
            raise TerminalError(
                f"the key {str(key)[:60]!r} of key group {group} came to the task of groups {self._first} to {self._stop - 1}",
                next="report this as a bug: its rows were sent to the wrong task",
            )

    def columns(self, keys: Sequence[Any]) -> tuple[npt.NDArray[np.uint64], list[bytes]]:
        """Return hash and bytes of keys that are in use.

        Raises:
            TerminalError: state was written for a key that was never asked for, so what it had is not known.
        """
        try:
            places = [self._places[key] for key in keys]
        except KeyError as error:
            raise TerminalError(
                f"state was written for the key {str(error.args[0])[:60]!r}, which is not one of the records or timers at work",
                next="report this as a bug",
            ) from None
        hashes = np.concatenate([batch.hashes for batch in self.batches]) if self.batches else np.empty(0, np.uint64)
        encoded = self._encoded
        return hashes[np.array(places, np.int64)], [encoded[place] for place in places]
