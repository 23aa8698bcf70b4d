"""S3 on a server that answers many requests at a time and keeps what it acknowledged: races within it, and its sudden death.

The storage contract and the tests of S3's storage and file sink run on it as well, where they are parametrised.
"""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from poundlock.errors import PoundlockError
from poundlock.storage import open_storage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.uploads import LEAST_PART, UploadGone
from poundlock.testing.minio import EmbeddedMinio

pytestmark = [pytest.mark.services, pytest.mark.torture]
WORKERS, NAMES = 6, 25


@pytest.fixture
def storage(minio_server: EmbeddedMinio) -> Iterator[S3Storage]:
    with minio_server.in_environment():
        opened = open_storage(f"{minio_server.bucket(f'b-{uuid.uuid4().hex[:12]}')}/jobs/a")
        assert isinstance(opened, S3Storage)
        yield opened


def at_once(work: Callable[[int], None], workers: int = WORKERS) -> None:
    """Call a function in as many threads, each with its number, and raise what one of them raised."""
    failed: list[BaseException] = []

    def one(worker: int) -> None:
        try:
            work(worker)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def create(root: str, worker: int) -> list[int]:
    storage = open_storage(root)
    return [name for name in range(NAMES) if storage.create_exclusive(f"ledger/{name}", b"%d" % worker * 5000)]


def test_a_name_has_one_creator_among_processes(storage: S3Storage) -> None:
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        wins = pool.starmap(create, [(storage.root, worker) for worker in range(WORKERS)])
    assert sorted(name for won in wins for name in won) == list(range(NAMES))
    for worker, won in enumerate(wins):
        assert all(storage.read(f"ledger/{name}") == b"%d" % worker * 5000 for name in won)


def test_a_name_has_one_upload_that_is_completed(storage: S3Storage) -> None:
    """Half of the workers complete uploads, the others put: whoever comes first wins, and the others are told so."""
    won: dict[str, list[int]] = {f"dt=1/part-{name}": [] for name in range(NAMES)}
    begin = threading.Barrier(WORKERS)

    def work(worker: int) -> None:
        for path, winners in won.items():
            content = b"%d" % worker * 5000
            if worker % 2:
                begin.wait()
                if storage.create_exclusive(path, content):
                    winners.append(worker)
                continue
            upload = storage.begin_upload(path, str(worker))
            tag = storage.upload_part(path, upload, 1, content)
            begin.wait()
            try:
                storage.complete_upload(path, upload, [tag])
            except FileExistsError:
                storage.abort_upload(path, upload)
            else:
                winners.append(worker)

    at_once(work)
    assert {path: len(winners) for path, winners in won.items()} == dict.fromkeys(won, 1)
    for path, [winner] in won.items():
        assert storage.read(path) == b"%d" % winner * 5000
        if winner % 2 == 0:
            assert storage.mark_of(path) == str(winner)
    assert list(storage.uploads()) == []


def test_an_upload_that_several_complete_appears_once(storage: S3Storage) -> None:
    """As two drivers do that both carry out one decision: the file is there, whole, and neither takes it for another's."""
    begin = threading.Barrier(WORKERS)
    for name in range(NAMES):
        path = f"part-{name}"
        upload = storage.begin_upload(path, "mine")
        tags = [storage.upload_part(path, upload, 1, bytes(LEAST_PART)), storage.upload_part(path, upload, 2, b"end")]

        def complete(worker: int, path: str = path, upload: str = upload, tags: list[str] = tags) -> None:
            begin.wait()
            try:
                storage.complete_upload(path, upload, tags)
            except (FileExistsError, UploadGone):
                assert storage.mark_of(path) == "mine"

        at_once(complete)
        entry = storage.stat(path)
        assert entry is not None
        assert entry.bytes == LEAST_PART + 3
    assert list(storage.uploads()) == []


def test_what_was_acknowledged_is_there_after_a_sudden_death() -> None:
    server = EmbeddedMinio()
    try:
        server.start()
    except PoundlockError as error:
        pytest.skip(f"no MinIO server: {error.what}")
    with server, server.in_environment():
        storage = open_storage(f"{server.bucket('bucket')}/a")
        assert isinstance(storage, S3Storage)
        upload = storage.begin_upload("part", "mine")
        tag = storage.upload_part("part", upload, 1, b"rows")
        assert all(storage.create_exclusive(f"ledger/{n}", b"%d" % n * 1000) for n in range(50))
        server.kill()
        assert server.pid is None
        server.start()
        assert [storage.read(f"ledger/{n}") for n in range(50)] == [b"%d" % n * 1000 for n in range(50)]
        assert not storage.create_exclusive("ledger/0", b"other")
        storage.complete_upload("part", upload, [tag])
        assert storage.read("part") == b"rows"
