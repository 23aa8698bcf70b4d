"""Type rules of functions: which arguments one takes, and how the type of its result follows from theirs.

A form lists the kinds of the arguments as a reader writes them: "text, integer"; an ellipsis behind the last one repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.types import BYTES, STRING, Root, SqlType

Run = Callable[[Sequence[pa.Array], Evaluation], pa.Array]
TypeRule = Callable[[Sequence[Given]], SqlType]
Nulls = Literal["with arguments", "with the first argument", "always", "never", "as the rule says"]
"""When the result may be NULL."""

BOOLEAN, INT, BIGINT, DATE = SqlType("BOOLEAN"), SqlType("INT"), SqlType("BIGINT"), SqlType("DATE")
TIMESTAMP_3, TIMESTAMP_LTZ_3 = SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (3,))
ARRAY_OF_STRING = SqlType("ARRAY", of=(STRING,))

_TEXTS: frozenset[Root] = frozenset(("CHAR", "VARCHAR"))
_BYTES: frozenset[Root] = frozenset(("BINARY", "VARBINARY"))
_INTEGERS: frozenset[Root] = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT"))
_NUMBERS: frozenset[Root] = _INTEGERS | {"FLOAT", "DOUBLE", "DECIMAL"}
_TIMESTAMPS: frozenset[Root] = frozenset(("TIMESTAMP", "TIMESTAMP_LTZ"))
_KINDS: Mapping[str, frozenset[Root]] = {
    "text": _TEXTS, "bytes": _BYTES, "text or bytes": _TEXTS | _BYTES, "integer": _INTEGERS, "number": _NUMBERS,
    "boolean": frozenset(("BOOLEAN",)), "date": frozenset(("DATE",)), "timestamp": _TIMESTAMPS,
    "date or timestamp": _TIMESTAMPS | {"DATE"}, "point in time": _TIMESTAMPS | {"DATE", "TIME"},
    "array": frozenset(("ARRAY",)), "map": frozenset(("MAP",)),
}  # fmt: skip
_OF_NULL: Mapping[str, SqlType] = {
    "text": STRING, "bytes": BYTES, "text or bytes": STRING, "integer": INT, "number": SqlType("DOUBLE"),
    "boolean": BOOLEAN, "date": DATE, "timestamp": TIMESTAMP_3, "date or timestamp": TIMESTAMP_3,
    "point in time": TIMESTAMP_3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes: one of its forms."""

    name: str
    forms: tuple[str, ...]

    def check(self, given: Sequence[Given]) -> Sequence[str]:
        """Return the kind of each argument.

        Raises:
            DefinitionError: no form takes these arguments.
        """
        for form in self.forms:
            kinds = _kinds_of(form, len(given))
            if kinds is not None and all(map(_fits, kinds, given)):
                return kinds
        types = ", ".join("NULL" if is_null(each) else str(each.type) for each in given)
        shown = " or ".join(f"{self.name}({form})" for form in self.forms)
        raise DefinitionError(f"{self.name} does not take ({types})", next=f"write {shown}")

    def accepts(self, given: Sequence[Given]) -> Sequence[SqlType | None]:
        """Return the type that a bare NULL is cast to, None for every other argument."""
        kinds = self.check(given)
        return [_OF_NULL.get(kind) if is_null(each) else None for kind, each in zip(kinds, given, strict=True)]


def is_null(given: Given) -> bool:
    """Return whether an argument is the literal NULL."""
    return given.is_literal and given.value is None


def may_be_null(given: Sequence[Given]) -> bool:
    """Return whether one of some arguments may be NULL."""
    return any(each.type.is_nullable or is_null(each) for each in given)


def defined(
    name: str,
    forms: str | Sequence[str],
    result: SqlType | TypeRule,
    run: Run,
    *,
    nulls: Nulls = "with arguments",
    accepts: Callable[[Sequence[Given]], Sequence[SqlType | None]] | None = None,
    is_deterministic: bool = True,
) -> SqlFunction:
    """Return a function that takes some forms of arguments.

    Args:
        result: its type, or a rule for it, of arguments that have one of the forms.
        nulls: when the result may be NULL.
        accepts: by default only a bare NULL is cast, to the type that its place takes.
    """
    signature = Signature(name, (forms,) if isinstance(forms, str) else tuple(forms))

    def returns(given: Sequence[Given]) -> SqlType:
        signature.check(given)
        made = result if isinstance(result, SqlType) else result(given)
        if nulls == "as the rule says":
            return made
        asked = given[:1] if nulls == "with the first argument" else given
        return replace(made, is_nullable=nulls == "always" or (nulls != "never" and may_be_null(asked)))

    def accepted(given: Sequence[Given]) -> Sequence[SqlType | None]:
        signature.check(given)
        return signature.accepts(given) if accepts is None else accepts(given)

    return SqlFunction(name, returns, run, accepted, is_deterministic)


def varying(given: Sequence[Given]) -> SqlType:
    """Return VARCHAR of the length of the first argument: what parts of a text have."""
    first = given[0].type
    return STRING if first.root not in _TEXTS or is_null(given[0]) else SqlType("VARCHAR", first.sizes)


def as_first(given: Sequence[Given]) -> SqlType:
    """Return the type of the first argument."""
    return STRING if is_null(given[0]) else given[0].type


def constant_text(given: Sequence[Given], place: int) -> str | None:
    """Return the text that an argument is, if it is a literal."""
    value = given[place].value if place < len(given) and given[place].is_literal else None
    return value if isinstance(value, str) else None


def _kinds_of(form: str, count: int) -> list[str] | None:
    kinds = form.removesuffix("…").split(", ") if form else []
    if form.endswith("…") and count > len(kinds):
        kinds += kinds[-1:] * (count - len(kinds))
    return kinds if len(kinds) == count else None


def _fits(kind: str, given: Given) -> bool:
    if is_null(given):
        return kind == "any" or kind in _OF_NULL
    return kind == "any" or given.type.root in _KINDS[kind]
