"""Plain data as YAML that every parser reads alike: only what is beyond doubt is left unquoted, and long texts are blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:-]*[A-Za-z0-9_./-]|[A-Za-z/]")
# What some version of YAML takes for something else than text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    beyond_doubt = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    style = "|" if "\n" in text else None if beyond_doubt else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def documents(values: Iterable[Mapping[str, Any]]) -> str:
    """Return objects of texts, numbers, truth values, lists and objects as one stream of YAML documents."""
    text: str = yaml.dump_all(values, Dumper=_Dumper, sort_keys=False, width=1 << 20)
    return text
