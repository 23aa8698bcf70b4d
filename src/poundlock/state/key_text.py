"""Keys of state as people write them, and as they are shown: one form for each type a key can have.

A text cannot say of which type it is, so it is read as one of the types that the operator's keys have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]+")
_HEX = re.compile(r"[Xx]'((?:[0-9a-fA-F]{2})*)'")
_UNQUOTED = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
KEY_FORMS = "write a date as 2018-12-19, a time as 2018-12-19T01:50:26.432Z, bytes as X'00FF', a key of several columns as a JSON list"


class KeyTypes:
    """The types that keys of an operator have, each shown by a key that is there.

    Args:
        keys: some of them, as the records have them.
    """

    def __init__(self, keys: Iterable[Any]) -> None:
        # By how many columns a key has, 0 where it is no tuple: of each column a value of each type.
        self._known: dict[int, list[dict[type, Any]]] = {}
        for key in keys:
            parts = key if type(key) is tuple else (key,)
            arity = len(parts) if type(key) is tuple else 0
            columns = self._known.setdefault(arity, [{} for _ in parts])
            for column, part in zip(columns, parts, strict=True):
                column.setdefault(type(part), part)

    @property
    def complete(self) -> bool:
        """Whether of keys of some number of columns the types of all are known."""
        return any(all(column.keys() - {type(None)} for column in columns) for columns in self._known.values())

    @property
    def example(self) -> str:
        """A key that is there, as one writes it; "" where none is known."""
        for arity, columns in self._known.items():
            parts = [next((v for v in column.values() if v is not None), None) for column in columns]
            return key_text(tuple(parts) if arity else parts[0])
        return ""

    def key_of(self, text: str) -> Any:
        """Return the key that a text says: of one column the text itself, or as JSON in quotes; null; a JSON list for several columns.

        Raises:
            ValueError: no key there is can be meant.
        """
        for arity, columns in self._known.items():
            if not arity:
                continue
            parts = _list_in(text)
            if parts is not None and len(parts) == arity:
                return tuple(_part(part, column) for part, column in zip(parts, columns, strict=True))
        single = self._known.get(0, [{}])[0]
        if single and (single.keys() - {type(None)} or len(self._known) == 1 or _whole(text) is None):
            return _part(_whole(text), single)
        if self._known:
            raise ValueError(f"{text} has another number of columns")
        return _as_key(_json(text))


class _Quoted(str):
    """A text that stood in quotes: rather a text than a number."""

    __slots__ = ()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _as_key(value: Any) -> Any:
    return tuple(map(_as_key, value)) if isinstance(value, list) else value


def _whole(text: str) -> Any:
    """Return the one part that a text says: what stands in quotes, None of null, else the text."""
    value = _json(text)
    if value is None:
        return None
    return _Quoted(value) if isinstance(value, str) and text.lstrip().startswith('"') else text


def _list_in(text: str) -> list[Any] | None:
    """Return the parts of a JSON list, numbers as the texts they are; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    exact = _UNQUOTED.decode(text)
    quoted = [isinstance(each, str) for each in value]
    return [_Quoted(each) if is_text else _plain_part(each) for each, is_text in zip(exact, quoted, strict=True)]


def _plain_part(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | list | dict) else value


def _part(value: str | None, known: Mapping[type, Any]) -> Any:
    """Return one column of a key, of a type that is known for it. Raises ValueError: it is of none of them."""
    if value is None:
        return None
    kinds = [kind for kind in known if kind is not type(None)]
    if not kinds:
        return _as_key(_json(value)) if not isinstance(value, _Quoted) else str(value)
    # Any text is a text: it is read as one last, or first where it stands in quotes.
    for kind in sorted(kinds, key=lambda kind: (kind is str) != isinstance(value, _Quoted)):
        try:
            return _READ[kind](str(value), known[kind])
        except (KeyError, ValueError, ArithmeticError):
            continue
    raise ValueError(f"{value} is of another type")


def _integer(text: str, _known: Any) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _truth(text: str, _known: Any) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _decimal(text: str, known: Decimal) -> Decimal:
    value, exponent = Decimal(text), known.as_tuple().exponent
    if not value.is_finite() or not isinstance(exponent, int):
        return value
    scaled = value.scaleb(-exponent)
    if scaled != scaled.to_integral_value():
        raise ValueError(text)  # it has more digits than any key
    return Decimal(int(scaled)).scaleb(exponent)


def _timestamp(text: str, known: datetime) -> datetime:
    value = datetime.fromisoformat(text)
    if known.tzinfo is not None:
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).astimezone(known.tzinfo)
    if value.tzinfo is not None:
        raise ValueError(text)
    return value


def _bytes(text: str, _known: Any) -> bytes:
    match = _HEX.fullmatch(text)
    return text.encode() if match is None else bytes.fromhex(match[1])


def _microseconds(text: str, _known: Any) -> timedelta:
    return timedelta(microseconds=_integer(text, None))


_READ: Mapping[type, Callable[[str, Any], Any]] = {
    str: lambda text, _: text,
    bool: _truth,
    int: _integer,
    float: lambda text, _: float(text),
    Decimal: _decimal,
    date: lambda text, _: date.fromisoformat(text),
    datetime: _timestamp,
    time: lambda text, _: time.fromisoformat(text),
    timedelta: _microseconds,
    bytes: _bytes,
}


def key_text(key: Any) -> str:
    """Return a key as one writes it; `KeyTypes.key_of` reads it back."""
    return json.dumps(plain(key), ensure_ascii=False) if isinstance(key, tuple | list) or key is None else _text(key)


def _text(value: Any) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value as JSON can say it: dates and times as ISO text, decimals as their digits, bytes as X'00FF', durations as microseconds."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, Mapping):
        return {key_text(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
