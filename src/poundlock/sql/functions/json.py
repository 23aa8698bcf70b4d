"""Functions of JSON.

How the analysis calls them; options are texts, in capitals, and stand in any order:

| in a script | function | arguments | options |
|---|---|---|---|
| `JSON_VALUE(j, path [RETURNING t] [… ON EMPTY] [… ON ERROR])` | JSON_VALUE | j, path\\[, default on empty\\]\\[, default on error\\] | `NULL ON EMPTY`, `ERROR ON EMPTY` or `DEFAULT ON EMPTY`; the same `ON ERROR` |
| `JSON_QUERY(j, path [RETURNING t] [wrapper] [… ON EMPTY] [… ON ERROR])` | JSON_QUERY | j, path | `WITHOUT WRAPPER`, `WITH CONDITIONAL WRAPPER`, `WITH UNCONDITIONAL WRAPPER`; `NULL`, `ERROR`, `EMPTY ARRAY` or `EMPTY OBJECT` before `ON EMPTY`, `ON ERROR` |
| `JSON_EXISTS(j, path [… ON ERROR])` | JSON_EXISTS | j, path | `TRUE`, `FALSE`, `UNKNOWN` or `ERROR` before `ON ERROR` |
| `j IS [NOT] JSON [VALUE \\| OBJECT \\| ARRAY \\| SCALAR]` | IS_JSON, in NOT | j | `VALUE`, `OBJECT`, `ARRAY` or `SCALAR` |
| `JSON_OBJECT([KEY] k VALUE v, … [NULL \\| ABSENT ON NULL])` | JSON_OBJECT | k, v, k, v, … | `NULL ON NULL`, `ABSENT ON NULL`, `RAW n` |
| `JSON_ARRAY(v, … [NULL \\| ABSENT ON NULL])` | JSON_ARRAY | v, … | `NULL ON NULL`, `ABSENT ON NULL`, `RAW n` |

`RAW n` says that argument n, from 0, is a call of JSON_OBJECT, JSON_ARRAY or JSON, whose text is put in as it is. What an option does not
say is as in SQL: NULL, WITHOUT WRAPPER, FALSE ON ERROR, NULL ON NULL for objects and ABSENT ON NULL for arrays.

The type of JSON_VALUE and JSON_QUERY is STRING, or what stands behind RETURNING, which the analysis gives the call, nullable
(`check_returning`): STRING, BOOLEAN, INT and DOUBLE of JSON_VALUE, STRING and ARRAY<STRING> of JSON_QUERY. Unlike in Flink a value that is not
of that type, such as a text for INT, is an error that ON ERROR is for.

Paths are literals: see kernels/json_paths.py. Documents are read once for each distinct text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import constant_in, over_distinct
from poundlock.sql.functions.kernels.json_paths import (
    JsonPath,
    NotJsonError,
    PathMissingError,
    parsed,
    path_of,
    quoted,
    scalar_text,
    written,
)
from poundlock.sql.functions.kernels.json_texts import check_json, joined_texts, json_texts, listed, null_texts
from poundlock.sql.functions.signatures import BOOLEAN, constant_text, defined, is_null
from poundlock.sql.types import STRING, SqlType

Outcome = Literal["value", "empty", "error"]
_INT = range(-(2**31), 2**31)
_ESCAPE = re.compile(r'["\\/]|[^\x20-\x7f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

# --- values, parts and their absence --------------------------------------------------------------------------------------


def check_returning(function: str, kind: SqlType) -> None:
    """Check that a type may stand behind RETURNING.

    Raises:
        DefinitionError: JSON_VALUE or JSON_QUERY does not return it.
    """
    known = {"JSON_VALUE": ("VARCHAR", "BOOLEAN", "INT", "DOUBLE"), "JSON_QUERY": ("VARCHAR", "ARRAY")}[function]
    if kind.root not in known or (kind.root == "ARRAY" and kind.of[0].root != "VARCHAR"):
        names = "STRING, BOOLEAN, INT or DOUBLE" if function == "JSON_VALUE" else "STRING or ARRAY<STRING>"
        raise DefinitionError(f"{function} does not return {kind}", next=f"write RETURNING {names}")


def _behaviour(evaluation: Evaluation, when: str, otherwise: str = "NULL") -> str:
    """Return what an option says to do `ON EMPTY`, `ON ERROR` or `ON NULL`."""
    given = [option.removesuffix(f" {when}") for option in evaluation.options if option.endswith(f" {when}")]
    return given[0] if given else otherwise


def _read(
    columns: Sequence[pa.Array],
    evaluation: Evaluation,
    of_match: Callable[[Any, bool], tuple[Any, Outcome]],
    kind: pa.DataType,
) -> tuple[pa.Array, Mapping[Outcome, pa.Array]]:
    """Return what is made of what the path leads to in each document, and in which rows there is nothing, or an error."""
    path_text = constant_in(columns[1])
    if path_text is None:
        return pa.nulls(evaluation.rows, kind), {}
    path = path_of(path_text)
    outcomes: dict[str, Outcome] = {}

    def of_text(text: str) -> Any:
        made, outcome = _of_document(text, path, of_match)
        if outcome != "value":
            outcomes[text] = outcome
        return made

    values = over_distinct(columns[:1], of_text, kind)
    where: dict[Outcome, pa.Array] = {}
    for outcome in set(outcomes.values()):
        where[outcome] = over_distinct(columns[:1], lambda text, asked=outcome: outcomes.get(text) == asked, pa.bool_())
    return values, where


def _of_document(
    text: str, path: JsonPath, of_match: Callable[[Any, bool], tuple[Any, Outcome]]
) -> tuple[Any, Outcome]:
    try:
        document = parsed(text)
    except NotJsonError:
        return None, "empty" if path.is_lax else "error"
    try:
        match = path.read(document)
    except PathMissingError:
        return None, "error"
    return (None, "empty") if match is None else of_match(match, path.is_lax)


def _refuse(where: Mapping[Outcome, pa.Array], outcome: Outcome, name: str) -> None:
    if outcome in where:
        what = "with nothing where its path leads" if outcome == "empty" else "with an error"
        raise TerminalError(f"{name} of a document {what}", next=f"write NULL ON {outcome.upper()}")


# --- JSON_VALUE ---------------------------------------------------------------------------------------------------------


def _value(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    kind = evaluation.returns.arrow
    convert = _CONVERSIONS[evaluation.returns.root]

    def of_match(match: Any, is_lax: bool) -> tuple[Any, Outcome]:
        if isinstance(match, dict | list):
            return None, "empty" if is_lax else "error"
        made = convert(match)
        return made, "error" if made is None else "value"

    values, where = _read(columns, evaluation, of_match, kind)
    defaults = list(columns[2:])
    cases: tuple[tuple[Outcome, str], ...] = (("empty", "ON EMPTY"), ("error", "ON ERROR"))
    for outcome, when in cases:
        behaviour = _behaviour(evaluation, when)
        default = defaults.pop(0) if behaviour == "DEFAULT" else None
        if behaviour == "ERROR":
            _refuse(where, outcome, "JSON_VALUE")
        elif default is not None and outcome in where:
            values = pc.if_else(where[outcome], default.cast(kind), values)
    return values


def _as_int(match: Any) -> int | None:
    return match if isinstance(match, int) and not isinstance(match, bool) and match in _INT else None


def _as_double(match: Any) -> float | None:
    return float(match) if isinstance(match, int | Decimal) and not isinstance(match, bool) else None


def _as_boolean(match: Any) -> bool | None:
    return match if isinstance(match, bool) else None


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "VARCHAR": scalar_text,
    "INT": _as_int,
    "DOUBLE": _as_double,
    "BOOLEAN": _as_boolean,
}


# --- JSON_QUERY and JSON_EXISTS ------------------------------------------------------------------------------------------


def _query(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    wrapper = next((option for option in evaluation.options if option.endswith(" WRAPPER")), "WITHOUT WRAPPER")
    is_array = evaluation.returns.root == "ARRAY"
    kind = evaluation.returns.arrow

    def of_match(match: Any, is_lax: bool) -> tuple[Any, Outcome]:
        is_list = isinstance(match, list)
        if wrapper == "WITH UNCONDITIONAL WRAPPER" or (wrapper == "WITH CONDITIONAL WRAPPER" and not is_list):
            match = [match]
        if not isinstance(match, dict | list):
            return None, "empty" if is_lax else "error"
        if not is_array:
            return written(match), "value"
        if not isinstance(match, list):
            return None, "error"
        return [_element_text(each) for each in match], "value"

    values, where = _read(columns, evaluation, of_match, kind)
    for outcome in ("empty", "error"):
        behaviour = _behaviour(evaluation, f"ON {outcome.upper()}")
        if behaviour == "ERROR":
            _refuse(where, outcome, "JSON_QUERY")
        elif behaviour != "NULL" and outcome in where:
            text = "[]" if behaviour == "EMPTY ARRAY" else "{}"
            instead = over_distinct(columns[:1], lambda _, text=text: [] if is_array else text, kind)
            values = pc.if_else(where[outcome], instead, values)
    return values


def _element_text(value: Any) -> str | None:
    if value is None:
        return None
    return written(value) if isinstance(value, dict | list) else scalar_text(value)


def _exists(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    values, where = _read(columns, evaluation, lambda match, is_lax: (True, "value"), pa.bool_())
    no = over_distinct(columns[:1], lambda text: False, pa.bool_())
    if "empty" in where:
        values = pc.if_else(where["empty"], no, values)
    behaviour = _behaviour(evaluation, "ON ERROR", "FALSE")
    if behaviour == "ERROR":
        _refuse(where, "error", "JSON_EXISTS")
    elif behaviour != "UNKNOWN" and "error" in where:
        values = pc.if_else(where["error"], no if behaviour == "FALSE" else pc.invert(no), values)
    return values


def _is_json(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return whether texts are JSON; NULL is not."""
    asked = evaluation.options[0] if evaluation.options else "VALUE"
    kinds: dict[str, Callable[[Any], bool]] = {
        "VALUE": lambda value: True,
        "OBJECT": lambda value: isinstance(value, dict),
        "ARRAY": lambda value: isinstance(value, list),
        "SCALAR": lambda value: not isinstance(value, dict | list),
    }

    def is_one(text: str | None) -> bool:
        try:
            return text is not None and kinds[asked](parsed(text))
        except NotJsonError:
            return False

    return over_distinct(columns, is_one, pa.bool_(), takes_nulls=True)


# --- texts that are made --------------------------------------------------------------------------------------------------


def _json_type(kind: pa.DataType) -> SqlType:
    """Return the SQL type whose JSON text values of an Arrow type have."""
    if pa.types.is_list(kind):
        return SqlType("ARRAY", of=(_json_type(kind.value_type),))
    if pa.types.is_map(kind):
        return SqlType("MAP", of=(_json_type(kind.key_type), _json_type(kind.item_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return SqlType(
            "ROW", of=tuple(_json_type(each.type) for each in fields), names=tuple(each.name for each in fields)
        )
    if pa.types.is_timestamp(kind):
        return SqlType("TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ", (6,))
    if pa.types.is_decimal(kind):
        return SqlType("DECIMAL", (kind.precision, kind.scale))
    plain = (
        (pa.types.is_string, STRING), (pa.types.is_boolean, BOOLEAN), (pa.types.is_binary, SqlType("VARBINARY", (1,))),
        (pa.types.is_floating, SqlType("DOUBLE")),
    )  # fmt: skip
    return next((made for fits, made in plain if fits(kind)), SqlType("BIGINT"))


def _members(columns: Sequence[pa.Array], evaluation: Evaluation, places: Sequence[int]) -> list[pa.Array]:
    """Return the JSON texts of some arguments: null, or `null`, where they are."""
    is_null_written = _behaviour(evaluation, "ON NULL", "ABSENT") == "NULL"
    raw = {int(option.removeprefix("RAW ")) for option in evaluation.options if option.startswith("RAW ")}
    texts = [
        columns[place] if place in raw else json_texts(columns[place], _json_type(columns[place].type))
        for place in places
    ]
    return [null_texts(text) if is_null_written else text for text in texts]


def _object(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if not any(option.endswith(" ON NULL") for option in evaluation.options):
        evaluation = Evaluation(
            evaluation.rows,
            evaluation.zone,
            evaluation.now_us,
            evaluation.returns,
            (*evaluation.options, "NULL ON NULL"),
        )
    members = _members(columns, evaluation, range(1, len(columns), 2))
    keys = [constant_in(column) for column in columns[::2]]
    if not evaluation.rows or any(key is None for key in keys):
        return pa.nulls(evaluation.rows, pa.string())
    last = dict(zip(keys, members, strict=True))
    pairs = [joined_texts([f"{quoted(key)}:", last[key]], evaluation.rows) for key in sorted(last)]
    return listed(pairs, evaluation.rows, "{", "}")


def _array(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return listed(_members(columns, evaluation, range(len(columns))), evaluation.rows, "[", "]")


def _string(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return json_texts(columns[0], _json_type(columns[0].type))


def _json(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _normalised, pa.string())


def _normalised(text: str) -> str | None:
    try:
        return written(parsed(text.strip())) if text.strip() else None
    except NotJsonError as error:
        raise TerminalError(f"JSON of a text that is none: {error}", next="ask it with IS JSON before") from error


def _quote(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _quoted, pa.string())


def _quoted(text: str) -> str:
    """Return a text in quotes, in which what is not ASCII is written by its code units."""

    def escaped(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be").hex()
        return _ESCAPES.get(match[0]) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return f'"{_ESCAPE.sub(escaped, text)}"'


def _unquote(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _unquoted, pa.string())


def _unquoted(text: str) -> str:
    """Return the text that a JSON text is; everything else as it is."""
    try:
        value = parsed(text) if text.startswith('"') else None
    except NotJsonError:
        return text
    return value if isinstance(value, str) else text


# --- types ----------------------------------------------------------------------------------------------------------------


def _with_path(kind: SqlType) -> Callable[[Sequence[Given]], SqlType]:
    def rule(given: Sequence[Given]) -> SqlType:
        path = constant_text(given, 1)
        if path is None:
            raise DefinitionError("a JSON path that is no literal", next="write the path as a text such as 'lax $.a.b'")
        path_of(path)
        return kind

    return rule


def _made(name: str, *, has_keys: bool) -> Callable[[Sequence[Given]], SqlType]:
    def rule(given: Sequence[Given]) -> SqlType:
        if has_keys and (
            len(given) % 2 or any(constant_text(given, place) is None for place in range(0, len(given), 2))
        ):
            raise DefinitionError(f"{name} with a key that is no literal", next=f"write {name}(KEY 'a' VALUE x)")
        for each in given:
            if not is_null(each):
                check_json(each.type)
        return STRING

    return rule


FUNCTIONS: Sequence[SqlFunction] = (
    defined(
        "JSON_VALUE", ("text, text", "text, text, any", "text, text, any, any"), _with_path(STRING), _value,
        nulls="always"
    ),
    defined("JSON_QUERY", "text, text", _with_path(STRING), _query, nulls="always"),
    defined("JSON_EXISTS", "text, text", _with_path(BOOLEAN), _exists, nulls="always"),
    defined("IS_JSON", "text", BOOLEAN, _is_json, nulls="never"),
    defined("JSON_OBJECT", ("", "any…"), _made("JSON_OBJECT", has_keys=True), _object, nulls="never"),
    defined("JSON_ARRAY", ("", "any…"), _made("JSON_ARRAY", has_keys=False), _array, nulls="never"),
    defined("JSON_STRING", "any", _made("JSON_STRING", has_keys=False), _string),
    defined("JSON", "text", STRING, _json, nulls="always"),
    defined("JSON_QUOTE", "text", STRING, _quote),
    defined("JSON_UNQUOTE", "text", STRING, _unquote),
)  # fmt: skip
