"""Sinks made again from how they described themselves, so that fsck needs no code of the user's.

A kind that is not known here gives no sink, never a wrong one.
"""

from __future__ import annotations

from pkgutil import resolve_name

from poundlock.checkpoint.participant import JSON, Participant


def rebuild_sink(description: JSON) -> Participant | None:
    """Return a sink that can sweep, inspect and commit; None if its kind can only be made by the job's own code.

    Args:
        description: what `Inspectable.describe_json` gave; {} where the sink has none.

    Raises:
        DefinitionError: another version of poundlock wrote the description, or a package it needs is missing.
    """
    sink = _KINDS.get(description.get("kind", ""))
    return None if sink is None else resolve_name(f"poundlock.connectors.{sink}").from_json(description)


_KINDS = {
    "delta": "delta.sink.sink:DeltaSink",
    "files": "files.sink.sink:FileSink",
    "iceberg": "iceberg.sink.sink:IcebergSink",
    "kafka": "kafka.sink.sink:KafkaSink",
    "nothing": "keeps_nothing:NothingKept",
    "postgres": "postgres.sink.sink:PostgresSink",
}
