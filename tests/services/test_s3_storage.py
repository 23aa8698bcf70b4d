"""S3 as a storage, on a server: one winner a name, whole content, nothing replaced, and refusals that say what to do."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from poundlock import FileSource
from poundlock.errors import DefinitionError
from poundlock.storage import Storage, open_storage
from poundlock.storage.base import OutcomeUnknown
from poundlock.storage.copying import copy
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import StoreError
from poundlock.storage.uploads import LEAST_PART, UploadGone, Uploads
from poundlock.testing.minio import EmbeddedMinio
from poundlock.testing.s3 import EmbeddedS3
from support.stores import S3_SERVERS

pytestmark = pytest.mark.services


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "s3_server" in metafunc.fixturenames:
        metafunc.parametrize("s3_server", S3_SERVERS, indirect=True, scope="session")


@pytest.fixture
def storage(new_bucket: Callable[[], str]) -> S3Storage:
    opened = open_storage(f"{new_bucket()}/jobs/a")
    assert isinstance(opened, S3Storage)
    assert isinstance(opened, Uploads)
    return opened


def put(storage: Storage, path: str, data: bytes) -> None:
    assert storage.create_exclusive(path, data)


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return sorted(entry.path for entry in storage.list(prefix))


def race(root: str, worker: int) -> list[int]:
    storage = open_storage(root)
    return [n for n in range(20) if storage.create_exclusive(f"ledger/{n}", str(worker).encode() * 5000)]


def test_create_exclusive_has_one_winner_among_processes(storage: S3Storage) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        wins = pool.starmap(race, [(storage.root, worker) for worker in range(4)])
    assert sorted(n for won in wins for n in won) == list(range(20))
    for worker, won in enumerate(wins):
        assert all(storage.read(f"ledger/{n}") == str(worker).encode() * 5000 for n in won)
    assert len(paths(storage)) == 20


def test_a_winner_whose_answer_got_lost_knows_that_it_won(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    put_object = storage._client.put_object

    def answered_twice(**arguments: object) -> object:
        put_object(**arguments)
        return put_object(**arguments)  # what the client does by itself when the connection breaks

    with monkeypatch.context() as m:
        m.setattr(storage._client, "put_object", answered_twice)
        assert storage.create_exclusive("ledger/1", b"mine")
    assert not storage.create_exclusive("ledger/1", b"mine")


@pytest.mark.parametrize("answer", ["none", "503", "409"])
def test_a_put_without_an_answer_is_not_known_to_have_failed(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    from botocore.exceptions import ClientError, ReadTimeoutError

    put_object, late = storage._client.put_object, []

    def lost(**arguments: object) -> object:
        late.append(arguments)
        if answer == "none":
            raise ReadTimeoutError(endpoint_url="http://s3")
        code = {"503": "SlowDown", "409": "ConditionalRequestConflict"}[answer]
        raise ClientError({"Error": {"Code": code}}, "PutObject")

    with monkeypatch.context() as m:
        m.setattr(storage._client, "put_object", lost)
        with pytest.raises(OutcomeUnknown) as caught:
            storage.create_exclusive("ledger/1", b"mine")
    assert caught.value.errno
    assert storage.stat("ledger/1") is None
    put_object(**late[0])  # it arrives after all
    assert storage.read("ledger/1") == b"mine"


def test_content_is_whole_and_replaced_only_when_asked(storage: S3Storage) -> None:
    put(storage, "a/b", b"first")
    assert not storage.create_exclusive("a/b", b"second")
    assert storage.read("a/b") == b"first"
    storage.replace("a/b", b"third")
    assert storage.read("a/b") == b"third"
    with pytest.raises(FileNotFoundError):
        storage.replace("a/c", b"")
    with pytest.raises(FileNotFoundError):
        storage.read("a/c")
    with pytest.raises(FileNotFoundError):
        storage.open("a/c")
    with pytest.raises(FileNotFoundError):
        storage.settle("a/c")
    assert storage.stat("a") is None
    assert storage.delete("a/b")
    assert not storage.delete("a/b")


def test_an_object_appears_when_its_handle_is_synced_or_closed(storage: S3Storage) -> None:
    data = os.urandom(20 << 20)
    handle = storage.write("x/.big")
    for start in range(0, len(data), 3 << 20):
        handle.write(memoryview(data)[start : start + (3 << 20)])
    assert storage.stat("x/.big") is None
    storage.sync(handle)
    assert storage.read("x/.big") == data
    handle.close()
    with pytest.raises(FileExistsError):
        storage.write("x/.big")
    with storage.write("x/.small") as small:
        small.write(b"1")
    assert storage.read("x/.small") == b"1"
    with storage.open("x/.big") as read:
        assert read.read() == data
        read.seek(-5, os.SEEK_END)
        assert read.read(10) == data[-5:]
        assert read.seek(7) == 7
        assert read.read(3) == data[7:10]


def test_what_fails_halfway_publishes_nothing(storage: S3Storage) -> None:
    with suppress(RuntimeError), storage.write("x/.broken") as handle:
        handle.write(bytes(9 << 20))
        raise RuntimeError("in the middle")
    dropped = storage.write("x/.dropped")
    dropped.write(bytes(9 << 20))
    del dropped
    assert paths(storage) == []
    assert list(storage.uploads()) == []


def test_two_writers_of_one_name_have_one_winner(storage: S3Storage) -> None:
    first, second = storage.write("x/a"), storage.write("x/a")
    first.write(bytes(9 << 20))
    second.write(b"2" * (9 << 20))
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert storage.read("x/a") == bytes(9 << 20)
    assert list(storage.uploads()) == []


def test_rename_moves_and_never_over_an_object(storage: S3Storage) -> None:
    put(storage, "a/.seg", b"1")
    storage.rename("a/.seg", "b/part")
    assert paths(storage) == ["b/part"]
    put(storage, "a/.seg", b"2")
    with pytest.raises(FileExistsError):
        storage.rename("a/.seg", "b/part")
    with pytest.raises(FileNotFoundError):
        storage.rename("a/.gone", "new/part")
    assert storage.read("b/part") == b"1"
    assert paths(storage) == ["a/.seg", "b/part"]


def test_a_copy_to_another_folder_is_made_by_the_store(
    storage: S3Storage, new_bucket: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(5).randbytes(LEAST_PART + 7)
    with storage.write("state/a.arrow") as made:
        made.write(data)
        storage.sync(made)
    passed: list[int] = []
    read = S3Storage._range

    def counted(self: S3Storage, path: str, first: int, after: int) -> bytes:
        passed.append(after - first)
        return read(self, path, first, after)

    monkeypatch.setattr(S3Storage, "_range", counted)
    for folder in (storage.root.replace("jobs/a", "savepoints/b"), f"{new_bucket()}/c"):
        target = open_storage(folder)
        copy(storage, "state/a.arrow", target, "state/a.arrow")
        assert passed == []
        assert target.read("state/a.arrow") == data
        with pytest.raises(FileExistsError):
            copy(storage, "state/a.arrow", target, "state/a.arrow")
    with pytest.raises(FileNotFoundError):
        copy(storage, "state/gone", target, "state/gone")
    local = open_storage(str(tmp_path))
    copy(storage, "state/a.arrow", local, "a")
    copy(local, "a", target, "state/from-a-disk")
    assert target.read("state/from-a-disk") == data
    assert sum(passed) == len(data)


def test_concat_joins_parts_of_any_size(storage: S3Storage) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sizes = [0, 100, LEAST_PART, LEAST_PART - 1, 2 * LEAST_PART + 7, 3, LEAST_PART + 1]
    chance.shuffle(sizes)
    parts = [chance.randbytes(size) for size in sizes]
    for number, part in enumerate(parts):
        put(storage, f".s{number}", part)
    names = [f".s{number}" for number in range(len(parts))]
    storage.concat(names, "x/joined")
    assert storage.read("x/joined") == b"".join(parts)
    assert paths(storage) == sorted([*names, "x/joined"])
    with pytest.raises(FileExistsError):
        storage.concat(names, "x/joined")
    with pytest.raises(FileNotFoundError):
        storage.concat([".s0", ".gone"], "x/other")
    storage.concat([names[0]], "x/one")
    assert storage.read("x/one") == parts[0]
    assert list(storage.uploads()) == []


def test_folders_are_listed_over_pages(storage: S3Storage) -> None:
    for path in ("a/x", "a/.hidden", "a/b/y", "ab/z"):
        put(storage, path, b"1")
    assert paths(storage, "a") == ["a/.hidden", "a/b/y", "a/x"]
    assert sorted(storage.names("a")) == [".hidden", "b", "x"]
    assert sorted(storage.names("")) == ["a", "ab"]
    assert list(storage.names("missing")) == paths(storage, "missing") == []
    other = open_storage(storage.root.replace("/jobs/a", "/jobs"))
    assert len(paths(other)) == 4


def test_it_travels_with_the_plan(storage: S3Storage) -> None:
    assert pickle.loads(pickle.dumps(storage)) == storage


def test_an_upload_is_completed_once_and_asked_for_ever_after(storage: S3Storage) -> None:
    upload = storage.begin_upload("dt=1/part-0", "mine")
    tags = [storage.upload_part("dt=1/part-0", upload, 1, bytes(LEAST_PART))]
    tags.append(storage.upload_part("dt=1/part-0", upload, 2, b"end"))
    assert storage.stat("dt=1/part-0") is None
    assert storage.mark_of("dt=1/part-0") is None
    assert [(number, size) for number, _, size in storage.uploaded("dt=1/part-0", upload) or ()] == [
        (1, LEAST_PART),
        (2, 3),
    ]
    assert [(u.path, u.id) for u in storage.uploads()] == [("dt=1/part-0", upload)]
    storage.complete_upload("dt=1/part-0", upload, tags)
    assert storage.mark_of("dt=1/part-0") == "mine"
    with suppress(UploadGone, FileExistsError):  # some servers say so, others answer as they did before
        storage.complete_upload("dt=1/part-0", upload, tags)
    assert storage.mark_of("dt=1/part-0") == "mine"
    assert storage.read("dt=1/part-0") == bytes(LEAST_PART) + b"end"
    assert list(storage.uploads()) == []


def test_an_aborted_upload_shows_nothing(storage: S3Storage, s3_server: EmbeddedS3) -> None:
    upload = storage.begin_upload("part", "mine")
    tag = storage.upload_part("part", upload, 1, b"1")
    assert storage.abort_upload("part", upload)
    again = storage.abort_upload("part", upload)
    assert again == isinstance(s3_server, EmbeddedMinio), "MinIO answers as it did before"
    with pytest.raises(OSError, match=r"no such upload|500"):  # the server of the tests answers 500 for this
        storage.upload_part("part", upload, 2, b"1")
    with pytest.raises(OSError, match=r"no such upload|500"):
        storage.complete_upload("part", upload, [tag])
    assert storage.uploaded("part", upload) is None
    assert paths(storage) == []


def test_a_completion_replaces_nothing(storage: S3Storage) -> None:
    put(storage, "part", b"another's")
    upload = storage.begin_upload("part", "mine")
    tag = storage.upload_part("part", upload, 1, b"1")
    with pytest.raises(FileExistsError):
        storage.complete_upload("part", upload, [tag])
    assert storage.read("part") == b"another's"


def test_a_bucket_that_is_missing_is_named(new_bucket: Callable[[], str]) -> None:
    with pytest.raises(StoreError, match="no bucket 'nowhere-at-all'") as caught:
        open_storage("s3://nowhere-at-all/x").create_exclusive("a", b"")
    assert caught.value.refused
    assert "create the bucket" in caught.value.next
    with pytest.raises(StoreError, match="no bucket"):
        open_storage("s3://nowhere-at-all/x").names("")


def test_missing_credentials_are_named(new_bucket: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    from poundlock.storage import s3_client

    url = new_bucket()
    monkeypatch.setattr(s3_client, "_clients", {})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(PermissionError, match="no credentials were found") as caught:
        open_storage(f"{url}/x").read("a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.next  # type: ignore[attr-defined]


def test_a_store_that_does_not_answer_is_no_refusal(s3_server: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    from poundlock.storage import s3_client

    with s3_server.in_environment():
        monkeypatch.setattr(s3_client, "_ATTEMPTS", 1)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with pytest.raises(StoreError, match="does not answer") as caught:
            open_storage("s3://bucket/x").stat("a")
    assert not caught.value.refused
    assert caught.value.errno == errno.EHOSTUNREACH


@pytest.mark.parametrize(
    "path",
    ["s3://", "s3:///x", "s3://b/../x", "s3://key:secret@b/x", "s3://key:sec/secret@b/x", "s3://k:se//secret@b/x"],
)
def test_paths_that_name_no_folder_are_refused(path: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        open_storage(path)
    assert "secret" not in str(caught.value).replace("AWS_SECRET", "")
    assert caught.value.next


def test_a_bucket_is_a_folder_of_files_with_and_without_a_slash(new_bucket: Callable[[], str]) -> None:
    bucket = new_bucket()
    open_storage(bucket).create_exclusive("a.jsonl", b'{"n": 1}\n')
    for path in (bucket, f"{bucket}/", f"{bucket}/a.jsonl"):
        source = FileSource(path)
        source.preflight()
        root, entries = source._look()
        assert (root.rstrip("/"), [entry.path for entry in entries]) == (bucket, ["a.jsonl"])
