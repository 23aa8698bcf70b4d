"""CREATE TABLE as a definition: columns, watermark, key, partitions and options, checked as far as the statement alone tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.dialect import MetadataColumn
from poundlock.sql.errors import SqlError, shown
from poundlock.sql.types import SqlType, type_of


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A column of the data."""

    name: str
    type: SqlType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorColumn:
    """A column that the connector fills in: METADATA.

    Args:
        key: what the connector calls it; the column's name where nothing else is said.
        is_virtual: whether it is left out when the table is written to.
    """

    name: str
    type: SqlType
    key: str
    is_virtual: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that an expression over the others gives."""

    name: str
    expression: exp.Expr
    comment: str | None = None


_PARTS = exp.ColumnDef, exp.Constraint, exp.PrimaryKey, exp.WatermarkColumnConstraint
TableColumn = PhysicalColumn | ConnectorColumn | ComputedColumn


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """WATERMARK FOR column AS expression; the path of a field where it is one of a row."""

    column: tuple[str, ...]
    expression: exp.Expr


@dataclass(frozen=True, slots=True)
class LikeClause:
    """LIKE table (…): what is taken over of it, in Flink's words such as ("EXCLUDING", "OPTIONS")."""

    table: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a CREATE TABLE statement says.

    Args:
        name: with its catalog and database, as far as the statement has them.
        query: what the table is created from, and filled with.
        script: that the statement is of, for errors in its expressions.
        event_time: the column of event time that rows have already, whose watermark they bring along.
    """

    name: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    watermark: WatermarkClause | None
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    is_temporary: bool
    if_not_exists: bool
    like: LikeClause | None
    query: exp.Query | None
    script: str = ""
    event_time: str | None = None


def table_of(created: exp.Create, script: str, known: Collection[str] = ()) -> TableDefinition:
    """Return the definition that a CREATE TABLE statement makes.

    Args:
        script: what the statement is of, for errors.
        known: columns that a key may name, and that the statement does not.

    Raises:
        SqlError: a column is there twice, a type or clause is unknown, a key is enforced or of no column, and the like.
    """
    return _Reader(created, script, known).table()


def name_of(table: exp.Expr) -> tuple[str, ...]:
    """Return the name of a table with its catalog and database, as far as they are written.

    Raises:
        DefinitionError: it is no name.
    """
    if isinstance(table, exp.Schema):
        table = table.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise DefinitionError(
            f"{shown(table)} is no name of a table", next="write a name, in backquotes where it is a word"
        )
    return tuple(
        each.name for each in (table.args.get("catalog"), table.args.get("db"), table.this) if each is not None
    )


class _Reader:
    def __init__(self, created: exp.Create, script: str, known: Collection[str] = ()) -> None:
        self._created, self._script, self._others = created, script, known
        schema = created.this
        self._parts: Sequence[exp.Expr] = schema.expressions if isinstance(schema, exp.Schema) else ()
        properties = created.args.get("properties")
        self._properties: Sequence[exp.Expr] = properties.expressions if properties is not None else ()

    def table(self) -> TableDefinition:
        for part in self._parts:
            if not isinstance(part, _PARTS):
                what = f"the column {part.name} has neither a type nor an expression"
                raise self._error(part, what, "write name TYPE, or name AS expression")
        defined = [each for each in self._parts if isinstance(each, exp.ColumnDef)]
        columns = tuple(map(self._column, defined))
        seen: set[str] = set()
        for part in defined:
            if part.name in seen:
                raise self._error(
                    part, f"the column {part.name} is there twice", "give one of them another name", "duplicate_column"
                )
            if part.args.get("position") is not None:
                raise self._error(
                    part,
                    f"a place for the column {part.name}",
                    "leave FIRST or AFTER out: columns stand as they are written",
                )
            seen.add(part.name)
        watermarks = [each for each in self._parts if isinstance(each, exp.WatermarkColumnConstraint)]
        if len(watermarks) > 1:
            raise self._error(watermarks[1], "a table has one watermark", "leave one WATERMARK FOR out")
        known = self._known()
        query = self._created.expression
        more_follow = known.like is not None or query is not None  # columns that the statement does not name
        return TableDefinition(
            name=name_of(self._created.this),
            columns=columns,
            watermark=self._watermark(watermarks[0]) if watermarks else None,
            primary_key=tuple(self._primary_key(seen | {*self._others}, more_follow=more_follow)),
            partitioned_by=self._partitions(known.partitions, seen, more_follow=more_follow),
            options=known.options,
            comment=known.comment,
            is_temporary=known.is_temporary,
            if_not_exists=bool(self._created.args.get("exists")),
            like=known.like,
            query=query if isinstance(query, exp.Query) else None,
            script=self._script,
        )

    def _column(self, part: exp.ColumnDef) -> TableColumn:
        made: exp.ComputedColumnConstraint | MetadataColumn | None = None
        comment: str | None = None
        never_null = False
        for constraint in part.constraints:
            kind = _kind(constraint)
            if isinstance(kind, exp.ComputedColumnConstraint | MetadataColumn):
                made = kind
            elif isinstance(kind, exp.CommentColumnConstraint):
                comment = kind.name
            elif isinstance(kind, exp.NotNullColumnConstraint):
                never_null = not kind.args.get("allow_null")
            elif not isinstance(kind, exp.PrimaryKeyColumnConstraint):
                raise self._error(part, f"{shown(constraint)} is no part of a column of Flink's", "leave it out")
        if isinstance(made, exp.ComputedColumnConstraint):
            if part.kind is not None:
                what = f"the column {part.name} has a type and an expression"
                raise self._error(part, what, "leave the type out: write name AS CAST(expression AS TYPE)")
            return ComputedColumn(part.name, made.this, comment)
        try:
            type_ = type_of(part.kind or exp.DataType())
        except DefinitionError as error:
            raise self._error(part, f"{part.name}: {error.what}", error.next) from None
        type_ = type_.not_null() if never_null or self._is_key(part) else type_
        if made is None:
            return PhysicalColumn(part.name, type_, comment)
        key = made.args["key"]
        return ConnectorColumn(
            part.name, type_, part.name if key is None else key.name, bool(made.args["virtual"]), comment
        )

    def _is_key(self, part: exp.ColumnDef) -> bool:
        """Return whether a column is the primary key by itself, or one of the columns of it: NULL is not among its values."""
        if any(isinstance(_kind(each), exp.PrimaryKeyColumnConstraint) for each in part.constraints):
            return True
        return any(part.name == each.name for key in self._keys() for each in key.expressions)

    def _keys(self) -> Iterator[exp.PrimaryKey]:
        for part in self._parts:
            if isinstance(part, exp.PrimaryKey | exp.Constraint):
                yield from part.find_all(exp.PrimaryKey)

    def _primary_key(self, columns: set[str], *, more_follow: bool) -> Iterator[str]:
        of_columns = [
            (part, _kind(constraint))
            for part in self._parts
            if isinstance(part, exp.ColumnDef)
            for constraint in part.constraints
            if isinstance(_kind(constraint), exp.PrimaryKeyColumnConstraint)
        ]
        keys: list[tuple[exp.Expr, exp.Expr, list[str]]] = [(part, key, [part.name]) for part, key in of_columns]
        keys += [(key, key, [each.name for each in key.expressions]) for key in self._keys()]
        if len(keys) > 1:
            raise self._error(
                keys[1][0], "a table has one primary key", "name all of its columns in one PRIMARY KEY (…) NOT ENFORCED"
            )
        for part, key, names in keys:
            if "NOT ENFORCED" not in [str(each).upper() for each in key.args.get("options") or ()]:
                raise self._error(
                    part,
                    "a primary key is not enforced: nobody looks at all rows",
                    "write PRIMARY KEY (…) NOT ENFORCED",
                    "primary_key",
                )
            for name in names:
                if name not in columns and not more_follow:
                    raise self._unknown(part, name, columns)
            yield from names

    def _watermark(self, part: exp.WatermarkColumnConstraint) -> WatermarkClause:
        column = part.this
        parts = column.parts if isinstance(column, exp.Column) else [column]
        return WatermarkClause(tuple(each.name for each in parts), part.expression)

    def _partitions(self, by: exp.Expr | None, columns: set[str], *, more_follow: bool) -> tuple[str, ...]:
        if by is None:
            return ()
        names = tuple(each.name for each in (by.expressions or [by]))
        for name in names:
            if name not in columns and not more_follow:
                raise self._unknown(by, name, columns)
        return names

    def _known(self) -> _Known:
        known = _Known({})
        for each in self._properties:
            if isinstance(each, exp.TemporaryProperty):
                known.is_temporary = True
            elif isinstance(each, exp.SchemaCommentProperty):
                known.comment = each.name
            elif isinstance(each, exp.PartitionedByProperty):
                known.partitions = each.this
            elif isinstance(each, exp.LikeProperty):
                kept = [tuple(word.name.partition(" ")[::2]) for word in each.expressions]
                known.like = LikeClause(name_of(each.this), tuple((how, what) for how, what in kept))
            elif type(each) is exp.Property and isinstance(each.this, exp.Literal):
                if each.name in known.options:
                    raise self._error(each, f"the option {each.name!r} is there twice", "leave one of them out")
                known.options[each.name] = each.args["value"].name
            else:
                raise self._error(
                    each,
                    f"{shown(each)} is no clause of CREATE TABLE",
                    "write COMMENT, PARTITIONED BY, WITH, LIKE or AS",
                )
        return known

    def _unknown(self, part: exp.Expr, name: str, columns: set[str]) -> SqlError:
        return self._error(
            part,
            f"there is no column {name}",
            did_you_mean(name, columns, f"use one of {', '.join(sorted(columns))}"),
            "unknown_column",
        )

    def _error(self, part: exp.Expr, what: str, next: str, kind: str = "other") -> SqlError:
        return SqlError.at(part, what, script=self._script, next=next, kind=kind)


def _kind(constraint: exp.Expr) -> exp.Expr:
    """Return what a constraint of a column is; some stand there by themselves, such as Oracle's IN and OUT of parameters."""
    return constraint.kind if isinstance(constraint, exp.ColumnConstraint) else constraint


@dataclass
class _Known:
    """What the clauses behind the columns say."""

    options: dict[str, str]
    comment: str | None = None
    is_temporary: bool = False
    partitions: exp.Expr | None = None
    like: LikeClause | None = None
