"""What a source of framed values is made of: its decoder, and the schemas that are fetched before tasks read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from poundlock.connectors.kafka.schemas.client import client_of
from poundlock.connectors.kafka.schemas.codec import RegistryCodec
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.keyed_decoder import KeyedDecoder
from poundlock.connectors.kafka.schemas.registered import Pins, RegisteredSchema
from poundlock.formats.decode import Decoder, RowDecoder

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source.source import KafkaSource


def value_decoder(format: RegistryFormat, pins: Pins) -> Decoder:
    """Return what decodes values."""
    return RowDecoder(RegistryCodec(format, format.reading_columns("value"), pins=pins))


def key_columns(format: RegistryFormat) -> pa.Schema:
    """Return the columns of keys; a record may be without one, so that all of them may be null."""
    return pa.schema([column.with_nullable(True) for column in format.reading_columns("key")])


def keyed(format: RegistryFormat, value: Decoder, pins: Pins, prefix: str) -> Decoder:
    """Return what decodes keys and values."""
    return KeyedDecoder(RowDecoder(RegistryCodec(format, key_columns(format), True, pins), "keep"), value, prefix)


def fetched(source: KafkaSource) -> Pins:
    """Return the schemas of the subjects of a source's topics: tasks need not ask for them, whether the registry is there or not.

    Raises:
        TransientError: a registry does not answer, and did not before.
        TerminalError: it refuses this user.
    """
    topics: Sequence[str] = source.topics or tuple(source.partitions or ())
    pins: dict[int, RegisteredSchema] = {}
    for format, is_key in ((source.format, False), (source.key_format, True)):
        if isinstance(format, RegistryFormat):
            for subject in format.subjects_to_fetch(tuple(topics), is_key=is_key):
                pins |= {schema.id: schema for schema in client_of(format.registry).versions(subject)}
    return pins
