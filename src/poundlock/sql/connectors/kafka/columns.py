"""Which columns of a table stand in the key of a record, and which in its value; how both are decoded and encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poundlock.errors import did_you_mean
from poundlock.sql.connectors.kafka.metadata import KafkaMetadataColumn
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.relations.fields import Field


@dataclass(frozen=True)
class RecordColumns:
    """The columns of a table in records.

    Args:
        key: those of the key, as they are called in the data; `value` likewise.
        metadata: those that show what the format of values has beside the rows.
    """

    table: TableContext
    options: TableOptions
    key: tuple[FormatColumn, ...]
    value: tuple[FormatColumn, ...]
    is_upsert: bool
    metadata: tuple[FormatColumn, ...] = ()

    def decoders(self) -> tuple[RecordDecoder, RecordDecoder | None]:
        """Return what reads values and keys; no key where all that it has is read of the value.

        Raises:
            OptionError: a format is missing, or cannot be.
        """
        context = replace(self._context(self.value), metadata=self.metadata)
        of_value, of_key = decoder_of(self._value_options, context), self.key
        self._check_value(of_value.is_updating)
        if not self.is_upsert:  # what both have is read of the value
            of_key = tuple(each for each in of_key if each.column not in {other.column for other in self.value})
        if not of_key:
            if self.key:  # its options are checked nevertheless
                self._key_decoder(self.key)
            return of_value, None
        return of_value, self._key_decoder(of_key)

    def encoders(self) -> tuple[RecordEncoder, RecordEncoder | None]:
        """Return what writes values and keys; raises as `decoders`."""
        of_value = encoder_of(self._value_options, self._context(self.value))
        self._check_value(of_value.takes_updates)
        if not self.key:
            return of_value, None
        of_key = encoder_of(self.options.under("key."), self._context(self.key, is_key=True))
        self._check_key(of_key.takes_updates)
        return of_value, of_key

    def _key_decoder(self, columns: tuple[FormatColumn, ...]) -> RecordDecoder:
        made = decoder_of(self.options.under("key."), self._context(columns, is_key=True))
        self._check_key(made.is_updating)
        return made

    @property
    def _value_options(self) -> TableOptions:
        """The options among which those of the value's format are: with 'value.format' they begin with "value.", too."""
        if self.options.text("format") is None or self.is_upsert:
            return self.options.under("value.")
        if self.options.text("value.format") is not None:
            raise OptionError(
                f"{self._name}: 'format' and 'value.format' say the same",
                next="leave one of them out",
                kind="bad_option_value",
            )
        return self.options

    def _context(self, columns: tuple[FormatColumn, ...], *, is_key: bool = False) -> FormatContext:
        topic = self.options.text("topic", "") or ""
        return FormatContext(self._name, columns, self.table.zone, topic, is_key)

    @property
    def _name(self) -> str:
        return self.table.name.name

    def _check_value(self, has_changes: bool) -> None:
        if self.is_upsert and has_changes:
            raise OptionError(
                f"{self._name}: a value that is a change itself cannot be an upsert",
                next="write 'value.format' = 'json', or 'connector' = 'kafka'",
                kind="bad_option_value",
            )
        if not self.is_upsert and not has_changes and self.table.definition.primary_key:
            raise OptionError(
                f"{self._name} has a primary key, and the records of this format are rows that stand for themselves",
                next="leave PRIMARY KEY out, or write 'connector' = 'upsert-kafka'",
                kind="primary_key",
            )

    def _check_key(self, has_changes: bool) -> None:
        if has_changes:
            raise OptionError(
                f"{self._name}: a key is no change",
                next="write 'key.format' = 'json' or another",
                kind="bad_option_value",
            )


def record_columns(
    table: TableContext, options: TableOptions, metadata: Sequence[KafkaMetadataColumn], *, is_upsert: bool
) -> RecordColumns:
    """Return the columns of a table in records.

    Raises:
        OptionError: options name no such columns, or contradict each other.
    """
    name = table.name.name
    beside = {each.field.name for each in metadata}
    data = [field for field in table.fields if field.name not in beside]
    keys = _upsert_key(table, data) if is_upsert else _key_fields(name, options, data)
    prefix = options.text("key.fields-prefix", "") or ""
    for field in keys if prefix else ():
        if not field.name.startswith(prefix) or field.name == prefix:
            raise OptionError(
                f"{name}: the column {field.name} of the key does not begin with {prefix!r}, as 'key.fields-prefix' says",
                next=f"call it {prefix}{field.name}",
                kind="bad_option_value",
            )
    included = options.one_of("value.fields-include", ("all", "except_key"), "all")
    if prefix and included == "all":
        raise OptionError(
            f"{name}: with 'key.fields-prefix' the columns of the key are none of the value",
            next="add 'value.fields-include' = 'EXCEPT_KEY'",
            kind="bad_option_value",
        )
    of_value = [field for field in data if included == "all" or field not in keys]
    return RecordColumns(
        table,
        options,
        tuple(FormatColumn(f.name.removeprefix(prefix), f.column, f.type) for f in keys),
        tuple(FormatColumn(f.name, f.column, f.type) for f in of_value),
        is_upsert,
        tuple(each.of_format for each in metadata if each.key),
    )


def _upsert_key(table: TableContext, data: Sequence[Field]) -> list[Field]:
    by_name = {each.name: each for each in data}
    if not table.definition.primary_key:
        raise OptionError(
            f"{table.name.name} has no primary key, by which upsert-kafka tells rows apart",
            next="declare PRIMARY KEY (…) NOT ENFORCED",
            kind="primary_key",
        )
    return [by_name[name] for name in table.definition.primary_key if name in by_name]


def _key_fields(table: str, options: TableOptions, data: Sequence[Field]) -> list[Field]:
    """Return the columns that 'key.fields' names."""
    written, has_format = options.text("key.fields"), options.text("key.format") is not None
    names = [each.strip() for each in (written or "").split(";") if each.strip()]
    if bool(names) is not has_format:
        missing = "key.format" if names else "key.fields"
        raise OptionError(
            f"{table} has {'columns' if names else 'a format'} of the key, and no {missing!r}",
            next="add 'key.format' = 'json'" if names else "name its columns: 'key.fields' = 'id'",
            kind="missing_option",
        )
    by_name = {each.name: each for each in data}
    for name in names:
        if name not in by_name:
            raise OptionError(
                f"{table}: 'key.fields' names {name}, which is no column",
                next=did_you_mean(name, by_name, f"use one of {', '.join(by_name)}"),
                kind="unknown_column",
            )
    return [by_name[name] for name in names]
