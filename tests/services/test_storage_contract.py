"""What every storage promises, on every file system there is: one winner a name, whole content, errors as of a local disk."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from poundlock.errors import DefinitionError
from poundlock.storage import Storage, open_storage
from poundlock.storage.base import HasFolders
from poundlock.storage.copying import copy, remove_root, remove_tree
from poundlock.storage.probe import standing, try_writing
from support.stores import ALL, make_store

pytestmark = pytest.mark.services


@pytest.fixture(params=ALL)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return make_store(request.param, request, tmp_path).storage("root/below")


def put(storage: Storage, path: str, data: bytes = b"1") -> None:
    assert storage.create_exclusive(path, data)


def files(storage: Storage, prefix: str = "") -> list[str]:
    return sorted(entry.path for entry in storage.list(prefix))


def test_a_folder_that_is_not_there_is_empty(storage: Storage) -> None:
    assert files(storage) == []
    assert list(storage.names("a")) == []
    assert storage.stat("a") is None
    assert not storage.delete("a/b")
    for call in (storage.read, storage.open, storage.settle):
        with pytest.raises(FileNotFoundError):
            call("a/b")
    with pytest.raises(FileNotFoundError):
        storage.replace("a/b", b"1")
    with pytest.raises(FileNotFoundError):
        storage.rename("a/b", "c")
    with pytest.raises(FileNotFoundError):
        storage.concat(["a/b"], "c")
    assert files(storage) == []


def test_a_name_has_one_winner_and_its_whole_content(storage: Storage) -> None:
    wins: list[tuple[int, int]] = []
    begin = threading.Barrier(6)

    def race(worker: int) -> None:
        own = pickle.loads(pickle.dumps(storage))
        assert own == storage
        begin.wait()
        for name in range(8):
            if own.create_exclusive(f"ledger/{name}", bytes([worker]) * 5000):
                wins.append((name, worker))

    threads = [threading.Thread(target=race, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in wins) == list(range(8))
    for name, worker in wins:
        assert storage.read(f"ledger/{name}") == bytes([worker]) * 5000
    assert files(storage) == [f"ledger/{name}" for name in range(8)], "no temporary file is left"


def test_what_is_there_is_neither_overwritten_nor_lost(storage: Storage) -> None:
    put(storage, "a/b", b"first")
    put(storage, "empty", b"")
    assert not storage.create_exclusive("a/b", b"second")
    with pytest.raises(FileExistsError):
        storage.write("a/b").close()
    put(storage, ".seg", b"other")
    with pytest.raises(FileExistsError):
        storage.rename(".seg", "a/b")
    with pytest.raises(FileExistsError):
        storage.concat([".seg"], "a/b")
    assert storage.read("a/b") == b"first"
    assert storage.read("empty") == b""
    storage.replace("a/b", b"third, which is longer")
    assert storage.read("a/b") == b"third, which is longer"
    assert files(storage) == [".seg", "a/b", "empty"]


def test_a_file_is_written_in_pieces_and_read_anywhere(storage: Storage) -> None:
    pieces = [bytes(range(256)) * 4096, b"", b"tail"]
    with storage.write("dt=1/.part.inprogress") as handle:
        for piece in pieces:
            assert handle.write(memoryview(piece)) == len(piece)
        storage.sync(handle)
    storage.settle("dt=1/.part.inprogress")
    whole = b"".join(pieces)
    entry = storage.stat("dt=1/.part.inprogress")
    assert entry is not None
    assert entry.bytes == len(whole)
    assert abs(entry.modified_ms) > 1_500_000_000_000
    with storage.open("dt=1/.part.inprogress") as handle:
        assert handle.read(1000) == whole[:1000]
        assert handle.seek(-4, 2) == len(whole) - 4
        assert handle.read() == b"tail"
        assert handle.read(10) == b""
        handle.seek(256 * 4095)
        found = b""
        while len(found) < 260 and (more := handle.read(260 - len(found))):
            found += more
        assert found == whole[256 * 4095 : 256 * 4095 + 260]


def test_parquet_is_written_and_read_through_it(storage: Storage) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"n": list(range(10_000))})
    with storage.write("t.parquet") as handle:
        pq.write_table(table, handle)
        storage.sync(handle)
    with storage.open("t.parquet") as handle:
        assert pq.read_table(handle).equals(table)


def test_files_move_into_new_folders_and_are_joined_in_order(storage: Storage) -> None:
    # The small ones are read at once on HDFS and S3, the large one piece by piece, and what is behind it at once again.
    parts = [b"x" * 3_000_000, b"", b"in between", b"y" * 9_000_000, b"tail"]
    names = [f"in/.s{number}" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        put(storage, name, part)
    storage.concat(names, "out/.joined")
    storage.rename("out/.joined", "new/folder/part-0-0")
    assert storage.read("new/folder/part-0-0") == b"".join(parts)
    assert files(storage) == [*names, "new/folder/part-0-0"]
    with pytest.raises(FileNotFoundError):
        storage.concat(["in/.s0", "in/.gone"], "out/.joined")
    assert files(storage, "out") == [], "half of it is not left"


def test_lists_show_hidden_files_below_a_folder_only(storage: Storage) -> None:
    for path in ("a/x", "a/.hidden", "a/b/y", "ab/z", "a/with space, ä and %41"):
        put(storage, path, path.encode())
    assert files(storage, "a") == ["a/.hidden", "a/b/y", "a/with space, ä and %41", "a/x"]
    assert sorted(storage.names("a")) == [".hidden", "b", "with space, ä and %41", "x"]
    assert storage.read("a/with space, ä and %41") == "a/with space, ä and %41".encode()
    assert storage.stat("a") is None, "a folder is not a file"
    assert {entry.path: entry.bytes for entry in storage.list("ab")} == {"ab/z": 4}


def test_a_folder_is_tried_and_nothing_stays(storage: Storage) -> None:
    outer = open_storage(storage.root.removesuffix("/below").removesuffix("/root"))
    before = (files(outer), list(outer.names(".")) if isinstance(outer, HasFolders) else [])
    assert abs(try_writing(standing(storage))) < 60_000
    assert (files(outer), list(outer.names(".")) if isinstance(outer, HasFolders) else []) == before
    put(storage, "a/b")
    assert standing(storage).root == storage.root
    assert abs(try_writing(standing(storage))) < 60_000
    assert files(storage) == ["a/b"]


def test_trees_are_removed_with_their_folders(storage: Storage) -> None:
    for path in ("a/x", "a/b/c/y", "keep/z"):
        put(storage, path)
    remove_tree(storage, "a", first=["x"])
    assert files(storage) == ["keep/z"]
    assert "a" not in storage.names(".")
    remove_root(storage)
    assert files(storage) == ["keep/z"], "a folder with something in it stays"
    remove_tree(storage, "keep")
    remove_root(storage)
    assert list(storage.names(".")) == []


def test_files_are_copied_from_and_to_the_local_disk(storage: Storage, tmp_path: Path) -> None:
    other = open_storage(str(tmp_path / "other"))
    put(other, "a", b"content")
    copy(other, "a", storage, "there/a", linked=True)
    copy(storage, "there/a", other, "back/a", linked=True, settle=False)
    assert other.read("back/a") == b"content"
    with pytest.raises(FileExistsError):
        copy(other, "a", storage, "there/a")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x"])
def test_paths_stay_below_the_root(storage: Storage, path: str) -> None:
    calls: list[Callable[[], object]] = [lambda: storage.create_exclusive(path, b""), lambda: storage.read(path)]
    for call in calls:
        with pytest.raises(ValueError, match="not a path below"):
            call()


def test_roots_are_written_in_one_way(storage: Storage) -> None:
    assert open_storage(storage.root + "/") == storage
    assert open_storage(storage.root) == storage
    with pytest.raises(DefinitionError):
        open_storage("nothing3://host/x")
