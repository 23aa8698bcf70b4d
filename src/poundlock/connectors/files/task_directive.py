"""What the tasks of a file sink have to know of its state, kept small."""

from __future__ import annotations

import json

from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.files.file_values import FileSinkState

DIRECTIVE_BYTES = 32_000


class FileDirective(SinkValue, frozen=True):
    """What the tasks of a checkpoint have to know of a sink's state.

    Args:
        known: the subtasks that have given names before.
        following: the counter of the next name of each of them; empty where writers look for it themselves.
        pending: the bytes that wait, by bucket and subtask, largest first.
    """

    known: tuple[int, ...] = ()
    following: tuple[int, ...] = ()
    pending: tuple[tuple[str, int, int], ...] = ()


def directive(state: FileSinkState, *, named: bool = False) -> FileDirective:
    """Return the bytes that wait per bucket and subtask, largest first, and the subtasks that have given names before.

    Where writers may give names themselves (`named`, or they did before), the counter of each subtask's next name comes along. Both lists may be cut to keep the whole below 32 KB: a part that is left out is finished at the next checkpoint, subtask that is left out looks once more at the names in the folder.
    """
    counters = state.counters
    known = sorted(map(int, counters))[:1500]
    following = [counters[str(subtask)] for subtask in known] if named or state.joined is not None else []
    budget = DIRECTIVE_BYTES - 200 - sum(len(str(k)) + 2 for k in (*known, *following))
    pending: list[tuple[str, int, int]] = []
    for part in sorted(state.parts, key=lambda part: -part.bytes):
        entry = part.bucket, part.subtask, part.bytes
        budget -= len(json.dumps(entry)) + 2
        if budget < 0:
            break
        pending.append(entry)
    return FileDirective(v=FileDirective.FORMAT, known=tuple(known), following=tuple(following), pending=tuple(pending))
