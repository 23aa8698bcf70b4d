"""Pieces of Spark SQL that a plan can understand by their words alone: columns, their names, aggregates.

Texts are cut, never rewritten: what goes on to Spark is what the user wrote. An aggregate that is not one known function of one
argument is refused with the ways out. Names and types are those that Spark gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.operators.windows.aggregates import BY, KINDS, Kind, SqlAggregate

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Words that are values or functions although they look like columns. `user` is one too, but many a table has such a column.
_NOT_COLUMNS = re.compile(
    r"null|true|false|current_(date|timestamp|time|user)|session_user|localtimestamp|case|not|distinct|interval|grouping__id"
)


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column, or a field of one, and what it is to be called.

    Args:
        path: its name, or the names on the way to a field of a struct.
        name: what it is called: its alias, or the last name of its path.
    """

    path: tuple[str, ...]
    name: str

    @property
    def column(self) -> str | None:
        """The name of a column that is not a field of another."""
        return self.path[0] if len(self.path) == 1 else None


@dataclass(frozen=True, slots=True)
class Part:
    """A token of Spark SQL.

    Args:
        text: what it says; without quotes where it has some.
        start: position of its first character.
        end: position behind its last character.
        kind: "word", "quoted" (in backquotes), "string", "number" or "mark".
    """

    text: str
    start: int
    end: int
    kind: str

    @property
    def lower(self) -> str:
        """What it says if it is a word or a mark, in small letters; else nothing."""
        return self.text.lower() if self.kind in ("word", "mark") else ""

    @property
    def names_column(self) -> bool:
        """Whether it can be the name of a column."""
        return self.kind == "quoted" or (self.kind == "word" and not _NOT_COLUMNS.fullmatch(self.lower))


def parts_of(text: str) -> Sequence[Part]:
    """Return the tokens of a text; none where it is not Spark SQL at all."""
    if _WORD.fullmatch(text):
        return [Part(text, 0, len(text), "word")]
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        return [_part(token, text) for token in Spark().tokenize(text)]
    except SqlglotError:
        return []


def _part(token: Token, text: str) -> Part:
    first = text[token.start]
    if first == "`":
        kind = "quoted"
    elif first in "'\"" or (text[token.end] in "'\"" and token.end > token.start):
        kind = "string"
    elif _WORD.fullmatch(token.text):
        kind = "word"
    else:
        kind = "number" if first.isdigit() else "mark"
    return Part(token.text, token.start, token.end + 1, kind)


def named_column(text: str) -> NamedColumn | None:
    """Return the column that an expression is, such as "user", "`a b`" or "left.user AS u"; None if it is anything else."""
    body, alias = without_alias(parts_of(text))
    if len(body) % 2 == 0 or any(part.lower != "." for part in body[1::2]):
        return None
    names = body[::2]
    if not names[0].names_column or any(part.kind not in ("word", "quoted") for part in names[1:]):
        return None
    return NamedColumn(tuple(part.text for part in names), names[-1].text if alias is None else alias)


def without_alias(parts: Sequence[Part]) -> tuple[Sequence[Part], str | None]:
    """Return an expression without the name that it is given, and the name; None if it is given none."""
    if len(parts) < 2 or not parts[-1].names_column:
        return parts, None
    if parts[-2].lower == "as" and len(parts) > 2:
        return parts[:-2], parts[-1].text
    ends = parts[-2].kind in ("quoted", "number", "string") or parts[-2].lower in (")", "]")
    if ends or (parts[-2].names_column and _is_path(parts[:-1])):
        return parts[:-1], parts[-1].text
    return parts, None


def _is_path(parts: Sequence[Part]) -> bool:
    return len(parts) % 2 == 1 and all(part.lower == "." for part in parts[1::2])


def resolve_column(schema: pa.Schema, name: str, operator: str) -> str:
    """Return the column of a schema that a name means.

    Raises:
        DefinitionError: there is none, or several differ from it by case only.
    """
    if name in schema.names:
        return name
    alike = [each for each in schema.names if each.lower() == name.lower()]
    if len(alike) == 1:
        return str(alike[0])
    names = ", ".join(each for each in schema.names if not each.startswith("__"))
    if alike:
        raise DefinitionError(
            f"{operator}: {name!r} may mean any of {', '.join(alike)}", next="write the name as the column has it"
        )
    near = did_you_mean(name, [each for each in schema.names if not each.startswith("__")], show=repr)
    raise DefinitionError(
        f"{operator}: there is no column {name!r}; there are {names}",
        next=near or "name one of these, or add it before",
    )


_NAMES = {"mean": "avg", "array_agg": "collect_list", "first_value": "first", "last_value": "last"}
_ENDS = ("first", "last")
_KNOWN = f"{', '.join(k for k in KINDS if k not in BY)} of one argument, {' and '.join(BY)} of two".replace(
    "count_distinct", "count(DISTINCT …)"
)
_MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class ParsedAggregates:
    """Aggregates, and what is computed for them.

    Args:
        aggregates: of elements that are tuples.
        arguments: Spark SQL of each part of an element.
        names: what each result is called; None where only Spark knows how it calls an expression without a name.
    """

    aggregates: Sequence[SqlAggregate]
    arguments: Sequence[str]
    names: Sequence[str | None]


def parse_aggregates(texts: Sequence[str], operator: str) -> ParsedAggregates:
    """Return aggregates such as "sum(n * 2) as total". Raises DefinitionError if one is not among those our operators know."""
    arguments: list[str] = []
    aggregates: list[SqlAggregate] = []
    names: list[str | None] = []
    for text in texts:
        parts, alias = without_alias(parts_of(text))
        call = _call(_inside(parts), text)
        if call is None:
            raise DefinitionError(
                f"{operator}: {text!r} cannot be computed by a window",
                next=f"give each aggregate as a text of its own: {_KNOWN}; put results together in a select(…) "
                "behind, or write an AggregateFunction",
            )
        places = []
        for argument in (call.argument, call.by):
            if argument is not None and argument not in arguments:
                arguments.append(argument)
            places.append(None if argument is None else arguments.index(argument))
        aggregates.append(SqlAggregate(kind=call.kind, column=places[0], ignore_nulls=call.ignore_nulls, by=places[1]))
        names.append(call.name if alias is None else alias)
    return ParsedAggregates(aggregates, arguments, names)


@dataclass(frozen=True, slots=True)
class _Call:
    """One function; `argument` is None for count(*), `name` is what Spark calls its result where that is known."""

    kind: Kind
    argument: str | None
    ignore_nulls: bool
    name: str | None
    by: str | None = None


def _inside(parts: Sequence[Part]) -> Sequence[Part]:
    """Return an expression without parentheses around all of it."""
    while len(parts) > 2 and parts[0].lower == "(" and _closing(parts, 0) == len(parts) - 1:
        parts = parts[1:-1]
    return parts


def _closing(parts: Sequence[Part], opening: int) -> int:
    """Return the place of the parenthesis that closes one; -1 if there is none."""
    depth = 0
    for place in range(opening, len(parts)):
        depth += {"(": 1, ")": -1}.get(parts[place].lower, 0)
        if depth == 0:
            return place
    return -1


def _call(parts: Sequence[Part], text: str) -> _Call | None:
    """Return the call that an expression is; None if it is anything else."""
    if len(parts) < 4 or parts[0].kind != "word" or parts[1].lower != "(":
        return None
    end = _closing(parts, 1)
    written = parts[0].lower
    kind = _NAMES.get(written, written)
    given = _arguments(parts[2:end]) if end > 2 else []
    behind = " ".join(part.lower for part in parts[end + 1 :])
    if written in _ENDS and not behind and given and [part.lower for part in given[-1][-1:]] == ["nulls"]:
        behind = " ".join(part.lower for part in given[-1][-2:])  # Spark takes it before the parenthesis as well
        given[-1] = given[-1][:-2]
    ignore_nulls = behind == "ignore nulls"
    if kind in _ENDS:
        if len(given) == 2 and _flag(given[1]) is not None and not behind:
            given, ignore_nulls = given[:1], bool(_flag(given[1]))
        elif behind not in ("", "ignore nulls", "respect nulls"):
            return None
    elif behind:
        return None
    if kind in BY and len(given) == 2 and all(given):
        return _of_two(kind, given, text)
    if len(given) != 1 or not given[0] or kind in BY:
        return None
    return _of_one(kind, written, given[0], ignore_nulls, text)


def _of_one(kind: str, written: str, argument: Sequence[Part], ignore_nulls: bool, text: str) -> _Call | None:
    distinct = argument[0].lower == "distinct"
    if distinct:
        argument, kind = argument[1:], f"{kind}_distinct"
    if not argument or kind not in KINDS or (kind == "count_distinct" and not distinct):
        return None
    source = text[argument[0].start : argument[-1].end]
    if kind == "count" and _counts_all(argument):
        value = "1" if source == "*" else argument[0].text.lower() if argument[0].kind == "word" else argument[0].text
        return _Call("count", None, False, f"count({value})")
    if any(part.lower == "*" and len(argument) == 1 for part in argument):
        return None
    column = named_column(source)
    written = {"array_agg": "collect_list"}.get(written, written)  # Spark forgets which of the two it was
    name = None if column is None else f"{written}({'DISTINCT ' if distinct else ''}{'.'.join(column.path)})"
    return _Call(cast("Kind", kind), source, ignore_nulls, name)


def _of_two(kind: str, given: Sequence[Sequence[Part]], text: str) -> _Call:
    value, by = (text[argument[0].start : argument[-1].end] for argument in given)
    columns = [named_column(each) for each in (value, by)]
    known = [".".join(column.path) for column in columns if column is not None]
    name = f"{kind}({', '.join(known)})" if len(known) == 2 else None
    return _Call(cast("Kind", kind), value, False, name, by)


def _arguments(parts: Sequence[Part]) -> list[Sequence[Part]]:
    """Return the arguments between two parentheses."""
    arguments: list[list[Part]] = [[]]
    depth = 0
    for part in parts:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(part.lower, 0)
        if part.lower == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(part)
    return list(arguments)


def _flag(argument: Sequence[Part]) -> bool | None:
    return {"true": True, "false": False}.get(argument[0].lower) if len(argument) == 1 else None


def _counts_all(argument: Sequence[Part]) -> bool:
    """Return whether count(…) of this counts every row: of `*`, or of a value that is not null."""
    if len(argument) != 1:
        return False
    part = argument[0]
    return part.kind in ("number", "string") or part.lower in ("*", "true", "false")


# --- types ---------------------------------------------------------------------------------------------------------------


def result_type(
    aggregate: SqlAggregate, argument: pa.DataType | None, operator: str, by: pa.DataType | None = None
) -> pa.DataType:
    """Return the type of an aggregate's result, which is Spark's.

    Args:
        argument: the type of what it is of; None for count(*).
        by: of min_by and max_by, the type of what they go by.

    Raises:
        DefinitionError: there is no such aggregate of values of that type.
    """
    kind = aggregate.kind
    if kind in ("count", "count_distinct"):
        return pa.int64()
    assert argument is not None
    result = _RESULTS[kind](argument)
    if by is not None and not is_ordered(by):
        argument, result = by, None
    if result is None:
        raise DefinitionError(
            f"{operator}: there is no {kind} of values of type {argument}",
            next=f"cast them, as in {kind}(CAST(column AS DOUBLE))"
            if kind in ("sum", "avg")
            else "use another aggregate, or an AggregateFunction",
        )
    return result


def _sum_type(argument: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(argument):
        return pa.int64()
    if pa.types.is_floating(argument):
        return pa.float64()
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(argument.precision + 10, _MAX_DIGITS), argument.scale)
    return None


def _average_type(argument: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(argument) or pa.types.is_floating(argument):
        return pa.float64()
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(argument.precision + 4, _MAX_DIGITS), min(argument.scale + 4, _MAX_DIGITS))
    return None


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether values of a type have an order: Spark has none of maps, nor of what holds one."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_struct(kind):
        return all(is_ordered(each.type) for each in kind)
    return not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or is_ordered(kind.value_type)


def ordered_column(schema: pa.Schema, name: str, operator: str) -> str:
    """Return the column by whose order records are chosen.

    Raises:
        DefinitionError: there is none, or its values have no order.
    """
    column = resolve_column(schema, name, operator)
    values = schema.field(column).type
    if not is_ordered(values):
        raise DefinitionError(
            f"{operator}: values of type {values} have no order, and {column} has such",
            next="name another column, or make one of what is in it before, by with_column(…)",
        )
    return column


def _ordered(argument: pa.DataType) -> pa.DataType | None:
    return argument if is_ordered(argument) else None


_RESULTS: Mapping[Kind, Callable[[pa.DataType], pa.DataType | None]] = {
    "sum": _sum_type,
    "avg": _average_type,
    "min": _ordered,
    "max": _ordered,
    "first": lambda argument: argument,
    "last": lambda argument: argument,
    "collect_list": pa.list_,
    "min_by": lambda argument: argument,
    "max_by": lambda argument: argument,
}
