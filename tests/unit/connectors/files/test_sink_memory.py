"""What a task that writes many files to an object store holds in memory: bounded over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from poundlock.connectors.files.file_values import PreparedFile
from poundlock.connectors.files.sink.multipart import open_upload
from poundlock.connectors.files.sink.partition_rows import Slice
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.connectors.files.sink.segments import Layout, Segments
from poundlock.storage import Storage
from poundlock.storage.object_files import ObjectWriter
from poundlock.storage.uploads import LEAST_PART, Uploads

MIB = 1 << 20


class Bucket:
    """A store that keeps the parts of uploads."""

    root = "s3://bucket"

    def __init__(self) -> None:
        self.parts: dict[str, list[bytes]] = {}

    def begin_upload(self, path: str, mark: str) -> str:
        self.parts[path] = []
        return path

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        self.parts[path].append(data)
        assert number == len(self.parts[path])
        return str(number)

    def uploaded(self, path: str, upload: str) -> Sequence[tuple[int, str, int]] | None:
        return None

    def complete_upload(self, path: str, upload: str, tags: Sequence[str]) -> None: ...

    def abort_upload(self, path: str, upload: str) -> bool:
        return True

    def uploads(self, prefix: str = "") -> list[Any]:
        return []

    def sync(self, handle: ObjectWriter) -> None:
        handle.publish()

    def mark_of(self, path: str) -> str | None:
        return None


def segments(store: Bucket, most: int) -> Segments:
    layout = Layout("raw", None, whole=True, max_open=256)
    storage = cast(Storage, store)
    return Segments(
        storage, layout, RollingPolicy(size=None), lambda bucket, k: f"{bucket}/{k}", {}, bytes,
        partial(PreparedFile, v=1, tag="t", at_ms=0), partial(open_upload, storage), most,
    )  # fmt: skip


def row(letter: int, size: int) -> Slice:
    return Slice(0, memoryview(bytes([letter]) * (size - 1) + b"\n"), np.array([size - 1]), 0, None)


def held(made: Segments) -> int:
    return sum(cast(ObjectWriter, segment.handle).held for segment in made._open.values())


@pytest.mark.slow
@pytest.mark.parametrize("files", [3, 40])
def test_many_open_files_hold_no_more_than_the_bound(files: int) -> None:
    """With few files the fullest sends a part early; with so many that none has enough for a part, files are finished."""
    store, most = Bucket(), 16 * MIB
    assert isinstance(store, Uploads)
    made = segments(store, most)
    expected: dict[int, int] = {}
    peak = 0
    for i in range(160):
        letter, size = 65 + i % files, MIB - 1000 * (i % 7)
        made.rows(f"b{letter}", row(letter, size), 1)
        expected[letter] = expected.get(letter, 0) + size
        peak = max(peak, held(made))
        assert made._held == held(made)
    assert peak <= most
    assert peak > most // 2, "the bound was never near"
    done = made.finish()
    assert made._held == 0
    written = {path: b"".join(parts) for path, parts in store.parts.items()}
    for letter, size in expected.items():
        ours = [path for path in written if path.startswith(f"b{letter}/")]
        assert sum(len(written[path]) for path in ours) == size
        assert set(b"".join(written[path] for path in ours)) == {letter, 10}
    assert all(len(part) >= LEAST_PART for parts in store.parts.values() for part in parts[:-1])
    assert {d.path: d.bytes for d in done} == {path: len(data) for path, data in written.items()}
    assert (len(done) == files) == (files == 3)
    assert all(d.new_part for d in done)
