"""What is received, acknowledged and delivered again: the driver's half, with a broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.connectors import AcknowledgedEnumerator, Inbox, ReceivedMessage
from poundlock.errors import SourceGoneError, TransientError
from poundlock.storage import LocalStorage

COLUMNS = pa.schema([("value", pa.binary())])


@dataclass
class Broker:
    """Messages (id, value) that are its own until they are acknowledged."""

    messages: list[tuple[str | None, str]] = field(default_factory=list)
    lose_answer: bool = False  # whether the next acknowledgement is not taken note of

    def receiver(self) -> MemoryReceiver:
        return MemoryReceiver(self)


class MemoryReceiver:
    def __init__(self, broker: Broker) -> None:
        self.broker, self.delivered = broker, 0
        self.tags: dict[int, tuple[str | None, str]] = {}

    def start(self) -> None: ...

    def received(self) -> Sequence[ReceivedMessage]:
        new = [each for each in self.broker.messages if each not in self.tags.values()]
        made = []
        for id, value in new:
            self.delivered += 1
            self.tags[self.delivered] = (id, value)
            made.append(ReceivedMessage(self.delivered, id, {"value": value.encode()}))
        return made

    def acknowledge(self, tags: Sequence[int]) -> None:
        if self.broker.lose_answer:
            self.broker.lose_answer = False
            raise TransientError("the connection broke")
        for tag in tags:
            self.broker.messages.remove(self.tags.pop(tag))

    def waiting(self) -> int | None:
        return 0

    def close(self) -> None: ...


class Driver:
    """One life of a driver over a folder."""

    def __init__(self, broker: Broker, folder: Path, *, by_id: bool, remember: int = 100, **more: Any) -> None:
        given: dict[str, Any] = {"when": "decided", "most_rows": 3, **more}
        self.enumerator = AcknowledgedEnumerator(
            LocalStorage(str(folder)), broker.receiver, COLUMNS, by_id=by_id, remember=remember, **given
        )
        self.inbox = Inbox(LocalStorage(str(folder)))

    def read(self, at: dict[str, Any], *, decide: bool = True) -> tuple[dict[str, Any], list[str]]:
        """Read a checkpoint."""
        end = self.enumerator.latest(at)
        values = [
            v.decode() for n in range(at["file"], end["file"]) for v in self.inbox.read(n).column("value").to_pylist()
        ]
        if decide:
            self.enumerator.committed(end)
        return end, values


def messages(*values: str) -> list[tuple[str | None, str]]:
    return [(f"id-{value}", value) for value in values]


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "without ids"])
def test_a_message_is_acknowledged_when_it_is_decided(tmp_path: Path, by_id: bool) -> None:
    broker = Broker(messages("a", "b", "c", "d"))
    driver = Driver(broker, tmp_path, by_id=by_id)
    at, values = driver.read({"file": 0}, decide=False)
    assert (values, len(broker.messages)) == (["a", "b", "c"], 4)
    driver.enumerator.committed(at)
    assert broker.messages == messages("d")
    assert driver.read(at)[1] == ["d"]
    assert broker.messages == []


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "without ids"])
def test_what_was_not_decided_comes_once_after_a_crash(tmp_path: Path, by_id: bool) -> None:
    broker = Broker(messages("a", "b", "c", "d"))
    Driver(broker, tmp_path, by_id=by_id).read({"file": 0}, decide=False)
    driver = Driver(broker, tmp_path, by_id=by_id)
    at, values = driver.read({"file": 0})
    assert values + driver.read(at)[1] == ["a", "b", "c", "d"]
    assert broker.messages == []


def test_what_was_decided_and_not_acknowledged_is_known_by_its_id(tmp_path: Path) -> None:
    broker = Broker(messages("a", "b"), lose_answer=True)
    at, _ = Driver(broker, tmp_path, by_id=True).read({"file": 0})
    assert len(broker.messages) == 2
    driver = Driver(broker, tmp_path, by_id=True)
    assert driver.read(at) == (at, [])
    assert broker.messages == []  # acknowledged at once


def test_what_was_decided_and_not_acknowledged_comes_twice_without_ids(tmp_path: Path) -> None:
    broker = Broker(messages("a", "b"), lose_answer=True)
    at, _ = Driver(broker, tmp_path, by_id=False).read({"file": 0})
    assert Driver(broker, tmp_path, by_id=False).read(at)[1] == ["a", "b"]


def test_a_lost_acknowledgement_is_raised_by_the_next_look(tmp_path: Path) -> None:
    broker = Broker(messages("a"), lose_answer=True)
    driver = Driver(broker, tmp_path, by_id=True)
    at, _ = driver.read({"file": 0})
    with pytest.raises(TransientError, match="the connection broke"):
        driver.read(at)
    assert driver.read(at) == (at, [])


def test_ids_are_known_when_their_files_are_gone_and_forgotten_in_the_end(tmp_path: Path) -> None:
    broker = Broker()
    driver, at = Driver(broker, tmp_path, by_id=True, remember=5, most_rows=100), {"file": 0}
    for n in range(8):
        broker.messages = messages(f"{n}")
        at, values = driver.read(at)
        assert values == [f"{n}"]
    broker.messages = messages("3")
    assert driver.read(at) == (at, [])
    assert Driver(broker, tmp_path, by_id=True, remember=5).read(at) == (at, [])
    for n in range(8, 3_000, 100):
        broker.messages = messages(*(f"{n + i}" for i in range(100)))
        at, _ = driver.read(at)
    broker.messages = messages("3")  # forgotten: thousands are newer, and five were to be remembered
    assert driver.read(at)[1] == ["3"]
    assert len(list((tmp_path / "ids").iterdir())) <= 3
    assert len(list((tmp_path / "received").iterdir())) <= 3


def test_one_message_twice_in_one_look_is_one_row(tmp_path: Path) -> None:
    class Twice(Broker):
        def receiver(self) -> MemoryReceiver:
            made = super().receiver()
            received = made.received

            def doubled() -> Sequence[ReceivedMessage]:
                return [ReceivedMessage(each.tag * 2 + i, each.id, each.row) for each in received() for i in (0, 1)]

            made.received, made.acknowledge = doubled, lambda tags: None  # type: ignore[method-assign]
            return made

    assert Driver(Twice(messages("a", "b")), tmp_path, by_id=True).read({"file": 0})[1] == ["a", "b"]


def test_acknowledged_as_received(tmp_path: Path) -> None:
    broker = Broker(messages("a", "b"))
    at, values = Driver(broker, tmp_path, by_id=False, when="received").read({"file": 0}, decide=False)
    assert (values, broker.messages) == (["a", "b"], [])
    assert Driver(broker, tmp_path, by_id=False, when="received").read({"file": 0}) == (at, ["a", "b"])


def test_another_driver_is_noticed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    one, two = Inbox(storage), Inbox(storage)
    for inbox in (one, two):
        inbox.begin(0, keep=True)
    one.put(pa.table({"value": [b"a"]}))
    with pytest.raises(TransientError, match="another driver receives for this job"):
        two.put(pa.table({"value": [b"b"]}))


def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    inbox = Inbox(LocalStorage(str(tmp_path)))
    inbox.begin(0, keep=True)
    inbox.put(pa.table({"value": [b"a"]}), {"x": 1})
    (file,) = (tmp_path / "received").iterdir()
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(
        SourceGoneError, match=r"received/0+\.arrow has messages that were received and is gone or damaged"
    ):
        inbox.read(0)
    file.unlink()
    with pytest.raises(SourceGoneError, match="is gone or damaged"):
        inbox.read(0)
