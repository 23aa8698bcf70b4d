"""Sinks made again from how they described themselves, so that fsck needs no code of the user's.

A kind that is not known here gives no sink, never a wrong one.
"""

from __future__ import annotations

from pkgutil import resolve_name

from poundlock.checkpoint.participant import JSON, Participant
from poundlock.errors import DefinitionError


def rebuild_sink(description: JSON) -> Participant | None:
    """Return a sink that can sweep, inspect and commit; None if its kind can only be made by the job's own code.

    Args:
        description: what `Inspectable.describe_json` gave; {} where the sink has none.

    Raises:
        DefinitionError: another version of poundlock wrote the description, it is damaged, or a package it needs is missing.
    """
    kind = description.get("kind", "")
    sink = _KINDS.get(kind) if isinstance(kind, str) else None
    if sink is None:
        return None
    made = resolve_name(f"poundlock.connectors.{sink}")
    try:
        rebuilt: Participant = made.from_json(description)
        return rebuilt
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DefinitionError(
            f"the description of a sink of kind {kind!r}, which a start of the job wrote, is damaged ({error!r})",
            next="restore the folder epochs of the checkpoint from a backup, or start the job once more, which writes it again",
        ) from error


_KINDS = {
    "delta": "delta.sink.sink:DeltaSink",
    "files": "files.sink.sink:FileSink",
    "iceberg": "iceberg.sink.sink:IcebergSink",
    "kafka": "kafka.sink.sink:KafkaSink",
    "nothing": "keeps_nothing:NothingKept",
    "postgres": "postgres.sink.sink:PostgresSink",
}
