"""Anything else that Spark can read as a stream, by the name of its format.

Nothing is known of what is behind it: no identity is checked, and it learns nothing. Spark keeps its offsets; a position is
how many batches of its query were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.arguments import MAPPING, NAMES, check_kind
from poundlock.connectors.base import ReplayPromise, SparkRead
from poundlock.errors import DefinitionError
from poundlock.formats import ddl

# Spark's own words for these would do the same with fewer guarantees, or do not survive a restart.
_OURS = {"kafka": "KafkaSource", "poundlock": "FileSource or DatagenSource", "socket": "SocketSource"}
# Spark's own formats whose offsets always mean the same rows. Anything that can be installed under a name is not here.
_EXACT = frozenset({"csv", "json", "orc", "parquet", "rate", "rate-micro-batch", "text"})


@dataclass(frozen=True)
class SparkFormatSource:
    """A source that Spark's own connector reads. Exported as `SparkSource`.

    Args:
        format: as in spark.readStream.format, such as "rate", "delta", or the name of an installed data source.
        options: as in .options; values are text, numbers or booleans.
        schema: DDL, where the format needs one (files do).
        path: what to load, where the format wants it apart from the options.
        columns: Spark SQL expressions to select right behind the source; default: all columns as they are.
        bounded: whether the source ends: its data is all there when the job starts.
        repeatable: whether the same offsets always give the same rows, which you know and poundlock cannot: of a Delta table,
            for instance, that nobody vacuums faster than the job reads. Left out: yes of the files and generators that
            are part of Spark, unknown of all else.

    Raises:
        DefinitionError: there is a source of poundlock's own for this format.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: str | None = None
    path: str | None = None
    columns: Sequence[str] | None = None
    bounded: bool = False
    repeatable: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or not self.format.strip():
            raise DefinitionError(f"{self.format!r} is not a format", next='write SparkSource("rate", {…})')
        name = self.format.lower()
        if name in _OURS:
            raise DefinitionError(f"format {name!r} has a source of its own", next=f"use {_OURS[name]}")
        if self.schema is not None:
            ddl.parse(self.schema)
        check_kind("SparkSource", MAPPING, {"options": self.options})
        check_kind("SparkSource", NAMES, {"columns": self.columns}, optional=True)
        for key, value in self.options.items():
            if not isinstance(key, str) or not isinstance(value, (str, int, float, bool)):
                raise DefinitionError(f"option {key!r} is {value!r}", next="give text, a number, or True or False")
        if self.repeatable not in (None, True, False):
            raise DefinitionError(f"repeatable={self.repeatable!r} is neither yes nor no", next="give True or False")

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives: what Spark is known to give, or what `repeatable` says."""
        if self.repeatable:
            return ReplayPromise(
                "exact", "Spark logs the range before it is read, and repeatable=True says that it reads the same again"
            )
        if self.repeatable is None and self.format.lower() in _EXACT:
            return ReplayPromise("exact", "Spark logs the range before it is read, and the same range is read again")
        return ReplayPromise(
            "unknown", "Spark logs the range, but nobody knows whether its connector gives the same rows again"
        )

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return self.path or ""

    def preflight(self) -> None:
        """Do nothing: what the format needs is known to Spark alone, which says so when the job starts."""

    def spark_read(self) -> SparkRead:
        """Return how Spark reads it."""
        options = {key: _text(value) for key, value in self.options.items()}
        if self.path is not None:
            options["path"] = self.path
        return SparkRead(format=self.format, options=options, columns=self.columns, schema=self.schema)

    def describe(self, position: Any) -> str:
        """Return a position for the log."""
        return f"{self.format}: goes on behind {position['batch']:,} batches"

    def explain_error(self, message: str) -> Exception | None:
        """Return None: Spark's words stay as they are."""
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SparkSource = SparkFormatSource  # its public name; within the package that is the protocol of what Spark reads
