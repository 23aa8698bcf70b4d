"""What must never be shown: which names hold secrets, and how text and settings are cleaned of them.

Whatever leaves the process for a log, a terminal or an explanation passes through here; matching is by name and by value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "*****"

_WORDS = (
    r"password|passwd|passphrase|secret|token|credential|jaas|basic\.auth|api[._-]?key|access[._-]?key|private[._-]?key"
)
# "key.password" is a secret; "token.endpoint.url" and "key.deserializer" only look like one.
_NAME = re.compile(rf"(?:{_WORDS})(?!.*(?:url|uri|file|location|class|provider|enabled|interval)$)", re.IGNORECASE)
# Patterns start at the telling word, never with a run of any letters: a long line must not take quadratic time.
_IN_TEXT = re.compile(
    rf"""(?P<name>(?:{_WORDS})[\w.-]*["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,;&}})\]]+)""", re.IGNORECASE
)
_JAAS = re.compile(r"""(?P<name>jaas[\w.-]*["']?\s*[=:]\s*)[^;\n]*;?""", re.IGNORECASE)  # a whole sentence of settings
_URL = re.compile(r"(?P<user>://[^/\s:@]*):(?P<value>[^/\s@]+)@")
_SHORTEST = 4  # blanking every "a" because somebody's password is "a" would hide the log


def is_secret(name: str) -> bool:
    """Return whether a setting of this name holds something that must not be shown."""
    return _NAME.search(name) is not None


def secret_values(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the values of all settings whose names say that they are secret, nested ones too."""
    secrets: set[str] = set()
    for name, value in settings.items():
        if isinstance(value, Mapping):
            secrets |= secret_values(value)
        elif is_secret(str(name)) and isinstance(value, str):
            secrets.add(value)
    return frozenset(secrets)


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without the values given, without `password=…` and the like, and without passwords in URLs."""
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _URL.sub(rf"\g<user>:{HIDDEN}@", text)
    text = _JAAS.sub(rf"\g<name>{HIDDEN}", text)
    return _IN_TEXT.sub(rf"\g<name>{HIDDEN}", text)


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a copy of plain data (mappings, lists, text) with everything secret replaced by asterisks."""
    known = tuple(secrets)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if is_secret(str(name)) and item not in (None, "") else redact(item, known)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, known) for item in value]
    if isinstance(value, str):
        return redact_text(value, known)
    return value
