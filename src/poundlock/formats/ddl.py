"""Spark's words for columns ("ts timestamp, user string, tags array<string>") to an Arrow schema and back.

What `render` writes, `parse` reads to the same schema, so DDL text may be kept in checkpoints and on the wire.
"""

from __future__ import annotations

import re

import pyarrow as pa

from poundlock.errors import DefinitionError

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>\w+)|(?P<mark>[<>(),:])|(?P<bad>\S))"
)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NEXT = 'write columns as "name type, name type", such as "ts timestamp, user string, n bigint"'

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(), "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(), "float": pa.float32(),
    "real": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"), "time": pa.time32("ms"),
}  # fmt: skip
_WORDS: dict[pa.DataType, str] = {
    kind: word for word, kind in reversed(_SIMPLE.items()) if word not in ("byte", "short", "integer", "long", "real")
} | {pa.timestamp("us", tz="UTC"): "timestamp", pa.large_string(): "string", pa.large_binary(): "binary"}
_DECIMAL = ("decimal", "dec", "numeric")
_LENGTHS = ("varchar", "char")


class _Parser:
    """Recursive descent over the tokens of one DDL text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._tokens = list(_TOKEN.finditer(text))

    def fail(self, what: str) -> DefinitionError:
        token = self._peek()
        place = f"at {self._text[token.start(token.lastgroup or 0) :][:20]!r}" if token else "at the end"
        return DefinitionError(f"{what} {place} in schema {self._text!r}", next=_NEXT)

    def _peek(self) -> re.Match[str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _accept(self, kind: str, *texts: str) -> str | None:
        """Return the text of the next token and go behind it, where it is of a kind, and one of some texts; else None."""
        token = self._peek()
        if token is None or token.lastgroup != kind or (texts and token[kind].lower() not in texts):
            return None
        self._at += 1
        return token[kind]

    def _expect(self, mark: str) -> None:
        if self._accept("mark", mark) is None:
            raise self.fail(f"expected {mark!r}")

    def end(self) -> None:
        if self._peek() is not None:
            raise self.fail("unexpected text")

    def fields(self, close: str | None) -> list[pa.Field]:
        fields: list[pa.Field] = []
        if close and self._accept("mark", close):
            return fields
        while True:
            fields.append(self._field())
            if self._accept("mark", ","):
                continue
            if close:
                self._expect(close)
            break
        names = [f.name for f in fields]
        if twice := [name for name in names if names.count(name) > 1]:
            raise DefinitionError(f"column {twice[0]!r} twice in schema {self._text!r}", next="name the columns apart")
        return fields

    def _field(self) -> pa.Field:
        if token := self._accept("quoted"):
            name = token[1:-1].replace("``", "`")
        elif token := self._accept("word"):
            name = token
        else:
            raise self.fail("expected a column name")
        self._accept("mark", ":")
        kind = self.type()
        nullable = True
        if self._accept("word", "not"):
            if not self._accept("word", "null"):
                raise self.fail("expected NULL after NOT")
            nullable = False
        if self._accept("word", "comment") and not self._accept("text"):
            raise self.fail("expected a text in quotes after COMMENT")
        return pa.field(name, kind, nullable=nullable)

    def type(self) -> pa.DataType:
        token = self._accept("word")
        if token is None:
            raise self.fail("expected a type")
        word = token.lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _DECIMAL:
            return self._decimal()
        if word in _LENGTHS:
            self._numbers()
            return pa.string()
        if word == "array":
            return pa.list_(*self._inner("<", ">"))
        if word == "map":
            return pa.map_(*self._inner("<", ",", ">"))
        if word == "struct":
            self._expect("<")
            return pa.struct(self.fields(">"))
        self._at -= 1
        raise self.fail(f"unknown type {token!r}")

    def _inner(self, first: str, *marks: str) -> list[pa.DataType]:
        """Return the types between marks."""
        self._expect(first)
        kinds = []
        for mark in marks:
            kinds.append(self.type())
            self._expect(mark)
        return kinds

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if not self._accept("mark", "("):
            return numbers
        while True:
            token = self._accept("word")
            if token is None or not token.isdecimal():
                raise self.fail("expected a number")
            numbers.append(int(token))
            if not self._accept("mark", ","):
                break
        self._expect(")")
        return numbers

    def _decimal(self) -> pa.DataType:
        numbers = self._numbers() or [10, 0]
        precision, scale = numbers if len(numbers) == 2 else (numbers[0], 0)
        if len(numbers) > 2 or not 1 <= precision <= 38 or scale > precision:
            raise DefinitionError(
                f"decimal({','.join(map(str, numbers))}) in schema {self._text!r} is not possible",
                next="use decimal(p,s) with 1 <= p <= 38 and s <= p",
            )
        return pa.decimal128(precision, scale)


def parse(ddl: str) -> pa.Schema:
    """Return the Arrow schema of a Spark DDL text; `timestamp` is microseconds in UTC.

    Raises DefinitionError where the text is not DDL; the message shows the piece that is wrong.
    """
    if not isinstance(ddl, str) or not ddl.strip():
        raise DefinitionError(f"{ddl!r} is not a schema", next=_NEXT)
    parser = _Parser(ddl)
    fields = parser.fields(None)
    parser.end()
    return pa.schema(fields)


def parse_type(ddl: str) -> pa.DataType:
    """Return the Arrow type of one Spark type name, such as "array<int>". Raises DefinitionError where it is none."""
    parser = _Parser(ddl)
    kind = parser.type()
    parser.end()
    return kind


def render(schema: pa.Schema) -> str:
    """Return the Spark DDL of an Arrow schema. Raises DefinitionError where a column has a type that Spark's DDL cannot say."""
    return ", ".join(_render_field(f, " ") for f in schema)


def _render_field(field: pa.Field, between: str) -> str:
    name = field.name if _PLAIN.fullmatch(field.name) else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{between}{render_type(field.type)}{'' if field.nullable else ' NOT NULL'}"


def render_type(kind: pa.DataType) -> str:
    """Return the Spark DDL of one Arrow type, or raise DefinitionError where it has no word for it.

    Time units and list kinds that Spark does not tell apart become one.
    """
    if kind in _WORDS:
        return _WORDS[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{render_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{render_type(kind.key_type)},{render_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(_render_field(f, ':') for f in kind)}>"
    raise DefinitionError(f"Arrow type {kind} has no Spark DDL", next="cast the column to a type that Spark knows")
