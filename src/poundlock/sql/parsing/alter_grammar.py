"""The grammar of ALTER TABLE and ALTER VIEW, which sqlglot reads as other databases write them."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType


class AlterColumns(exp.Expression):
    """ADD or MODIFY of ALTER TABLE: columns, a watermark, a primary key."""

    arg_types: ClassVar = {"this": True, "expressions": True}


class DropParts(exp.Expression):
    """DROP of ALTER TABLE: columns, or else the words of what goes, such as WATERMARK."""

    arg_types: ClassVar = {"this": False, "expressions": False}


class ResetOptions(exp.Expression):
    """RESET ('key', …) of ALTER TABLE."""

    arg_types: ClassVar = {"expressions": True}


class AlterQuery(exp.Expression):
    """AS query of ALTER VIEW, with the text of the query."""

    arg_types: ClassVar = {"this": True, "text": True}


class AlterGrammar(Parser):
    """A parser with the statements that alter tables and views."""

    def _parse_alter(self) -> exp.Alter | exp.Command:
        kind = self._match_set((TokenType.TABLE, TokenType.VIEW)) and self._prev.text.upper()
        if not kind:
            self.raise_error("Expected TABLE, VIEW, DATABASE, FUNCTION or CATALOG behind ALTER")
        exists, name = self._parse_exists(), self._parse_table_parts(schema=True)
        action = self._parse_alter_view() if kind == "VIEW" else self._parse_alter_table()
        return self.expression(exp.Alter(this=name, kind=kind, exists=exists, actions=[action]))

    def _parse_alter_view(self) -> exp.Expr | None:
        if self._match_text_seq("RENAME", "TO"):
            return self.expression(exp.AlterRename(this=self._parse_table_parts(schema=True)))
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected RENAME TO or AS behind the name of the view")
        begin, query = self._curr, self._parse_ddl_select()
        return self.expression(AlterQuery(this=query, text=exp.var(self._find_sql(begin, self._prev))))

    def _parse_alter_table(self) -> exp.Expr | None:
        if self._match_text_seq("RENAME", "TO"):
            return self.expression(exp.AlterRename(this=self._parse_table_parts(schema=True)))
        if self._match_text_seq("RENAME"):
            old = self._parse_altered_column()
            if not self._match_text_seq("TO"):
                self.raise_error("Expected TO behind the column")
            return self.expression(exp.RenameColumn(this=old, to=self._parse_altered_column()))
        if self._match(TokenType.SET):
            options = self._parse_wrapped_csv(self._parse_assignment)
            return self.expression(exp.AlterSet(expressions=options))
        if self._match_text_seq("RESET"):
            return self.expression(ResetOptions(expressions=self._parse_wrapped_csv(self._parse_string)))
        if self._match_texts(("ADD", "MODIFY")):
            return self._parse_alter_columns(self._prev.text.upper())
        if self._match(TokenType.DROP):
            return self._parse_alter_drop()
        self.raise_error("Expected ADD, MODIFY, DROP, RENAME, SET or RESET behind the name of the table")
        return None

    def _parse_alter_columns(self, word: str) -> exp.Expr:
        if self._match_text_seq("DISTRIBUTION", "BY"):
            self.raise_error("DISTRIBUTION is not there, since no table here has buckets", self._prev)
        schema = self._parse_schema() if self._match(TokenType.L_PAREN, advance=False) else None
        parts = [self._parse_constraint() or self._parse_field_def()] if schema is None else schema.expressions
        return self.expression(AlterColumns(this=word, expressions=parts))

    def _parse_alter_drop(self) -> exp.Expr:
        if self._match(TokenType.PRIMARY_KEY):
            return self.expression(DropParts(this="PRIMARY KEY"))
        if self._match_text_seq("WATERMARK"):
            return self.expression(DropParts(this="WATERMARK"))
        if self._match_text_seq("CONSTRAINT"):
            return self.expression(DropParts(this="CONSTRAINT", expressions=[self._parse_altered_column()]))
        wrapped = self._match(TokenType.L_PAREN, advance=False)
        columns = self._parse_wrapped_csv(self._parse_altered_column) if wrapped else [self._parse_altered_column()]
        return self.expression(DropParts(expressions=columns))

    def _parse_altered_column(self) -> exp.Expr | None:
        name = self._parse_id_var()
        if name is None:
            self.raise_error("Expected a name")
        return name
