"""PulsarSource and PulsarSink on a real broker: the suites, partitions, a commit that was cut off in the middle, a broker without deduplication."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import PulsarSink, PulsarSource, TransientError
from poundlock.connectors.pulsar.committer import Producers
from poundlock.connectors.pulsar.writer import STAGED
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.storage import LocalStorage
from poundlock.testing import sink_conformance, source_conformance
from support.fixtures import running_or_skipped
from support.pulsar import EmbeddedPulsar

pytestmark = pytest.mark.services

ROWS = [{"n": n, "word": f"w{n}"} for n in range(16)]
SCHEMA = "n bigint, word string"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedPulsar]:
    with running_or_skipped("Pulsar", EmbeddedPulsar) as running:
        yield running


def bodies(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def filled(broker: EmbeddedPulsar) -> Callable[[Path], PulsarSource]:
    def make(folder: Path) -> PulsarSource:
        broker.publish(folder.name, [*bodies(ROWS[:10]), b"no json"])
        return PulsarSource(broker.url, folder.name, "job", format="json", schema=SCHEMA, max_rows_per_checkpoint=4)

    return make


def another(broker: EmbeddedPulsar) -> Callable[[PulsarSource], Sequence[dict[str, Any]]]:
    def more(source: PulsarSource) -> Sequence[dict[str, Any]]:
        broker.publish(source.topic, bodies(ROWS[10:]))
        return ROWS[10:]

    return more


FEW_OF_SOURCE = ("reads-all", "restart", "replay-promise")
FEW_OF_SINK = ("commits", "task-killed")
in_torture = pytest.param(None, marks=pytest.mark.torture)


@pytest.mark.parametrize("only", [FEW_OF_SOURCE, in_torture], ids=["some", "every"])
def test_source(broker: EmbeddedPulsar, only: Sequence[str] | None) -> None:
    report = source_conformance(filled(broker), rows=ROWS[:10], more=another(broker), bad=1, patience_s=20, only=only)
    assert report.passed


@pytest.mark.parametrize("only", [FEW_OF_SINK, in_torture], ids=["some", "every"])
def test_sink(broker: EmbeddedPulsar, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> PulsarSink:
        return PulsarSink(broker.url, folder.name, staging=str(folder / "staged"))

    def read(sink: PulsarSink) -> list[dict[str, Any]]:
        return [json.loads(body) for body in broker.read(sink.topic)]

    assert sink_conformance(make, read=read, rows=ROWS, only=only).passed


def bound(broker: EmbeddedPulsar, topic: str, folder: Path) -> PulsarSink:
    return PulsarSink(broker.url, topic, staging=str(folder)).bind(job_id="0" * 32, sink="out")


def staged(folder: Path, name: str, keys: Sequence[str | None]) -> dict[str, Any]:
    """Leave messages, each of which is its number in the file, as a task does; return how a committable names them."""
    values = [f"{name}-{n}".encode() for n in range(len(keys))]
    with LocalStorage(str(folder)).write(f"{name}.arrow") as file, pa.ipc.new_stream(file, STAGED) as stream:
        stream.write_batch(pa.record_batch([pa.array(values, pa.binary()), pa.array(keys, pa.string())], schema=STAGED))
    return {"v": 1, "file": f"{name}.arrow", "rows": len(keys)}


def test_a_commit_that_was_cut_off_goes_on_where_each_partition_is(
    broker: EmbeddedPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.ask("PUT", "persistent/public/default/cut/partitions", "3")
    sink, keys = bound(broker, "cut", tmp_path), [f"k{n % 7}" if n % 2 else None for n in range(100)]
    committable = {"v": 1, "since": 1, "first": 0, "rows": 100, "files": [staged(tmp_path, "a", keys)]}
    finish, left = Producers.finish, [1, 0]

    def cut(producers: Producers) -> None:
        finish(producers)
        if left.pop() == 1:  # all is there, and nobody was answered
            raise TransientError("cut")

    monkeypatch.setattr(Producers, "finish", cut)
    with pytest.raises(CommitUnknown, match="cut"):
        sink.commit(committable)
    monkeypatch.undo()
    broker.ask("POST", "persistent/public/default/cut/partitions", "5")  # who began with three goes on with three
    sink.commit(committable)
    sink.commit(committable)
    found = [broker.read(f"cut-partition-{n}") for n in range(5)]
    assert Counter(body for bodies in found for body in bodies) == Counter(f"a-{n}".encode() for n in range(100))
    assert found[3:] == [[], []]
    assert not list(tmp_path.glob("*.arrow"))
    later = {**committable, "first": 100, "files": [staged(tmp_path, "b", [None] * 100)]}
    sink.commit(later)
    assert all(b"b" in body[:1] for n in (3, 4) for body in broker.read(f"cut-partition-{n}"))
    assert sum(len(broker.read(f"cut-partition-{n}")) for n in range(5)) == 200


def test_a_file_that_is_gone_before_it_was_sent_stops_the_job(broker: EmbeddedPulsar, tmp_path: Path) -> None:
    committable = {"v": 1, "since": 1, "first": 0, "rows": 2, "files": [staged(tmp_path, "a", [None] * 2)]}
    (tmp_path / "a.arrow").unlink()
    with pytest.raises(TerminalError, match=r"has messages that are decided, and is gone"):
        bound(broker, "gone", tmp_path).commit(committable)


def test_a_message_that_is_too_large_for_the_broker_is_never_skipped(broker: EmbeddedPulsar, tmp_path: Path) -> None:
    with LocalStorage(str(tmp_path)).write("a.arrow") as file, pa.ipc.new_stream(file, STAGED) as stream:
        values = pa.array([b"first", bytes(6 << 20), b"last"], pa.binary())
        stream.write_batch(pa.record_batch([values, pa.nulls(3, pa.string())], schema=STAGED))
    files = [{"v": 1, "file": "a.arrow", "rows": 3}]
    committable = {"v": 1, "since": 1, "first": 0, "rows": 3, "files": files}
    sink = bound(broker, "large", tmp_path)
    for _ in range(2):
        with pytest.raises(TerminalError, match=r"does not take message 1 of this sink"):
            sink.commit(committable)


@pytest.mark.torture
def test_a_broker_without_deduplication_is_noticed_by_one_message(tmp_path: Path) -> None:
    with running_or_skipped("Pulsar", lambda: EmbeddedPulsar(deduplicates=False)) as broker:
        sink = bound(broker, "plain", tmp_path)
        committable = {"v": 1, "since": 1, "first": 0, "rows": 9, "files": [staged(tmp_path, "a", [None] * 9)]}
        with pytest.raises(TerminalError, match="does not deduplicate messages"):
            sink.commit(committable)
        assert broker.read("plain") == [b"a-0"]
        broker.ask("POST", "namespaces/public/default/deduplication", "true")
        sink.commit(committable)
        assert broker.read("plain") == [f"a-{n}".encode() for n in range(9)]


def test_a_broker_that_was_killed_gives_again_what_is_not_acknowledged(tmp_path: Path) -> None:
    with running_or_skipped("Pulsar", EmbeddedPulsar) as broker:
        source, storage = PulsarSource(broker.url, "killed", "job"), LocalStorage(str(tmp_path))
        broker.publish("killed", [b"a", b"b"])
        with closing(source.enumerator(storage)) as enumerator:
            assert enumerator.latest({"file": 0}) == {"file": 1}
            broker.kill()
            broker.start()
        with closing(source.enumerator(storage)) as enumerator:
            at = enumerator.latest({"file": 0})
            assert at == {"file": 1}  # both came again, and made no second row
            enumerator.committed(at)
            assert enumerator.latest(at) == at


def test_a_broker_that_does_not_answer() -> None:
    with pytest.raises(TransientError, match=r"Pulsar at 127\.0\.0\.1:1"):
        PulsarSource("pulsar://127.0.0.1:1", "t", "s").preflight()
