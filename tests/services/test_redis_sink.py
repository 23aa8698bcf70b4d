"""RedisSink on a real server: each type of key, deletes, what is refused, what was lost, and the contract of a sink."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import CommitUnknown, DefinitionError, RedisSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Committed
from poundlock.testing import sink_conformance
from support.cutting_proxy import CuttingProxy
from support.postgres_rig import Rig, batch
from support.redis_server import EmbeddedRedis

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]


@pytest.fixture
def server(redis_server: EmbeddedRedis) -> EmbeddedRedis:
    redis_server.start()
    redis_server.client().flushall()
    return redis_server


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.sink.close()
        if rig.epoch is not None:
            rig.epoch.__exit__(None, None, None)


def test_rows_become_hashes_strings_members_and_entries(server: EmbeddedRedis, rigs: list[Rig], tmp_path: Path) -> None:
    when = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
    rows = batch(
        id=[1, 2, 1, 3], day=pa.array([when.date()] * 4), n=[1.5, None, 2.5, -1.0], b=[True, False, None, True],
        d=pa.array([decimal.Decimal("1.50")] * 4), at=pa.array([when] * 4), y=[b"\0\xff", b"", None, b"x"],
        t=["ä 'x' {y}", None, "", "z"], gone=[False, False, False, True],
    )  # fmt: skip
    client = server.client()
    client.hset("h:2024-02-29:1", mapping={"y": "old", "other": "kept"})
    client.set("s:3", "old")
    client.sadd("m", "z", "q")
    sinks = {
        "h": RedisSink(server.url, key="h:{day}:{id}", columns=["n", "b", "d", "at", "y", "t"], delete_when="gone"),
        "s": RedisSink(server.url, key="s:{id}", type="string", columns="t", delete_when="gone", expire="1 h"),
        "m": RedisSink(server.url, key="m", type="set", columns=["id"], delete_when=None),
        "x": RedisSink(server.url, key="x:{id}", type="stream", columns=["n", "t"], max_length=1000),
    }
    for name, sink in sinks.items():
        sink.preflight()
        rigs.append(rig := Rig(tmp_path / name, sink))
        writer = rig.bound.open_writer(rig.context(0))
        assert writer.write(rows) == (3 if name == "x" else 4)
        (payload,) = writer.prepare()
        assert client.keys(f"{name}:*") == (["h:2024-02-29:1"] if name == "h" else ["s:3"] if name == "s" else [])
        for _ in range(2):
            assert isinstance(rig.bound.commit(payload), Committed)
    raw = {key: client.hgetall(key) for key in ("h:2024-02-29:2",)}
    assert raw == {"h:2024-02-29:2": {"b": "false", "d": "1.50", "at": "2024-02-29 12:00:00.123456", "y": ""}}
    assert client.hgetall("h:2024-02-29:1") == {
        "other": "kept",
        "n": "2.5",
        "d": "1.50",
        "at": "2024-02-29 12:00:00.123456",
        "t": "",
    }
    assert not client.exists("h:2024-02-29:3")
    assert [client.get(f"s:{i}") for i in (1, 2, 3)] == ["", None, None]
    assert 3_000_000 < client.pttl("s:1") <= 3_600_000
    assert client.smembers("m") == {"1", "2", "3", "z", "q"}
    assert [fields for _, fields in client.xrange("x:1")] == [{"n": "1.5", "t": "ä 'x' {y}"}, {"n": "2.5", "t": ""}]
    assert client.keys("poundlock:staged:*") == []


def test_what_cannot_be_written_is_a_bad_record(server: EmbeddedRedis, rigs: list[Rig], tmp_path: Path) -> None:
    sink = RedisSink(server.url, key="k:{id}", type="stream", columns=["t"])
    rigs.append(rig := Rig(tmp_path, sink))
    writer = rig.bound.open_writer(rig.context(0))
    assert writer.write(batch(id=[1, None, 3], t=["a", "b", None])) == 1
    assert [reject.reason for reject in rig.rejects] == [
        "a column of the key 'k:{id}' is null",
        "an entry of a stream needs a value, and all are null",
    ]
    writer.abandon()
    assert server.client().keys("*") == []
    with pytest.raises(DefinitionError, match="column 't' is list<"):
        rig.bound.open_writer(rig.context(0)).write(batch(id=[1], t=[[1]]))


def test_a_key_of_another_type_takes_nothing_of_a_piece(server: EmbeddedRedis, rigs: list[Rig], tmp_path: Path) -> None:
    client = server.client()
    client.set("x:9", "text")
    sink = RedisSink(server.url, key="x:{id}", type="stream", columns=["id"])
    rigs.append(rig := Rig(tmp_path, sink))
    (item,) = rig.write(0, [{"id": list(range(20))}])
    with pytest.raises(TerminalError, match="does not take 20 decided rows as stream: key x:9 is a string"):
        rig.bound.commit(item.payload)
    assert client.keys("x:*") == ["x:9"]
    client.delete("x:9")
    rig.bound.commit(item.payload)
    assert sorted(client.xlen(key) for key in client.keys("x:*")) == [1] * 20


def test_decided_rows_that_are_gone_stop_the_job(server: EmbeddedRedis, rigs: list[Rig], tmp_path: Path) -> None:
    rigs.append(rig := Rig(tmp_path, RedisSink(server.url, key="h:{id}", batch=1000)))
    (item,) = rig.write(0, [{"id": list(range(3000))}])
    assert item.payload["pieces"] == [3000, 3000, 3000]
    rig.bound.verify([item])
    staged = sorted(server.client().keys("poundlock:staged:*"))
    server.client().lpop(staged[1])
    with pytest.raises(TransientError, match="2999 of 3000 items are in Redis"):
        rig.bound.verify([item])
    with pytest.raises(TerminalError, match="3000 decided rows are gone"):
        rig.bound.commit(item.payload)
    rig.bound.abort(item)
    assert server.client().keys("poundlock:staged:*") == []


def test_a_lost_answer_and_a_killed_server_change_nothing(
    server: EmbeddedRedis, rigs: list[Rig], tmp_path: Path
) -> None:
    with CuttingProxy(server.port) as proxy:
        sink = RedisSink(f"redis://127.0.0.1:{proxy.port}/0", key="x", type="stream", columns=["id"])
        rigs.append(rig := Rig(tmp_path, sink))
        (item,) = rig.write(0, [{"id": list(range(50))}])
        proxy.cut(1, b"LRANGE")
        with pytest.raises(CommitUnknown):
            rig.bound.commit(item.payload)
        assert server.client().xlen("x") == 50  # the server did it
        rig.bound.commit(item.payload)
        (second,) = rig.write(1, [{"id": list(range(50, 60))}])
        server.restart()
        rig.bound.commit(item.payload)
        rig.bound.commit(second.payload)
        server.restart()
        rig.bound.commit(second.payload)
    assert [int(fields["id"]) for _, fields in server.client().xrange("x")] == list(range(60))


def test_a_server_that_may_lose_what_it_answered_is_refused(server: EmbeddedRedis) -> None:
    client = server.client()
    try:
        for name, value, usual in (
            ("appendfsync", "everysec", "always"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ):
            client.config_set(name, value)
            with pytest.raises(DefinitionError, match=value):
                RedisSink(server.url, key="h:{id}").preflight()
            RedisSink(server.url, key="h:{id}", accept_loss=True).preflight()
            client.config_set(name, usual)
    finally:
        client.config_set("appendfsync", "always")
        client.config_set("maxmemory-policy", "noeviction")
    client.acl_setuser("etl", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config"])
    with pytest.raises(DefinitionError, match="cannot be seen"):
        RedisSink(server.url, key="h:{id}", user="etl", password="pw").preflight()
    RedisSink(server.url, key="h:{id}", user="etl", password="pw", accept_loss=True).preflight()
    with pytest.raises(DefinitionError, match="invalid username-password"):
        RedisSink(server.url, key="h:{id}", user="etl", password="wrong").preflight()
    with pytest.raises(TransientError, match="see that the server runs"):
        RedisSink("redis://127.0.0.1:1/0", key="h:{id}").preflight()


FEW = ("commits", "commit-twice", "crash.decision.recorded", "crash-within-commit", "sweep-orphans")


@pytest.mark.parametrize("only", [FEW, pytest.param(None, marks=pytest.mark.torture)], ids=["some", "every"])
@pytest.mark.parametrize("type", ["hash", "stream"])
def test_it_keeps_its_contract(redis_server: EmbeddedRedis, type: Any, only: Sequence[str] | None) -> None:
    server = redis_server

    def make(folder: Path) -> RedisSink:
        key = f"{folder.name}:{{id}}" if type == "hash" else folder.name
        return RedisSink(server.url, key=key, type=type)

    def read(sink: RedisSink) -> list[dict[str, Any]]:
        client, name = server.client(), sink.key.partition(":")[0]
        found = (
            [client.hgetall(key) for key in client.keys(f"{name}:*")]
            if type == "hash"
            else [fields for _, fields in client.xrange(name)]
        )
        return [{"id": int(row["id"]), "word": row["word"]} for row in found]

    assert sink_conformance(make, read=read, rows=ROWS, only=only).passed
