"""The dialect of Flink SQL: what sqlglot's own grammar has not, each rule once.

The grammar is that of Apache Flink 2.3. What a statement means is not decided here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.generator import Generator
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from poundlock.sql.parsing.alter_grammar import AlterGrammar


class TableArgument(exp.Expression):
    """An argument of a table function: `TABLE t`, perhaps with PARTITION BY."""

    arg_types: ClassVar = {"this": True, "partition_by": False}


class MetadataColumn(exp.Expression, exp.ColumnConstraintKind):
    """A column that a connector fills in: `METADATA FROM 'key' VIRTUAL`, both parts of which may be left out."""

    arg_types: ClassVar = {"key": False, "virtual": False}


class MatchRecognize(exp.MatchRecognize):
    """MATCH_RECOGNIZE, with Flink's WITHIN, and with SUBSET."""

    arg_types: ClassVar = {**exp.MatchRecognize.arg_types, "within": False, "subset": False}


class TypedLiteral(exp.Expression):
    """A literal of a date or time: `DATE '2026-01-05'`. A CAST of a text to that type is another thing."""

    arg_types: ClassVar = {"this": True, "to": True}


class TableHint(exp.Expression):
    """A hint behind the name of a table: its name, and the options of OPTIONS as a dict."""

    arg_types: ClassVar = {"this": True, "options": False}


_SPECIAL_SYNTAX = [
    "CAST",
    "TRY_CAST",
    "CEIL",
    "FLOOR",
    "EXTRACT",
    "TRIM",
    "SUBSTRING",
    "POSITION",
    "OVERLAY",
    "JSON_OBJECT",
    "JSON_OBJECTAGG",
]
_WITHOUT_PARENTHESES = ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"]
_NO_KEYWORDS = ("SESSION", "ISNULL", "NOTNULL")
_TIMES = exp.DType.DATE, exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPLTZ
_ON_NOTHING = ("NULL",), ("ERROR",), ("EMPTY", "ARRAY"), ("EMPTY", "OBJECT"), ("TRUE",), ("FALSE",), ("UNKNOWN",)


class FlinkParser(AlterGrammar):
    """The grammar."""

    failed_at: Token | None = None
    """Where the last error was seen."""

    # sqlglot makes functions of other databases' meaning of most names: the analysis has a table of Flink's. Aggregates stay.
    FUNCTIONS: ClassVar = {
        name: build
        for name, build in Parser.FUNCTIONS.items()
        if issubclass(exp.FUNCTION_BY_NAME.get(name, exp.Func), exp.AggFunc) or name == "ROW_NUMBER"
    }
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        "CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        **{word: lambda self: self._parse_without_parentheses() for word in _WITHOUT_PARENTHESES},
        "UNKNOWN": lambda self: self.expression(exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.BOOLEAN))),
    }
    TYPE_LITERAL_PARSERS: ClassVar = {
        kind: lambda self, this, to: self.expression(TypedLiteral(this=this, to=to)) for kind in _TIMES
    }
    CONSTRAINT_PARSERS: ClassVar = {
        **Parser.CONSTRAINT_PARSERS,
        "METADATA": lambda self: self._parse_metadata(),
        "WATERMARK": lambda self: self._parse_watermark(),
    }
    PROPERTY_PARSERS: ClassVar = {
        **Parser.PROPERTY_PARSERS,
        "DISTRIBUTED": lambda self: self._parse_distribution(),
    }
    SCHEMA_UNNAMED_CONSTRAINTS: ClassVar = {*Parser.SCHEMA_UNNAMED_CONSTRAINTS, "WATERMARK"}
    FUNCTION_PARSERS: ClassVar = {
        **{name: Parser.FUNCTION_PARSERS[name] for name in _SPECIAL_SYNTAX},
        "CEILING": Parser.FUNCTION_PARSERS["CEIL"],
        "JSON_ARRAY": lambda self: self._parse_json_array(),
        "JSON_ARRAYAGG": lambda self: self._parse_json_arrayagg(),
        "JSON_EXISTS": lambda self: self._parse_json_path("JSON_EXISTS"),
        "JSON_QUERY": lambda self: self._parse_json_path("JSON_QUERY"),
        "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
        "TIMESTAMPADD": lambda self: self._parse_with_unit("TIMESTAMPADD"),
        "TIMESTAMPDIFF": lambda self: self._parse_with_unit("TIMESTAMPDIFF"),
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Note the token, and go on as sqlglot does."""
        self.failed_at = token or self._curr or self._prev
        super().raise_error(message, self.failed_at)

    def _parse_as_command(self, start: Token) -> exp.Command:
        """Refuse what sqlglot would leave alone, where it is."""
        self.raise_error("Unexpected word", self._curr or self._prev)
        return exp.Command(this=start.text)

    def _parse_watermark(self) -> exp.Expr:
        self._match(TokenType.FOR)
        column = self._parse_column()
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected AS after the column of WATERMARK FOR")
        return self.expression(exp.WatermarkColumnConstraint(this=column, expression=self._parse_disjunction()))

    def _parse_distribution(self) -> exp.Expr:
        """Parse [BY [HASH | RANGE] (columns)] [INTO n BUCKETS]."""
        columns = None
        if self._match_text_seq("BY"):
            self._match_texts(("HASH", "RANGE"))
            columns = self._parse_wrapped_id_vars()
        buckets = self._parse_number() if self._match_text_seq("INTO") else None
        if buckets is not None:
            self._match_text_seq("BUCKETS")
        return self.expression(exp.DistributedByProperty(expressions=columns, buckets=buckets, kind="HASH"))

    def _parse_metadata(self) -> exp.Expr:
        key = self._parse_string() if self._match(TokenType.FROM) else None
        return self.expression(MetadataColumn(key=key, virtual=self._match_text_seq("VIRTUAL")))

    def _parse_json_array(self) -> exp.Expr:
        values = self._parse_csv(self._parse_disjunction)
        nulls = None
        for kind in ("NULL", "ABSENT"):
            if self._match_text_seq(kind, "ON", "NULL"):
                nulls = exp.var(f"{kind} ON NULL")
        return self.expression(exp.JSONArray(expressions=values, null_handling=nulls))

    def _parse_json_arrayagg(self) -> exp.Expr:
        item = self._parse_lambda()  # DISTINCT too
        nulls = self._parse_words(("NULL", "ON", "NULL"), ("ABSENT", "ON", "NULL"))
        return self.expression(exp.JSONArrayAgg(this=item, null_handling=None if nulls is None else nulls.name))

    def _parse_json_path(self, function: str) -> exp.Expr:
        """Parse the arguments of a function of a document and a path, and the words behind them, which become words of the call."""
        arguments = self._parse_csv(self._parse_disjunction)
        words: list[exp.Expr] = []
        if self._match(TokenType.RETURNING):
            arguments.append(self._parse_types() or exp.null())
        for behind in (("WITHOUT",), ("WITH", "CONDITIONAL"), ("WITH", "UNCONDITIONAL"), ("WITH",)):
            if self._match_text_seq(*behind):
                self._match_text_seq("ARRAY")
                if not self._match_text_seq("WRAPPER"):
                    self.raise_error(f"Expected WRAPPER in {function}")
                words.append(exp.var(f"{' '.join(behind)} WRAPPER"))
        for when in ("EMPTY", "ERROR"):
            words += [
                exp.var(" ".join((*do, "ON", when))) for do in _ON_NOTHING if self._match_text_seq(*do, "ON", when)
            ]
        return self.expression(exp.Anonymous(this=function, expressions=[*arguments, *words]))

    def _parse_without_parentheses(self) -> exp.Expr:
        name = self._prev
        self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN)  # which may stand there
        return self.expression(exp.Anonymous(this=name.text.upper())).update_positions(name)

    def _parse_with_unit(self, function: str) -> exp.Expr:
        """Parse the arguments of a function the first of which is a unit of time."""
        unit = self._advance_any()
        if not self._match(TokenType.COMMA):
            self.raise_error(f"Expected a unit of time, and a comma behind it, in {function}")
        rest = self._parse_csv(self._parse_disjunction)
        return self.expression(exp.Anonymous(this=function, expressions=[exp.var(unit.text if unit else ""), *rest]))

    def _parse_lambda(self, alias: bool = False) -> Any:
        if self._next and self._next.token_type is TokenType.FARROW:
            name = self._curr.text
            self._advance(2)
            return self.expression(exp.Kwarg(this=exp.var(name), expression=self._parse_lambda(alias)))
        if not self._match(TokenType.TABLE):
            return super()._parse_lambda(alias)
        table, keys = self._parse_table_parts(), None
        if self._match(TokenType.PARTITION_BY):
            # One column, or several in parentheses: a comma begins the next argument.
            wrapped = self._match(TokenType.L_PAREN, advance=False)
            keys = self._parse_wrapped_csv(self._parse_column) if wrapped else [self._parse_column()]
        return self.expression(TableArgument(this=table, partition_by=keys))

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        try:
            kind = super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        except TokenError:  # sqlglot reads a name as a type, and what is in its quotes may be anything
            self.raise_error("Expected a type")
            return None
        # What a list, map or CAST is of may be NOT NULL; of a column and of a field of a row that is a constraint.
        if with_collation and isinstance(kind, exp.DataType) and self._match_pair(TokenType.NOT, TokenType.NULL):
            kind.set("nullable", False)
        return kind

    def _parse_create_like(self) -> exp.LikeProperty:
        table, kept = self._parse_table_parts(schema=True), []
        if self._match(TokenType.L_PAREN):
            while self._match_texts(("INCLUDING", "EXCLUDING", "OVERWRITING")):
                how, what = self._prev.text.upper(), self._advance_any()
                kept.append(exp.var(f"{how} {what.text.upper() if what else ''}"))
            self._match_r_paren()
        return self.expression(exp.LikeProperty(this=table, expressions=kept))

    def _parse_match_recognize(self) -> exp.MatchRecognize | None:
        if not self._match(TokenType.MATCH_RECOGNIZE):
            return None
        self._match_l_paren()
        made = MatchRecognize(
            partition_by=self._parse_partition_by(),
            order=self._parse_order(),
            measures=self._parse_csv(self._parse_match_recognize_measure) if self._match_text_seq("MEASURES") else None,
            rows=self._parse_words(("ONE", "ROW", "PER", "MATCH"), ("ALL", "ROWS", "PER", "MATCH")),
            after=self._parse_skip(),
            pattern=self._parse_pattern(),
            within=self._parse_interval() if self._match_text_seq("WITHIN") else None,
            subset=self._parse_csv(self._parse_disjunction) if self._match_text_seq("SUBSET") else None,
            define=self._parse_csv(self._parse_name_as_expression) if self._match_text_seq("DEFINE") else None,
        )
        self._match_r_paren()
        made.set("alias", self._parse_table_alias())
        return self.expression(made)

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        this = this or self._parse_bitwise()
        if self._curr.token_type is TokenType.NOT and self._next.token_type is TokenType.NULL:
            return this  # NOT NULL belongs to a column, and is no short IS NOT NULL
        return super()._parse_range(this, parse_is)

    def _parse_join(self, *args: Any, **others: Any) -> exp.Join | None:
        begin = self._curr
        join = super()._parse_join(*args, **others)
        if join is None or begin.token_type is TokenType.COMMA or join.args.get("on") or join.args.get("using"):
            return join
        if join.args.get("kind") != "CROSS" and join.args.get("method") != "NATURAL":
            self.raise_error("Expected ON or USING behind the table that is joined")
        return join

    def _parse_table_parts(self, *args: Any, **others: Any) -> Any:
        table = super()._parse_table_parts(*args, **others)
        hints = []
        while self._match(TokenType.HINT):
            hints.append(_hint_in(self._prev.comments[0] if self._prev.comments else ""))
        if hints and table is not None:
            table.set("hints", hints)
        return table

    def _parse_words(self, *choices: tuple[str, ...]) -> exp.Expr | None:
        """Return the first of some sequences of words that comes next."""
        return next((exp.var(" ".join(words)) for words in choices if self._match_text_seq(*words)), None)

    def _parse_skip(self) -> exp.Expr | None:
        """Parse AFTER MATCH SKIP …."""
        if not self._match_text_seq("AFTER", "MATCH", "SKIP"):
            return None
        where = self._parse_words(("PAST", "LAST", "ROW"), ("TO", "NEXT", "ROW"), ("TO", "FIRST"), ("TO", "LAST"))
        if where is None:
            self.raise_error("Expected PAST LAST ROW, TO NEXT ROW, TO FIRST or TO LAST behind AFTER MATCH SKIP")
        elif where.name in ("TO FIRST", "TO LAST"):
            variable = self._advance_any()
            return exp.var(f"{where.name} {variable.text if variable else ''}")
        return where

    def _parse_pattern(self) -> exp.Expr | None:
        """Return the words of PATTERN ( … ), whose grammar is not that of expressions."""
        if not self._match_text_seq("PATTERN"):
            return None
        self._match_l_paren()
        begin, open_ = self._curr, 1
        while self._curr and open_:
            open_ += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            end = self._prev
            self._advance()
        if open_:
            self.raise_error("Expected ) behind the pattern")
        return exp.var(self._find_sql(begin, end))


def _hint_in(text: str) -> TableHint:
    """Return a hint: OPTIONS('key' = 'value', …) with its options, any other one by its words alone."""
    words = [(token.token_type, token.text) for token in Flink().tokenize(text)]
    name = words[0][1].upper() if words else ""
    inner = words[2:-1]
    keys, signs, values, commas = inner[0::4], inner[1::4], inner[2::4], inner[3::4]
    is_whole = [each[1] for each in (*words[1:2], *words[-1:])] == ["(", ")"] and len(inner) % 4 == 3
    texts = all(kind is TokenType.STRING for kind, _ in (*keys, *values))
    if name != "OPTIONS" or not is_whole or not texts or {each[1] for each in signs} != {"="}:
        return TableHint(this=text.strip())
    if {each[1] for each in commas} - {","}:
        return TableHint(this=text.strip())
    options = {key: value for (_, key), (_, value) in zip(keys, values, strict=True)}
    return TableHint(this=name, options=options)


class FlinkGenerator(Generator):
    """What is parsed as text again."""

    TRANSFORMS: ClassVar = {
        **Generator.TRANSFORMS,
        TableArgument: lambda self, node: self.table_argument(node),
        MetadataColumn: lambda self, node: self.metadata_column(node),
        MatchRecognize: lambda self, node: self.match_recognize(node),
        TypedLiteral: lambda self, node: f"{self.sql(node, 'to')} {self.sql(node, 'this')}",
        exp.StrPosition: lambda self, node: f"POSITION({self.sql(node, 'substr')} IN {self.sql(node, 'this')})",
    }

    def table_argument(self, node: TableArgument) -> str:
        """Return an argument that is a table."""
        keys = self.expressions(node, key="partition_by", flat=True)
        return f"TABLE {self.sql(node, 'this')}{f' PARTITION BY ({keys})' if keys else ''}"

    def metadata_column(self, node: MetadataColumn) -> str:
        """Return the clause of a column of metadata."""
        key = self.sql(node, "key")
        return f"METADATA{f' FROM {key}' if key else ''}{' VIRTUAL' if node.args.get('virtual') else ''}"

    def match_recognize(self, node: MatchRecognize) -> str:
        """Return a pattern, with the clauses that sqlglot has not."""
        clauses = self.expressions(node, key="subset", flat=True)
        within = self.sql(node, "within")
        text = self.matchrecognize_sql(node)
        behind = f"{f' WITHIN {within}' if within else ''}{f' SUBSET {clauses}' if clauses else ''}"
        pattern = f"PATTERN ({self.sql(node, 'pattern')})"
        return text.replace(pattern, pattern + behind, 1)


class Flink(Dialect):
    """Flink SQL."""

    class Tokenizer(tokens.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()  # whose words sqlglot would leave alone
        IDENTIFIERS: ClassVar = ["`"]
        QUOTES: ClassVar = ["'"]
        TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = set(TokenType)  # so that no hint is a comment
        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        KEYWORDS: ClassVar = {
            # SESSION is the name of a function; the other two are short words of other databases.
            **{word: kind for word, kind in tokens.Tokenizer.KEYWORDS.items() if word not in _NO_KEYWORDS},
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MULTISET": TokenType.LIST,  # sqlglot has no multisets, and Flink no other lists
            "ROW": TokenType.STRUCT,
        }

    Parser = FlinkParser
    Generator = FlinkGenerator
