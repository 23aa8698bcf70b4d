"""DDL text and Arrow schemas say the same thing in both directions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.formats import ddl

SIMPLE = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
        *(pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(38, 38), pa.binary()),
    ]
)
NAMES = st.one_of(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(min_size=1, max_size=8))


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(lambda n, k, o: pa.field(n, k, nullable=o), NAMES, kinds, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name)


KINDS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(pa.list_), st.tuples(SIMPLE, inner).map(lambda p: pa.map_(*p)), fields(inner).map(pa.struct)
    ),
    max_leaves=6,
)


@given(fields(KINDS))
def test_what_render_writes_parse_reads(found: list[pa.Field]) -> None:
    schema = pa.schema(found)
    assert ddl.parse(ddl.render(schema)) == schema


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("byte", pa.int8()),
        ("SHORT", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("decimal", pa.decimal128(10, 0)),
        ("numeric(5)", pa.decimal128(5, 0)),
        ("varchar(20)", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("struct<a:int,b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("struct<>", pa.struct([])),
    ],
)
def test_types(text: str, kind: pa.DataType) -> None:
    assert ddl.parse(f"c {text}").field(0).type == kind
    assert ddl.parse_type(text) == kind


def test_names_comments_and_not_null() -> None:
    schema = ddl.parse("`a ``b` int NOT NULL COMMENT 'it''s, so', c: string COMMENT \"x\"".replace("''", "\\'"))
    assert schema.names == ["a `b", "c"]
    assert not schema.field(0).nullable
    assert schema.field(1).nullable


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("", "''"),
        ("a", "at the end"),
        ("a innt", "innt"),
        ("a int b", "'b'"),
        ("a array<int", "'>'"),
        ("a int,", "at the end"),
        ("a int; b int", "'; b int'"),
        ("a int not", "NULL"),
        ("a decimal(39,1)", "decimal(39,1)"),
        ("a decimal(3,4)", "decimal(3,4)"),
        ("a int, a string", "'a'"),
        ("a map<int>", "'>'"),
    ],
)
def test_errors_name_the_piece(text: str, piece: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        ddl.parse(text)
    assert piece in caught.value.what


def test_a_type_without_a_word_is_refused() -> None:
    with pytest.raises(DefinitionError, match="time64"):
        ddl.render(pa.schema([("a", pa.time64("us"))]))
