"""Digests, base64, hexadecimal, character sets, URLs, maps from texts, UUID."""

from __future__ import annotations

import base64
import hashlib
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.encodings import FUNCTIONS
from support.examples import examples
from support.sql_functions import Functions

ENCODINGS = Functions(FUNCTIONS)

FEW = examples(15)
COLUMNS = st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=5)


@given(COLUMNS)
@FEW
def test_texts_are_digested_and_read_back(values: list[str | None]) -> None:
    column = pa.array(values, pa.string())
    for name, digest in (("MD5", "md5"), ("SHA1", "sha1"), ("SHA256", "sha256"), ("SHA512", "sha512")):
        digests = [text if text is None else hashlib.new(digest, text.encode()).hexdigest() for text in values]
        assert ENCODINGS.call(name, column) == digests
    written = ENCODINGS.call("TO_BASE64", column)
    assert written == [text if text is None else base64.b64encode(text.encode()).decode() for text in values]
    assert ENCODINGS.call("FROM_BASE64", pa.array(written, pa.string())) == values
    digits = ENCODINGS.call("HEX", column)
    read = ENCODINGS.call("UNHEX", pa.array(digits, pa.string()))
    assert read == [text if text is None else text.encode() for text in values]
    assert ENCODINGS.call("DECODE", pa.array(read, pa.binary()), "UTF-8") == values
    assert ENCODINGS.call("URL_DECODE", pa.array(ENCODINGS.call("URL_ENCODE", column), pa.string())) == values


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("SHA2", ("a", 256), hashlib.sha256(b"a").hexdigest()),
        ("MD5", (b"\xff",), hashlib.md5(b"\xff").hexdigest()),
        ("HEX", (255,), "FF"),
        ("HEX", (-1,), "FFFFFFFFFFFFFFFF"),
        ("UNHEX", ("1",), b"\x01"),
        ("UNHEX", ("zz",), None),
        ("ENCODE", ("é", "UTF-16BE"), b"\x00\xe9"),
        ("ENCODE", ("é", "us-ascii"), b"?"),
        ("URL_ENCODE", ("é~*-._ b",), "%C3%A9%7E*-._+b"),
        ("URL_DECODE", ("100%",), None),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "HOST"), "h.com"),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "AUTHORITY"), "u:p@h.com:80"),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "USERINFO"), "u:p"),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "FILE"), "/a/b?q=1&r="),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "REF"), "x"),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "QUERY", "r"), ""),
        ("PARSE_URL", ("http://u:p@h.com:80/a/b?q=1&r=#x", "QUERY", "z"), None),
        ("PARSE_URL", ("http://h/a", "QUERY"), None),
        ("PARSE_URL", ("http://h:x/a", "HOST"), None),
        ("PARSE_URL", ("foo://h/a", "HOST"), None),
        ("PARSE_URL", ("HTTP://h", "PROTOCOL"), "http"),
        ("STR_TO_MAP", ("k1=v1,k2=v2,k3",), [("k1", "v1"), ("k2", "v2"), ("k3", None)]),
        ("STR_TO_MAP", ("k1:v1;k1:v2", ";", ":"), [("k1", "v2")]),
        ("STR_TO_MAP", ("a1b22c", "[0-9]+", ""), [("a", None), ("b", None), ("c", None)]),
        ("STR_TO_MAP", ("",), []),
    ],
)
def test_single_calls(name: str, arguments: tuple[object, ...], value: object) -> None:
    assert ENCODINGS.call(name, *arguments) == [value] * 3


def test_maps_of_rows_of_different_sizes() -> None:
    column = pa.array(["a=1", None, "", "b=2,c=3,b=4"])
    assert ENCODINGS.call("STR_TO_MAP", column) == [[("a", "1")], None, [], [("b", "4"), ("c", "3")]]


def test_each_uuid_is_another_one_of_version_four() -> None:
    function = ENCODINGS.named["UUID"]
    made = ENCODINGS.named["UUID"].returns(())
    assert (str(made), made.is_nullable, function.is_deterministic) == ("CHAR(36)", False, False)
    from poundlock.sql.functions.function import Evaluation

    values = function.run((), Evaluation(50, ENCODINGS.zone, 0, made)).to_pylist()
    assert len(set(values)) == 50
    assert {(uuid.UUID(value).version, str(uuid.UUID(value)) == value) for value in values} == {(4, True)}


def test_what_cannot_be_done_is_refused_or_ends_the_job() -> None:
    with pytest.raises(DefinitionError, match="SHA2 of 255 bits"):
        ENCODINGS.type_of("SHA2", "a", 255)
    with pytest.raises(TerminalError, match="SHA2 of 1 bits"):
        ENCODINGS.call("SHA2", "a", pa.array([1]))
    with pytest.raises(TerminalError, match="not base64"):
        ENCODINGS.call("FROM_BASE64", "*")
    with pytest.raises(TerminalError, match="no character set X"):
        ENCODINGS.call("ENCODE", "a", "X")
