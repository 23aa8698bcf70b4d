"""Record batches as a broker sends them: which are whole, which a reader may see, and the records in them by columns.

A batch whose checksum or structure is wrong is a DamagedBatch that names its offset; none of its records come out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from poundlock.connectors.kafka.client_loader import google_crc32c
from poundlock.connectors.kafka.wire.compression import decompress
from poundlock.connectors.kafka.wire.record_fields import RecordFields, read_fields
from poundlock.connectors.kafka.wire.record_frames import Span
from poundlock.connectors.kafka.wire.varints import SPARE, Integers, MalformedRecords, read_varint, read_varints
from poundlock.errors import DefinitionError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")  # the first offset, and how many bytes follow
_MAGIC_AT, _CRC_FROM = 16, 21
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT_MARKER = 0
_PORTION_BYTES = 32 << 20  # compressed batches are decoded together until so much came out of them


class DamagedBatch(ValueError):
    """A batch cannot be read: its first offset, as its header says, and what is wrong with it, to be put behind its name."""

    def __init__(
        self, offset: int, why: str, *, next: str = "look at the broker's disk and its log; nothing was changed"
    ) -> None:
        self.offset, self.why, self.next = offset, why, next
        super().__init__(f"the record batch at offset {offset} {why}")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, as an answer lists it: whose it was, and the first offset it wrote to a partition."""

    producer_id: int
    first_offset: int


class BatchHeader(NamedTuple):
    """What the header says of one batch of format 2.

    It stands for the offsets from the first to the last, either of whose records compaction may have removed. Times are in ms since
    the epoch; a producer without an id has -1. In the answer, the batch and its records begin at `start` and `records_start`.
    """

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    record_count: int
    start: int
    records_start: int
    end: int
    crc: int

    @property
    def codec(self) -> int:
        """The number of its compression, 0 for none."""
        return self.attributes & _CODEC

    @property
    def is_log_append_time(self) -> bool:
        """Whether its time is when the broker appended it, and not the producer's."""
        return bool(self.attributes & _LOG_APPEND)

    @property
    def is_control(self) -> bool:
        """Whether it ends a transaction and holds no records of users."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)


def read_headers(answer: memoryview) -> list[BatchHeader]:
    """Return the headers of the batches that are whole; one that is cut off at the end is left out.

    Raises:
        DamagedBatch: a batch has a length or an offset that cannot be, or is of a format older than 2.
    """
    headers: list[BatchHeader] = []
    at, size = 0, len(answer)
    while size - at > _MAGIC_AT:
        base, length = _PREFIX.unpack_from(answer, at)
        end = at + _PREFIX.size + length
        if answer[at + _MAGIC_AT] != 2:
            raise DamagedBatch(base, _of_format(answer[at + _MAGIC_AT]))
        if base < 0:  # the first offset is the one number of a header that no checksum covers
            raise DamagedBatch(base, "is damaged: no offset is below 0")
        if length < _HEADER.size - _PREFIX.size or (headers and base <= headers[-1].last_offset):
            raise DamagedBatch(base, f"is damaged: it says that {length} bytes follow, behind an earlier offset")
        if end > size:
            break
        header = _HEADER.unpack_from(answer, at)
        _, _, _, _, crc, attributes, delta, first_ms, max_ms, producer, epoch, _, count = header
        if delta < 0 or count < 0:
            raise DamagedBatch(base, f"is damaged: it has {count} records up to offset {base + delta}")
        headers.append(
            BatchHeader(
                base, base + delta, attributes, first_ms, max_ms, producer, epoch, count, at, at + _HEADER.size, end, crc
            )
        )  # fmt: skip
        at = end
    return headers


def _of_format(magic: int) -> str:
    if magic in (0, 1):
        return f"is of message format {magic}, which brokers wrote before Kafka 0.11 and which is not read here"
    return f"is damaged: there is no message format {magic}"


def bytes_of_first_batch(answer: memoryview) -> int | None:
    """Return how many bytes the first batch of an answer has, whole or not; None where not even that is there."""
    if len(answer) < _PREFIX.size:
        return None
    return int(_PREFIX.unpack_from(answer, 0)[1]) + _PREFIX.size


def check_sums(answer: npt.NDArray[np.uint8], headers: Iterable[BatchHeader]) -> None:
    """Raise DamagedBatch unless every batch has the checksum that its header says."""
    crc32c = google_crc32c().value
    for header in headers:
        if crc32c(answer[header.start + _CRC_FROM : header.end]) != header.crc:
            raise DamagedBatch(header.base_offset, "is damaged: its checksum (CRC32C) is another than its bytes have")


def visible(
    answer: memoryview, headers: Iterable[BatchHeader], aborted: Iterable[AbortedTransaction]
) -> list[BatchHeader]:
    """Return the batches that hold records a reader may see: no control batches, and nothing of aborted transactions.

    `check_sums` was called before. Where readers see committed records only, no batch is past the last stable offset, and `aborted` is
    what the broker lists for this answer.
    """
    coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    open_aborted: set[int] = set()
    shown = []
    for header in headers:
        while coming and coming[-1].first_offset <= header.last_offset:
            open_aborted.add(coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in open_aborted and is_abort_marker(answer, header):
                open_aborted.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in open_aborted):
            shown.append(header)
    return shown


def is_abort_marker(answer: memoryview, header: BatchHeader) -> bool:
    """Return whether a control batch aborts a transaction. Its one record has the key (version, kind), 16 bits each."""
    if not header.record_count:
        return False  # compaction left only the header: the marker has done its work
    data = answer[header.records_start : header.end]
    try:
        _, at = read_varint(data, 0)
        _, at = read_varint(data, at + 1)
        _, at = read_varint(data, at)
        length, at = read_varint(data, at)
        kind = int.from_bytes(data[at + 2 : at + 4], "big") if length >= 4 else -1
    except (IndexError, MalformedRecords) as error:
        raise DamagedBatch(header.base_offset, "is damaged: it is a control batch without a key") from error
    return kind == _ABORT_MARKER


@dataclass(slots=True)
class Records:
    """The records of some batches, in order of offset. Valid as long as the buffer they were read from is left as it is.

    The fields point into `data`; `keep` says which of the records are in the range that is read.
    """

    data: npt.NDArray[np.uint8]
    fields: RecordFields
    headers: Sequence[BatchHeader]
    keep: slice
    _offset: Integers

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def offset(self) -> Integers:
        """The offset of each record."""
        return self._offset[self.keep]

    def column(self, name: str) -> Integers:
        """Return one of the arrays of RecordFields, for the records that are read."""
        values: Integers = getattr(self.fields, name)[self.keep]
        return values

    @property
    def value_bytes(self) -> int:
        """How many bytes the values have together."""
        return int(np.maximum(self.column("value_length"), 0).sum())

    @property
    def timestamp_ms(self) -> Integers:
        """The time of each record, ms since the epoch."""
        base = np.array([h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in self.headers], np.int64)
        delta = read_varints(self.data, self.fields.timestamp_start)
        by_broker = [h.is_log_append_time for h in self.headers]
        if any(by_broker):
            delta = np.where(self._per_record(by_broker), 0, delta)
        times: Integers = (self._per_record(base) + delta)[self.keep]
        return times

    @property
    def is_log_append_time(self) -> npt.NDArray[np.bool_]:
        """Whether the time of each record is the broker's."""
        values: npt.NDArray[np.bool_] = self._per_record([h.is_log_append_time for h in self.headers])[self.keep]
        return values

    def by_batch(self) -> Iterator[tuple[BatchHeader, slice]]:
        """Yield the batches that have records in the range, each with which of these are its."""
        behind = np.cumsum([h.record_count for h in self.headers]) - self.keep.start
        first = 0
        for header, after in zip(self.headers, behind.clip(0, len(self)).tolist(), strict=True):
            if first < after:
                yield header, slice(first, after)
            first = after

    def _per_record(self, values: Any) -> Any:
        return np.repeat(np.asarray(values), [h.record_count for h in self.headers])


def decode(answer: npt.NDArray[np.uint8], headers: Iterable[BatchHeader], first: int, after: int) -> Iterator[Records]:
    """Yield the records of some batches whose offsets are in [first, after), in order and in portions that fit into memory.

    The answer is checked by `check_sums`, and at least SPARE bytes follow the last batch.

    Raises:
        DamagedBatch: the records of a batch are not what its header says.
        DefinitionError: a compression is not there in this installation.
    """
    wanted = [h for h in headers if h.record_count and h.last_offset >= first and h.base_offset < after]
    for data, portion, spans in _uncompressed(answer, wanted):
        try:
            fields = read_fields(data, spans)
        except MalformedRecords as error:
            raise _blamed(data, portion, spans, error) from error
        offset = np.repeat(np.array([h.base_offset for h in portion], np.int64), [h.record_count for h in portion])
        offset += fields.offset_delta
        _check_offsets(offset, portion)
        low, high = 0, len(offset)
        if offset[0] < first or offset[-1] >= after:
            low, high = (int(at) for at in np.searchsorted(offset, (first, after)))
        if low < high:
            yield Records(data, fields, portion, slice(low, high), offset)


def _check_offsets(offset: Integers, headers: Sequence[BatchHeader]) -> None:
    """Raise DamagedBatch unless offsets ascend and each lies within its batch."""
    if len(offset) > 1 and (offset[1:] <= offset[:-1]).any():
        raise DamagedBatch(headers[0].base_offset, "or one shortly behind it is damaged: its offsets do not ascend")
    behind = np.cumsum([h.record_count for h in headers])
    too_low = offset[np.append(0, behind[:-1])] < np.array([h.base_offset for h in headers])
    too_high = offset[behind - 1] > np.array([h.last_offset for h in headers])
    if (too_low | too_high).any():
        raise DamagedBatch(headers[0].base_offset, "or one shortly behind it is damaged: an offset is beyond its batch")


def _uncompressed(
    answer: npt.NDArray[np.uint8], headers: Sequence[BatchHeader]
) -> Iterator[tuple[npt.NDArray[np.uint8], Sequence[BatchHeader], list[Span]]]:
    """Yield the batches in portions: bytes that hold their records uncompressed, and where in them."""
    if not any(header.codec for header in headers):
        if headers:
            yield answer, headers, [Span(header.records_start, header.end, header.record_count) for header in headers]
        return
    out, portion, spans = bytearray(), [], []
    for header in headers:
        data = _records_of(answer.data[header.records_start : header.end], header)
        spans.append(Span(len(out), len(out) + len(data), header.record_count))
        portion.append(header)
        out += data
        if len(out) > _PORTION_BYTES or header is headers[-1]:
            yield np.frombuffer(out + bytes(SPARE), np.uint8), portion, spans
            out, portion, spans = bytearray(), [], []


def _records_of(data: memoryview, header: BatchHeader) -> memoryview | bytes:
    try:
        return decompress(header.codec, data) if header.codec else data
    except DefinitionError:
        raise  # it is a ValueError, and no damage
    except ValueError as error:
        raise DamagedBatch(header.base_offset, f"is damaged: {error}") from error


def _blamed(
    data: npt.NDArray[np.uint8], headers: Sequence[BatchHeader], spans: Sequence[Span], error: MalformedRecords
) -> DamagedBatch:
    """Return the error for the batch that is at fault among several."""
    for header, span in zip(headers, spans, strict=True):
        try:
            read_fields(data, [span])
        except MalformedRecords as cause:
            return DamagedBatch(header.base_offset, f"is damaged: {cause}")
    return DamagedBatch(headers[0].base_offset, f"or one shortly behind it is damaged: {error}")
