"""What options a connector takes: those that it asks for when it is given a made-up table, so that nobody has to list them twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import product
from zoneinfo import ZoneInfo

from poundlock.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE, FullName
from poundlock.sql.connectors.registry import CONNECTORS
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.formats.registry import DECODERS, ENCODERS
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import PhysicalColumn, TableDefinition
from poundlock.sql.types import STRING

_MADE_UP = "1"  # a number, and a name as well
_MADE_UP_URL = "jdbc:postgresql://localhost/made_up"
_MOST_TRIALS = 12
_FORMAT = "json"


class _AskedOptions(Mapping[str, str]):
    """The options of a made-up table, which remember what they are asked for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.asked: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked.pop(name, None)  # what is asked for last stands last
        self.asked[name] = None
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def format_names() -> list[str]:
    """Return the formats that tables may name."""
    return sorted({*DECODERS, *ENCODERS, "parquet", "orc"})


@cache
def option_names(connector: str, format: str | None = None) -> tuple[str, ...]:
    """Return the options of a connector by name, with those of a format where one is named; none of a connector that there is not."""
    if connector not in CONNECTORS:
        return ()
    asked = {"connector": None}
    for is_sink, key in product((False, True), (("a",), ())):  # some connectors want a primary key, others refuse one
        asked |= _asked(connector, format or _FORMAT, key, is_sink=is_sink)
    unnamed = f"{_FORMAT}." if format is None else None
    return tuple(name for name in asked if unnamed is None or not name.startswith(unnamed))


def _asked(connector: str, format: str, key: tuple[str, ...], *, is_sink: bool) -> dict[str, None]:
    """Return what a source or sink asks for. What it cannot be without is made up, one option after the other."""
    given = {"connector": connector, "format": format}
    asked: dict[str, None] = {}
    for _ in range(_MOST_TRIALS):
        options = _AskedOptions(given)
        made = False
        # Made-up values make a connector stumble in ways of its own: until then it has asked what it asks.
        with suppress(Exception):
            _make(connector, options, key, is_sink=is_sink)
            made = True
        asked |= options.asked
        last = next(reversed(options.asked), None)
        if made or last is None or last in given:
            break
        given[last] = format if last.endswith("format") else _MADE_UP_URL if last == "url" else _MADE_UP
    return asked


def _make(connector: str, options: Mapping[str, str], key: tuple[str, ...], *, is_sink: bool) -> None:
    name = FullName(DEFAULT_CATALOG, DEFAULT_DATABASE, "made_up")
    definition = TableDefinition(
        name=("made_up",),
        columns=(PhysicalColumn("a", STRING.not_null()), PhysicalColumn("b", STRING)),
        watermark=None,
        primary_key=key,
        partitioned_by=(),
        options=options,
        comment=None,
        is_temporary=False,
        if_not_exists=False,
        like=None,
        query=None,
    )
    fields = (Field("a", "a", STRING.not_null()), Field("b", "b", STRING))
    table = TableContext(name, definition, fields, ZoneInfo("UTC"), is_batch=False)
    made = CONNECTORS[connector]()
    if is_sink:
        made.sink(table, overwrite=False)
    else:
        made.source(table)
