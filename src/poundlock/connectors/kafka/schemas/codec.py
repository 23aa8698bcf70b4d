"""Values with the number of their schema to columns: those of one number are read together, each by the schema that wrote it.

What a number means is known from the start, or asked of the registry once in a process. A registry that does not answer fails the task for now;
no record is left out for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.schemas.client import NotRegistered, client_of
from poundlock.connectors.kafka.schemas.framing import NO_NUMBER, NOT_FRAMED, numbers_of, of_each
from poundlock.connectors.kafka.schemas.registered import Pins, RegisteredSchema, SchemaKind
from poundlock.errors import TerminalError
from poundlock.formats.arrays import indices_of
from poundlock.formats.decode import Parsed, Want

if TYPE_CHECKING:
    from poundlock.connectors.kafka.schemas.formats import RegistryFormat


class Incompatible(Exception):
    """What one schema wrote cannot be read by the other one."""


class SchemaReader(ABC):
    """Reads what one schema wrote. Used by one thread."""

    @abstractmethod
    def read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        """Return the rows of values, with their five bytes, and why the others have none.

        Raises:
            Incompatible: the schemas do not fit.
        """


@dataclass(frozen=True)
class RegistryCodec:
    """Reads framed values.

    Args:
        pins: schemas that need not be asked for.
    """

    format: RegistryFormat
    columns: pa.Schema
    is_key: bool = False
    pins: Pins = field(default_factory=dict)

    _what: ClassVar[Mapping[bool, str]] = {True: "key", False: "value"}

    def schema(self) -> pa.Schema:
        return self.columns

    def parse_lines(self, lines: Any, want: Want) -> Parsed | None:
        return None

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        bad: dict[int, str] = {}
        parts: list[pa.RecordBatch] = []
        places: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        for number, at in of_each(numbers_of(values)) if values else ():
            some = values if len(at) == len(values) else [values[place] for place in at.tolist()]
            rows, failed = self._read(number, some)
            good = np.ones(len(at), np.bool_)
            for place, why in failed.items():
                good[place] = False
                bad[int(at[place])] = why
            parts.append(rows)
            places.append(at[good])
        if not parts:
            return Parsed(pa.RecordBatch.from_pylist([], self.columns), {})
        if len(parts) == 1:
            return Parsed(parts[0], bad)
        order = np.argsort(np.concatenate(places), kind="stable")
        whole = pa.Table.from_batches(parts, self.columns).combine_chunks().to_batches()
        return Parsed(whole[0].take(indices_of(order)) if whole else parts[0], bad)

    def _read(self, number: int, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        """Return the rows of values that one schema wrote, and why others have none."""
        if number == NO_NUMBER:
            return self._none(), dict.fromkeys(range(len(values)), NOT_FRAMED)
        try:
            return self._reader(number).read(values)
        except NotRegistered:
            why = f"schema {number} wrote it, which the registry {self.format.registry.url} has not"
        except Incompatible as error:
            why = f"schema {number} wrote it, which does not fit: {error}"
            if self.format.on_incompatible == "fail":
                raise TerminalError(
                    f"a {self._what[self.is_key]} cannot be read by the job's schema: {why}",
                    next='give the job a schema that can read it, or on_incompatible="bad_record"',
                ) from None
        return self._none(), dict.fromkeys(range(len(values)), why)

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.columns)

    def _reader(self, number: int) -> SchemaReader:
        """Return what reads the values of a schema; raises NotRegistered, Incompatible, or as the client does."""
        known = self._readers.get(number)
        if known is None:
            schema = self.pins.get(number) or client_of(self.format.registry).schema(number)
            check_kind_of(schema, self.format.kind)
            known = self._readers[number] = self.format.reader(schema, self.columns)
        return known

    @cached_property
    def _readers(self) -> dict[int, SchemaReader]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        # Readers hold decoders of libraries, which do not travel.
        return {name: value for name, value in self.__dict__.items() if name != "_readers"}


def check_kind_of(schema: RegisteredSchema, kind: SchemaKind) -> None:
    """Raise Incompatible where a schema is of another kind."""
    if schema.kind != kind:
        raise Incompatible(f"it is a schema of {schema.kind}, and {kind} is expected")


def head_of(why: object) -> str:
    """Return the beginning of a reason; libraries put whole schemas in theirs."""
    text = " ".join(str(why).split()) or type(why).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 240
