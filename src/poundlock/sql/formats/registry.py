"""The formats that tables may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from poundlock.sql.connectors.options import TableOptions, unknown_word
from poundlock.sql.formats.avro_format import avro_decoder, avro_encoder
from poundlock.sql.formats.changelog_json import Dialect, changelog_decoder, changelog_encoder
from poundlock.sql.formats.csv_format import csv_decoder, csv_encoder
from poundlock.sql.formats.format import FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.json_format import json_decoder, json_encoder
from poundlock.sql.formats.raw import raw_decoder, raw_encoder
from poundlock.sql.formats.schemas.debezium_avro import WORD as DEBEZIUM_AVRO
from poundlock.sql.formats.schemas.debezium_avro import debezium_avro_decoder, debezium_avro_encoder
from poundlock.sql.formats.schemas.protobuf_format import protobuf_decoder, protobuf_encoder
from poundlock.sql.formats.schemas.registered import WORDS as REGISTERED
from poundlock.sql.formats.schemas.registered import registry_decoder, registry_encoder
from poundlock.sql.relations.pruning import ColumnsRead

_CHANGELOGS: tuple[Dialect, ...] = ("debezium-json", "canal-json", "maxwell-json")

DECODERS: Mapping[str, Callable[[TableOptions, FormatContext], RecordDecoder]] = {
    "avro": avro_decoder,
    "csv": csv_decoder,
    "json": json_decoder,
    "protobuf": protobuf_decoder,
    "raw": raw_decoder,
    DEBEZIUM_AVRO: debezium_avro_decoder,
    **{word: partial(registry_decoder, word=word) for word in REGISTERED},
    **{dialect: partial(changelog_decoder, dialect=dialect) for dialect in _CHANGELOGS},
}
ENCODERS: Mapping[str, Callable[[TableOptions, FormatContext], RecordEncoder]] = {
    "avro": avro_encoder,
    "csv": csv_encoder,
    "json": json_encoder,
    "protobuf": protobuf_encoder,
    "raw": raw_encoder,
    DEBEZIUM_AVRO: debezium_avro_encoder,
    **{word: partial(registry_encoder, word=word) for word in REGISTERED},
    **{dialect: partial(changelog_encoder, dialect=dialect) for dialect in _CHANGELOGS},
}

WITHOUT_ENDS = frozenset(("protobuf", DEBEZIUM_AVRO, *REGISTERED))
"""Formats whose records are bytes of any kind, line ends too, so that a file of them could not be cut."""


def columns_of_records(options: Mapping[str, str], *, otherwise: ColumnsRead) -> ColumnsRead:
    """Return what can be left out where the records of a table are read.

    Args:
        otherwise: where they are not of JSON, in which all is known by its name.
    """
    if "true" in (options.get(f"{part}json.fail-on-missing-field") for part in ("", "value.")):
        return "all"
    return "fields" if "json" in (options.get("format"), options.get("value.format")) else otherwise


def decoder_of(options: TableOptions, context: FormatContext, option: str = "format") -> RecordDecoder:
    """Return what makes rows of a table's records.

    Args:
        option: that names the format.

    Raises:
        OptionError: it names none, or one that there is not, or its options are wrong.
    """
    name = options.required(option)
    if name not in DECODERS:
        raise unknown_word("format", name, DECODERS, "unknown_format")
    return DECODERS[name](options, context)


def encoder_of(options: TableOptions, context: FormatContext, option: str = "format") -> RecordEncoder:
    """Return what makes records of a table's rows; raises as `decoder_of`."""
    name = options.required(option)
    if name not in ENCODERS:
        raise unknown_word("format", name, ENCODERS, "unknown_format")
    return ENCODERS[name](options, context)
