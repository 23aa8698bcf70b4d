"""Sinks made again from what they said of themselves, so that fsck needs no code of the user's.

A kind that is not known here gives no sink, never a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poundlock.checkpoint.participant import JSON, Participant


def rebuild_sink(description: JSON) -> Participant | None:
    """Return a sink that can sweep, inspect and commit; None if its kind can only be made by the job's own code.

    Args:
        description: what `Inspectable.describe_json` said; {} where the sink said nothing.

    Raises:
        DefinitionError: another version of poundlock wrote the description, or a package it needs is missing.
    """
    make = _KINDS.get(description.get("kind", ""))
    return None if make is None else make(description)


def _files(description: JSON) -> Participant:
    from poundlock.connectors.files.sink.sink import FileSink

    return FileSink.from_json(description)


def _kafka(description: JSON) -> Participant:
    from poundlock.connectors.kafka.sink.sink import KafkaSink

    return KafkaSink.from_json(description)


def _postgres(description: JSON) -> Participant:
    from poundlock.connectors.postgres.sink.sink import PostgresSink

    return PostgresSink.from_json(description)


_KINDS: Mapping[str, Callable[[JSON], Participant]] = {"files": _files, "kafka": _kafka, "postgres": _postgres}
