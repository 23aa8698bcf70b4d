"""A JSON file that says what a job knows, as a typed value; whatever is damaged of it is reported with the file's name."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from poundlock.errors import PoundlockError, TerminalError
from poundlock.storage.base import Storage

T = TypeVar("T")
_LONGEST = 200
_FIRST, _READY = threading.Lock(), set[Any]()
_MISSING, _PLACE = re.compile(r"required field `(.+?)`"), re.compile(r"at `\$\.?(.+)`")


def read_record(
    storage: Storage, path: str, parse: Callable[[bytes], T], *, next: str, kind: type[PoundlockError] = TerminalError
) -> T | None:
    """Return what a file says, as `parse` makes it of the content; None if there is no such file.

    Raises:
        PoundlockError: it is damaged or of another version, as `parse` says by a ValueError; of `kind`, and with what to do `next`.
    """
    try:
        return naming(f"{storage.root}/{path}", lambda: parse(storage.read(path)), next=next, kind=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None


def naming(where: str, read: Callable[[], T], *, next: str, kind: type[PoundlockError] = TerminalError) -> T:
    """Return what `read` returns; a ValueError of it is of `kind`, and names the place and what to do `next`."""
    try:
        return read()
    except (IsADirectoryError, ValueError, RecursionError) as error:
        is_json = not isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError))
        why = "it is a folder" if isinstance(error, IsADirectoryError) else str(error) if is_json else "it is no JSON"
        why = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}…"
        raise kind(f"{where} cannot be read: {why}", next=next) from None


def of_format(value: Any, format: int = 1) -> dict[str, Any]:
    """Return a JSON object whose `v` is a format.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if value.get("v") != format:
        raise ValueError(f"format {value['v']!r} is not known to this version" if "v" in value else "it has no format")
    return value


def ready(kind: type[T]) -> type[T]:
    """Return a type that msgspec can be asked for by any thread: where two meet one at the same time, the process hangs or crashes."""
    if kind not in _READY:
        with _FIRST, suppress(msgspec.ValidationError):
            msgspec.convert(None, kind)
        _READY.add(kind)
    return kind


def typed(value: Any, kind: type[T]) -> T:
    """Return plain data as a value of a type. Raises ValueError where it is none."""
    try:
        return msgspec.convert(value, ready(kind), str_keys=True)
    except msgspec.ValidationError as error:
        missing, place = _MISSING.search(str(error)), _PLACE.search(str(error))
        where = place[1] if place else "it"
        raise ValueError(f"{where} has no {missing[1]}" if missing else f"{where} is not what it should be") from None


def untyped(value: msgspec.Struct) -> dict[str, Any]:
    """Return a value as the JSON object that `typed` makes it of."""
    return dict(msgspec.json.decode(msgspec.json.encode(value)))


def parsed(kind: type[T]) -> Callable[[bytes], T]:
    """Return what makes a value of a type of the JSON of format 1; see `read_record`."""
    return lambda data: typed(of_format(json.loads(data)), kind)
