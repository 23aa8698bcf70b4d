"""The stores that the same tests run on: a table, to which a file system adds one line.

A store gives a test a folder of its own; what a job left there is fetched to the local disk to be looked at.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from poundlock.storage import LocalStorage, Storage, open_storage
from poundlock.storage.uploads import Uploads


@dataclass(frozen=True)
class Store:
    """A folder of one test's own on some file system.

    Args:
        name: of the file system.
        root: the folder, as a user would write it.
        environment: variables that a job needs to work there.
        arguments: further arguments of `poundlock run`.
    """

    name: str
    root: str
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def at(self, folder: str) -> str:
        """Return a folder of the test as a user would write it."""
        return f"{self.root}/{folder}"

    def storage(self, folder: str) -> Storage:
        """Return a folder of the test as a storage."""
        return open_storage(self.at(folder))

    def fetch(self, folder: str, to: Path) -> Path:
        """Return a folder's content on the local disk: the folder itself where it is there, else a fresh copy below `to`."""
        storage = self.storage(folder)
        if isinstance(storage, LocalStorage):
            return Path(storage.root)
        copied = to / f"fetched-{uuid.uuid4().hex[:8]}"
        copied.mkdir(parents=True)
        for entry in storage.list():
            path = copied / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(storage.read(entry.path))
        return copied

    def open_uploads(self, folder: str) -> list[str]:
        """Return the objects below a folder for which an upload was begun and neither completed nor aborted."""
        storage = self.storage(folder)
        return [upload.path for upload in storage.uploads()] if isinstance(storage, Uploads) else []


def local(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store("local", str(tmp_path))


def hdfs(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    cluster = request.getfixturevalue("hdfs")
    return Store("hdfs", f"{cluster.uri}/{request.node.originalname}-{uuid.uuid4().hex[:8]}")


def s3(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    server, new_bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("new_bucket")
    return Store("s3", f"{new_bucket()}/{request.node.originalname}", server.environment)


def minio(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    server = request.getfixturevalue("minio_server")
    inside = ExitStack()
    inside.enter_context(server.in_environment())
    request.addfinalizer(inside.close)
    bucket = server.bucket(f"b-{uuid.uuid4().hex[:12]}")
    return Store("minio", f"{bucket}/{request.node.originalname}", server.environment)


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Store]] = {
    "local": local,
    "hdfs": hdfs,
    "s3": s3,
    "minio": minio,
}

# Every store, MinIO in torture only, since it is built first; and the servers for tests of S3 itself.
ALL = [pytest.param(name, marks=pytest.mark.torture if name == "minio" else ()) for name in STORES]
S3_SERVERS = ["moto", pytest.param("minio", marks=pytest.mark.torture)]


def _first(first: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs on one store, and on the others in torture only."""
    stores = [pytest.param(name, marks=() if name == first else pytest.mark.torture) for name in STORES]
    return pytest.mark.parametrize("store", stores, indirect=True)


LOCAL_FIRST, HDFS_FIRST = _first("local"), _first("hdfs")


def make_store(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store by its name in the table, starting its server where it does not run yet."""
    return STORES[name](request, tmp_path)
