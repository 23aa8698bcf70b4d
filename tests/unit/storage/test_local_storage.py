"""Local storage: one winner a name, whole content, no overwriting, and nothing left of what failed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from poundlock.errors import DefinitionError
from poundlock.storage import LocalStorage, copying, local, open_storage
from poundlock.storage.copying import link
from poundlock.storage.local import WrongLength


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "root"))


@pytest.fixture(params=[True, False], ids=["copy_file_range", "read and write"])
def parts(request: pytest.FixtureRequest, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the files .s0, .s1 and .s2 hold, which are copied within the kernel, or through memory."""
    if not request.param:
        monkeypatch.delattr(os, "copy_file_range")
    held = [os.urandom(3_000_000), b"", b"tail"]
    for number, part in enumerate(held):
        put(storage, f".s{number}", part)
    return held


def put(storage: LocalStorage, path: str, data: bytes) -> None:
    assert storage.create_exclusive(path, data)


def names(storage: LocalStorage, prefix: str = "") -> list[str]:
    return sorted(entry.path for entry in storage.list(prefix))


def race(root: str, worker: int) -> list[int]:
    storage = LocalStorage(root)
    return [n for n in range(30) if storage.create_exclusive(f"ledger/{n}", str(worker).encode() * 5000)]


def test_create_exclusive_has_one_winner_among_processes(storage: LocalStorage) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        wins = pool.starmap(race, [(storage.root, worker) for worker in range(4)])
    assert sorted(n for won in wins for n in won) == list(range(30))
    for worker, won in enumerate(wins):
        assert all(storage.read(f"ledger/{n}") == str(worker).encode() * 5000 for n in won)
    assert not [name for name in names(storage) if ".tmp-" in name]


def test_create_exclusive_leaves_the_first_content(storage: LocalStorage) -> None:
    put(storage, "a/b", b"first")
    assert not storage.create_exclusive("a/b", b"second")
    assert storage.read("a/b") == b"first"
    assert names(storage) == ["a/b"]


def test_create_exclusive_where_links_are_not_possible(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    put(storage, "a", b"1")
    assert not storage.create_exclusive("a", b"2")
    assert storage.read("a") == b"1"
    assert names(storage) == ["a"]


def test_create_exclusive_knows_its_own_link_reported_as_taken(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def answered_twice(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "as a repeated request over NFS says")

    monkeypatch.setattr(os, "link", answered_twice)
    put(storage, "a", b"mine")
    assert storage.read("a") == b"mine"


def test_create_exclusive_on_a_full_disk_leaves_nothing(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        storage.create_exclusive("a", b"data")
    monkeypatch.undo()
    assert names(storage) == []


def test_write_makes_folders_takes_views_and_refuses_a_taken_name(storage: LocalStorage) -> None:
    data = memoryview(bytes(range(256)) * 10_000)
    with storage.write("dt=20181219/.part-0.inprogress.x") as handle:
        assert handle.write(data) == len(data)
        storage.sync(handle)
    assert storage.read("dt=20181219/.part-0.inprogress.x") == data
    with pytest.raises(FileExistsError):
        storage.write("dt=20181219/.part-0.inprogress.x")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_write_never_hides_a_full_disk(tmp_path: Path) -> None:
    with local._WholeWrites("/dev/full", "w") as handle, pytest.raises(OSError, match="No space left"):
        handle.write(b"x")


@pytest.mark.parametrize("kernel", [True, False], ids=["renameat2", "link and unlink"])
def test_rename_moves_into_new_folders_and_never_over_a_file(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    if not kernel:
        monkeypatch.setattr(local, "_c_function", lambda: None)
    put(storage, "a/.seg", b"1")
    storage.rename("a/.seg", "b/c/part")
    assert names(storage) == ["b/c/part"]
    put(storage, "a/.seg", b"2")
    with pytest.raises(FileExistsError):
        storage.rename("a/.seg", "b/c/part")
    with pytest.raises(FileNotFoundError):
        storage.rename("a/.gone", "new/part")
    assert storage.read("b/c/part") == b"1"
    assert not (Path(storage.root) / "new").exists()


def test_concat_joins_in_order_and_keeps_the_sources(storage: LocalStorage, parts: list[bytes]) -> None:
    storage.concat([".s0", ".s1", ".s2"], "x/.joined")
    assert storage.read("x/.joined") == b"".join(parts)
    assert names(storage) == [".s0", ".s1", ".s2", "x/.joined"]
    with pytest.raises(FileExistsError):
        storage.concat([".s2"], "x/.joined")


def test_concat_of_a_missing_source_leaves_nothing(storage: LocalStorage) -> None:
    put(storage, ".s0", b"1")
    with pytest.raises(FileNotFoundError):
        storage.concat([".s0", ".gone"], ".joined")
    assert names(storage) == [".s0"]


def test_extend_puts_the_same_bytes_to_the_same_places_however_often(storage: LocalStorage, parts: list[bytes]) -> None:
    for _ in range(2):
        storage.extend(".s0", 3_000_000, [(".s1", 0), (".s2", 4)])
        assert storage.read(".s0") == b"".join(parts)
    assert names(storage) == [".s0", ".s1", ".s2"]


def test_extend_of_a_file_with_another_name_leaves_that_alone(storage: LocalStorage) -> None:
    put(storage, "a/.s0", b"firstrest")
    put(storage, "a/.s1", b"second")
    os.link(Path(storage.root) / "a/.s0", Path(storage.root) / "saved")
    storage.extend("a/.s0", 5, [("a/.s1", 6)])
    assert storage.read("a/.s0") == b"firstsecond"
    assert storage.read("saved") == b"firstrest"
    assert names(storage) == ["a/.s0", "a/.s1", "saved"]


def test_a_second_name_that_a_file_system_does_not_count_is_no_link(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over sshfs every file has one name: `extend` would write to what a savepoint has."""
    put(storage, ".s0", b"first")
    assert link(storage, ".s0", storage, "saved/1")
    uncounted = SimpleNamespace(st_nlink=1)
    monkeypatch.setattr(copying, "os", SimpleNamespace(**{**vars(os), "stat": lambda path: uncounted}))
    assert not link(storage, ".s0", storage, "saved/2")
    assert names(storage) == [".s0", "saved/1"]


def test_extend_by_a_file_that_is_too_short_says_so(storage: LocalStorage) -> None:
    put(storage, ".s0", b"first")
    put(storage, ".s1", b"second")
    with pytest.raises(WrongLength, match="6 bytes instead of 7"):
        storage.extend(".s0", 5, [(".s1", 7)])
    with pytest.raises(FileNotFoundError):
        storage.extend(".s0", 5, [(".gone", 7)])


def test_two_who_extend_a_file_with_another_name_never_leave_less_than_all(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has done it, and is about to rename the file, when the other's replaces it: a part of it would be made visible."""
    put(storage, ".s0", b"first")
    put(storage, ".s1", b"next")
    os.link(Path(storage.root) / ".s0", Path(storage.root) / "saved")
    seen = []

    def replace(source: str, target: str) -> None:
        if not seen:
            seen.append(b"")
            storage.extend(".s0", 5, [(".s1", 4)])
        os.replace(source, target)
        seen.append(storage.read(".s0"))

    monkeypatch.setattr(local, "os", SimpleNamespace(**{**vars(os), "replace": replace}))
    storage.extend(".s0", 5, [(".s1", 4)])
    assert seen == [b"", b"firstnext", b"firstnext"]
    assert storage.read("saved") == b"first"


@pytest.mark.parametrize(("size", "why"), [(6, "5 bytes instead of 6"), (0, "5 bytes instead of 4")])
def test_a_file_of_another_length_is_not_extended(storage: LocalStorage, size: int, why: str) -> None:
    """A hole, or what nobody wrote, would be in the middle or at the end of it."""
    put(storage, ".s0", b"first")
    put(storage, ".s1", b"next")
    with pytest.raises(WrongLength, match=why):
        storage.extend(".s0", size, [(".s1", 4)])
    assert storage.read(".s0") == b"first"


def test_a_file_that_may_not_be_written_to_is_extended_in_a_copy(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be: as where tasks work under another user's name than the driver. Root may write to any file."""
    put(storage, ".s0", b"first")
    put(storage, ".s1", b"next")
    before = Path(storage.root) / ".s0"
    before.chmod(0o444)
    if os.geteuid() == 0:
        monkeypatch.setattr(local, "_may_write", lambda path: os.stat(path).st_mode & 0o200)
    storage.extend(".s0", 5, [(".s1", 4)])
    assert storage.read(".s0") == b"firstnext"
    assert names(storage) == [".s0", ".s1"]
    assert before.stat().st_mode & 0o200


def test_list_shows_hidden_files_below_a_folder_only(storage: LocalStorage) -> None:
    for path in ("a/x", "a/.hidden", "a/b/y", "ab/z"):
        put(storage, path, b"1")
    assert names(storage, "a") == ["a/.hidden", "a/b/y", "a/x"]
    assert names(storage, "missing") == []
    assert len(names(storage)) == 4


def test_names_are_those_directly_in_a_folder(storage: LocalStorage) -> None:
    for path in ("a/x", "a/.hidden", "a/b/y"):
        put(storage, path, b"1")
    assert sorted(storage.names("a")) == [".hidden", "b", "x"]
    assert list(storage.names("missing")) == []


def test_stat_and_delete_of_what_is_not_there(storage: LocalStorage) -> None:
    assert storage.stat("a") is None
    assert not storage.delete("a")
    put(storage, "a/b", b"123")
    assert storage.stat("a") is None, "a folder is not a file"
    entry = storage.stat("a/b")
    assert entry is not None
    assert entry.bytes == 3
    assert storage.delete("a/b")
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x"])
def test_paths_stay_below_the_root(storage: LocalStorage, path: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        storage.create_exclusive(path, b"")


def test_it_travels_with_the_plan(storage: LocalStorage) -> None:
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize(
    ("path", "root"),
    [("/data/x", "/data/x"), ("file:///data/a%20b", "/data/a b"), ("file:/data/x", "/data/x"), ("/a/b:/c", "/a/b:/c")],
)
def test_open_storage_of_local_paths(path: str, root: str) -> None:
    assert open_storage(path) == LocalStorage(root)


def test_open_storage_of_relative_and_home_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert open_storage("out").root == str(tmp_path / "out")
    assert open_storage("~/out").root == "/home/someone/out"


@pytest.mark.parametrize(
    "path",
    [
        *["hdfs:///../x", "wasb2://b/x", "ftp://host/x", "", "  ", "file://other/x"],
        *["s3://", "s3://b/../x", "s3a://key:secret@b/x", "gs:///x"],
    ],
)
def test_open_storage_refuses_what_it_cannot_do(path: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        open_storage(path)
    assert len(str(caught.value).splitlines()) == 2


def test_replace_leaves_one_content_or_the_other_and_makes_no_new_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        storage.replace("a/b", b"new")
    storage.create_exclusive("a/b", b"old")
    os.link(tmp_path / "a/b", tmp_path / "a/linked")
    storage.replace("a/b", b"new")
    assert (tmp_path / "a/b").read_bytes() == b"new"
    assert (tmp_path / "a/linked").read_bytes() == b"old", "another name of the file keeps its content"
    assert sorted(os.listdir(tmp_path / "a")) == ["b", "linked"]


def test_a_pipe_is_no_file(storage: LocalStorage, tmp_path: Path) -> None:
    put(storage, "in/a", b"1")
    os.mkfifo(tmp_path / "root" / "in" / "pipe")
    os.symlink(tmp_path / "root" / "in" / "a", tmp_path / "root" / "in" / "link")
    assert names(storage, "in") == ["in/a", "in/link"]
    assert storage.stat("in/pipe") is None
