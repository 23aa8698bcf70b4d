"""Which files of Spark's state a version needs: all it is made of, and as little else as can be proved."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from poundlock.savepoint.state_files import needed_state
from poundlock.storage import LocalStorage

STORE = "spark/state/0/1"


def uid(n: int) -> str:
    return f"{n:08d}-0000-4000-8000-000000000000"


class State:
    """A checkpoint folder with the state of one partition, as Spark lays it out."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(str(folder))
        self.put("spark/state/0/_metadata/metadata", b"{}")

    def put(self, path: str, data: bytes = b"x") -> str:
        with self.storage.write(path) as handle:
            handle.write(data)
        return path

    def zip(self, name: str, *files: str, store: str = STORE) -> set[str]:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            told = {"sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": f, "sizeBytes": 1} for f in files]}
            archive.writestr("metadata", f"v1\n{json.dumps(told)}")
        made = {self.put(f"{store}/{name}.zip", packed.getvalue())}
        for file in files:
            if self.storage.stat(f"{store}/SSTs/{file}") is None:
                self.put(f"{store}/SSTs/{file}")
            made.add(f"{store}/SSTs/{file}")
        return made

    def changelog(self, version: int, one: str, before: Sequence[tuple[int, str]], *, packed: bool = True) -> str:
        lineage = json.dumps([{"version": v, "checkpointUniqueId": i} for v, i in before]).encode()
        block = struct.pack(">H", 2) + b"v3" + struct.pack(">H", len(lineage)) + lineage + bytes(500)
        data = pa.Codec("lz4_raw").compress(block, asbytes=True) if packed else block
        head = b"LZ4Block" + struct.pack("<Biii", 0x25 if packed else 0x15, len(data), len(block), 0)
        return self.put(f"{STORE}/{version}_{one}.changelog", head + data)

    def commit(self, batch: int, *ids: str) -> None:
        told = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [["other"], list(ids)]} if ids else None}
        self.put(f"spark/commits/{batch}", f"v2\n{json.dumps(told)}".encode())

    def needed(self, batch: int) -> set[str]:
        paths = [entry.path for entry in self.storage.list("spark/state")]
        found = needed_state(self.storage, paths, batch)
        assert found <= set(paths)
        assert "spark/state/0/_metadata/metadata" in found
        return found - {"spark/state/0/_metadata/metadata"}

    @property
    def all(self) -> set[str]:
        return {entry.path for entry in self.storage.list(STORE)}


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def test_a_snapshot_of_this_version_and_the_files_it_names(state: State) -> None:
    state.zip(f"3_{uid(3)}", "a.sst", "b.sst")
    wanted = state.zip(f"4_{uid(4)}", "b.sst", "c.sst")
    state.zip(f"5_{uid(5)}", "d.sst")
    state.zip(f"4_{uid(44)}", "e.sst")  # of an attempt that failed
    state.commit(3, uid(4))
    assert state.needed(3) == wanted


def test_without_ids_the_version_is_all_there_is_to_go_by(state: State) -> None:
    state.zip("3", "a.sst")
    wanted = state.zip("4", "b.sst")
    state.commit(3)
    assert state.needed(3) == wanted


def test_memory_needs_a_snapshot_and_the_changes_behind_it(state: State) -> None:
    for version in range(1, 9):
        state.put(f"{STORE}/{version}.delta")
    state.put(f"{STORE}/3.snapshot")
    state.put(f"{STORE}/5.snapshot")
    state.put(f"{STORE}/8.snapshot")
    state.commit(6)
    assert state.needed(6) == {f"{STORE}/{name}" for name in ("5.snapshot", "5.delta", "6.delta", "7.delta")}


@pytest.mark.parametrize("packed", [True, False])
def test_changes_follow_the_lineage_not_the_newest_snapshot(state: State, packed: bool) -> None:
    wanted = state.zip(f"3_{uid(3)}", "a.sst")
    state.zip(f"5_{uid(55)}", "b.sst")  # made by an attempt whose version is not what the next was made of
    before = [(n, uid(n)) for n in range(3, 6)]
    state.changelog(4, uid(4), before[:1])
    state.changelog(5, uid(5), before[:2])
    state.changelog(6, uid(6), before, packed=packed)
    state.changelog(2, uid(2), [])
    state.commit(5, uid(6))
    changes = {f"{STORE}/{n}_{uid(n)}.changelog" for n in (4, 5, 6)}
    assert state.needed(5) == wanted | changes


def test_all_is_taken_where_the_lineage_has_no_snapshot_or_a_gap(state: State) -> None:
    state.changelog(1, uid(1), [])
    state.changelog(2, uid(2), [(1, uid(1))])
    state.commit(1, uid(2))
    assert state.needed(1) == state.all
    state.zip(f"4_{uid(4)}", "a.sst")
    state.changelog(6, uid(6), [(4, uid(4)), (5, uid(5))])
    state.commit(5, uid(6))
    assert state.needed(5) == state.all


@pytest.mark.parametrize("spoil", ["head", "commit", "zip"])
def test_all_is_taken_where_something_cannot_be_read(state: State, spoil: str) -> None:
    state.zip(f"3_{uid(3)}", "a.sst")
    if spoil == "zip":
        state.put(f"{STORE}/4_{uid(4)}.zip", b"no archive")
        state.commit(3, uid(4))
    else:
        state.changelog(4, uid(4), [(3, uid(3))])
        state.commit(3, *([uid(4)] if spoil == "head" else []))
    if spoil == "head":
        state.storage.delete(f"{STORE}/4_{uid(4)}.changelog")
        state.put(f"{STORE}/4_{uid(4)}.changelog", b"LZ4Block, and then nothing of the kind")
    assert state.needed(3) == state.all


def test_stores_of_one_partition_are_looked_at_apart(state: State) -> None:
    left, right = f"{STORE}/left-keyToNumValues", f"{STORE}/right-keyToNumValues"
    wanted = state.zip(f"2_{uid(2)}", "a.sst", store=left) | state.zip(f"2_{uid(22)}", "b.sst", store=right)
    state.zip(f"1_{uid(1)}", "c.sst", store=left)
    state.zip(f"1_{uid(11)}", "d.sst", store=right)
    state.commit(1, uid(2), uid(22))
    assert state.needed(1) == wanted
