"""JSON paths as Flink reads them, and the documents they are read from: numbers keep their digits, objects are written by their keys in order.

A path is strict unless it begins with `lax`: in strict mode a part that is not there is an error, in lax mode it is no value.
Read are names, `['name']`, indices (negative ones from the end), slices, lists of both, `*` and `..`. Filters and functions are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import msgspec

from poundlock.errors import DefinitionError

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_LENIENT = json.JSONDecoder()
_MODE = re.compile(r"(?is)\s*(strict|lax)\s+(.+)")
_NAME = re.compile(r"[^.\[\]()\s'\"?*]+")
_QUOTED = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*""")
_SLICE = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*")
_NUMBER = re.compile(r"\s*(-?\d+)\s*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


class NotJsonError(ValueError):
    """A text is no JSON."""


class PathMissingError(LookupError):
    """A document has nothing where a path leads."""


def parsed(text: str) -> Any:
    """Return the value that a JSON text is; what stands behind it, after whitespace or a bracket, does not count, as in Flink.

    Raises:
        NotJsonError: it is none.
    """
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        try:
            _, end = _LENIENT.raw_decode(text.lstrip())
            whole = text.lstrip()
            if end < len(whole) and (whole[end].isspace() or whole[end - 1] in '}]"'):
                return _DECODER.decode(whole[:end])
        except (ValueError, RecursionError):
            pass
        raise NotJsonError(f"no JSON: {error}") from error


def written(value: Any) -> str:
    """Return the JSON text of a value, without spaces, the keys of objects in order."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return f"{{{','.join(f'{quoted(key)}:{written(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return scalar_text(value)


def scalar_text(value: Any) -> str:
    """Return a text as it is, a number with its digits, `true`, `false` or `null`."""
    if value is None:
        return "null"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def quoted(text: str) -> str:
    """Return a text as JSON writes it."""
    if not _ESCAPED.search(text):
        return f'"{text}"'
    return '"' + _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}", text) + '"'


@dataclass(frozen=True, slots=True)
class PathStep:
    """A step of a path.

    Args:
        kind: names and indices are those that are listed; a slice has its two ends.
        is_deep: whether it is taken from all values below as well.
    """

    kind: Literal["names", "indices", "slice", "all"]
    parts: tuple[Any, ...] = ()
    is_deep: bool = False

    def from_value(self, value: Any) -> Iterator[Any]:
        """Yield what the step leads to from one value.

        Raises:
            PathMissingError: it leads nowhere.
        """
        if self.kind == "all":
            yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        elif self.kind == "names":
            if not isinstance(value, dict) or (len(self.parts) == 1 and self.parts[0] not in value):
                raise PathMissingError(f"no {' or '.join(self.parts)}")
            yield from (value[name] for name in self.parts if name in value)
        elif not isinstance(value, list):
            raise PathMissingError("no array")
        elif self.kind == "slice":
            yield from value[slice(*self.parts)]
        else:
            for index in self.parts:
                if not -len(value) <= index < len(value):
                    raise PathMissingError(f"no element {index}")
                yield value[index]


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path into documents.

    Args:
        plain: the names and indices of a path that has nothing else.
    """

    is_lax: bool
    steps: tuple[PathStep, ...]
    plain: tuple[Any, ...] | None = None

    @property
    def is_definite(self) -> bool:
        """Whether it leads to one value at most."""
        return all(self._is_single(place) for place in range(len(self.steps)))

    def _is_single(self, place: int) -> bool:
        step = self.steps[place]
        if step.is_deep or step.kind in ("slice", "all"):
            return False
        return len(step.parts) == 1 or (step.kind == "names" and place == len(self.steps) - 1)

    def read(self, document: Any) -> Any:
        """Return what a path leads to: one value, or a list if it is not definite. In lax mode None or an empty list if there is nothing.

        Raises:
            PathMissingError: in strict mode, nothing is there.
        """
        if self.plain is not None and not self.is_lax and document is not None:
            return _value_at(document, self.plain)
        try:
            matches = self._matches(document)
        except PathMissingError:
            if not self.is_lax:
                raise
            matches = []
        if not self.is_definite:
            return matches
        return matches[0] if matches else None

    def _matches(self, document: Any) -> list[Any]:
        if document is None:
            raise PathMissingError("the document is null")
        matches, is_definite = [document], True
        for place, step in enumerate(self.steps):
            is_last_names = step.kind == "names" and place == len(self.steps) - 1 and len(step.parts) > 1
            reached: list[Any] = []
            for value in matches:
                for start in _descendants(value) if step.is_deep else (value,):
                    try:
                        if is_last_names and isinstance(start, dict):
                            reached.append({name: start[name] for name in step.parts if name in start})
                        else:
                            reached += step.from_value(start)
                    except PathMissingError:
                        if is_definite and not step.is_deep:
                            raise
            matches = reached
            is_definite = is_definite and self._is_single(place)
        return matches


def _value_at(value: Any, plain: Sequence[Any]) -> Any:
    """Return what some names and indices lead to, one after the other."""
    try:
        for part in plain:
            if not isinstance(value, dict if isinstance(part, str) else list):
                raise PathMissingError("no object or array")
            value = value[part]
    except (KeyError, IndexError) as error:
        raise PathMissingError(f"no {error}") from error
    return value


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(each, dict | list):
            yield from _descendants(each)


@lru_cache(maxsize=512)
def path_of(text: str) -> JsonPath:
    """Return the path that a text is.

    Raises:
        DefinitionError: it is none, or has a filter or a function.
    """
    mode = _MODE.fullmatch(text)
    path = (mode[2] if mode else text).strip()
    if not path.startswith("$"):
        path = f"$.{path}"
    steps, at = [], 1
    while at < len(path):
        is_deep = path.startswith("..", at)
        at += 2 if is_deep else 0
        if not is_deep and path[at] == ".":
            at += 1
        elif not is_deep and path[at] != "[":
            raise _no_path(text)
        step, at = _step(path, at, text)
        steps.append(PathStep(step.kind, step.parts, is_deep))
    is_plain = all(step.kind in ("names", "indices") and len(step.parts) == 1 and not step.is_deep for step in steps)
    plain = tuple(step.parts[0] for step in steps) if is_plain else None
    return JsonPath(mode is not None and mode[1].lower() == "lax", tuple(steps), plain)


def _step(path: str, at: int, text: str) -> tuple[PathStep, int]:
    if path.startswith("*", at):
        return PathStep("all"), at + 1
    if not path.startswith("[", at):
        name = _NAME.match(path, at)
        if name is None or path.startswith("(", name.end()):
            raise _no_path(text)
        return PathStep("names", (name[0],)), name.end()
    end = at + 1
    if path.startswith("*]", end):
        return PathStep("all"), end + 2
    ends = _SLICE.match(path, end)
    if ends and path.startswith("]", ends.end()):
        return PathStep("slice", tuple(None if each is None else int(each) for each in ends.groups())), ends.end() + 1
    for kind, pattern in (("names", _QUOTED), ("indices", _NUMBER)):
        parts, place = _listed(path, end, pattern)
        if parts:
            step = (
                PathStep("names", tuple(map(str, parts)))
                if kind == "names"
                else PathStep("indices", tuple(map(int, parts)))
            )
            return step, place
    raise _no_path(text)


def _listed(path: str, at: int, pattern: re.Pattern[str]) -> tuple[Sequence[str], int]:
    """Return what is listed up to a bracket, and where the path goes on; nothing if something else stands there."""
    parts: list[str] = []
    while match := pattern.match(path, at):
        parts.append(re.sub(r"\\(.)", r"\1", next(each for each in match.groups() if each is not None)))
        at = match.end()
        if path.startswith("]", at):
            return parts, at + 1
        if not path.startswith(",", at):
            break
        at += 1
    return [], at


def _no_path(text: str) -> DefinitionError:
    return DefinitionError(
        f"'{text}' is no JSON path that can be read here", next="write a path such as 'lax $.a.b[0]'"
    )
