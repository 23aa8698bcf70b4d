"""What goes over the wire to OpenSearch: ids, names of indices, and the body of a bulk."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError
from poundlock.connectors.opensearch.bulk_lines import (
    actions,
    body_of,
    documents_of,
    own_documents,
    with_documents,
)
from poundlock.connectors.opensearch.document_ids import document_ids
from poundlock.connectors.opensearch.index_names import IndexName
from poundlock.formats.arrays import last_of_each, pieces
from poundlock.formats.chunk import Batch
from poundlock.formats.encode import JsonEncoder

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def ids_of(*columns: list[Any], delimiter: str = "_") -> tuple[list[str], dict[int, str]]:
    names = [f"c{i}" for i in range(len(columns))]
    batch = pa.record_batch([pa.array(column) for column in columns], names=names)
    ids, bad = document_ids(batch, names, delimiter)
    return ids.to_pylist(), bad


def test_ids_are_texts_joined_as_flink_joins_them() -> None:
    assert ids_of([1, -2])[0] == ["1", "-2"]
    assert ids_of(["a", "b c"], [7, 8])[0] == ["a_7", "b c_8"]
    assert ids_of([True], [datetime.date(2026, 1, 5)])[0] == ["true_2026-01-05"]
    assert ids_of(["a_b"])[0] == ["a_b"], "one column needs no escape"


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=8, unique=True), st.sampled_from(["_", "-", "::", "$"]))
def test_no_two_keys_make_one_id(keys: list[tuple[str, str]], delimiter: str) -> None:
    ids, bad = ids_of([a for a, _ in keys], [b for _, b in keys], delimiter=delimiter)
    assert bad == {}
    assert len(set(ids)) == len(keys)


def test_rows_without_an_id_are_bad() -> None:
    _, bad = ids_of(["", "x" * 513, None, "x" * 512, "ä" * 257])
    assert sorted(bad) == [0, 1, 2, 4]
    assert bad[2] == "column 'c0' is null, and must not be"


def names_of(pattern: str, **columns: list[Any]) -> list[str | None]:
    batch = pa.record_batch({name: pa.array(column) for name, column in columns.items()})
    return IndexName.parse(pattern).of(batch, 1_700_000_000_000).to_pylist()  # type: ignore[no-any-return]


def test_names_of_indices_are_made_of_columns() -> None:
    moment = datetime.datetime(2026, 3, 9, 23, 59, tzinfo=datetime.UTC)
    assert names_of("log-{day|yyyy-MM}-{who}", day=[moment, None], who=["a", "b"]) == ["log-2026-03-a", None]
    assert names_of("{who}", who=["a", None]) == ["a", None]
    assert names_of("t-{now()|yyyyMMdd}", who=["a"]) == ["t-20231114"]
    assert names_of("{n}", n=[]) == []
    assert IndexName.parse("orders").fixed == "orders"


@pytest.mark.parametrize("name", ["", "Orders", "a/b", "a{", "{}", "{a|yyyy", "{a|qq}", "{now()}", "_x", "a b"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError):
        IndexName.parse(name)


def test_of_several_rows_of_a_document_the_newest_is_kept() -> None:
    assert last_of_each([pa.array(["a", "b", "a", "c", "b"])]).tolist() == [2, 3, 4]
    assert last_of_each([pa.array(["a", "a", "a"]), pa.array(["x", "y", "x"])]).tolist() == [1, 2]
    assert last_of_each([pa.array([], pa.string())]).tolist() == []


@given(st.lists(st.tuples(TEXTS, st.none() | TEXTS, st.integers(0, 1 << 40)), max_size=12), st.booleans())
def test_a_body_is_read_back_as_what_was_written(rows: list[tuple[str, str | None, int]], with_index: bool) -> None:
    ids = pa.array([a for a, _, _ in rows], pa.string())
    batch = pa.record_batch({"text": pa.array([b for _, b, _ in rows], pa.string()), "n": [c for *_, c in rows]})
    indices = pa.array([f"i-{n % 3}" for *_, n in rows], pa.string()) if with_index else None
    lines = with_documents(
        actions("index", ids, indices, version=77, rows=len(rows)), documents_of(JsonEncoder().encode(Batch(batch)))
    )
    read = [json.loads(line) for line in bytes(body_of(lines)).decode().split("\n")[:-1]] if rows else []
    for (id, text, n), action, document in zip(rows, read[0::2], read[1::2], strict=True):
        assert action["index"].pop("_index", None) == (f"i-{n % 3}" if with_index else None)
        assert action == {"index": {"_id": id, "version": 77, "version_type": "external_gte"}}
        assert document == {"text": text, "n": n}


def test_a_body_is_cut_by_bytes_and_a_long_line_goes_alone() -> None:
    lines = pa.array([b"a" * 10, b"b" * 10, b"c" * 30, b"d"], pa.large_binary())
    assert [(first, bytes(body_of(piece))) for first, piece in pieces(lines, 20)] == [
        (0, b"a" * 10 + b"b" * 10),
        (2, b"c" * 30),
        (3, b"d"),
    ]
    assert [len(piece) for _, piece in pieces(lines, 1000, 3)] == [3, 1]
    assert list(pieces(lines.slice(0, 0), 20)) == []


def test_actions_without_ids_and_of_deletions() -> None:
    assert bytes(body_of(actions("create", None, None, 5, 2))) == b'{"create":{}}\n{"create":{}}\n'
    gone = actions("delete", pa.array(['a"b']), None, 5, 1)
    assert json.loads(bytes(body_of(gone))) == {"delete": {"_id": 'a"b', "version": 5, "version_type": "external_gte"}}


def test_documents_that_rows_bring_along_are_one_line_each() -> None:
    texts, bad = own_documents(pa.array(['{"a":1}', '{\n "a": "x\\ny"\n}', None, "{\n"]))
    assert sorted(bad) == [2, 3]
    assert texts.to_pylist()[:2] == [b'{"a":1}\n', b'{"a":"x\\ny"}\n']
