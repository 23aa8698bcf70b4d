"""Object stores without a server: a store in memory that answers as Google's and Microsoft's do, and how S3's answers are told."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.file_values import FileSegment, SentParts
from poundlock.connectors.files.sink.multipart import complete
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError, TransientError
from poundlock.storage import Storage, objects, open_storage, s3_client, uploads
from poundlock.storage.object_files import PART, ObjectReader, ObjectWriter, open_reader, part_size
from poundlock.storage.objects import ObjectStorage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import S3Address, StoreError
from poundlock.storage.storage_errors import refuse_unreachable, storage_trouble
from poundlock.storage.uploads import UploadGone, Uploads, shown_mark
from support.sinks import JOB, FileSinkHarness, hidden, lines


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    pytest.importorskip("obstore")
    monkeypatch.setattr(objects, "_stores", {})
    return objects.open_objects("memory://bucket/jobs/a")


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return sorted(entry.path for entry in storage.list(prefix))


def test_odd_roots_are_kept_or_refused() -> None:
    pytest.importorskip("obstore")
    assert objects.open_objects("gs://bucket/a#b?c%20 d/").root == "gs://bucket/a#b?c%20 d"
    for path in ("gs:///a", "gs://b/a/../c", "gs://b/a//c"):
        with pytest.raises(DefinitionError, match="names no bucket"):
            objects.open_objects(path)


def test_names_have_one_winner_and_are_not_replaced(storage: ObjectStorage) -> None:
    assert storage.create_exclusive("a/b", b"first")
    assert not storage.create_exclusive("a/b", b"second")
    assert storage.read("a/b") == b"first"
    storage.replace("a/b", b"third")
    assert storage.read("a/b") == b"third"
    for call in (storage.read, storage.open, storage.settle):
        with pytest.raises(FileNotFoundError):
            call("a/c")
    with pytest.raises(FileNotFoundError):
        storage.replace("a/c", b"")
    assert storage.stat("a") is None
    assert storage.delete("a/b")
    assert not storage.delete("a/b")


def test_objects_appear_whole_or_not_at_all(storage: ObjectStorage) -> None:
    data = bytes(range(256)) * (PART // 128)
    with storage.write("x/.big") as handle:
        handle.write(data)
        assert storage.stat("x/.big") is None
        storage.sync(handle)
    with storage.open("x/.big") as read:
        assert read.read() == data
        read.seek(-3, io.SEEK_END)
        assert read.read() == data[-3:]
    dropped = storage.write("x/.dropped")
    dropped.write(data)
    del dropped
    with pytest.raises(FileExistsError):
        storage.write("x/.big")
    assert paths(storage) == ["x/.big"]


@pytest.mark.parametrize("size", [5, PART + 5])
def test_of_two_writers_of_one_name_the_second_replaces_nothing(storage: ObjectStorage, size: int) -> None:
    first, second = storage.write("a/.b"), storage.write("a/.b")
    first.write(b"1" * size)
    second.write(b"2" * size)
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert storage.read("a/.b") == b"1" * size
    assert paths(storage) == ["a/.b"]


def test_a_large_object_whose_answer_got_lost_is_known_by_its_mark(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    copy = obstore.copy

    def twice(*arguments: object, **options: object) -> None:
        copy(*arguments, **options)  # type: ignore[arg-type]
        copy(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(obstore, "copy", twice)
    with storage.write("a/.b") as handle:
        handle.write(bytes(PART + 1))
    assert paths(storage) == ["a/.b"]


def test_files_move_and_are_joined_without_replacing(storage: ObjectStorage) -> None:
    for name in ("1", "2", "3"):
        storage.create_exclusive(f"in/.s{name}", name.encode())
    storage.concat(["in/.s1", "in/.s2", "in/.s3"], "out/part")
    assert storage.read("out/part") == b"123"
    with pytest.raises(FileExistsError):
        storage.concat(["in/.s1"], "out/part")
    with pytest.raises(FileExistsError):
        storage.rename("in/.s1", "out/part")
    with pytest.raises(FileNotFoundError):
        storage.rename("in/.gone", "out/other")
    with pytest.raises(FileNotFoundError):
        storage.concat(["in/.s1", "in/.gone"], "out/other")
    storage.rename("in/.s1", "out/moved")
    assert paths(storage) == ["in/.s2", "in/.s3", "out/moved", "out/part"]
    assert sorted(storage.names("in")) == [".s2", ".s3"]
    assert sorted(storage.names(".")) == ["in", "out"]
    assert list(storage.names("missing")) == paths(storage, "missing") == []


def test_the_file_sink_writes_there(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSink, "storage", lambda self, root=None: storage)
    h = FileSinkHarness(FileSink("/ignored", row="value").bind(job_id=JOB, sink="out"))
    assert not isinstance(storage, Uploads)
    h.sink.preflight()
    for row in (b"a", b"b"):
        h.write(lines(row))
        h.end_checkpoint()
        assert [path for path in paths(storage) if not hidden(path)] == []
    committables = h.decide(Occasion.END)
    for _ in range(2):
        h.commit(committables)
        assert storage.read("part-0-0") == b"a\nb\n"
    assert paths(storage) == ["part-0-0"]
    h.write(lines(b"lost"))
    h.prepare()
    assert len(h.sink.sweep(h.state, remove=True)) == 1
    assert paths(storage) == ["part-0-0"]


@pytest.mark.parametrize(
    "path", ["gs://events/log", "az://events/log", "abfss://events@account.dfs.core.windows.net/log"]
)
def test_paths_of_other_stores_are_opened_without_asking_them(path: str) -> None:
    pytest.importorskip("obstore")
    found = open_storage(path)
    assert isinstance(found, ObjectStorage)
    assert found.root == path
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("path", ["s3://events/log", "s3a://events/log/"])
def test_s3_paths_are_one_storage(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client.os, "environ", {})
    found = open_storage(path)
    assert found == S3Storage("events", "log")
    assert found.root == "s3://events/log"
    assert open_storage("s3://events").root == "s3://events"


def test_the_environment_says_where_s3_is() -> None:
    assert S3Address.from_environment({}) == S3Address(None, None, False)
    here = {"AWS_ENDPOINT_URL": "http://localhost:9000", "AWS_REGION": "eu-west-1"}
    assert S3Address.from_environment(here) == S3Address("http://localhost:9000", "eu-west-1", True)
    own = {**here, "AWS_ENDPOINT_URL_S3": "https://s3.example", "POUNDLOCK_S3_PATH_STYLE": "false"}
    assert S3Address.from_environment(own) == S3Address("https://s3.example", "eu-west-1", False)
    for wrong in ({"AWS_ENDPOINT_URL": "localhost:9000"}, {"POUNDLOCK_S3_PATH_STYLE": "perhaps"}):
        with pytest.raises(DefinitionError) as caught:
            S3Address.from_environment(wrong)
        assert caught.value.next


def answer(code: str, message: str = "") -> OSError:
    return s3_client._of_answer({"Error": {"Code": code, "Message": message}}, "events", "s3://events/log/a")


def test_answers_of_s3_are_told_as_files_errors() -> None:
    assert isinstance(answer("NoSuchKey"), FileNotFoundError)
    assert isinstance(answer("404"), FileNotFoundError)
    assert isinstance(answer("NoSuchUpload"), UploadGone)
    assert isinstance(answer("PreconditionFailed"), FileExistsError)
    assert isinstance(answer("AccessDenied"), PermissionError)
    assert isinstance(answer("InvalidAccessKeyId", "AKIA1234 is not known"), PermissionError)
    assert "AKIA1234" not in str(answer("InvalidAccessKeyId", "AKIA1234 is not known"))
    gone = answer("NoSuchBucket")
    assert isinstance(gone, StoreError)
    assert not isinstance(gone, FileNotFoundError), "a ledger in a bucket that is gone is not an empty one"
    for code in ("InternalError", "SlowDown", "ConditionalRequestConflict"):
        busy = answer(code)
        assert isinstance(busy, StoreError)
        assert not busy.refused


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "NoSuchBucket", "PermanentRedirect"])
def test_refusals_of_s3_say_what_to_do(code: str) -> None:
    error = answer(code)
    assert isinstance(error, StoreError)
    assert error.refused
    said = storage_trouble(error, doing="recording checkpoint 7", starting=True)
    assert str(said).count("\n") == 1
    assert error.next in str(said)

    class Away(S3Storage):
        def check_reachable(self, seconds: float = 5) -> None:
            raise error

    with pytest.raises(DefinitionError) as caught:
        refuse_unreachable(Away("events", "log"), what="the folder")
    assert str(caught.value).count("\n") == 1
    assert error.next in str(caught.value)


def test_a_store_that_answers_badly_in_mid_job_is_worth_a_restart() -> None:
    assert isinstance(storage_trouble(answer("InternalError"), doing="recording checkpoint 7"), TransientError)


class Sent(ObjectWriter):
    """A writer that collects what it sends."""

    def __init__(self) -> None:
        super().__init__("a")
        self.parts: list[int] = []
        self.ended = ""

    def part(self, number: int, data: bytes) -> None:
        assert number == len(self.parts) + 1
        self.parts.append(len(data))

    def whole(self, data: bytes) -> None:
        self.ended = f"whole {len(data)}"

    def finish(self) -> None:
        self.ended = "finished"

    def drop(self) -> None:
        self.ended = "dropped"


class OnlyParts(Sent):
    whole = ObjectWriter.whole


def test_a_writer_sends_parts_that_a_store_takes() -> None:
    with Sent() as sent:
        sent.write(bytes(2 * PART + 5))
        sent.write(b"")
        assert sent.tell() == 2 * PART + 5
    assert (sent.parts, sent.ended) == ([PART, PART, 5], "finished")
    small = Sent()
    small.close()
    assert (small.parts, small.ended) == ([], "whole 0")
    only_parts = OnlyParts()
    only_parts.close()
    assert (only_parts.parts, only_parts.ended) == ([0], "finished")
    assert sum(part_size(n) for n in range(1, 10_001)) > 1 << 40, "a terabyte fits into the 10,000 parts there may be"


def test_an_object_that_a_store_tells_of_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A completion whose answer got lost is asked for again, which finds no upload; the object is told of at the third look."""
    answers: list[str | None] = [None, None, "mark"]
    slept: list[float] = []
    storage = S3Storage("bucket")
    monkeypatch.setattr(S3Storage, "mark_of", lambda self, path: answers.pop(0) if answers else None)
    assert shown_mark(storage, "a", slept.append) == "mark"
    assert slept == sorted(slept)
    assert len(slept) == 2
    slept.clear()
    assert shown_mark(storage, "a", slept.append) is None
    assert 5 < sum(slept) < 20

    def gone(*arguments: object) -> None:
        raise UploadGone("there is no such upload")

    monkeypatch.setattr(uploads, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(S3Storage, "complete_upload", gone)
    segment = FileSegment(path="a", bytes=1, rows=1, upload=SentParts("1", "mark", []))
    answers += [None, "mark"]
    complete(storage, segment)
    monkeypatch.setattr(S3Storage, "uploaded", lambda *arguments: [])
    with pytest.raises(OSError, match="no such upload"):  # it is there after all, so it is asked for again
        complete(storage, segment)


def test_a_writer_that_fails_drops_its_parts() -> None:
    class Failing(OnlyParts):
        def part(self, number: int, data: bytes) -> None:
            raise StoreError(5, "the store answered 500", "a")

    sent = Failing()
    with pytest.raises(StoreError):
        sent.close()
    assert sent.ended == "dropped"
    assert sent.closed


@pytest.mark.parametrize("where", ["part", "last part", "finish"])
def test_what_failed_once_never_appears_however_often_it_is_closed(where: str) -> None:
    class FailsOnce(Sent):
        failed = False

        def part(self, number: int, data: bytes) -> None:
            self.fail(where == ("part" if len(data) == PART else "last part"))
            super().part(number, data)

        def finish(self) -> None:
            self.fail(where == "finish")
            super().finish()

        def fail(self, now: bool) -> None:
            if now and not self.failed:
                self.failed = True
                raise StoreError(5, "the store answered 500", "a")

    sent = FailsOnce()

    def write_all() -> None:
        sent.write(bytes(PART + 1))
        sent.publish()

    with pytest.raises(StoreError):
        write_all()
    with pytest.raises(OSError, match="could not be written"):
        sent.close()
    assert sent.ended == "dropped"


def test_a_reader_asks_for_ranges(tmp_path: Path) -> None:
    data = bytes(range(200))
    asked: list[tuple[int, int]] = []

    def fetch(first: int, after: int) -> bytes:
        asked.append((first, after))
        return data[first:after]

    raw = ObjectReader(len(data), fetch, "a")
    assert raw.seek(190) == 190
    assert raw.read(50) == data[190:]
    assert raw.read(50) == b""
    assert asked == [(190, 200)]
    with open_reader(len(data), fetch, "a") as handle:
        assert handle.read() == data


def test_a_scheme_with_one_slash_is_told_how_to_write_it() -> None:
    with pytest.raises(DefinitionError) as caught:
        open_storage("s3:/bucket/folder")
    assert caught.value.next == "write s3://bucket/folder"
