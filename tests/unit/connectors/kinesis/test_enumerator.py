"""The driver's half of a Kinesis source, against a stand-in that answers as the service's manual says, where moto does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore")
from botocore.exceptions import ClientError

from poundlock import KinesisStreamsSource, TransientError
from poundlock.connectors.kinesis.enumerator import KinesisEnumerator
from poundlock.connectors.kinesis.sink import KinesisStreamsSink, RecordSender
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@dataclass
class Service:
    """Shards with their records; a closed one ends with no further iterator."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    records: dict[str, list[str]] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)  # codes of the next answers of get_records
    iterators: list[dict[str, Any]] = field(default_factory=list)

    def describe_stream_summary(self, **of: Any) -> Any:
        return {"StreamDescriptionSummary": {"RetentionPeriodHours": 24}}

    def list_shards(self, **of: Any) -> Any:
        return {
            "Shards": [
                {
                    "ShardId": id,
                    "SequenceNumberRange": {"EndingSequenceNumber": "9"} if id in self.closed else {},
                    **({"ParentShardId": self.parents[id]} if id in self.parents else {}),
                }
                for id in self.records
            ]
        }

    def get_shard_iterator(self, **of: Any) -> Any:
        self.iterators.append(of)
        if of["ShardId"] not in self.records:
            raise error("ResourceNotFoundException")
        after = int(of.get("StartingSequenceNumber", -1))
        at = len(self.records[of["ShardId"]]) if of["ShardIteratorType"] == "LATEST" else after + 1
        return {"ShardIterator": f"{of['ShardId']}/{at}"}

    def get_records(self, *, ShardIterator: str, Limit: int) -> Any:
        if self.errors:
            raise error(self.errors.pop(0))
        id, _, at = ShardIterator.partition("/")
        got = self.records[id][int(at) : int(at) + Limit]
        after = int(at) + len(got)
        left = len(self.records[id]) - after
        answer: dict[str, Any] = {
            "Records": [
                {"Data": value.encode(), "PartitionKey": "k", "SequenceNumber": str(int(at) + i)}
                for i, value in enumerate(got)
            ],
            "MillisBehindLatest": 1_000 * left,
        }
        if left or id not in self.closed:
            answer["NextShardIterator"] = f"{id}/{after}"
        return answer

    def close(self) -> None: ...


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "as asked for"}}, "GetRecords")


class Driver:
    """One life of a driver over a folder."""

    def __init__(self, service: Service, folder: Path, **more: Any) -> None:
        source = KinesisStreamsSource("s", poll_every="0 ms", clock=service.clock, **more)
        self.enumerator = KinesisEnumerator(source, LocalStorage(str(folder)))
        self.enumerator._client = service
        self.storage = LocalStorage(str(folder))

    def read(self, at: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the next position, and the values up to it."""
        end = self.enumerator.latest(at)
        files = range(at["file"], end["file"])
        values = [v.decode() for n in files for v in self.enumerator._inbox.read(n).column("value").to_pylist()]
        return end, values


def test_children_come_behind_their_parents(tmp_path: Path) -> None:
    service = Service(
        records={"parent": ["a", "b"], "left": ["c"], "right": ["d"]},
        parents={"left": "parent", "right": "parent"},
        closed={"parent"},
    )
    driver = Driver(service, tmp_path)
    first, values = driver.read(driver.enumerator.initial())
    assert values == ["a", "b"]
    _, values = driver.read(first)
    assert values == ["c", "d"]


def test_a_shard_that_is_split_while_it_is_read(tmp_path: Path) -> None:
    service = Service(records={"parent": ["a"]})
    driver = Driver(service, tmp_path)
    at, values = driver.read(driver.enumerator.initial())
    assert values == ["a"]
    service.records |= {"left": ["c"], "right": ["d"]}
    service.records["parent"].append("b")
    service.parents, service.closed = {"left": "parent", "right": "parent"}, {"parent"}
    at, values = driver.read(at)
    assert values == ["b"]
    restarted = Driver(service, tmp_path)  # a crash between the parent's end and its children
    at, values = restarted.read(at)
    assert values == ["c", "d"]
    assert at["shards"]["parent"] == "done"


def test_a_restart_goes_on_behind_the_last_record(tmp_path: Path) -> None:
    service = Service(records={"one": ["a", "b"]})
    at, _ = Driver(service, tmp_path).read({"file": 0, "shards": {}})
    service.records["one"].append("c")
    at, values = Driver(service, tmp_path).read(at)
    assert values == ["c"]
    assert service.iterators[-1]["StartingSequenceNumber"] == "1"
    assert at["shards"] == {"one": "2"}


def test_what_was_written_down_and_not_decided_is_not_read_again(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]})
    Driver(service, tmp_path).read({"file": 0, "shards": {}})
    service.records["one"].append("b")
    driver = Driver(service, tmp_path)
    at, values = driver.read({"file": 0, "shards": {}})  # the decision was never made
    assert values == ["a"]
    assert driver.read(at)[1] == ["b"]


def test_an_expired_iterator_is_made_again(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]})
    driver = Driver(service, tmp_path)
    at, _ = driver.read({"file": 0, "shards": {}})
    service.records["one"].append("b")
    service.errors = ["ExpiredIteratorException"]
    assert driver.read(at) == (at, [])
    assert driver.read(at)[1] == ["b"]
    assert service.iterators[-1]["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"


def test_a_limit_is_waited_for(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]}, errors=["ProvisionedThroughputExceededException"])
    driver = Driver(service, tmp_path)
    assert driver.read({"file": 0, "shards": {}})[1] == []
    assert driver.read({"file": 0, "shards": {}})[1] == ["a"]


def test_records_that_may_have_expired_unread_stop_the_job(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]})
    at, _ = Driver(service, tmp_path).read({"file": 0, "shards": {}})
    service.clock.set(START_MS + 25 * HOUR_MS)
    with pytest.raises(SourceGoneError, match=r"shard one of stream 's' was read up to .* keeps records for 24 h"):
        Driver(service, tmp_path).read(at)


def test_a_quiet_day_is_no_loss(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]})
    driver = Driver(service, tmp_path)
    at, _ = driver.read({"file": 0, "shards": {}})
    for hour in range(1, 30):
        service.clock.set(START_MS + hour * HOUR_MS)
        assert driver.read(at) == (at, [])
    service.records["one"].append("b")
    assert Driver(service, tmp_path).read(at)[1] == ["b"]


def test_a_shard_that_is_gone_stops_the_job(tmp_path: Path) -> None:
    service = Service(records={"one": ["a"]})
    at, _ = Driver(service, tmp_path).read({"file": 0, "shards": {}})
    service.records = {"two": []}
    with pytest.raises(SourceGoneError, match="shard one of stream 's' is no longer there"):
        Driver(service, tmp_path).read(at)


def test_from_latest_on_closed_shards_have_nothing(tmp_path: Path) -> None:
    service = Service(records={"old": ["a"], "new": ["b"]}, parents={"new": "old"}, closed={"old"})
    driver = Driver(service, tmp_path, start="latest")
    at, values = driver.read({"file": 0, "shards": {}})
    assert values == []
    service.records["new"].append("c")
    assert driver.read(at)[1] == ["c"]


class Puts:
    """A service that takes requests in part."""

    def __init__(self, *codes: str) -> None:
        self.codes, self.requests = list(codes), []  # type: ignore[var-annotated]

    def put_records(self, *, StreamName: str, Records: list[Any]) -> Any:
        self.requests.append([each["Data"] for each in Records])
        if not self.codes:
            return {"FailedRecordCount": 0, "Records": [{} for _ in Records]}
        failed = {"ErrorCode": self.codes.pop(0), "ErrorMessage": "as asked for"}
        return {"FailedRecordCount": 1, "Records": [*({} for _ in Records[1:]), failed]}

    def close(self) -> None: ...


def sent(service: Puts, **more: Any) -> None:
    import pyarrow as pa

    sender = RecordSender(KinesisStreamsSink("s", region="r", **more))
    sender._client = service
    sender.send([b"a", b"b", b"c"], pa.record_batch({"x": pa.array([1, 2, 3])}))
    sender.finish()


def test_what_was_not_taken_is_put_again() -> None:
    service = Puts("ProvisionedThroughputExceededException", "InternalFailure")
    sent(service)
    assert service.requests == [[b"a", b"b", b"c"], [b"c"], [b"c"]]


def test_what_is_never_taken_fails_the_checkpoint() -> None:
    with pytest.raises(TransientError, match="does not take records: ProvisionedThroughputExceededException"):
        sent(Puts(*["ProvisionedThroughputExceededException"] * 50), retry_for="100 ms")


def test_a_refusal_stops_the_job() -> None:
    with pytest.raises(TerminalError, match="does not take records: Odd"):
        sent(Puts("Odd"))


def test_a_request_has_500_records_at_most() -> None:
    import pyarrow as pa

    service = Puts()
    sender = RecordSender(KinesisStreamsSink("s", region="r"))
    sender._client = service
    sender.send([b"x"] * 1200, pa.record_batch({"x": pa.array(range(1200))}))
    sender.finish()
    assert [len(each) for each in service.requests] == [500, 500, 200]
