"""The types of Flink SQL: what a declaration says, how Flink writes it, and the Arrow type of its values.

Limits and defaults are Flink 2.3's: CHAR is CHAR(1), DECIMAL is DECIMAL(10, 0), TIMESTAMP is TIMESTAMP(6), TIME is TIME(0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import pyarrow as pa
from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.errors import shown

Root = Literal[
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR", "VARCHAR", "BINARY",
    "VARBINARY", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "MULTISET", "ROW",
    "INTERVAL_YEAR_MONTH", "INTERVAL_DAY_TIME", "NULL",
]  # fmt: skip
UNDECLARED: Mapping[Root, str] = {
    "INTERVAL_YEAR_MONTH": "INTERVAL MONTH", "INTERVAL_DAY_TIME": "INTERVAL SECOND(3)", "NULL": "NULL",
}  # fmt: skip
"""How the types are written that only expressions have, no columns. Values of intervals are whole months, or milliseconds."""
LONGEST = 2_147_483_647
"""The length of STRING and BYTES."""

_PLAIN: Mapping[exp.DType, Root] = {
    exp.DType.BOOLEAN: "BOOLEAN", exp.DType.TINYINT: "TINYINT", exp.DType.SMALLINT: "SMALLINT", exp.DType.INT: "INT",
    exp.DType.BIGINT: "BIGINT", exp.DType.FLOAT: "FLOAT", exp.DType.DOUBLE: "DOUBLE", exp.DType.DATE: "DATE",
}  # fmt: skip
_ARROW: Mapping[Root, pa.DataType] = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "CHAR": pa.string(), "VARCHAR": pa.string(),
    "BINARY": pa.binary(), "VARBINARY": pa.binary(), "DATE": pa.date32(), "TIME": pa.time32("ms"),
    "INTERVAL_YEAR_MONTH": pa.int32(), "INTERVAL_DAY_TIME": pa.int64(), "NULL": pa.null(),
}  # fmt: skip
_MICROS = 6  # digits of a second that a timestamp has at most before it counts nanoseconds


@dataclass(frozen=True, slots=True)
class Sized:
    """A type with sizes: its root, what they are by default, and the least and the greatest of each."""

    root: Root
    default: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]


_SIZED: Mapping[exp.DType, Sized] = {
    exp.DType.CHAR: Sized("CHAR", (1,), ((1, LONGEST),)),
    exp.DType.VARCHAR: Sized("VARCHAR", (1,), ((1, LONGEST),)),
    exp.DType.BINARY: Sized("BINARY", (1,), ((1, LONGEST),)),
    exp.DType.VARBINARY: Sized("VARBINARY", (1,), ((1, LONGEST),)),
    exp.DType.DECIMAL: Sized("DECIMAL", (10, 0), ((1, 38), (0, 38))),
    exp.DType.TIME: Sized("TIME", (0,), ((0, 9),)),
    exp.DType.TIMESTAMP: Sized("TIMESTAMP", (6,), ((0, 9),)),
    exp.DType.TIMESTAMPLTZ: Sized("TIMESTAMP_LTZ", (6,), ((0, 9),)),
}


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type.

    Args:
        sizes: length, or precision and scale.
        of: the types of elements, of key and value, of fields.
        names: of the fields of a row.
    """

    root: Root
    sizes: tuple[int, ...] = ()
    of: tuple[SqlType, ...] = ()
    names: tuple[str, ...] = ()
    is_nullable: bool = True

    def __str__(self) -> str:
        """Return it as DESCRIBE writes it, without NOT NULL of its own."""
        if self.sizes == (LONGEST,) and self.root in ("VARCHAR", "VARBINARY"):
            return "STRING" if self.root == "VARCHAR" else "BYTES"
        if self.sizes:
            return f"{self.root}({', '.join(map(str, self.sizes))})"
        if not self.of and self.root != "ROW":
            return UNDECLARED.get(self.root, self.root)
        inner = [str(each) if each.is_nullable else f"{each} NOT NULL" for each in self.of]
        if self.root == "ROW":
            inner = [f"`{name}` {each}" for name, each in zip(self.names, inner, strict=True)]
        return f"{self.root}<{', '.join(inner)}>"

    def not_null(self) -> SqlType:
        """Return the type of the same values without NULL."""
        return self.with_null(False)

    def with_null(self, is_nullable: bool = True) -> SqlType:
        """Return the type of the same values, with NULL or without."""
        return self if self.is_nullable == is_nullable else replace(self, is_nullable=is_nullable)

    @property
    def arrow(self) -> pa.DataType:
        """The type of a column of its values."""
        plain = _ARROW.get(self.root)
        if plain is not None:
            return plain
        if self.root == "DECIMAL":
            return pa.decimal128(*self.sizes)
        if self.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            unit = "us" if self.sizes[0] <= _MICROS else "ns"
            return pa.timestamp(unit, tz="UTC" if self.root == "TIMESTAMP_LTZ" else None)
        if self.root == "ROW":
            fields = zip(self.names, self.of, strict=True)
            return pa.struct([pa.field(name, each.arrow, each.is_nullable) for name, each in fields])
        if self.root == "ARRAY":
            return pa.list_(pa.field("item", self.of[0].arrow, self.of[0].is_nullable))
        counts = pa.int32() if self.root == "MULTISET" else self.of[1].arrow
        return pa.map_(self.of[0].arrow, counts)


STRING, BYTES = SqlType("VARCHAR", (LONGEST,)), SqlType("VARBINARY", (LONGEST,))


def type_of(declared: exp.Expr) -> SqlType:
    """Return the type that a declaration says.

    Raises:
        DefinitionError: there is no such type here, or its sizes are out of bounds.
    """
    if not isinstance(declared, exp.DataType):
        raise _unknown(declared)
    made = _type_of(declared)
    return made if declared.args.get("nullable") is not False else made.not_null()


def _type_of(declared: exp.DataType) -> SqlType:
    kind, inner = declared.this, declared.expressions
    if kind in _PLAIN:
        return SqlType(_PLAIN[kind])
    if kind is exp.DType.TEXT:
        return STRING
    if kind is exp.DType.USERDEFINED and str(declared.args.get("kind", "")).upper() == "BYTES":
        return BYTES
    if kind in _SIZED:
        return _sized(_SIZED[kind], [each.this for each in inner])
    if kind is exp.DType.STRUCT:
        return SqlType("ROW", of=tuple(map(_field, inner)), names=tuple(each.name for each in inner))
    of = tuple(map(type_of, inner))
    if kind is exp.DType.ARRAY and len(of) == 1:
        return SqlType("ARRAY", of=of)
    if kind is exp.DType.LIST and len(of) == 1:
        return SqlType("MULTISET", of=of)
    if kind is exp.DType.MAP and len(of) == 2:
        return SqlType("MAP", of=of)
    raise _unknown(declared)


def _sized(kind: Sized, given: Sequence[exp.Expr]) -> SqlType:
    sizes = [int(each.name) if isinstance(each, exp.Literal) and each.name.isdigit() else -1 for each in given]
    if len(sizes) > len(kind.default):
        raise DefinitionError(
            f"{kind.root} with {len(sizes)} sizes",
            next=f"give at most {len(kind.default)}, as in {SqlType(kind.root, kind.default)}",
        )
    whole = (*sizes, *kind.default[len(sizes) :])
    for size, (least, most) in zip(whole, kind.limits, strict=True):
        if not least <= size <= most:
            raise DefinitionError(f"{kind.root} with a size that is not {least} to {most}", next="give another size")
    if kind.root == "DECIMAL" and whole[1] > whole[0]:
        raise DefinitionError(
            f"DECIMAL({whole[0]}, {whole[1]}), whose scale is above its precision",
            next="give DECIMAL(precision, scale)",
        )
    return SqlType(kind.root, whole)


def _field(declared: exp.Expr) -> SqlType:
    if not isinstance(declared, exp.ColumnDef) or declared.kind is None:
        raise DefinitionError(f"{shown(declared)} is no field of a ROW", next="write ROW<name type, name type>")
    made = type_of(declared.kind)
    never_null = any(isinstance(each.kind, exp.NotNullColumnConstraint) for each in declared.constraints)
    return made.not_null() if never_null else made


def _unknown(declared: exp.Expr) -> DefinitionError:
    kinds = sorted({"STRING", "BYTES", *get_args(Root)} - set(UNDECLARED))
    return DefinitionError(f"there is no type {shown(declared)}", next=f"use one of {', '.join(kinds)}")
