"""Functions that write texts and bytes in another form: digests, base64, hexadecimal, character sets, URLs, and UUID.

All take their arguments as they are written. Python computes them once for each distinct value; UUID is made of random bytes by columns.
What cannot be decoded is NULL, except for FROM_BASE64, ENCODE and DECODE, with which the job fails, as in Flink.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, unquote_to_bytes

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import ranges
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.characters import text_column
from poundlock.sql.functions.kernels.distinct import integers_in, over_distinct, valid_of
from poundlock.sql.functions.kernels.elements import elements_of, map_column
from poundlock.sql.functions.kernels.java_regex import JavaRegex, compiled
from poundlock.sql.functions.signatures import defined
from poundlock.sql.types import BYTES, STRING, SqlType

_DIGESTS: Mapping[str, Callable[[bytes], Any]] = {
    "MD5": hashlib.md5, "SHA1": hashlib.sha1, "SHA224": hashlib.sha224, "SHA256": hashlib.sha256,
    "SHA384": hashlib.sha384, "SHA512": hashlib.sha512,
}  # fmt: skip
_BITS = (224, 256, 384, 512)
_URL = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")
_ADDRESS = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?", re.ASCII)
_PROTOCOLS = frozenset(("http", "https", "ftp", "file", "jar", "mailto", "jrt", "jmod"))
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _by_python(compute: Callable[..., Any]) -> Callable[[Sequence[pa.Array], Evaluation], pa.Array]:
    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        return over_distinct(columns, compute, evaluation.returns.arrow)

    return run


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _digest(make: Callable[[bytes], Any]) -> Callable[[str | bytes], str]:
    return lambda value: str(make(_bytes(value)).hexdigest())


def _sha2(value: str | bytes, bits: int) -> str:
    if bits not in _BITS:
        raise TerminalError(f"SHA2 of {bits} bits", next="give 224, 256, 384 or 512")
    return str(_DIGESTS[f"SHA{bits}"](_bytes(value)).hexdigest())


def _sha2_type(given: Sequence[Given]) -> SqlType:
    bits = given[1]
    if bits.is_literal and bits.value is not None and bits.value not in _BITS:
        raise DefinitionError(f"SHA2 of {bits.value} bits", next="give 224, 256, 384 or 512")
    return SqlType("VARCHAR", (128,))


def _to_base64(value: str | bytes) -> str:
    return base64.b64encode(_bytes(value)).decode()


def _from_base64(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise TerminalError(
            f"FROM_BASE64 of a text that is not base64: {error}", next="check it with REGEXP"
        ) from error


def _hex(value: int | str | bytes) -> str:
    return f"{value & 0xFFFFFFFFFFFFFFFF:X}" if isinstance(value, int) else _bytes(value).hex().upper()


def _bin(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return numbers in base 2, those below 0 with 64 digits, as Long.toBinaryString has them."""
    numbers = integers_in(columns[0])
    digits = (numbers[:, None] >> np.arange(63, -1, -1)) & 1
    first = np.where(numbers == 0, 63, np.argmax(digits, axis=1))
    ends = np.arange(1, len(numbers) + 1, dtype=np.int64) * 64
    return text_column((digits + ord("0")).astype(np.uint8).ravel(), ends - 64 + first, ends, valid_of(columns))


def _unhex(text: str) -> bytes | None:
    padded = "0" * (len(text) % 2) + text
    return bytes.fromhex(padded) if re.fullmatch("[0-9A-Fa-f]*", padded) else None


def _encode(text: str, charset: str) -> bytes:
    return text.encode(_charset(charset), errors="replace")


def _decode(value: bytes, charset: str) -> str:
    return value.decode(_charset(charset), errors="replace")


def _charset(name: str) -> str:
    known = _CHARSETS.get(name.upper())
    if known is None:
        raise TerminalError(f"there is no character set {name}", next=f"use one of {', '.join(_CHARSETS)}")
    return known


_CHARSETS = {
    "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-8": "utf-8", "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16", "GBK": "gbk", "GB18030": "gb18030",
}  # fmt: skip


def _url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(text: str) -> str | None:
    if _BAD_PERCENT.search(text):
        return None
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    """Return a part of a URL as java.net.URL has it, None if it is none; of a key its value in the query."""
    match = _URL.fullmatch(url.strip())
    if match is None or match[1].lower() not in _PROTOCOLS or (key is not None and part != "QUERY"):
        return None
    protocol, authority, path, query, reference = match.groups()
    user, at, address = (authority or "").rpartition("@")
    host = _ADDRESS.fullmatch(address)
    if host is None:
        return None
    if key is not None:
        value = re.search(f"(?:&|^){re.escape(key)}=([^&]*)", query or "")
        return value[1] if value else None
    parts = {
        "HOST": host[1], "PATH": path, "QUERY": query, "REF": reference,
        "PROTOCOL": protocol.lower(), "FILE": path if query is None else f"{path}?{query}", "AUTHORITY": authority,
        "USERINFO": user if at else None,
    }  # fmt: skip
    return parts.get(part)


def _str_to_map(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the pairs of each text; separators are regular expressions, and a key that stands twice has its last value."""
    made = elements_of(over_distinct(columns, _pairs, pa.list_(pa.string())))
    halves = made.counts // 2
    first = np.repeat(made.starts, halves) + 2 * ranges(np.zeros(len(halves), np.int64), halves)
    return map_column(evaluation.returns.arrow, made.chosen(first, halves), made.chosen(first + 1, halves))


def _pairs(text: str, pair: str = ",", key: str = "=") -> list[str | None]:
    made: dict[str, str | None] = {}
    between, within = compiled(pair), compiled(key)
    for each in _java_split(text, between) if text else ():
        match = within.python.search(each)
        if match is None or not match.end():
            made[each] = None
        else:
            made[each[: match.start()]] = each[match.end() :]
    return [part for item in made.items() for part in item]


def _java_split(text: str, by: JavaRegex) -> list[str]:
    """Return the pieces as String.split has them: without the empty ones at the end."""
    pieces, start = [], 0
    for match in by.matches(text):
        if match.end() > 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return pieces


def _uuid(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return a random UUID a row, version 4."""
    rows = evaluation.rows
    random = np.frombuffer(os.urandom(16 * rows), np.uint8).reshape(rows, 16).copy()
    random[:, 6] = random[:, 6] & 0x0F | 0x40
    random[:, 8] = random[:, 8] & 0x3F | 0x80
    digits = np.stack([random >> 4, random & 0x0F], axis=2).reshape(rows, 32)
    letters = np.where(digits < 10, digits + ord("0"), digits + ord("a") - 10)
    written = np.insert(letters, [8, 12, 16, 20], ord("-"), axis=1).astype(np.uint8)
    starts = np.arange(rows, dtype=np.int64) * 36
    return text_column(written.ravel(), starts, starts + 36, None)


_ANY_TEXT = "text or bytes"
_MAP_OF_STRING = SqlType("MAP", of=(STRING, STRING))

FUNCTIONS: Sequence[SqlFunction] = (
    *(
        defined(
            name,
            _ANY_TEXT,
            SqlType("CHAR", (digest(b"").digest_size * 2,)),
            _by_python(_digest(digest)),
        )
        for name, digest in _DIGESTS.items()
    ),
    defined("SHA2", f"{_ANY_TEXT}, integer", _sha2_type, _by_python(_sha2)),
    defined("TO_BASE64", _ANY_TEXT, STRING, _by_python(_to_base64)),
    defined("FROM_BASE64", "text", STRING, _by_python(_from_base64)),
    defined("HEX", ("integer", _ANY_TEXT), STRING, _by_python(_hex)),
    defined("BIN", "integer", STRING, _bin),
    defined("UNHEX", "text", BYTES, _by_python(_unhex), nulls="always"),
    defined("ENCODE", "text, text", BYTES, _by_python(_encode)),
    defined("DECODE", "bytes, text", STRING, _by_python(_decode)),
    defined("URL_ENCODE", "text", STRING, _by_python(_url_encode), nulls="always"),
    defined("URL_DECODE", "text", STRING, _by_python(_url_decode), nulls="always"),
    defined("PARSE_URL", ("text, text", "text, text, text"), STRING, _by_python(_parse_url), nulls="always"),
    defined("STR_TO_MAP", ("text", "text, text, text"), _MAP_OF_STRING, _str_to_map),
    defined("UUID", "", SqlType("CHAR", (36,)), _uuid, nulls="never", is_deterministic=False),
)
