"""The file sink on S3, driven as the coordinator drives it: uploads and joins, each crash between, zombies, and others' uploads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.participant import Occasion, Prepared, WriterContext
from poundlock.connectors.files.sink import multipart as uploading
from poundlock.connectors.files.sink.names import numbers_of
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError
from poundlock.storage import open_storage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.uploads import LEAST_PART, Uploads
from support.sinks import JOB, FileSinkHarness, batch, hidden, lines
from support.stores import S3_SERVERS

pytestmark = pytest.mark.services
EACH = RollingPolicy(on_checkpoint=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "s3_server" in metafunc.fixturenames:
        metafunc.parametrize("s3_server", S3_SERVERS, indirect=True, scope="session")


class Harness(FileSinkHarness):
    """A sink in a bucket."""

    @property
    def storage(self) -> S3Storage:
        opened = open_storage(self.sink.path)
        assert isinstance(opened, S3Storage)
        return opened

    def finished(self) -> dict[str, bytes]:
        return {path: self.storage.read(path) for path in self.paths() if not hidden(path)}

    def paths(self) -> list[str]:
        return sorted(entry.path for entry in self.storage.list())

    def uploads(self) -> list[str]:
        return sorted(upload.path for upload in self.storage.uploads())

    def again(self, committables: list[dict[str, Any]]) -> None:
        """Commit as a process does that knows nothing but the ledger."""
        for committable in json.loads(json.dumps(committables)):
            assert FileSink.from_json(self.sink.describe_json()).commit(committable).detail["bytes"]


@pytest.fixture
def harness(new_bucket: Callable[[], str]) -> Callable[..., Harness]:
    root = f"{new_bucket()}/event_log"

    def make(**options: Any) -> Harness:
        if "format" not in options:
            options.setdefault("row", "value")
        return Harness(FileSink(root, **options).bind(job_id=JOB, sink="out"))

    return make


def test_a_file_is_uploaded_by_its_task_and_appears_by_its_driver(harness: Callable[..., Harness]) -> None:
    h = harness(format="parquet", bucket=lambda r: r["b"])
    rows = list(range(50_000))
    h.write(batch(n=rows, b=["x" if n % 2 else "y" for n in rows]))
    committables = h.decide()
    assert h.paths() == [], "nothing is visible, and nothing hidden is written"
    assert len(h.uploads()) == 2
    assert all("upload" in c["segments"][0] for c in committables)
    assert h.sink.sweep(h.state, remove=True) == [], "what is decided is needed"
    assert [f.problem for c in committables for f in h.sink.inspect(c)] == ["pending", "pending"]
    for _ in range(3):
        h.again(committables)
        assert h.uploads() == []
        assert len(h.paths()) == 2
    found = {}
    for path in h.paths():
        with h.storage.open(path) as handle:
            found[path.partition("/")[0]] = pq.read_table(handle)["n"].to_pylist()
    assert found == {"x": rows[1::2], "y": rows[::2]}
    assert [f for c in committables for f in h.sink.inspect(c)] == []
    assert {numbers_of("part", ".parquet", path) for path in h.paths()} == {("0", 0), ("0", 1)}


def test_names_go_on_where_they_ended(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    for n in range(3):
        h.write(lines(b"%d" % n), subtask=n % 2)
        h.end_checkpoint()
    numbers = [numbers_of("part", "", path) for path in h.paths()]
    assert sorted(n for n in numbers if n) == [("0", 0), ("0", 1), ("1", 0)]
    other = harness(rolling=EACH)  # without a state, such as after the loss of a checkpoint
    other.write(lines(b"again"))
    other.end_checkpoint()
    assert ("0", 2) in [numbers_of("part", "", path) for path in h.paths()]
    assert sorted(h.finished().values()) == [b"0\n", b"1\n", b"2\n", b"again\n"]


def test_names_go_on_behind_a_state_of_another_folder(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    h.state = {"v": 1, "tag": "", "root": "/local", "counters": {"0": 7}, "parts": []}
    h.write(lines(b"row"))
    h.end_checkpoint()
    [path] = h.paths()
    assert numbers_of("part", "", path) == ("0", 7), "who restores that state finds it newer"


def test_large_files_have_many_parts(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH, compression=None)
    row = bytes(range(97, 123)) * 20_000
    for _ in range(40):
        h.write(lines(row))
    [committable] = h.decide()
    assert committable["bytes"] == 40 * (len(row) + 1) > 2 * LEAST_PART
    assert len(committable["segments"][0]["upload"]["tags"]) == 3
    h.again([committable])
    assert list(h.finished().values()) == [(row + b"\n") * 40]


def test_rows_that_wait_for_other_checkpoints_are_joined_under_the_last_name(harness: Callable[..., Harness]) -> None:
    h = harness()
    big = b"x" * LEAST_PART
    for content in (b"a", big, b"b", big):
        h.write(lines(content))
        h.end_checkpoint()
        assert h.finished() == {}
    [committable] = h.decide(Occasion.END)
    for _ in range(2):
        h.again([committable])
        assert h.finished() == {"part-0-0": b"a\n" + big + b"\nb\n" + big + b"\n"}
    assert h.paths() == ["part-0-0"]
    assert h.uploads() == []


class Died(BaseException):
    """The process died here."""


STEPS = ["upload_part", "complete_upload", "_put_new", "delete"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["upload", "small", "large"])
def test_commit_is_repeated_after_a_crash_anywhere(
    harness: Callable[..., Harness], kind: str, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = harness(rolling=EACH if kind == "upload" else RollingPolicy())
    rows = [b"one", b"t" * (LEAST_PART if kind == "large" else 1)]
    for row in rows:
        h.write(lines(row))
        if kind != "upload":
            h.decide()
    [committable] = h.decide(Occasion.END)
    real = getattr(S3Storage, step)

    def die(*args: Any) -> Any:
        if after:
            real(*args)
        raise Died

    with monkeypatch.context() as m:
        m.setattr(S3Storage, step, die)
        # A dead process does not tidy up either.
        m.setattr(S3Storage, "abort_upload", lambda *args: True)
        try:
            h.sink.commit(committable)
        except Died:
            died = True
        else:
            died = False
    assert died == (step in {"upload": STEPS[1:2], "small": STEPS[2:], "large": [STEPS[0], STEPS[1], STEPS[3]]}[kind])
    h.again([committable])
    assert list(h.finished().values()) == [b"\n".join(rows) + b"\n"]
    h.sink.sweep(h.state, remove=True)
    assert [path for path in h.paths() if hidden(path)] == []
    assert h.uploads() == [], "what a dead driver began is aborted"


def test_an_answer_that_is_lost_is_asked_for_again(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    h = harness(rolling=EACH)
    h.write(lines(b"row"))
    [committable] = h.decide()
    real = S3Storage.complete_upload

    def lost(*args: Any) -> None:
        real(*args)
        raise ConnectionResetError("the answer is lost")

    with monkeypatch.context() as m:
        m.setattr(S3Storage, "complete_upload", lost)
        with pytest.raises(CommitUnknown):
            h.sink.commit(committable)
    h.again([committable])
    assert list(h.finished().values()) == [b"row\n"]


def test_a_second_completion_that_finds_no_upload_sees_its_own_file(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinIO and Amazon say NoSuchUpload to it, the server here does not."""
    h = harness(rolling=EACH)
    h.write(lines(b"row"))
    [committable] = h.decide()
    h.sink.commit(committable)

    def gone(*args: Any) -> None:
        raise uploading.UploadGone("there is no such upload")

    monkeypatch.setattr(S3Storage, "complete_upload", gone)
    h.sink.commit(committable)
    h.storage.delete(committable["final"])
    with pytest.raises(TerminalError, match="neither it nor its upload exists"):
        h.sink.commit(committable)
    h.storage.create_exclusive(committable["final"], b"row\n")
    with pytest.raises(TerminalError, match="another origin"):
        h.sink.commit(committable)


def test_a_file_of_another_origin_is_never_replaced(harness: Callable[..., Harness]) -> None:
    for options in ({"rolling": EACH}, {}):
        h = harness(**options)
        h.write(lines(b"row"))
        [committable] = h.decide(Occasion.END)
        h.storage.create_exclusive(committable["final"], b"foreign")
        assert [f.problem for f in h.sink.inspect(committable)] in (["foreign"], ["size"])
        with pytest.raises(TerminalError, match="another origin"):
            h.sink.commit(committable)
        assert h.storage.read(committable["final"]) == b"foreign"
        h.storage.delete(committable["final"])
        h.sink.sweep({}, remove=True)


def test_a_zombie_task_reaches_nobodys_file(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    zombie = h.writer()
    zombie.write(lines(b"old"))
    h.crash()
    h.write(lines(b"new"))
    committables = h.decide()
    late = zombie.prepare()
    h.again(committables)
    assert list(h.finished().values()) == [b"new\n"]
    assert {p["path"] for p in late}.isdisjoint(c["final"] for c in committables)
    [orphan] = h.sink.sweep(h.state, remove=True)
    assert orphan.path.endswith(late[0]["path"])
    with pytest.raises(TransientError, match="is gone"):
        h.sink.verify([Prepared("out", 0, late[0])])


def test_aborting_and_abandoning_leave_nothing(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    h.write(lines(b"row"))
    for item in h.prepare():
        h.sink.abort(item)
        h.sink.abort(item)
    h.write(lines(b"row"))
    h.writer().abandon()
    h.crash()
    assert h.uploads() == h.paths() == []


def test_verify_sees_a_part_that_is_missing(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    h.write(lines(b"row"))
    [item] = h.prepare()
    h.sink.verify([item])
    item.payload["bytes"] += 1
    with pytest.raises(TransientError, match=r"has 4 bytes in 1 parts instead of 5"):
        h.sink.verify([item])


def test_the_sweep_leaves_the_uploads_of_others(harness: Callable[..., Harness]) -> None:
    h = harness(rolling=EACH)
    others = [
        h.storage.begin_upload(path, "") for path in ("part-0-0", "dt=1/data.parquet", "part-0-0-0123456701234567")
    ]
    neighbour = Harness(FileSink(h.sink.path, row="value", rolling=EACH).bind(job_id=JOB, sink="other"))
    neighbour.writers[0] = neighbour.sink.open_writer(
        WriterContext(
            job_id=JOB, sink="other", epoch=1, checkpoint=0, subtask=0, attempt="a", directive={}, reject=lambda r: None,
            started_ms=0,
        )
    )  # fmt: skip
    neighbour.write(lines(b"theirs"))
    theirs = neighbour.decide()
    h.write(lines(b"lost"))
    dead = h.writers  # kept, since a writer that is let go of tidies up
    h.crash()
    h.write(lines(b"kept"))
    decided = h.decide()
    [found] = h.sink.sweep(h.state, remove=False)
    assert h.sink.sweep(h.state, remove=True) == [found]
    left = {upload.id for upload in h.storage.uploads()}
    assert left == {*others, *(c["segments"][0]["upload"]["id"] for c in (*theirs, *decided))}
    assert list(dead) == [0]
    neighbour.again(theirs)
    h.again(decided)
    assert sorted(h.finished().values()) == [b"kept\n", b"theirs\n"]


def test_compaction_and_rolling_share_a_folder_with_what_was_uploaded(harness: Callable[..., Harness]) -> None:
    h = harness(format="parquet", compaction=FileCompaction(every_checkpoints=2))
    for n in range(2):
        h.write(batch(n=[n]))
        h.end_checkpoint()
    [path] = h.paths()
    with h.storage.open(path) as handle:
        assert pq.read_table(handle)["n"].to_pylist() == [0, 1]
    state = h.state
    h = harness(format="parquet")
    h.state, h.checkpoint = state, 2
    h.write(batch(n=[2]))
    h.end_checkpoint()
    assert len(h.paths()) == 2
    assert h.uploads() == []


def test_what_cannot_be_written_to_is_refused(harness: Callable[..., Harness]) -> None:
    harness().sink.preflight()
    assert harness().paths() == harness().uploads() == []
    with pytest.raises(DefinitionError, match="no bucket 'not-there-at-all'") as caught:
        FileSink("s3://not-there-at-all/x").preflight()
    assert "create the bucket" in caught.value.next


def test_the_sink_says_where_it_writes(harness: Callable[..., Harness]) -> None:
    h = harness(format="parquet")
    assert isinstance(h.storage, Uploads)
    assert h.sink.describe_json()["path"] == h.storage.root
    said = json.dumps(h.sink.describe_json()) + repr(h.sink) + repr(h.storage)
    assert "poundlock-test" not in said, "no credentials"
