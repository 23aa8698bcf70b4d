"""ALTER TABLE and ALTER VIEW: each gives another definition, which takes the place of the one before as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.query import QueryAnalysis
from poundlock.sql.analysis.tables import scanned
from poundlock.sql.catalog import Catalogs, Relation, ViewDefinition, view_of
from poundlock.sql.create_text import quoted_name
from poundlock.sql.parsing.alter_grammar import AlterColumns, AlterQuery, DropParts, ResetOptions
from poundlock.sql.tables import ComputedColumn, PhysicalColumn, TableColumn, TableDefinition, name_of, table_of


def altered(catalogs: Catalogs, analysis: Analysis, alter: exp.Alter) -> None:
    """Do what an ALTER statement says.

    Raises:
        SqlError, DefinitionError: it cannot be done; nothing is.
    """
    name = name_of(alter.this)
    try:
        _, relation = catalogs.find(name)
    except DefinitionError as error:
        if alter.args.get("exists"):
            return
        raise analysis.error(alter.this, error.what, error.next, "unknown_table") from None
    (action,) = alter.args["actions"]
    if isinstance(relation, ViewDefinition) != (alter.args["kind"] == "VIEW"):
        is_view = isinstance(relation, ViewDefinition)
        what = f"{'.'.join(name)} is a {'view' if is_view else 'table'}"
        raise analysis.error(alter.this, what, f"write ALTER {'VIEW' if is_view else 'TABLE'}")
    if isinstance(action, exp.AlterRename):
        catalogs.rename(name, name_of(action.this))
        return
    changed: Relation
    if isinstance(relation, ViewDefinition):
        changed = _with_query(catalogs, analysis, name, relation, action)
    else:
        changed = _Alteration(analysis, relation).by(action)
        scanned(analysis.of_script(changed.script), catalogs.full_name(name), changed)
    catalogs.replace(name, changed)


def _with_query(
    catalogs: Catalogs, analysis: Analysis, name: Sequence[str], view: ViewDefinition, action: AlterQuery
) -> ViewDefinition:
    """Return a view with another query, whose columns have the names that the query gives them."""
    if not isinstance(action.this, exp.Query):
        raise analysis.error(action, "a view without a query", "write ALTER VIEW name AS SELECT …", "syntax")
    QueryAnalysis(analysis).relation(action.this)
    written = ".".join(map(quoted_name, name))
    text = f"CREATE VIEW {written} AS {action.args['text'].name}"
    created = exp.Create(this=exp.to_table(name[-1]), kind="VIEW", expression=action.this)
    made = view_of(created, text, catalogs.catalog, catalogs.database, analysis.script)
    return replace(made, comment=view.comment)


class _Alteration:
    """A change of one table."""

    def __init__(self, analysis: Analysis, table: TableDefinition) -> None:
        self._analysis, self._table = analysis, table

    def by(self, action: exp.Expr) -> TableDefinition:
        """Return the table as an action changes it."""
        if isinstance(action, exp.AlterSet):
            return self._set(action)
        if isinstance(action, ResetOptions):
            return self._reset(action)
        if isinstance(action, exp.RenameColumn):
            return self._renamed(action)
        if isinstance(action, DropParts):
            return self._dropped(action)
        assert isinstance(action, AlterColumns)
        return self._with_parts(action, is_change=action.this == "MODIFY")

    # --- options --------------------------------------------------------------------------------------------------------

    def _set(self, action: exp.AlterSet) -> TableDefinition:
        changed: dict[str, str] = {}
        for each in action.expressions:
            pair = (each.this, each.args.get("expression"))
            if not isinstance(each, exp.EQ) or not all(isinstance(part, exp.Literal) for part in pair):
                raise self._error(each, "SET without a key, = and a value", "write SET ('key' = 'value')", "syntax")
            changed[each.this.name] = each.expression.name
        return replace(self._table, options={**self._table.options, **changed})

    def _reset(self, action: ResetOptions) -> TableDefinition:
        keys = [each.name for each in action.expressions]
        for key, node in zip(keys, action.expressions, strict=True):
            if key not in self._table.options:
                what = f"the table has no option {key!r}"
                raise self._error(node, what, did_you_mean(key, self._table.options, "leave it out"))
            if key == "connector":
                raise self._error(node, "a table without a connector", "SET ('connector' = '…') to another one")
        return replace(self._table, options={key: text for key, text in self._table.options.items() if key not in keys})

    # --- columns --------------------------------------------------------------------------------------------------------

    def _with_parts(self, action: AlterColumns, *, is_change: bool) -> TableDefinition:
        """Return the table with columns, a watermark or a key more, or with others in the place of those that it has."""
        parts, places = [each.copy() for each in action.expressions], []
        for part in parts:
            places.append(part.args.get("position"))
            part.set("position", None)
        columns = list(self._table.columns)
        created = exp.Create(this=exp.Schema(this=exp.to_table("altered"), expressions=parts), kind="TABLE")
        made = table_of(created, self._analysis.script, [each.name for each in columns])
        own = iter(made.columns)
        for part, place in zip(parts, places, strict=True):
            if isinstance(part, exp.ColumnDef):
                self._put(columns, part, next(own), place, is_change=is_change)
        watermark, key = self._table.watermark, self._table.primary_key
        if made.watermark is not None:
            self._refuse_unless(is_change == (watermark is not None), action, "a watermark", is_change=is_change)
            watermark = made.watermark
        if made.primary_key:
            self._refuse_unless(is_change == bool(key), action, "a primary key", is_change=is_change)
            key = made.primary_key
        columns = [_never_null(each) if each.name in key else each for each in columns]
        return replace(
            self._table,
            columns=tuple(columns),
            watermark=watermark,
            primary_key=key,
            script=self._analysis.script,
        )

    def _put(
        self,
        columns: list[TableColumn],
        part: exp.ColumnDef,
        made: TableColumn,
        place: exp.Expr | None,
        *,
        is_change: bool,
    ) -> None:
        """Put a column where it belongs."""
        names = [each.name for each in columns]
        if is_change:
            at = self._place_of(part, made.name, names)
            del columns[at], names[at]
        elif made.name in names:
            raise self._error(
                part, f"there is a column {made.name} already", "give another name, or write MODIFY", "duplicate_column"
            )
        else:
            at = len(columns)
        if place is not None and str(place.args["position"]).upper() == "FIRST":
            at = 0
        elif place is not None:
            at = self._place_of(part, place.this.name, names) + 1
        columns.insert(at, made)

    def _place_of(self, node: exp.Expr, name: str, names: Sequence[str]) -> int:
        if name not in names:
            next = did_you_mean(name, names, f"use one of {', '.join(names)}")
            raise self._error(node, f"there is no column {name}", next, "unknown_column")
        return names.index(name)

    def _refuse_unless(self, is_fit: bool, node: exp.Expr, what: str, *, is_change: bool) -> None:
        if not is_fit:
            is_there = f"the table has {what}" if not is_change else f"the table has not {what}"
            raise self._error(node, is_there, f"write {'ADD' if is_change else 'MODIFY'} in the place of {node.this}")

    def _renamed(self, action: exp.RenameColumn) -> TableDefinition:
        old, new = action.this.name, action.args["to"].name
        names = [each.name for each in self._table.columns]
        at = self._place_of(action, old, names)
        if new in names:
            raise self._error(action, f"there is a column {new} already", "give another name", "duplicate_column")
        self._refuse_used(action, old, key=False)
        columns = list(self._table.columns)
        columns[at] = replace(columns[at], name=new)
        key = tuple(new if each == old else each for each in self._table.primary_key)
        return replace(self._table, columns=tuple(columns), primary_key=key)

    def _dropped(self, action: DropParts) -> TableDefinition:
        what = action.args.get("this")
        if what == "WATERMARK":
            if self._table.watermark is None:
                raise self._error(action, "the table has no watermark", "leave DROP WATERMARK out")
            return replace(self._table, watermark=None)
        if what is not None:
            if not self._table.primary_key:
                raise self._error(action, "the table has no primary key", f"leave DROP {what} out")
            name = "PK_" + "_".join(self._table.primary_key)
            if what == "CONSTRAINT" and action.expressions[0].name != name:
                raise self._error(action, f"the table has no constraint {action.expressions[0].name}", f"write {name}")
            return replace(self._table, primary_key=())
        gone = [each.name for each in action.expressions]
        for name in gone:
            self._place_of(action, name, [each.name for each in self._table.columns])
        kept = replace(self._table, columns=tuple(each for each in self._table.columns if each.name not in gone))
        for name in gone:
            _Alteration(self._analysis, kept)._refuse_used(action, name, key=True)
        return kept

    def _refuse_used(self, node: exp.Expr, name: str, *, key: bool) -> None:
        """Refuse to take away the name of a column that another part of the table is made of."""
        users = [
            f"the column {each.name}"
            for each in self._table.columns
            if isinstance(each, ComputedColumn) and name in _names_in(each.expression)
        ]
        watermark = self._table.watermark
        if watermark is not None and name in (watermark.column[0], *_names_in(watermark.expression)):
            users.append("the watermark")
        if key and name in self._table.primary_key:
            users.append("the primary key")
        if name in self._table.partitioned_by:
            users.append("PARTITIONED BY")
        if users:
            raise self._error(
                node, f"the column {name} is used by {users[0]}", "change that first, or leave the column"
            )

    def _error(self, node: exp.Expr, what: str, next: str, kind: str = "other") -> Exception:
        return self._analysis.error(node, what, next, kind)


def _names_in(expression: exp.Expr) -> set[str]:
    """Return the columns that an expression names: of `a.b` the first part."""
    return {each.parts[0].name for each in expression.find_all(exp.Column)}


def _never_null(column: TableColumn) -> TableColumn:
    return replace(column, type=column.type.not_null()) if isinstance(column, PhysicalColumn) else column
