"""A table as the CREATE TABLE statement that makes it: what SHOW CREATE TABLE shows, and what a catalog keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from poundlock.errors import DefinitionError
from poundlock.sql.catalog import CatalogDescription
from poundlock.sql.dialect import Flink
from poundlock.sql.tables import ComputedColumn, ConnectorColumn, TableColumn, TableDefinition, table_of


def create_table_text(name: Sequence[str], table: TableDefinition) -> str:
    """Return the statement that makes a table.

    Args:
        name: of the table, with what stands before its dots.

    Raises:
        DefinitionError: an expression of it cannot be written so that it is read again as what it is.
    """
    parts = [f"  {each}" for each in _parts(table)]
    kind = "TEMPORARY TABLE" if table.is_temporary else "TABLE"
    lines = [f"CREATE {kind} {'.'.join(map(quoted_name, name))} (", ",\n".join(parts), ")"]
    if table.comment is not None:
        lines.append(f"COMMENT {_text(table.comment)}")
    if table.partitioned_by:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted_name, table.partitioned_by))})")
    if table.options:
        options = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in table.options.items())
        lines += ["WITH (", options, ")"]
    return "\n".join(lines)


def create_catalog_text(name: str, catalog: CatalogDescription) -> str:
    """Return the statement that makes a catalog."""
    comment = [] if catalog.comment is None else [f"COMMENT {_text(catalog.comment)}"]
    options = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in catalog.options.items())
    return "\n".join([f"CREATE CATALOG {quoted_name(name)}", *comment, "WITH (", options, ")"])


def table_in(text: str) -> TableDefinition:
    """Return the table that a statement makes.

    Raises:
        DefinitionError: it is no CREATE TABLE statement.
    """
    created = _parsed(text)
    if not isinstance(created, exp.Create):
        raise DefinitionError(f"{text:.60} is no CREATE TABLE", next="look at what wrote the catalog")
    return table_of(created, text)


def created_in(text: str) -> exp.Create:
    """Return a CREATE statement that is kept as a text; raises as `table_in`."""
    created = _parsed(text)
    if not isinstance(created, exp.Create):
        raise DefinitionError(f"{text:.60} is no CREATE statement", next="look at what wrote the catalog")
    return created


def expression_text(expression: exp.Expr) -> str:
    """Return an expression as it is written in a script.

    Raises:
        DefinitionError: it would not be read again as what it is.
    """
    try:
        text = expression.sql(dialect=Flink, identify=True, normalize_functions=False)
        again = parse_one(text, read=Flink)
    except (SqlglotError, ValueError):
        again, text = None, ""
    if again is None or _with_quotes(again) != _with_quotes(expression):
        raise DefinitionError(
            f"the expression {text or expression.key.upper():.60} cannot be kept as a text",
            next="write it with functions such as f(x, y), or in a view",
        )
    return text


def _with_quotes(expression: exp.Expr) -> exp.Expr:
    def quoted(node: exp.Expr) -> exp.Expr:
        return exp.to_identifier(node.name, quoted=True) if isinstance(node, exp.Identifier) else node

    return expression.copy().transform(quoted)


def _parts(table: TableDefinition) -> Iterator[str]:
    for column in table.columns:
        comment = "" if column.comment is None else f" COMMENT {_text(column.comment)}"
        yield f"{quoted_name(column.name)} {_column(column)}{comment}"
    if table.watermark is not None:
        of = ".".join(map(quoted_name, table.watermark.column))
        yield f"WATERMARK FOR {of} AS {expression_text(table.watermark.expression)}"
    if table.primary_key:
        name = quoted_name("PK_" + "_".join(table.primary_key))
        yield f"CONSTRAINT {name} PRIMARY KEY ({', '.join(map(quoted_name, table.primary_key))}) NOT ENFORCED"


def _column(column: TableColumn) -> str:
    if isinstance(column, ComputedColumn):
        return f"AS {expression_text(column.expression)}"
    type_ = str(column.type) if column.type.is_nullable else f"{column.type} NOT NULL"
    if not isinstance(column, ConnectorColumn):
        return type_
    key = "" if column.key == column.name else f" FROM {_text(column.key)}"
    return f"{type_} METADATA{key}{' VIRTUAL' if column.is_virtual else ''}"


def quoted_name(name: str) -> str:
    """Return a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _parsed(text: str) -> exp.Expr:
    try:
        return parse_one(text, read=Flink)
    except SqlglotError as error:
        raise DefinitionError(f"{text:.60} is no statement: {error}", next="look at what wrote the catalog") from None
