"""SQL's types as Arrow's: as what JDBC is asked for a column, and the columns of rows that are made of it.

Numbers, flags and bytes come as they are. Dates, times and decimals come as the text that the database shows, many at a time, and are
read here: the adapter's own way has milliseconds, and this machine's zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.jdbc.bridge import ResultColumn
from poundlock.errors import DefinitionError, TerminalError

# Of java.sql.Types.
BIT, TINYINT, BIGINT, INTEGER, SMALLINT, REAL, DOUBLE, VARCHAR, BOOLEAN, VARBINARY = -7, -6, -5, 4, 5, 7, 8, 12, 16, -3
DATE, TIMESTAMP, TIMESTAMP_TZ = 91, 93, 2014
_FLOATS, _DECIMALS, _BYTES = (6, 8), (2, 3), (-2, -3, -4, 2004)
_UTC, _PLAIN = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
# Code to (signed, without a sign): one without a sign needs the next wider type.
_WHOLE: dict[int, tuple[pa.DataType, pa.DataType]] = {
    TINYINT: (pa.int8(), pa.int16()),
    SMALLINT: (pa.int16(), pa.int32()),
    INTEGER: (pa.int32(), pa.int64()),
    BIGINT: (pa.int64(), pa.decimal128(20, 0)),
}
_WIDER = {TINYINT: SMALLINT, SMALLINT: INTEGER, INTEGER: BIGINT, BIGINT: VARCHAR}
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class JdbcColumn:
    """One column of a table or query.

    Args:
        name: in the rows.
        source: what the database calls it.
        code: of its type, as java.sql.Types numbers them.
        type: what the database calls its type.
        precision, scale: digits in all, and behind the point.
        signed: whether it has negative numbers.
    """

    name: str
    source: str
    code: int
    type: str
    precision: int = 0
    scale: int = 0
    signed: bool = True

    @classmethod
    def of(cls, column: ResultColumn, name: str) -> JdbcColumn:
        """Return a column of a result under its name in the rows."""
        return cls(name, column.name, column.code, column.type, column.precision, column.scale, column.signed)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type its values get."""
        word = self.type.lower()
        if word == "year":  # MySQL's; its drivers call it a date
            return pa.int32()
        if self.code in _WHOLE:
            # PostgreSQL's oid has no sign, and is given as a wider one that has.
            return _WHOLE[self.code][not self.signed and word.endswith("unsigned")]
        if self.code == BOOLEAN or (self.code == BIT and self.precision <= 1):
            return pa.bool_()
        if self.code == REAL:
            return pa.float32()
        if self.code in _FLOATS and word != "money":
            return pa.float64()
        if self.code in _DECIMALS and 0 <= self.scale <= self.precision <= _MOST_DIGITS and self.precision:
            return pa.decimal128(self.precision, self.scale)
        if self.code in _BYTES:
            return pa.binary()
        if self.code == DATE:
            return pa.date32()
        if self.code in (TIMESTAMP, TIMESTAMP_TZ):
            return _UTC if self.is_instant else _PLAIN
        return pa.string()

    @property
    def is_instant(self) -> bool:
        """Whether its times are moments, and not what a clock on a wall shows."""
        # MySQL calls those TIMESTAMP that are kept in UTC, and the others DATETIME; elsewhere TIMESTAMP is without a zone.
        return self.code == TIMESTAMP_TZ or self.type.lower() in (
            "timestamptz",
            "timestamp with time zone",
            MYSQL_INSTANT,
        )

    @property
    def asked(self) -> int:
        """As what JDBC is asked for it, as java.sql.Types numbers types."""
        kind = self.arrow
        if pa.types.is_binary(kind):
            return VARBINARY
        if pa.types.is_boolean(kind) or pa.types.is_float32(kind):
            return BOOLEAN if pa.types.is_boolean(kind) else REAL
        if pa.types.is_float64(kind):
            return DOUBLE
        if self.code in _WHOLE and kind != _WHOLE[self.code][0]:
            return _WIDER[self.code]
        return self.code if self.code in _WHOLE else VARCHAR

    def read(self, values: pa.Array, what: str) -> pa.Array:
        """Return values that were asked for as those of the column.

        Raises:
            TerminalError: one has no place in the Arrow type, such as the date "infinity".
        """
        kind = self.arrow
        if values.type == kind:
            return values
        try:
            if pa.types.is_timestamp(kind):
                return _times(values, kind)
            return pc.cast(values, kind)
        except pa.ArrowInvalid as error:
            raise TerminalError(
                f"column {self.name!r} of {what} has a value that is no {kind}: {error}",
                next='mend the value, leave it out with where=…, or make it text: query="SELECT CAST(… AS VARCHAR(50)) …"',
            ) from None


MYSQL_INSTANT = "mysql timestamp"
"""What stands for the name of MySQL's type of moments."""


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Digits beyond a microsecond, which Derby and Oracle have, are cut, as Spark does.
    short = pc.replace_substring_regex(values, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(short, r"[+-]\d\d(:?\d\d)?$|Z$")
    if kind.tz is None or not pc.any(zoned).as_py():
        return pc.cast(pc.cast(short, _PLAIN), kind)
    # "2024-02-29 12:00:00 +02:00" is how some databases write it.
    return pc.cast(pc.replace_substring_regex(short, r" ([+-]\d\d)", r"\1"), kind)


def chosen(
    described: Sequence[ResultColumn], wanted: Sequence[str] | None, what: str, product: str
) -> tuple[JdbcColumn, ...]:
    """Return the columns that are wanted, as rows have them.

    Raises:
        DefinitionError: one is not there, or has no name of its own.
    """
    described = [_of_product(column, product) for column in described]
    names = [column.name for column in described]
    if not names or (wanted is not None and not wanted):
        raise DefinitionError(
            f"{what} has no columns to read, and rows without any cannot be written",
            next="name a table with columns, or leave columns=… out",
        )
    if len(set(names)) != len(names) or "" in names:
        raise DefinitionError(
            f"{what} has a column without a name, or two of one name: {', '.join(names)}",
            next="name each column in the query with AS",
        )
    if wanted is None:
        return tuple(JdbcColumn.of(column, column.name) for column in described)
    return tuple(JdbcColumn.of(one_of(described, name, what), name) for name in wanted)


def one_of(described: Sequence[ResultColumn], name: str, what: str) -> ResultColumn:
    """Return the column of a name, in any case of its letters. Raises DefinitionError where there is none."""
    exact = [column for column in described if column.name == name]
    alike = exact or [column for column in described if column.name.lower() == name.lower()]
    if len(alike) != 1:
        raise DefinitionError(
            f"{what} has no column {name!r}; it has {', '.join(column.name for column in described)}",
            next="name one of them, in its own case of letters where two differ by that alone",
        )
    return alike[0]


def _of_product(column: ResultColumn, product: str) -> ResultColumn:
    if column.type.upper() == "TIMESTAMP" and column.code == TIMESTAMP and product == "mysql":
        return ResultColumn(column.name, column.code, MYSQL_INSTANT, column.precision, column.scale, column.signed)
    return column
