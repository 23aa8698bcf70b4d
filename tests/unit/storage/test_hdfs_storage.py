"""HDFS without a cluster: how paths are written, and what its answers become. The rest is asked of a real one."""

from __future__ import annotations

import errno
import io
import pickle
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.errors import DefinitionError, TransientError
from poundlock.spark.error_translation import explain
from poundlock.storage import hdfs, is_uri, open_storage
from poundlock.storage.base import OutcomeUnknown
from poundlock.storage.hdfs import translated
from poundlock.storage.storage_errors import refuse_unreachable, storage_trouble
from poundlock.testing.servers import free_port

pytest.importorskip("hdfs_native")


@pytest.mark.parametrize(
    ("written", "root"),
    [
        ("hdfs://namenode:8020/a/b", "hdfs://namenode:8020/a/b"),
        ("hdfs://namenode:8020//a/./b/", "hdfs://namenode:8020/a/b"),
        ("HDFS://nameservice/a?b#c %20", "hdfs://nameservice/a?b#c %20"),
        ("hdfs:///a", "hdfs:///a"),
        ("hdfs:/a", "hdfs:///a"),
        ("hdfs://namenode:8020/", "hdfs://namenode:8020/"),
    ],
)
def test_roots(written: str, root: str) -> None:
    storage = open_storage(written)
    assert storage.root == root
    assert open_storage(storage.root) == storage
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize("written", ["hdfs://namenode/a/../../b", "hdfs:/../a"])
def test_what_is_no_folder_is_refused(written: str) -> None:
    with pytest.raises(DefinitionError, match="is not a folder of HDFS") as caught:
        open_storage(written)
    assert len(str(caught.value).splitlines()) == 2


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(DefinitionError, match=r"poundlock\[hdfs\]"):
        open_storage("hdfs://namenode:8020/a")


def test_what_is_a_uri() -> None:
    assert [p for p in ("hdfs://h/x", "s3a://b", "file:/x", "/a:/b", "c:/x", "a/b:/c", "x") if is_uri(p)] == [
        "hdfs://h/x",
        "s3a://b",
        "file:/x",
    ]


@pytest.mark.parametrize(
    ("raised", "number", "said"),
    [
        (RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'), errno.EACCES, "denied"),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota")'),
            errno.EDQUOT,
            "quota of space",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", "The NameSpace quota")'),
            errno.EDQUOT,
            "quota of names",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "x")'),
            errno.EAGAIN,
            "safe mode",
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", "x")'),
            errno.ENOENT,
            "taken away",
        ),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes. '
                'There are 1 datanode(s) running and no node(s) are excluded in this operation.")'
            ),
            errno.ENOSPC,
            "room",
        ),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes. '
                'There are 0 datanode(s) running and 0 node(s) are excluded in this operation.")'
            ),
            errno.EHOSTDOWN,
            "no datanode",
        ),
        (RuntimeError('DataTransferError("All nodes failed for write")'), errno.EIO, "HDFS: DataTransferError"),
        (OSError("Connection refused (os error 111)"), errno.ECONNREFUSED, "Connection refused"),
        (FileNotFoundError("/a"), errno.ENOENT, "No such file"),
        (FileExistsError("/a"), errno.EEXIST, "exists"),
        (ValueError("Blocks not found for /a"), errno.EIO, "Blocks not found"),
    ],
)
def test_answers_become_errors_of_a_file_system(raised: Exception, number: int, said: str) -> None:
    with pytest.raises(OSError, match=said) as caught, translated("hdfs://h/a"):
        raise raised
    assert caught.value.errno == number
    assert caught.value.filename == "hdfs://h/a"
    assert type(caught.value) is type(OSError(number, ""))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EAGAIN, errno.EHOSTDOWN, errno.EIO, errno.ECONNREFUSED])
def test_what_may_pass_is_worth_a_restart_wherever_it_is_raised(number: int) -> None:
    texts = {
        errno.EAGAIN: "the namenode is in safe mode",
        errno.EHOSTDOWN: "no datanode takes a block",
        errno.EIO: "HDFS: x",
    }
    error = OSError(number, texts.get(number, "the quota of space is used up"), "hdfs://h/a")
    if number == errno.ECONNREFUSED:
        error = OSError(number, "Connection refused (HDFS)", "hdfs://h/a")
    assert isinstance(explain(error), TransientError)
    assert isinstance(storage_trouble(error, doing="writing"), TransientError)
    assert len(str(explain(error)).splitlines()) == 2


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException: The NameSpace quota (directories and files) of directory /a is exceeded",
        "org.apache.hadoop.ipc.RemoteException(java.io.IOException): File /a could only be written to 0 of the 1 minReplication nodes.",
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create file /a. Name node is in safe mode.",
        "java.net.ConnectException: Call From h/127.0.0.1 to h:8020 failed on connection exception: java.net.ConnectException: Connection refused",
        "java.io.IOException: All datanodes [DatanodeInfoWithStorage[127.0.0.1:1,DS,DISK]] are bad. Aborting...",
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1 file=/a",
        "java.io.EOFException: End of File Exception between local host is: h; destination host is: h:8020",
    ],
)
def test_what_hadoops_own_client_says_is_worth_a_restart(said: str) -> None:
    class StreamingQueryException(Exception):
        pass

    error = explain(
        StreamingQueryException(f"[STREAM_FAILED] Query [id = 1] terminated with exception: x\nCaused by: {said}")
    )
    assert isinstance(error, TransientError), error
    assert len(str(error).splitlines()) == 2


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    storage = open_storage(f"hdfs://127.0.0.1:{free_port()}/a")
    with pytest.raises(TimeoutError, match="no answer within"):
        storage.check_reachable(0.2)  # type: ignore[attr-defined]
    refuse_unreachable(open_storage("/nowhere"), what="the checkpoint")


class Namenode:
    """Files by path, answering as a client that repeats what got no answer does: `lost` calls are carried out twice."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.lost = self.silent = False

    def create(self, path: str, options: Any) -> Any:
        if path in self.files:
            raise FileExistsError(path)
        files = self.files

        class Writing:
            def __init__(self) -> None:
                files[path] = b""

            def write(self, data: memoryview) -> None:
                files[path] += bytes(data)

            def hsync(self) -> None:
                pass

            def close(self) -> None:
                pass

        return Writing()

    def get_file_info(self, path: str) -> Any:
        if path not in self.files:
            raise FileNotFoundError(path)
        return SimpleNamespace(isdir=False, length=len(self.files[path]), modification_time=1)

    def read(self, path: str) -> Any:
        content = io.BytesIO(self.files[path])
        return SimpleNamespace(readall=content.getvalue, __len__=lambda: len(content.getvalue()))

    def delete(self, path: str, recursive: bool) -> bool:
        if self.silent:
            raise RuntimeError("RPC error: deadline has elapsed")
        return self.files.pop(path, None) is not None

    def rename(self, old: str, new: str, overwrite: bool) -> None:
        if self.silent:
            raise RuntimeError("RPC error: deadline has elapsed")
        for _ in range(2 if self.lost else 1):
            if old not in self.files:
                raise FileNotFoundError(old)
            if new in self.files and not overwrite:
                raise FileExistsError(new)
            self.files[new] = self.files.pop(old)


@pytest.fixture
def namenode(monkeypatch: pytest.MonkeyPatch) -> Namenode:
    made = Namenode()
    monkeypatch.setattr(hdfs, "_client", lambda authority, pid: made)
    return made


def test_a_name_whose_answer_does_not_come_is_not_known_to_have_failed(namenode: Namenode) -> None:
    storage = open_storage("hdfs://host:1/a")
    namenode.silent = True
    with pytest.raises(OutcomeUnknown, match="deadline"):
        storage.create_exclusive("ledger/1", b"mine")
    assert "/a/ledger/1" not in namenode.files


def test_a_call_that_is_repeated_meets_its_own_work(namenode: Namenode) -> None:
    storage = open_storage("hdfs://host:1/a")
    namenode.lost = True
    assert storage.create_exclusive("ledger/1", b"mine")
    storage.replace("ledger/1", b"other")
    assert namenode.files == {"/a/ledger/1": b"other"}
    with pytest.raises(FileNotFoundError):
        storage.replace("ledger/2", b"")


def test_a_call_that_is_never_answered_is_given_up_and_the_next_one_goes_by_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    over = threading.Event()

    class Silent:
        def __init__(self, *given: object) -> None:
            made.append("client")

        def get_file_info(self, path: str) -> object:
            if len(made) == 1:
                over.wait(30)
            return SimpleNamespace(isdir=False, length=7, modification_time=1)

    monkeypatch.setattr("hdfs_native.Client", Silent)
    monkeypatch.setattr(hdfs, "LONGEST_S", 0.2)
    hdfs._client.cache_clear()
    storage = open_storage(f"hdfs://127.0.0.1:{free_port()}/x")
    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            storage.stat("a")
        entry = storage.stat("a")
        assert entry is not None
        assert (entry.bytes, made) == (7, ["client", "client"])
    finally:
        over.set()
        hdfs._client.cache_clear()
