"""Where a source began and ends, written down at its first start: words such as "latest" must mean the same after a crash.

The file is in the source's workspace, written once by create-exclusive; a later start believes what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from poundlock.connectors.kafka.offsets import Offsets, from_json, to_json
from poundlock.errors import TerminalError
from poundlock.storage.base import Storage

_FILE = "start.json"
_Position = dict[str, dict[str, int]]


class PinnedStart(msgspec.Struct, frozen=True, tag_field="kind", tag="kafka-start"):
    """What the words of a source meant when they were first resolved.

    Args:
        words: the start and end as the user gave them; others are resolved again as long as nothing was read.
        start: the offset before the first record of each partition.
        until: the offset at which each partition ends; None if the source is unbounded.
        topics: id of each topic.
    """

    words: str
    start: _Position
    until: _Position | None
    topics: dict[str, str]
    v: int = 1

    @property
    def start_offsets(self) -> Offsets:
        """The start, by partition."""
        return from_json(self.start)

    @property
    def until_offsets(self) -> Offsets | None:
        """The end, by partition."""
        return None if self.until is None else from_json(self.until)

    def starting_at(self, start: Offsets) -> PinnedStart:
        """Return the same with another start."""
        return PinnedStart(self.words, to_json(start), self.until, self.topics)


def read_pinned(workspace: Storage) -> PinnedStart | None:
    """Return what an earlier start wrote down, for whatever words, or None.

    Raises:
        TerminalError: the file cannot be read by this version.
    """
    try:
        data = workspace.read(_FILE)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=PinnedStart)
    except msgspec.MsgspecError as error:
        raise TerminalError(
            f"{workspace.root}/{_FILE} cannot be read: {error}",
            next="run the job with the version of poundlock that wrote it",
        ) from error


def pin(
    workspace: Storage, words: str, start: Offsets, until: Offsets | None, topics: Mapping[str, str]
) -> PinnedStart:
    """Write down what the words mean and return it, or what another start wrote down a moment before.

    Idempotent by the words: the first who writes them wins.
    """
    made = PinnedStart(words, to_json(start), None if until is None else to_json(until), dict(topics))
    data = msgspec.json.format(msgspec.json.encode(made), indent=1)
    while not workspace.create_exclusive(_FILE, data):
        pinned = read_pinned(workspace)
        if pinned is not None and pinned.words == words:
            return pinned
        workspace.delete(_FILE)  # of words that the user changed before anything was read
    return made


def words_of(start: Any, end: Any) -> str:
    """Return start and end as text, to be compared."""
    return f"start={start!r} end={end!r}"
