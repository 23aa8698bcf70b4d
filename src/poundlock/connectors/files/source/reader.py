"""Task's half of a file source: the pieces of a split to chunks, for each kind of file.

A file that is not as it was when it was taken stops the job with its name; it is never read half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.files.source.lines import BLOCK, drop_first, drop_mark, line_blocks, strip_returns
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.formats import ddl
from poundlock.formats.avro.schemas import parsed_schema
from poundlock.formats.avro.unions import RECORD_NAMES, to_columns
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Lines, Records
from poundlock.formats.convert import for_python, to_batch, to_records
from poundlock.formats.decode import Decoder, decoder
from poundlock.formats.decode_avro import load_fastavro
from poundlock.formats.decode_csv import closing_quote, split_record
from poundlock.operators.keyed.output import sampled_bytes
from poundlock.operators.pieces import BATCH_BYTES, rows_at_a_time, rows_of_row_group
from poundlock.storage import Storage, open_storage

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_MOST_RECORDS, _LOOK_EVERY = 8192, 64  # of a batch of an Avro file, and between two looks at how large they are
# Dicts weigh about ten times what their text does: of so many bytes they stay in the cache of a core.
_BLOCK_OF_DICTS = 1 << 17
_LONGEST_RECORD = 16 << 20


def codec_of(path: str, compression: str) -> str | None:
    """Return how a file is compressed, by its name where `compression` is "auto"."""
    if compression == "auto":
        return next((codec for end, codec in COMPRESSIONS.items() if path.lower().endswith(end)), None)
    return None if compression == "none" else compression


@dataclass
class FileReader:
    """Reads the splits of one task."""

    format: str  # "text", "json", "csv", "parquet", "orc" or "avro"
    options: Mapping[str, Any]  # of the decoder
    _: KW_ONLY
    compression: str  # "auto", "none", "gzip", "zstd" or "bz2"
    header: bool  # whether the first line of each CSV file names its columns
    inferred: bool = False  # whether the columns are those that the first file names: all that there may be
    multiline: bool  # whether CSV fields in quotes may hold line ends
    context: ReaderContext  # where bad records go, and what is needed
    _ddl: str | None = None
    _columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    _storages: dict[str, Storage] = field(default_factory=dict)
    _by_header: dict[bytes, Decoder] = field(default_factory=dict)
    _decoder: Decoder | None = None

    def _set_columns(self, text: str) -> None:
        if text != self._ddl:
            self._ddl, self._columns = text, ddl.parse(text)
            self._by_header.clear()
            if self.format in ("json", "csv"):
                self._decoder = decoder(self.format, text, **self.options)

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split. Each chunk has its own memory and stays valid."""
        self._set_columns(split.payload["ddl"])
        read = {"parquet": self._parquet, "orc": self._orc, "avro": self._avro}.get(self.format, self._text)
        for part in split.payload["parts"]:
            storage = self._storages.setdefault(part["root"], open_storage(part["root"]))
            name = f"{part['root'].rstrip('/')}/{part['path']}"
            _check(storage, part, name)
            with _naming(name):
                yield from read(storage, part, name)

    def _text(self, storage: Storage, part: Mapping[str, Any], name: str) -> Iterator[Chunk]:
        made = self._decoder
        if self.header:
            header = first_line(storage, part["path"], self.compression)
            if header is None:
                return
            made = self._decoder_for(header, name)
        lines = self._lines(storage, part, name)
        chunks: Iterator[Chunk]
        chunks = _records(lines, self.options, name) if self.multiline else map(strip_returns, lines)
        for chunk in chunks:
            if made is not None and len(chunk):
                chunk = made.decode(chunk, self.context.reject, self.context.form)
                if made.schema().names != self._columns.names:  # the file's header has others, or another order
                    chunk = self._shaped(chunk)
            if len(chunk):
                yield chunk

    def _lines(self, storage: Storage, part: Mapping[str, Any], name: str) -> Iterator[Lines]:
        start, end = part["start"], part["end"]
        size = _BLOCK_OF_DICTS if self.context.want == "records" else BLOCK
        with _open_text(storage, part["path"], self.compression) as handle:
            codec = codec_of(part["path"], self.compression)
            if codec:
                blocks = line_blocks(handle.readinto, name, 0, None, size)
            else:
                # One byte early: the byte before says whether a line starts at `start`.
                base = max(start - 1, 0)
                handle.seek(base)
                blocks = line_blocks(_Bounded(handle, part["bytes"] - base, name), name, base, end, size)
            first = True
            for block in blocks:
                if first:
                    block, first = (drop_first if start > 0 or self.header else drop_mark)(block), False
                yield block

    def _decoder_for(self, header: bytes, name: str) -> Decoder:
        """Return the decoder for a file with this first line: its columns in its order, further ones as text."""
        if header not in self._by_header:
            try:
                names = header_names(header, **self.options)
            except ValueError as error:
                raise TerminalError(f"{name}: the header cannot be read: {error}", next="mend the file") from None
            known = {f.name: f for f in self._columns}
            if not known.keys() & names or (self.inferred and known.keys() < {*known, *names}):
                raise TerminalError(
                    f"{name}: its header names {', '.join(names)}, and the columns are {', '.join(known)}",
                    next='mend the file, or give schema="…" with the columns that are wanted of all files',
                )
            fields = [known.get(n, pa.field(n, pa.string())) for n in names]
            self._by_header[header] = decoder("csv", ddl.render(pa.schema(fields)), **self.options)
        return self._by_header[header]

    def _parquet(self, storage: Storage, part: Mapping[str, Any], name: str) -> Iterator[Chunk]:
        import pyarrow.parquet as pq

        with storage.open(part["path"]) as handle, pq.ParquetFile(handle) as file:
            groups, first = _row_groups(file.metadata, part["start"], part["end"])
            wanted = [n for n in self._columns.names if n in file.schema_arrow.names]
            for group, row in zip(groups, first, strict=True):
                rows = rows_of_row_group(file.metadata.row_group(group))
                for batch in file.iter_batches(rows, row_groups=[group], columns=wanted, use_threads=False):
                    origin = FileOrigin(name, range(row, row + batch.num_rows))
                    row += batch.num_rows
                    yield self._shaped(Batch(batch, origin))

    def _orc(self, storage: Storage, part: Mapping[str, Any], name: str) -> Iterator[Chunk]:
        import pyarrow.orc as orc

        with storage.open(part["path"]) as handle:
            file, row = orc.ORCFile(handle), 0
            wanted = [n for n in self._columns.names if n in file.schema.names]
            for stripe in range(file.nstripes):
                rows = file.read_stripe(stripe, columns=wanted)
                count = rows_at_a_time(rows.nbytes, rows.num_rows)
                for first in range(0, rows.num_rows, count):
                    batch = rows.slice(first, count)
                    origin = FileOrigin(name, range(row, row + batch.num_rows))
                    row += batch.num_rows
                    yield self._shaped(Batch(batch, origin))

    def _avro(self, storage: Storage, part: Mapping[str, Any], name: str) -> Iterator[Chunk]:
        fastavro = load_fastavro()
        with storage.open(part["path"]) as handle:
            try:
                records, first = fastavro.reader(handle, **RECORD_NAMES), 0
            except ValueError as error:  # it does not begin as a file of Avro
                raise _broken(name, error) from error
            change = to_columns(parsed_schema(records.metadata["avro.schema"]))
            while rows := _some(records):
                rows = rows if change is None else list(map(change, rows))
                yield self._shaped(Records(rows, FileOrigin(name, range(first, first + len(rows)))))
                first += len(rows)

    def _shaped(self, chunk: Chunk) -> Chunk:
        batch = to_batch(chunk, self._columns, self.context.reject)
        return to_records(for_python(batch, self.context.reject)) if self.context.want == "records" else batch


class _Bounded:
    """Reads a file up to the size it had when it was taken."""

    def __init__(self, handle: Any, left: int, name: str) -> None:
        self._handle = handle
        self._left = left
        self._name = name

    def __call__(self, view: memoryview) -> int:
        wanted = min(len(view), self._left)
        if not wanted:
            return 0
        got = int(self._handle.readinto(view[:wanted]))
        if not got:
            raise _changed(self._name, f"ends {self._left} bytes early")
        self._left -= got
        return got


@contextmanager
def _open_text(storage: Storage, path: str, compression: str) -> Iterator[Any]:
    """Open a file for reading its text, uncompressing it on the way."""
    with storage.open(path) as handle:
        codec = codec_of(path, compression)
        if codec is None:
            yield handle
        else:
            with pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), codec) as stream:
                yield stream


def first_line(storage: Storage, path: str, compression: str) -> bytes | None:
    """Return the first line of a file without its end and without a byte order mark; None if it has none."""
    with _open_text(storage, path, compression) as handle:
        lines = next(line_blocks(handle.readinto, "", 0, 1, block=1 << 16), None)
    return None if lines is None else strip_returns(drop_mark(lines)).row(0)


def header_names(line: bytes, *, delimiter: str, quote: str, **_: str) -> list[str]:
    """Return the columns that the first line of a CSV file names. Raises ValueError where it does not, or names one twice."""
    names = [str(name) for name in split_record(str(line, "utf-8"), delimiter, quote, None)]
    if len(set(names)) != len(names) or "" in names:
        raise ValueError(f"it names no column, or one twice: {names}")
    return names


def _records(blocks: Iterator[Lines], options: Mapping[str, str], name: str) -> Iterator[Batch]:
    """Yield CSV records that may span lines: a record ends at a line end outside of a field that began with a quote."""
    quote, delimiter = options["quote"].encode(), options["delimiter"].encode()
    held: list[bytes] = []
    size = begin = 0
    for lines in blocks:
        rows: list[bytes] = []
        offsets: list[int] = []
        for i, line in enumerate(row["value"] for row in to_records(lines).rows):
            if not held:
                begin = lines.origin.at(i)["offset"]
            is_closed = (quote not in line and not held) or _is_closed(line, quote, delimiter, open=bool(held))
            held.append(line)
            size += len(line)
            # One quote that is never closed must not swallow the rest of a large file: the record is bad, the rest is read.
            if is_closed or size > _LONGEST_RECORD:
                rows.append(b"\n".join(held).removesuffix(b"\r"))
                offsets.append(begin)
                held, size = [], 0
        yield _values(rows, offsets, name)
    if held:
        yield _values([b"\n".join(held)], [begin], name)


def _is_closed(line: bytes, quote: bytes, delimiter: bytes, *, open: bool) -> bool:
    """Return whether a line ends outside of a field in quotes. `open`: whether it begins within one."""
    at = 0
    while True:
        if open or line.startswith(quote, at):
            at = closing_quote(line, quote, at if open else at + 1)
            if at < 0:
                return False
            open = False
        at = line.find(delimiter, at) + 1
        if not at:
            return True


def _values(rows: Sequence[bytes], offsets: Sequence[int], name: str) -> Batch:
    batch = pa.record_batch([pa.array(rows, pa.binary())], names=["value"])
    return Batch(batch, FileOrigin(name, np.asarray(offsets, np.int64)))


def _row_groups(metadata: Any, start: int, end: int) -> tuple[list[int], list[int]]:
    """Return the row groups whose first byte is in a range, and the number of the first row of each."""
    groups, first, row = [], [], 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        chunk = group.column(0) if group.num_columns else None
        pages = (chunk.dictionary_page_offset, chunk.data_page_offset) if chunk is not None else (0,)
        at = min(offset for offset in pages if offset is not None)
        if start <= at < end:
            groups.append(i)
            first.append(row)
        row += group.num_rows
    return groups, first


def _check(storage: Storage, part: Mapping[str, Any], name: str) -> None:
    there = storage.stat(part["path"])
    if there is None:
        raise _changed(name, "is gone")
    if there.bytes != part["bytes"]:
        raise _changed(name, f"has {there.bytes} bytes now and had {part['bytes']}")
    now = there.tag if part.get("tag") else there.modified_ms
    if now != (part.get("tag") or part.get("modified_ms", now)):  # files of a source's own workspace have neither
        raise _changed(name, "was written again, with as many bytes as before")


def _changed(name: str, what: str) -> SourceGoneError:
    return SourceGoneError(
        f"{name} {what}, but the job has taken it as it was",
        next="put the file back as it was, with its time of modification; write new files under another name and rename them when they are complete",
    )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the file's name into errors about what is in it."""
    try:
        yield
    except FileNotFoundError:
        raise _changed(name, "is gone") from None
    except (pa.ArrowInvalid, EOFError) as error:
        raise _broken(name, error) from error
    except OSError as error:
        if error.errno is not None:  # the disk or the network, not the content
            raise
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> TerminalError:
    return TerminalError(f"{name} cannot be read: {error}", next="replace the file, or move it out of the folder")


def _some(records: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the next records, as many as are one batch."""
    rows: list[dict[str, Any]] = []
    size, count = 0, 1
    while len(rows) < _MOST_RECORDS and size < BATCH_BYTES and (some := list(islice(records, count))):
        rows += some
        size += sampled_bytes(some)
        count = min(len(rows), _LOOK_EVERY, _MOST_RECORDS - len(rows))
    return rows
