"""Plain data as YAML that every parser reads alike: only what is beyond doubt is left unquoted, and long texts are blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:-]*[A-Za-z0-9_./-]|[A-Za-z/]")
# What some version of YAML takes for something else than text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_BLOCK = re.compile(r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")


def documents(values: Sequence[Mapping[str, Any]]) -> str:
    """Return several objects as one stream of YAML documents."""
    return "---\n".join(dump(value) for value in values)


def dump(value: Mapping[str, Any]) -> str:
    """Return an object of texts, numbers, truth values, lists and objects as YAML."""
    return "".join(f"{line}\n" for line in _mapping(value)) or "{}\n"


def _mapping(value: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, item in value.items():
        name = _text(key)
        if isinstance(item, Mapping) and item:
            lines += [f"{name}:", *_indented(_mapping(item))]
        elif isinstance(item, list | tuple) and item:
            lines += [f"{name}:", *_sequence(item)]
        elif isinstance(item, str) and _is_block(item):
            lines += _block(name, item)
        else:
            lines.append(f"{name}: {_scalar(item)}")
    return lines


def _sequence(items: Sequence[Any]) -> list[str]:
    lines: list[str] = []
    for item in items:
        inner = _mapping(item) if isinstance(item, Mapping) and item else [_scalar(item)]
        lines += [f"- {inner[0]}", *_indented(inner[1:])]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else line for line in lines]


def _scalar(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}: {_scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    return json.dumps(value)


def _text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else _quoted(text)


def _quoted(text: str) -> str:
    # As JSON does, but for what JSON writes as two halves.
    return '"' + "".join(json.dumps(c)[1:-1] if c <= "\uffff" else f"\\U{ord(c):08x}" for c in text) + '"'


def _is_block(text: str) -> bool:
    first = text.lstrip("\n")
    return "\n" in text and bool(_BLOCK.fullmatch(text)) and first[:1] not in (" ", "\t", "")


def _block(name: str, text: str) -> list[str]:
    body = text.rstrip("\n")
    after = len(text) - len(body)
    mark = {0: "|-", 1: "|"}.get(after, "|+")
    return [f"{name}: {mark}", *_indented(body.split("\n")), *[""] * (after - 1)]
