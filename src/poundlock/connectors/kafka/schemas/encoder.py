"""Rows to values with the number of their schema: which schema that is, under which subject it is registered, and the bytes.

Who writes asks the registry for a number once in a process, and not at all for one that the driver knows; for the newest schema of a subject each
task asks, and takes the newest that is known where the registry does not answer. Registered is what is not there yet, by its text, so that a repetition changes
nothing. A registry that does not answer fails the task for now, and its checkpoint is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.kafka.schemas.client import client_of
from poundlock.connectors.kafka.schemas.framing import head
from poundlock.connectors.kafka.schemas.registered import Answers, Reference, RegisteredSchema
from poundlock.formats.arrays import indices_of

if TYPE_CHECKING:
    from poundlock.connectors.kafka.schemas.formats import RegistryFormat


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """Values one behind the other; one that could not be written is empty, and `bad` says why."""

    data: bytes
    ends: npt.NDArray[np.int64]  # with 0 before the first one
    bad: Mapping[int, str]

    def column(self) -> pa.Array:
        """Return the values as a column."""
        buffers = [None, pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.ends) - 1, buffers)


class SchemaWriter(ABC):
    """Writes values of one schema. Used by one thread."""

    @abstractmethod
    def encode(self, rows: pa.RecordBatch, head: bytes) -> EncodedValues:
        """Return a value for each row.

        Args:
            head: what stands before each of them.

        Raises:
            DefinitionError: the columns are not those of the schema.
        """


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """What values are written by.

    Args:
        text, references: as they are registered.
        name: the full name of the record, for subjects that have it; "" where there is none.
    """

    writer: SchemaWriter
    text: str
    references: tuple[Reference, ...] = ()
    name: str = ""


class RegistryEncoder:
    """Writes values, or keys, of the topics of one sink.

    Args:
        is_single: whether the one column is the value itself, and no field of a record.
        answers: what the registry answered to the driver.
    """

    def __init__(
        self, format: RegistryFormat, *, is_key: bool, is_single: bool = False, answers: Answers | None = None
    ) -> None:
        self._format, self._is_key, self._is_single, self._answers = format, is_key, is_single, answers
        self._known: dict[str, tuple[WrittenSchema, int]] = {}
        self._derived: tuple[pa.Schema, WrittenSchema] | None = None

    def encode(self, rows: pa.RecordBatch, topics: str | Sequence[str]) -> tuple[pa.Array, Mapping[int, str]]:
        """Return a value for each row, as large_binary, and why some have none.

        Args:
            topics: that of all rows, or that of each.

        Raises:
            DefinitionError: the columns are not those of the schema, or no schema can be made of them.
            TransientError: the registry does not answer.
            TerminalError: it refuses.
        """
        if isinstance(topics, str):
            made = self._encoded(rows, topics)
            return made.column(), made.bad
        names = np.array(topics, object)
        parts: list[pa.Array] = []
        places: list[npt.NDArray[np.int64]] = []
        bad: dict[int, str] = {}
        for topic in dict.fromkeys(topics):
            at = np.flatnonzero(names == topic)
            made = self._encoded(rows.take(indices_of(at)), topic)
            parts.append(made.column())
            places.append(at)
            bad |= {int(at[row]): why for row, why in made.bad.items()}
        if not parts:  # no row has a topic that can be
            return pa.nulls(rows.num_rows, pa.large_binary()), bad
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(parts).take(indices_of(order)), bad

    def _encoded(self, rows: pa.RecordBatch, topic: str) -> EncodedValues:
        written, number = self._of_topic(topic, rows.schema)
        return written.writer.encode(rows, head(number))

    def _of_topic(self, topic: str, columns: pa.Schema) -> tuple[WrittenSchema, int]:
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = self._ask(topic, columns)
        return known

    def _ask(self, topic: str, columns: pa.Schema) -> tuple[WrittenSchema, int]:
        format = self._format
        client = client_of(format.registry)
        if self._answers is not None:
            client.learn(self._answers)
        if format.use_latest:
            latest: RegisteredSchema = client.latest_or_known(format.subject_of(topic, is_key=self._is_key))
            return format.writing(columns, latest, is_single=self._is_single), latest.id
        written = self._written(columns)
        subject = format.subject_of(topic, is_key=self._is_key, name=written.name)
        register = format.auto_register
        return written, client.id_of(subject, format.kind, written.text, written.references, register=register)

    def _written(self, columns: pa.Schema) -> WrittenSchema:
        """Return what values of some columns are written by; one for all topics."""
        if self._derived is None or not self._derived[0].equals(columns):
            self._derived = (columns, self._format.writing(columns, None, is_single=self._is_single))
        return self._derived[1]
