"""Records encoded by columns against Kafka's own clients: what two other decoders read, for batches of any content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from poundlock.connectors.kafka.source.reader import to_batch
from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, joined, of_column, of_lines, of_list
from poundlock.connectors.kafka.wire.compression import CODECS, compress, decompress
from poundlock.connectors.kafka.wire.record_batches import check_sums, decode, read_headers
from poundlock.connectors.kafka.wire.record_encoder import (
    BatchKind,
    encode_batch,
    encode_headers,
    encode_named_headers,
    encode_runs,
)
from poundlock.connectors.kafka.wire.varints import SPARE

texts = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 9000).map(lambda size: b"x" * size))
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=70), texts), max_size=3)
times = st.one_of(st.integers(0, 1 << 50), st.integers(1_545_184_226_000, 1_545_184_227_000))
messages = st.lists(st.tuples(texts, texts, headers, times), min_size=1, max_size=40)
kinds = st.builds(
    BatchKind,
    st.integers(0, 1 << 62), st.integers(0, 30_000), st.booleans(), st.sampled_from(["none", *CODECS]),
)  # fmt: skip


def by_another_decoder(batch: bytes) -> list[tuple[Any, ...]]:
    read = MemoryRecords(batch)
    found = read.next_batch()
    assert read.next_batch() is None
    assert found.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in found]


def by_ours(batch: bytes) -> list[tuple[Any, ...]]:
    data = np.frombuffer(batch + bytes(SPARE), np.uint8)
    found = read_headers(memoryview(batch))
    check_sums(data, found)
    rows: list[tuple[Any, ...]] = []
    for records in decode(data, found, 0, 1 << 40):
        columns = to_batch(records, "t", 0, {"k": "key", "v": "value", "h": "headers"}).batch
        for offset, time_ms, row in zip(records.offset, records.timestamp_ms, columns.to_pylist(), strict=True):
            named = [(h["key"], h["value"]) for h in row["h"] or ()]
            rows.append((int(offset), int(time_ms), row["k"], row["v"], named))
    return rows


@given(messages, kinds, st.integers(0, (1 << 31) - 1), st.booleans(), st.booleans(), st.data())
def test_any_messages_are_read_as_they_were(
    rows: list[tuple[Any, ...]], kind: BatchKind, sequence: int, keyed: bool, headed: bool, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(rows)))
    starts = [0] if cut == len(rows) else [0, cut]
    values = of_list([row[0] for row in rows])
    keys = of_list([row[1] for row in rows]) if keyed else None
    ends = of_list([encode_headers(row[2]) for row in rows]) if headed else None
    runs = encode_runs(values, keys, ends, np.array([row[3] for row in rows], np.int64), starts)
    assert [(run.rows.start, run.rows.stop) for run in runs] == list(zip(starts, [*starts[1:], len(rows)], strict=True))
    for run in runs:
        expected = [
            (number, time, key if keyed else None, value, list(named) if headed else [])
            for number, (value, key, named, time) in enumerate(rows[run.rows])
        ]
        batch = b"".join(map(bytes, encode_batch(run, kind, sequence)))
        if kind.compression in ("none", "gzip"):  # for the others it needs packages that are not installed
            assert by_another_decoder(batch) == expected
        assert by_ours(batch) == expected
        (header,) = read_headers(memoryview(batch))
        assert (header.producer_id, header.producer_epoch) == (kind.producer_id, kind.producer_epoch)
        assert header.is_transactional == kind.transactional
        assert MemoryRecords(batch).next_batch().base_sequence == sequence


@given(st.lists(st.lists(texts, max_size=9), min_size=1, max_size=4), st.data())
def test_byte_strings_are_cut_chosen_and_joined_as_lists_are(
    parts: list[list[bytes | None]], data: st.DataObject
) -> None:
    def plain(strings: ByteStrings) -> list[bytes | None]:
        assert [len(row or b"") for row in map(strings.at, range(len(strings)))] == strings.length.tolist()
        return [strings.at(row) for row in range(len(strings))]

    whole, rows = [row for part in parts for row in part], joined([of_list(part) for part in parts])
    assert plain(rows) == whole
    order = data.draw(st.permutations(range(len(whole))))
    some = order[: data.draw(st.integers(0, len(order)))]
    assert plain(rows.take(np.array(some, np.int64))) == [whole[row] for row in some]
    first, after = sorted((data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))))
    assert plain(rows.take(slice(first, after))) == whole[first:after]
    column = pa.array([None, *whole], pa.binary()).slice(1)
    assert plain(of_column(column)) == whole
    lines = [row for row in whole if row is not None and b"\n" not in row]
    text = b"".join(line + b"\n" for line in lines)
    assert plain(of_lines(memoryview(text), np.flatnonzero(np.frombuffer(text, np.uint8) == 10))) == lines


def test_bytes_that_a_null_hides_are_in_no_record() -> None:
    """Arrow leaves them in a function of a user's that makes some values null."""
    keep = pa.array([True, False, True])
    column = pc.if_else(keep, pa.array(["a", "hidden", "b"]), pa.scalar(None, pa.string()))
    assert column.buffers()[2].size > 2, "there are such bytes"
    values = of_column(column)
    (run,) = encode_runs(values, values, encode_named_headers({"name": values}), 5, [0])
    batch = b"".join(map(bytes, encode_batch(run, BatchKind(), 0)))
    texts = [b"a", None, b"b"]
    expected = [(number, 5, text, text, [("name", text)]) for number, text in enumerate(texts)]
    assert by_another_decoder(batch) == expected
    assert by_ours(batch) == expected


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1), st.lists(texts, min_size=3, max_size=3), min_size=1
    )
)
def test_named_headers_are_those_of_each_row(named: dict[str, list[bytes | None]]) -> None:
    made = encode_named_headers({name: of_list(values) for name, values in named.items()})
    for row in range(3):
        assert made.at(row) == encode_headers([(name, values[row]) for name, values in named.items()])


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("data", [b"", b"a", bytes(70_000), np.random.default_rng(1).bytes(200_000)])
def test_compressed_bytes_are_read_again(name: str, data: bytes) -> None:
    packed = compress(name, memoryview(data))
    assert decompress(CODECS[name], memoryview(packed)) == data
    assert len(packed) <= len(data) * 1.01 + 100
