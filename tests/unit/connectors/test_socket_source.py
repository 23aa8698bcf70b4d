"""Lines from a real socket: what was received is written down once, and read as often as it takes."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, SocketSource, TerminalError, TransientError
from poundlock.connectors.base import ReaderContext
from poundlock.formats.convert import to_records
from poundlock.storage import LocalStorage
from poundlock.storage.base import OutcomeUnknown


class Peer:
    """Listens, and serves one connection at a time."""

    def __init__(self, port: int = 0) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self._listening.settimeout(20)
        self.port = self._listening.getsockname()[1]
        self.connection: socket.socket | None = None

    def say(self, data: bytes) -> None:
        if self.connection is None:
            self.connection, _ = self._listening.accept()
        self.connection.sendall(data)

    def hang_up(self) -> None:
        assert self.connection is not None
        self.connection.close()
        self.connection = None

    def close(self) -> None:
        self._listening.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def until(reached: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := reached()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def rows(source: SocketSource, half: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    rejected: list[Any] = []
    reader = source.reader(ReaderContext(rejected.append))
    found = [row for split in half.splits(start, end) for chunk in reader.read(split) for row in to_records(chunk).rows]
    return found + [{"bad": each.value} for each in rejected]


def test_lines_are_read_again_as_they_were_and_deleted_when_they_are_not_needed(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path)))
    start = half.initial()
    assert half.latest(start) == start, "connected, and nothing came"
    peer.say(b"one\ntwo\r\nthr")
    first = until(lambda: (end := half.latest(start)) != start and end)
    assert rows(source, half, start, first) == [{"value": b"one"}, {"value": b"two"}]
    peer.say(b"ee\n")
    second = until(lambda: (end := half.latest(first)) != first and end)
    assert rows(source, half, first, second) == [{"value": b"three"}]
    assert rows(source, half, start, second) == [{"value": b"one"}, {"value": b"two"}, {"value": b"three"}]
    half.committed(first)
    half.committed(second)
    assert rows(source, half, first, second) == [{"value": b"three"}], "the newest checkpoint may be delivered again"
    assert len(list(tmp_path.glob("*.lines"))) == 1
    assert not half.finished(second)
    peer.say(b"last")
    peer.hang_up()
    third = until(lambda: (end := half.latest(second)) != second and end)
    assert rows(source, half, second, third) == [{"value": b"last"}]
    until(lambda: half.finished(third))
    assert not half.finished(second)
    half.close()


def test_a_driver_that_starts_again_has_what_was_written_down_and_connects_again(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port, format="json", schema="n int")
    half = source.enumerator(LocalStorage(str(tmp_path)))
    start = half.initial()
    half.latest(start)
    peer.say(b'{"n": 1}\n{"n": nothing}\n')
    first = until(lambda: (end := half.latest(start)) != start and end)
    peer.say(b'{"n": 2}\n')
    until(lambda: half._held)
    half.close()  # what was received and not asked for is written down
    peer.hang_up()
    again = source.enumerator(LocalStorage(str(tmp_path)))
    second = again.latest(first)
    assert rows(source, again, start, first) == [{"n": 1}, {"bad": b'{"n": nothing}'}]
    assert rows(source, again, first, second) == [{"n": 2}]
    peer.say(b'{"n": 3}\n')
    third = until(lambda: (end := again.latest(second)) != second and end)
    assert rows(source, again, second, third) == [{"n": 3}]
    again.close()


def test_numbers_go_on_where_the_position_is_although_the_files_are_gone(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path)))
    restored = {"file": 7, "bytes": 700}
    half.latest(restored)
    peer.say(b"new\n")
    end = until(lambda: (end := half.latest(restored)) != restored and end)
    assert end == {"file": 8, "bytes": 704}
    assert rows(source, half, restored, end) == [{"value": b"new"}]
    half.close()


def test_nothing_that_listens_is_told_and_a_peer_that_had_ended_is_the_end(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path / "one")))
    start = half.initial()
    half.latest(start)
    peer.say(b"all\n")
    peer.hang_up()
    end = until(lambda: half.finished(half.latest(start)) and half.latest(start))
    half.close()
    peer.close()
    after = source.enumerator(LocalStorage(str(tmp_path / "one")))
    assert after.latest(start) == end
    assert after.finished(end)
    assert not after.finished(start)
    with pytest.raises(TransientError, match=f"nothing listens at 127.0.0.1:{peer.port}"):
        source.enumerator(LocalStorage(str(tmp_path / "two"))).latest(start)


def test_a_connection_that_breaks_is_told_and_made_again(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path)))
    start = half.initial()
    half.latest(start)
    peer.say(b"one\n")
    until(lambda: half.latest(start) != start)
    assert peer.connection is not None
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of an end
    peer.hang_up()
    with pytest.raises(TransientError, match="broke"):
        until(lambda: half.latest(start) and False)
    half.latest(start)
    peer.say(b"two\n")
    until(lambda: half.latest(start)["bytes"] == 8)
    half.close()


@pytest.mark.parametrize("arrives", [True, False])
def test_lines_that_a_storage_took_without_an_answer_are_not_written_twice(
    tmp_path: Path, peer: Peer, arrives: bool
) -> None:
    class Silent(LocalStorage):
        silent = True

        def create_exclusive(self, path: str, data: bytes) -> bool:
            if not Silent.silent:
                return super().create_exclusive(path, data)
            if arrives:
                assert super().create_exclusive(path, data)
            raise OutcomeUnknown(OSError(110, "no answer"))

    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(Silent(str(tmp_path)))
    start = half.initial()
    assert half.latest(start) == start
    peer.say(b"one\n")
    until(lambda: half._held)
    with pytest.raises(OutcomeUnknown):
        half.latest(start)
    peer.say(b"two\n")
    until(lambda: len(half._held) == 8)
    Silent.silent = False
    end = half.latest(start)
    assert rows(source, half, start, end) == [{"value": b"one"}, {"value": b"two"}]
    assert half.latest(end) == end
    half.close()


@pytest.mark.parametrize(
    "given", [{"port": 0}, {"format": "xml"}, {"format": "json"}, {"schema": "n int"}, {"format": "csv", "schema": "n"}]
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        SocketSource(**{"host": "localhost", "port": 9181, **given})


def test_the_position_is_json(tmp_path: Path) -> None:
    half = SocketSource("localhost", 9181).enumerator(LocalStorage(str(tmp_path)))
    assert json.loads(json.dumps(half.initial())) == half.initial()
    assert SocketSource("localhost", 9181).describe(half.initial()) == "lines from localhost:9181: 0 bytes received"


def test_what_came_before_the_peer_hung_up_is_written_down_when_the_driver_stops(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path)))
    start = half.initial()
    half.latest(start)
    peer.say(b"one\ntwo")
    peer.hang_up()
    until(lambda: half._ended)
    half.close()
    peer.close()
    again = source.enumerator(LocalStorage(str(tmp_path)))
    end = again.latest(start)
    assert rows(source, again, start, end) == [{"value": b"one"}, {"value": b"two"}]
    assert again.finished(end)


def test_what_came_before_the_connection_broke_is_kept(tmp_path: Path, peer: Peer) -> None:
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(LocalStorage(str(tmp_path)))
    start = half.initial()
    half.latest(start)
    peer.say(b"one\n")
    until(lambda: half._held)
    assert peer.connection is not None
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hang up with a reset
    peer.hang_up()
    until(lambda: half._ended)
    with pytest.raises(TransientError, match="broke"):
        half.latest(start)
    half.close()
    again = source.enumerator(LocalStorage(str(tmp_path)))
    end = again.latest(start)
    assert rows(source, again, start, end) == [{"value": b"one"}]
    again.close()


class FullDisk(LocalStorage):
    """Has room for so many files."""

    room = 1

    def create_exclusive(self, path: str, data: bytes) -> bool:
        if not self.room:
            raise OSError(28, "No space left on device")
        self.room -= 1
        return super().create_exclusive(path, data)


def test_lines_that_were_written_before_the_disk_was_full_are_not_written_again(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poundlock.connectors.socket_source._LIMIT", 8)
    disk = FullDisk(str(tmp_path))
    source = SocketSource("127.0.0.1", peer.port)
    half = source.enumerator(disk)
    start = half.initial()
    half.latest(start)
    peer.say(b"number 1\nnumber 2\n")
    until(lambda: len(half._held) == 18)
    with pytest.raises(OSError, match="No space"):
        half.latest(start)
    disk.room = 9
    half.close()
    again = source.enumerator(LocalStorage(str(tmp_path)))
    found = []
    while (end := again.latest(start)) != start:
        found += rows(source, again, start, end)
        start = end
    assert found == [{"value": b"number 1"}, {"value": b"number 2"}]
    again.close()


def test_a_line_that_never_ends_is_an_error_and_not_a_wait_for_ever(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poundlock.connectors.socket_source._MOST", 10)
    half = SocketSource("127.0.0.1", peer.port).enumerator(LocalStorage(str(tmp_path)))
    half.latest(half.initial())
    peer.say(b"no line end here")
    until(lambda: len(half._held) > 10)
    with pytest.raises(TerminalError, match="without a line end"):
        half.latest(half.initial())
    half.close()
