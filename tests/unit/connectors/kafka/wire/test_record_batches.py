"""The decoder by columns gives what a decoder of one record at a time gives, for every batch, and an error for damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from poundlock.connectors.kafka.source.reader import to_batch, to_lines
from poundlock.connectors.kafka.wire import varints
from poundlock.connectors.kafka.wire.record_batches import (
    AbortedTransaction,
    DamagedBatch,
    bytes_of_first_batch,
    check_sums,
    decode,
    read_headers,
    visible,
)
from poundlock.connectors.kafka.wire.record_fields import read_fields
from poundlock.connectors.kafka.wire.record_frames import Span
from poundlock.connectors.kafka.wire.varints import MalformedRecords
from support.examples import examples
from support.kafka_batches import (
    CONTROL,
    HEAD,
    LOG_APPEND,
    TRANSACTIONAL,
    Made,
    batch,
    marker,
    packed,
    padded,
    record,
    varint,
)

FIELDS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "timestamp_type")
CODECS = [0, 1, 2, 10, 3, 4]
Row = dict[str, Any]


def rows_of(data: bytes, first: int = 0, after: int = 1 << 60, aborted: Sequence[AbortedTransaction] = ()) -> list[Row]:
    """Return what our decoder makes of an answer."""
    answer, rows = padded(data), []
    headers = read_headers(memoryview(data))
    check_sums(answer, headers)
    shown = visible(memoryview(data), headers, aborted)
    for records in decode(answer, shown, first, after):
        made = to_batch(records, "t", 3, {name: name for name in FIELDS}).batch
        made.validate(full=True)
        at = made.schema.get_field_index("timestamp")
        ms = [None if us is None else us // 1000 for us in made.column(at).cast(pa.int64()).to_pylist()]
        rows += [
            {**row, "ms": time} for row, time in zip(made.drop_columns(["timestamp"]).to_pylist(), ms, strict=True)
        ]
    return rows


def plain(data: bytes, first: int = 0, after: int = 1 << 60) -> list[Row]:
    """Return what kafka-python's decoder makes of an uncompressed answer without transactions, one record at a time."""
    rows = []
    reader = MemoryRecords(data)
    while reader.has_next():
        made = reader.next_batch()
        assert made.validate_crc()
        if made.is_control_batch:
            continue
        for one in made:
            if first <= one.offset < after:
                kind = "LogAppendTime" if one.timestamp_type else "CreateTime"
                headers = [{"key": k, "value": v} for k, v in one.headers] or None
                rows.append({"key": one.key, "value": one.value, "topic": "t", "partition": 3, "offset": one.offset,
                             "ms": one.timestamp, "headers": headers, "timestamp_type": kind})  # fmt: skip
    return rows


values = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300), st.just(b"x" * 20))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=80))), max_size=3)
# Times that need one byte, or up to six; and seldom so many that they are read one by one.
deltas = st.one_of(st.integers(0, 60), st.integers(-(1 << 33), 1 << 33), st.sampled_from([1 << 53, -(1 << 53)]))


@st.composite
def batches_of(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Batches in order of offset: keys, nulls, headers, gaps as compaction leaves them, both kinds of time."""
    made, base = [], draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 5))):
        simple = draw(st.booleans())
        count = draw(st.sampled_from([0, 1, 3, 40, 300]))
        base += draw(st.integers(0, 3))
        offset, records = 0, []
        one = draw(st.binary(min_size=1, max_size=30))
        for i in range(count):
            offset += draw(st.integers(0, 2)) if count < 40 else 0
            if simple or count >= 40:
                records.append(Made(offset, i % 64, None, one * (1 + (i * 7) % 5 if not simple else 1)))
            else:
                records.append(Made(offset, draw(deltas), draw(values), draw(values), draw(headers)))
            offset += 1
        last = max(offset - 1, 0) + draw(st.integers(0, 2))
        kind = draw(st.sampled_from([0, 0, LOG_APPEND]))
        made.append({"records": records, "base": base, "last_delta": last, "attributes": kind})
        base += last + 1
    return made


@examples(150)
@given(batches_of(), st.lists(st.sampled_from(CODECS), min_size=5, max_size=5), st.data())
def test_any_batches_are_read_as_a_plain_decoder_reads_them(
    made: list[dict[str, Any]], codecs: list[int], data: st.DataObject
) -> None:
    uncompressed = b"".join(batch(**one) for one in made)
    compressed = b"".join(batch(**one, codec=codec) for one, codec in zip(made, codecs, strict=False))
    low = made[0]["base"]
    high = made[-1]["base"] + made[-1]["last_delta"] + 1
    first = data.draw(st.integers(low, high))
    after = data.draw(st.integers(first, high))
    for whole in (uncompressed, compressed):
        assert rows_of(whole) == plain(uncompressed)
        assert rows_of(whole, first, after) == plain(uncompressed, first, after)


@examples(150)
@given(batches_of(), st.sampled_from(CODECS), st.data())
def test_a_damaged_answer_is_an_error_or_cut_off_but_never_other_rows(
    made: list[dict[str, Any]], codec: int, data: st.DataObject
) -> None:
    whole = b"".join(batch(**one, codec=codec) for one in made)
    right = [(row["offset"], row["key"], row["value"]) for row in rows_of(whole)]
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    damaged = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
    try:
        found = [(row["offset"], row["key"], row["value"]) for row in rows_of(damaged)]
    except DamagedBatch:
        return
    # What no checksum covers: the epoch of the leader, the first offset, and a length that leaves the rest to the next answer.
    assert [row[1:] for row in found] == [row[1:] for row in right[: len(found)]]


@examples(100)
@given(st.lists(st.builds(Made, st.just(0), deltas, values, values, headers), min_size=1, max_size=4), st.data())
def test_records_that_do_not_add_up_are_an_error_even_if_their_checksum_is_right(
    made: list[Made], data: st.DataObject
) -> None:
    made = [Made(i, one.timestamp, one.key, one.value, one.headers) for i, one in enumerate(made)]
    body = bytearray(b"".join(record(one) for one in made))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    answer = batch(made, body=bytes(body))
    try:
        found = rows_of(answer)
    except DamagedBatch:
        return
    # One changed bit of a value or number is another record, but as many records as before, each within the batch.
    assert len(found) == len(made)
    assert sum(len(row["value"] or b"") + len(row["key"] or b"") for row in found) <= len(body)


@pytest.mark.parametrize("count", [31, 32, 255, 256, 5000])
@pytest.mark.parametrize("kind", ["equal", "random", "zeros", "binary", "long"])
def test_every_way_of_finding_records_finds_the_same(count: int, kind: str) -> None:
    random = np.random.default_rng(count)
    size = {"equal": lambda: 95, "long": lambda: int(random.integers(50, 20_000)) if count < 300 else 200}.get(
        kind, lambda: int(random.integers(0, 200))
    )
    content = {"zeros": lambda n: bytes(n), "binary": lambda n: random.integers(0, 3, n, np.uint8).tobytes()}.get(
        kind, lambda n: b"x" * n
    )
    made = [Made(i, i % 100, None, content(size())) for i in range(count)]
    answer = batch(made) + batch(made[:7], base=count) + batch(made, base=count + 7)
    assert [row["value"] for row in rows_of(answer)] == [one.value for one in [*made, *made[:7], *made]]


@pytest.mark.parametrize("wrong", ["count", "short", "long"])
@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("lengths", ["equal", "random"])
def test_a_header_that_promises_other_records(wrong: str, size: int, lengths: str) -> None:
    made = [Made(i, 0, None, b"v" * (9 if lengths == "equal" else i % 37)) for i in range(size)]
    body = b"".join(record(one) for one in made)
    given: dict[str, Any] = {
        "count": {"count": size + 1}, "short": {"body": body[:-3]}, "long": {"body": body + b"\0\0"}
    }[wrong]  # fmt: skip
    good = batch([Made(0, 0, None, b"a")], base=7)
    with pytest.raises(DamagedBatch, match="record batch at offset 8 is damaged") as caught:
        rows_of(good + batch(made, base=8, last_delta=size, **given))
    assert caught.value.offset == 8


def test_numbers_of_more_than_eight_bytes_are_read_one_by_one() -> None:
    made = [Made(0, -(1 << 60), None, b"a"), Made(1, 5, b"k", None, [("h", b"1")])]
    answer = batch(made, time=1 << 60, max_time=0)
    assert [row["value"] for row in plain(answer)] == [b"a", None]
    (records,) = decode(padded(answer), read_headers(memoryview(answer)), 0, 9)
    assert records.timestamp_ms.tolist() == [0, (1 << 60) + 5]
    with pytest.raises(DamagedBatch, match=f"offset 1 has the timestamp {(1 << 60) + 5}, which is not in milliseconds"):
        to_batch(records, "t", 0, {"timestamp": "timestamp"})
    assert to_batch(records, "t", 0, {"v": "value"}).batch.to_pylist() == [{"v": b"a"}, {"v": None}]


def test_numbers_without_an_end() -> None:
    endless = b"\x8c\x01" + b"\0" + b"\xff" * 69
    with pytest.raises(DamagedBatch):
        rows_of(batch([Made(0)], body=endless))
    with pytest.raises(MalformedRecords, match="more than 64 bits"):
        varints.read_varint(b"\xff" * 11, 0)


@pytest.mark.parametrize("numbers", [[0, 1, -1, 63, -64], [64, -65, 8191, 1 << 20], [(1 << 55) - 1, -(1 << 55), 5]])
def test_varints(numbers: list[int]) -> None:
    data = padded(b"".join(varint(n) for n in numbers))
    starts = np.cumsum([0, *(len(varint(n)) for n in numbers)])[:-1].astype(np.int64)
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), buffer=data, strides=(1,))
    found, behind = varints.varints(words, starts)
    assert found.tolist() == numbers
    assert (behind - starts).tolist() == [len(varint(n)) for n in numbers]


def test_offsets_must_ascend_within_their_batch() -> None:
    for offsets, last in (([1, 0], 1), ([0, 5], 3), ([-1, 2], 2)):
        with pytest.raises(DamagedBatch, match="offset"):
            rows_of(batch([Made(o, 0, None, b"v") for o in offsets], base=10, last_delta=last))
    with pytest.raises(DamagedBatch, match="behind an earlier offset"):
        read_headers(memoryview(batch([Made(0)], base=5) + batch([Made(0)], base=5)))


# -- what a reader may see ---------------------------------------------------------------------------------------------


def test_aborted_transactions_are_left_out_and_committed_ones_stay() -> None:
    def of(producer: int, base: int, text: bytes) -> bytes:
        return batch([Made(0, 0, None, text)], base=base, producer=producer, attributes=TRANSACTIONAL)

    answer = b"".join((
        of(1, 0, b"aborted 1"), of(2, 1, b"committed 2"), batch([Made(0, 0, None, b"plain")], base=2, producer=1),
        of(1, 3, b"aborted 1 too"), marker(1, abort=True, base=4), of(1, 5, b"committed 1"),
        marker(2, abort=False, base=6), of(2, 7, b"aborted 2"), marker(1, abort=False, base=8),
        marker(2, abort=True, base=9), of(2, 10, b"open later"),
    ))  # fmt: skip
    aborted = [AbortedTransaction(2, 7), AbortedTransaction(1, 0)]
    assert [r["value"] for r in rows_of(answer, aborted=aborted)] == [
        b"committed 2", b"plain", b"committed 1", b"open later"
    ]  # fmt: skip
    assert len(rows_of(answer)) == 7  # uncommitted: everything but the markers


def test_an_aborted_transaction_that_began_before_the_answer() -> None:
    answer = batch([Made(0, 0, None, b"a")], base=50, producer=9, attributes=TRANSACTIONAL) + marker(
        9, abort=True, base=51
    )
    assert rows_of(answer, aborted=[AbortedTransaction(9, 3)]) == []


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    emptied = batch([], base=5, attributes=TRANSACTIONAL | CONTROL, producer=1)
    answer = batch([Made(0, 0, None, b"a")], base=4, producer=1, attributes=TRANSACTIONAL) + emptied
    assert rows_of(answer, aborted=[AbortedTransaction(1, 4)]) == []
    assert len(rows_of(answer)) == 1


def test_a_control_batch_without_a_key_is_damaged() -> None:
    broken = batch([Made(0)], body=b"\xff\xff", base=6, attributes=TRANSACTIONAL | CONTROL, producer=1)
    with pytest.raises(DamagedBatch, match="offset 6 is damaged: it is a control batch without a key"):
        rows_of(broken, aborted=[AbortedTransaction(1, 0)])


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused_by_name(magic: int) -> None:
    words = f"message format {magic}, which brokers wrote before Kafka 0.11" if magic < 2 else "no message format 3"
    with pytest.raises(DamagedBatch, match=words) as caught:
        read_headers(memoryview(batch([Made(0)], base=77, magic=magic)))
    assert caught.value.offset == 77


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    one, two = batch([Made(0, 0, None, b"a")]), batch([Made(0, 0, None, b"b" * 500)], base=1)
    for cut in range(len(one), len(one) + len(two)):
        assert [h.base_offset for h in read_headers(memoryview((one + two)[:cut]))] == [0]
    assert read_headers(memoryview(b"")) == []
    assert bytes_of_first_batch(memoryview(two[:20])) == len(two)
    assert bytes_of_first_batch(memoryview(two[:11])) is None


def test_a_wrong_checksum_names_the_batch() -> None:
    answer = bytearray(batch([Made(0, 0, None, b"good")]) + batch([Made(0, 0, None, b"wrong")], base=1))
    answer[-2] ^= 1
    with pytest.raises(DamagedBatch, match="record batch at offset 1 is damaged: its checksum"):
        rows_of(bytes(answer))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_data_that_is_damaged_although_its_checksum_is_right(codec: int) -> None:
    body = packed(record(Made(0, 0, None, b"v" * 1000)), codec)
    for broken in (body[: len(body) // 2], b"\0" * len(body), b""):
        rest = struct.pack(">hiqqqhii", codec % 8, 0, 0, 0, -1, 0, -1, 1) + broken
        answer = struct.pack(">qiibI", 5, len(rest) + 9, 0, 2, google_crc32c.value(rest)) + rest
        with pytest.raises(DamagedBatch, match="offset 5 is damaged"):
            rows_of(answer)


def test_a_compression_that_is_not_known() -> None:
    rest = struct.pack(">hiqqqhii", 5, 0, 0, 0, -1, 0, -1, 1) + b"abc"
    with pytest.raises(DamagedBatch, match="compression 5 is not known"):
        rows_of(struct.pack(">qiibI", 5, len(rest) + 9, 0, 2, google_crc32c.value(rest)) + rest)


def test_much_compressed_data_is_decoded_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poundlock.connectors.kafka.wire.record_batches._PORTION_BYTES", 1000)
    answer = b"".join(batch([Made(0, 0, None, b"v" * 400)], base=n, codec=4) for n in range(10))
    portions = list(decode(padded(answer), read_headers(memoryview(answer)), 2, 9))
    assert [len(records) for records in portions] == [3, 3, 1]
    assert [o for records in portions for o in records.offset.tolist()] == list(range(2, 9))


# -- columns and lines -------------------------------------------------------------------------------------------------


def test_log_append_time_is_the_brokers() -> None:
    made = [Made(0, 5, None, b"a"), Made(1, 9, None, b"b")]
    answer = batch(made) + batch(made, base=2, attributes=LOG_APPEND, max_time=1_600_000_000_000)
    rows = rows_of(answer)
    assert [row["timestamp_type"] for row in rows] == ["CreateTime", "CreateTime", "LogAppendTime", "LogAppendTime"]
    assert [row["ms"] for row in rows[:2]] == [1_545_184_226_005, 1_545_184_226_009]
    assert {row["ms"] for row in rows[2:]} == {1_600_000_000_000}


def test_headers() -> None:
    rows = rows_of(batch([Made(0, 0, None, b"a", [("k", b"1"), ("k", None), ("", b"")] * 40), Made(1, 0, None, b"b")]))
    assert rows[0]["headers"][:3] == [
        {"key": "k", "value": b"1"},
        {"key": "k", "value": None},
        {"key": "", "value": b""},
    ]
    assert len(rows[0]["headers"]) == 120
    assert rows[1]["headers"] is None


@pytest.mark.parametrize("broken", [b"\x02\x7f", b"\x02\x02a", b"\x02\x02a\x07bb", b"\x01\0", b"\x02\x01a\x02b"])
def test_headers_that_do_not_add_up(broken: bytes) -> None:
    body = b"\0\0\0\x01\x02v" + broken
    answer = batch([Made(0)], base=4, body=varint(len(body)) + body)
    with pytest.raises(DamagedBatch, match="offset 4 is damaged: the headers of a record are not whole"):
        rows_of(answer)


def test_a_header_key_that_is_no_text_is_read_as_javas_clients_do() -> None:
    body = b"\0\0\0\x01\x02v" + b"\x02\x04a\xff\x02z"
    (row,) = rows_of(batch([Made(0)], body=varint(len(body)) + body))
    assert row["headers"] == [{"key": "a\N{REPLACEMENT CHARACTER}", "value": b"z"}]


def lines_of(made: Sequence[Made], first: int = 0, after: int = 1 << 60, codec: int = 0) -> list[Any]:
    answer = batch(made, codec=codec)
    (records,) = decode(padded(answer), read_headers(memoryview(answer)), first, after)
    return [to_lines(records, "t", 3), records]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("headers", [(), [("h", b"1")] * 70])
def test_lines(codec: int, headers: Sequence[Any]) -> None:
    made = [Made(i, 0, b"k" * (i % 3), b"line %d" % i, headers) for i in range(500)]
    lines, _ = lines_of(made, 10, 490, codec)
    assert bytes(lines.data) == b"".join(b"line %d\n" % i for i in range(10, 490))
    assert [lines.row(i) for i in (0, 479)] == [b"line 10", b"line 489"]
    assert lines.origin.at(5) == {"topic": "t", "partition": 3, "offset": 15}
    assert lines.ends.dtype == np.int64


@pytest.mark.parametrize("value", [None, b"a\nb", b"\n"])
def test_values_that_are_no_lines_become_columns_unchanged(value: bytes | None) -> None:
    made = [Made(0, 0, None, b"x", [("h", b"1")]), Made(1, 0, b"k", value), Made(2, 0, None, b"")]
    lines, records = lines_of(made)
    assert lines is None
    columns = to_batch(records, "t", 3, {"value": "value", "headers": "headers"}).batch.to_pydict()
    assert columns == {"value": [b"x", value, b""], "headers": [[{"key": "h", "value": b"1"}], None, None]}


def test_columns_outlive_the_buffer() -> None:
    answer = padded(batch([Made(0, 7, b"k", b"v")]))
    (records,) = decode(answer, read_headers(memoryview(answer)[:-8]), 0, 9)
    made = to_batch(records, "t", 3, {name: name for name in FIELDS})
    answer[:] = 255
    (row,) = made.batch.to_pylist()
    assert (row["key"], row["value"], row["offset"]) == (b"k", b"v", 0)
    assert made.batch.schema.field("headers").type == pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    )


def test_a_span_must_be_filled_to_its_end() -> None:
    data = padded(record(Made(0, 0, None, b"abc")) * 2)
    size = (len(data) - 8) // 2
    assert len(read_fields(data, [Span(0, 2 * size, 2)]).end) == 2
    for wrong in (Span(0, size, 2), Span(0, 2 * size, 1), Span(0, 2 * size - 1, 2), Span(1, 2 * size, 2)):
        with pytest.raises(MalformedRecords):
            read_fields(data, [wrong])
    assert HEAD == 61
