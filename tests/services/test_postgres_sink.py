"""The PostgreSQL sink on a real server, without Spark: its participant under the coordinator, writers in this process."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import string
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, PostgresSink, TerminalError, TransientError
from poundlock.audit.fsck import fsck
from poundlock.checkpoint.participant import Aborted, Committed, Kind, Prepared
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.errors import CommitUnknown
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.values import SystemClock
from support.postgres_rig import Rig, batch, open_transactions

pytestmark = pytest.mark.services

SECRET = "pw-Tr0mpete"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(passwords={"writer": SECRET}) as running:
        yield running


@pytest.fixture
def table(server: EmbeddedPostgres) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE TABLE {name} (id bigint, word text)")
    return name


@pytest.fixture
def rig(tmp_path: Path, server: EmbeddedPostgres, table: str) -> Iterator[Rig]:
    made = Rig(tmp_path, PostgresSink(server.dsn, table))
    made.sink.preflight()
    yield made
    if made.epoch is not None:
        made.epoch.__exit__(None, None, None)
    made.sink.close()


@pytest.fixture
def by_key(tmp_path: Path, server: EmbeddedPostgres, table: str) -> Iterator[Rig]:
    server.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
    made = Rig(tmp_path, PostgresSink(server.dsn, table, key=["id"]))
    made.sink.preflight()
    yield made
    if made.epoch is not None:
        made.epoch.__exit__(None, None, None)
    made.sink.close()


def numbers(first: int, count: int = 100) -> dict[str, Any]:
    return {"id": list(range(first, first + count)), "word": [f"w{i}" for i in range(first, first + count)]}


def ids(server: EmbeddedPostgres, table: str) -> list[int]:
    return [i for (i,) in server.execute(f"SELECT id FROM {table} ORDER BY id")]


def test_rows_are_invisible_until_they_are_committed(rig: Rig, server: EmbeddedPostgres) -> None:
    seen: list[list[int]] = []
    outcome = rig.checkpoint(
        rig.driver(), 0, [numbers(0), numbers(100)], lambda: seen.append(ids(server, rig.sink.table))
    )
    assert seen == [[]]
    assert ids(server, rig.sink.table) == list(range(200))
    assert [detail["rows"] for detail in outcome.committed["out"]] == [100, 100]
    assert open_transactions(server) == []


def test_a_commit_may_be_repeated_by_anybody(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [numbers(0)])
    payload = json.loads(json.dumps(item.payload))
    assert len(payload["gid"]) <= 200
    assert payload["gid"].startswith(f"poundlock-{rig.identity.job_id}-out.")
    for sink in (rig.bound, PostgresSink(server.dsn, rig.sink.table), rebuild_sink(rig.bound.describe_json())):
        assert isinstance(sink.commit(payload), Committed)
    assert ids(server, rig.sink.table) == list(range(100))


def test_committed_and_rolled_back_are_told_apart(rig: Rig, server: EmbeddedPostgres) -> None:
    first, second = rig.write(0, [numbers(0), numbers(100)])
    server.execute(f"COMMIT PREPARED '{first.payload['gid']}'", f"ROLLBACK PREPARED '{second.payload['gid']}'")
    assert isinstance(rig.bound.commit(first.payload), Committed)
    assert isinstance(rig.bound.commit(second.payload), Aborted)
    assert rig.bound.inspect(first.payload) == []
    assert [found.problem for found in rig.bound.inspect(second.payload)] == ["missing"]


def test_what_a_server_that_is_killed_had_prepared_is_there_afterwards(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [numbers(0)])
    server.restart()
    assert [found.problem for found in rig.bound.inspect(item.payload)] == ["pending"]
    assert isinstance(rig.bound.commit(item.payload), Committed)
    server.restart()
    assert isinstance(rig.bound.commit(item.payload), Committed)
    assert ids(server, rig.sink.table) == list(range(100))


def test_a_server_that_is_away_leaves_the_outcome_open(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [numbers(0)])
    server.kill()
    try:
        with pytest.raises(CommitUnknown, match="no PostgreSQL answers"):
            rig.bound.commit(item.payload)
    finally:
        server.start()
    assert isinstance(rig.bound.commit(item.payload), Committed)


def test_a_server_that_became_a_standby_is_asked_again(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [numbers(0)])
    assert rig.bound.inspect(item.payload)  # over the connection that is kept
    server.stop()
    signal = server.home / "data" / "standby.signal"
    signal.touch()
    signal.chmod(0o666)
    server.start()
    try:
        with pytest.raises(CommitUnknown, match="during recovery") as caught:
            rig.bound.commit(item.payload)
        two_lines(caught.value)
        with pytest.raises(TransientError, match="read-only") as caught:
            rig.write(1, [numbers(100)])
        two_lines(caught.value)
        with pytest.raises(DefinitionError, match="is a standby"):
            rig.sink.preflight()
    finally:
        server.execute("SELECT pg_promote()")
    assert isinstance(rig.bound.commit(item.payload), Committed)
    assert ids(server, rig.sink.table) == list(range(100))


def test_a_decided_transaction_that_somebody_rolled_back_is_produced_again(rig: Rig, server: EmbeddedPostgres) -> None:
    class Thwarted(PostgresSink):
        """Somebody rolls back the second transaction just before it is committed."""

        def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
            if committable["rows"] == 50 and not thwarted:
                thwarted.append(committable["gid"])
                server.execute(f"ROLLBACK PREPARED '{committable['gid']}'")
            return super().commit(committable)

    thwarted: list[str] = []
    sink = Thwarted(server.dsn, rig.sink.table).bind(job_id=rig.identity.job_id, sink="out")
    rig.checkpoint(rig.driver(sink), 0, [numbers(0), numbers(100, 50)])
    assert len(thwarted) == 1
    assert ids(server, rig.sink.table) == list(range(150))
    assert open_transactions(server) == []


def test_a_driver_that_dies_before_the_decision_leaves_nothing(rig: Rig, server: EmbeddedPostgres) -> None:
    rig.write(0, [numbers(0), numbers(100)])
    other = PostgresSink(server.dsn, rig.sink.table).bind(job_id="f" * 32, sink="out")
    kept = other.open_writer(rig.context(0))
    kept._sink = other  # another job's
    kept._name = f"{other.prefix}0-0-a"
    kept.write(batch(**numbers(500)))
    (payload,) = kept.prepare()
    assert len(open_transactions(server)) == 3
    rig.driver()
    assert open_transactions(server) == [payload["gid"]], "another job's stays"
    other.abort(Prepared("out", 0, payload))
    other.abort(Prepared("out", 0, payload))
    assert ids(server, rig.sink.table) == []


def test_a_driver_that_dies_after_the_decision_is_followed_by_one_that_commits(
    rig: Rig, server: EmbeddedPostgres
) -> None:
    class Died(Exception):
        pass

    class Dying(PostgresSink):
        def commit(self, committable: dict[str, Any]) -> Committed | Aborted:
            raise Died

    sink = Dying(server.dsn, rig.sink.table).bind(job_id=rig.identity.job_id, sink="out")
    with pytest.raises(Died):
        rig.checkpoint(rig.driver(sink), 0, [numbers(0), numbers(100)])
    assert ids(server, rig.sink.table) == []
    server.restart()
    driver = rig.driver()
    assert ids(server, rig.sink.table) == list(range(200))
    assert rig.checkpoint(driver, 0, [numbers(0), numbers(100)]).replayed
    rig.checkpoint(driver, 1, [numbers(200)])
    assert ids(server, rig.sink.table) == list(range(300))


def test_what_other_attempts_prepared_is_rolled_back_before_the_decision(rig: Rig, server: EmbeddedPostgres) -> None:
    rig.checkpoint(rig.driver(), 0, [numbers(0)], lambda: rig.write(0, [numbers(0)]) and None)
    assert open_transactions(server) == []
    assert ids(server, rig.sink.table) == list(range(100))


def test_a_driver_that_slept_does_not_roll_back_what_a_newer_one_decided(rig: Rig, server: EmbeddedPostgres) -> None:
    slept = rig.write(1, [numbers(0)], epoch=3)
    left = rig.write(0, [numbers(0)], epoch=2)
    (decided,) = rig.write(1, [numbers(0)], epoch=4)
    rig.bound.verify(slept)
    waiting = [item.payload["gid"] for item in (*slept, decided)]
    assert open_transactions(server) == sorted(waiting), left
    assert isinstance(rig.bound.commit(decided.payload), Committed)
    rig.bound.sweep({}, remove=True)
    assert open_transactions(server) == []
    assert ids(server, rig.sink.table) == list(range(100))


def test_a_prepared_transaction_that_is_gone_is_noticed_before_the_decision(rig: Rig, server: EmbeddedPostgres) -> None:
    def undo() -> None:
        for gid in open_transactions(server):
            server.execute(f"ROLLBACK PREPARED '{gid}'")

    driver = rig.driver()
    with pytest.raises(TransientError, match="is not there any more"):
        rig.checkpoint(driver, 0, [numbers(0)], undo)
    rig.checkpoint(driver, 0, [numbers(0)])
    assert ids(server, rig.sink.table) == list(range(100))


def test_a_table_of_markers_that_was_made_anew_is_not_believed(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [numbers(0)])
    assert isinstance(rig.bound.commit(item.payload), Committed)
    server.execute("DROP TABLE poundlock_commits")
    with pytest.raises(TerminalError, match="its marker cannot be looked for"):
        rig.bound.commit(item.payload)
    rig.sink.preflight()
    with pytest.raises(TerminalError, match="was created again"):
        rig.bound.commit(item.payload)


def test_a_table_of_markers_that_somebody_made_twice_is_not_believed(
    rig: Rig, server: EmbeddedPostgres, table: str
) -> None:
    made = (
        f"CREATE TABLE m_{table} (gid text PRIMARY KEY, epoch bigint, checkpoint bigint,"
        " written_at timestamptz NOT NULL DEFAULT now())"
    )
    server.execute(made)
    rig.sink = PostgresSink(server.dsn, table, marker_table=f"m_{table}")
    rig.sink.preflight()
    rig.bound = rig.sink.bind(job_id=rig.identity.job_id, sink="out")
    (item,) = rig.write(0, [numbers(0)])
    assert isinstance(rig.bound.commit(item.payload), Committed)
    server.execute(f"DROP TABLE m_{table}", made)
    with pytest.raises(TerminalError, match="was created again"):
        rig.bound.commit(item.payload)


def test_the_newest_markers_stay_however_old_they_are(rig: Rig, server: EmbeddedPostgres) -> None:
    items = rig.write(0, [numbers(0), numbers(100)])
    for item in items:
        server.execute(f"COMMIT PREPARED '{item.payload['gid']}'")
        item.payload["at_ms"] -= 8 * 86_400_000
    server.execute("UPDATE poundlock_commits SET written_at = written_at - interval '8 days' WHERE epoch IS NOT NULL")
    for item in items:
        assert isinstance(rig.bound.commit(item.payload), Committed)


def test_fsck_looks_and_sweeps_without_the_jobs_code(rig: Rig, server: EmbeddedPostgres) -> None:
    rig.checkpoint(rig.driver(), 0, [numbers(0)])
    rig.write(1, [numbers(100)])
    assert rig.epoch is not None
    rig.epoch.__exit__(None, None, None)
    rig.epoch = None
    report = fsck(rig.storage, lambda name, said: rebuild_sink(said), clock=SystemClock(), fix=True)
    assert len(report.orphans) == 1
    assert open_transactions(server) == []


def test_what_was_written_after_a_savepoint_is_told(rig: Rig, server: EmbeddedPostgres) -> None:
    driver = rig.driver()
    rig.checkpoint(driver, 0, [numbers(0)])
    noted = json.loads(json.dumps(rig.bound.note()))
    other = rig.sink.bind(job_id="e" * 32, sink="out")
    assert other.newer({}, noted).what == ""
    time.sleep(0.01)
    rig.checkpoint(driver, 1, [numbers(100), numbers(200)])
    found = other.newer({}, noted)
    assert found.what == f"has 2 transactions in table {rig.sink.table} that this job committed after the savepoint"
    assert not found.retractable
    assert "does not say" in other.newer({}, {}).unknown


def test_an_abandoned_writer_leaves_nothing(rig: Rig, server: EmbeddedPostgres) -> None:
    writer = rig.bound.open_writer(rig.context(0))
    writer.write(batch(**numbers(0)))
    writer.abandon()
    writer = rig.bound.open_writer(rig.context(0))
    writer.write(batch(**numbers(0)))
    writer.prepare()
    writer.abandon()
    assert rig.bound.open_writer(rig.context(0)).prepare() == []
    assert open_transactions(server) == []
    assert ids(server, rig.sink.table) == []


# Rows


def test_every_type_arrives_as_it_was(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE every (b bool, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric(20,4), t text, v varchar(9),"
        " y bytea, d date, ts timestamp, tz timestamptz, ti time, j jsonb, a int[], w text[], u uuid, m mood, e text)",
    )
    when = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
    columns = {
        "b": [True, None],
        "i2": pa.array([7, None], pa.int16()),
        "i8": [2**62, None],
        "f4": pa.array([0.5, None], pa.float32()),
        "f8": [float("inf"), None],
        "n": [decimal.Decimal("-12.3400"), None],
        "t": ['a"b\nc,\\N\\.', None],
        "v": pa.array([b"bytes", None]),
        "y": pa.array([b"\x00\xff'", None]),
        "d": [when.date(), None],
        "ts": [when, None],
        "tz": pa.array([when, None], pa.timestamp("us", "Europe/Berlin")),
        "ti": [when.time(), None],
        "j": [{"a": [1, None], "b": "x"}, None],
        "a": [[1, None, 3], None],
        "w": [['a"b', "c\\d", ""], None],
        "u": [str(uuid.UUID(int=5)), None],
        "m": ["happy", None],
        "e": ["", None],
    }
    rig = Rig(tmp_path, PostgresSink(server.dsn, "every"))
    rig.sink.preflight()
    schema = batch(**columns).batch.schema
    rig.sink.check_columns("out", schema.names)
    rig.sink.check_schema("out", schema)
    (item,) = rig.write(0, [columns])
    rig.bound.commit(item.payload)
    with server.connect() as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        first, second = connection.execute("SELECT * FROM every ORDER BY b").fetchall()
    assert second == (None,) * 19
    zoned = when.replace(tzinfo=datetime.UTC)
    assert first == (
        True, 7, 2**62, 0.5, float("inf"), decimal.Decimal("-12.3400"), 'a"b\nc,\\N\\.', "bytes", b"\x00\xff'",
        when.date(), when, zoned, when.time(), {"a": [1, None], "b": "x"}, [1, None, 3], ['a"b', "c\\d", ""],
        uuid.UUID(int=5), "happy", "",
    )  # fmt: skip


def test_one_column_with_nulls(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [{"word": ["a", None, ""]}])
    rig.bound.commit(item.payload)
    assert server.execute(f"SELECT word, id FROM {rig.sink.table}") == [("a", None), (None, None), ("", None)]


def test_rows_that_the_table_refuses_are_dead_letters(rig: Rig, server: EmbeddedPostgres) -> None:
    server.execute(
        f"ALTER TABLE {rig.sink.table} ADD CHECK (id <> 13), ALTER word TYPE varchar(5), ALTER id SET NOT NULL"
    )
    words = [f"w{i}" for i in range(1000)]
    words[77], words[500] = "too long", "nul\x00"
    columns = {"id": pa.array([None if i == 3 else i for i in range(1000)]), "word": words}
    rig.checkpoint(rig.driver(), 0, [columns])
    assert ids(server, rig.sink.table) == [i for i in range(1000) if i not in (3, 13, 77, 500)]
    reasons = {json.loads(r.value)["word"]: r.reason for r in rig.rejects}
    assert len(reasons) == 4
    assert reasons["w3"] == "column 'id' is null, and must not be"
    assert "violates check constraint" in reasons["w13"]
    assert "too long" in reasons["too long"]
    assert "0x00" in reasons["nul\x00"]


def test_a_row_that_is_too_large_for_an_index_is_a_dead_letter(rig: Rig, server: EmbeddedPostgres) -> None:
    server.execute(f"CREATE INDEX ON {rig.sink.table} (word)")
    words = [f"w{i}" for i in range(100)]
    words[7] = "".join(random.Random(1).choices(string.ascii_letters, k=20_000))
    rig.checkpoint(rig.driver(), 0, [{"id": list(range(100)), "word": words}])
    assert ids(server, rig.sink.table) == [i for i in range(100) if i != 7]
    assert [json.loads(r.value)["id"] for r in rig.rejects] == [7]
    assert "index row" in rig.rejects[0].reason


def test_bytes_that_are_no_text_are_dead_letters(rig: Rig, server: EmbeddedPostgres) -> None:
    (item,) = rig.write(0, [{"word": pa.array([b"good", b"\xff\xfe", "wörter".encode()])}])
    rig.bound.commit(item.payload)
    assert server.execute(f"SELECT word FROM {rig.sink.table}") == [("good",), ("wörter",)]
    assert len(rig.rejects) == 1
    assert "invalid byte sequence" in rig.rejects[0].reason


def test_the_digest_is_of_the_rows_and_not_of_their_cut(rig: Rig) -> None:
    one = rig.write(0, [numbers(0, 100)])
    two = rig.write(0, [numbers(50, 50), numbers(0, 50)])
    other = rig.write(0, [numbers(1, 100)])
    digests = [sum(int(i.payload["digest"], 16) for i in items) % 2**64 for items in (one, two, other)]
    assert digests[0] == digests[1] != digests[2]
    for item in (*one, *two, *other):
        rig.bound.abort(item)


def test_two_tasks_with_one_unique_key_do_not_wait_for_ever(rig: Rig, server: EmbeddedPostgres) -> None:
    server.execute(f"ALTER TABLE {rig.sink.table} ADD PRIMARY KEY (id)")
    sink = PostgresSink(server.dsn, rig.sink.table, lock_timeout="200 ms")
    rig.bound = sink.bind(job_id=rig.identity.job_id, sink="out")
    with pytest.raises(TransientError, match=r"lock timeout.*\n.*write by key="):
        rig.write(0, [numbers(0), numbers(50)])
    rig.driver()
    assert open_transactions(server) == []


# By key


def test_rows_by_key_may_be_written_again(by_key: Rig, server: EmbeddedPostgres) -> None:
    assert by_key.bound.kind is Kind.IDEMPOTENT
    driver = by_key.driver()
    by_key.checkpoint(driver, 0, [numbers(0), numbers(100)])
    by_key.write(1, [{"id": [5, 6, 5], "word": ["a", "b", "c"]}])  # by a task that died before it told the driver
    by_key.checkpoint(driver, 1, [{"id": [5, 6, 5], "word": ["a", "b", "c"]}])
    found = dict(server.execute(f"SELECT id, word FROM {by_key.sink.table}"))
    assert found == {i: f"w{i}" for i in range(200)} | {5: "c", 6: "b"}, "the last row of a key counts"


def test_a_task_that_was_given_up_does_not_overwrite_newer_rows(by_key: Rig, server: EmbeddedPostgres) -> None:
    late = by_key.bound.open_writer(by_key.context(0, epoch=1))
    late.write(batch(id=[1], word=["old"]))
    newer = by_key.bound.open_writer(by_key.context(1, epoch=2))
    newer.write(batch(id=[1], word=["new"]))
    newer.prepare()
    with pytest.raises(TerminalError, match="wrote checkpoint 1 in start 2"):
        late.prepare()
    assert server.execute(f"SELECT word FROM {by_key.sink.table}") == [("new",)]


def test_rows_by_key_are_deleted_where_the_rows_say_so(by_key: Rig, server: EmbeddedPostgres) -> None:
    by_key.bound = PostgresSink(server.dsn, by_key.sink.table, key="id", delete_when="gone").bind(
        job_id=by_key.identity.job_id, sink="out"
    )
    server.execute(f"ALTER TABLE {by_key.sink.table} ALTER word SET NOT NULL")
    by_key.write(0, [{"id": [1, 2, 3], "word": ["a", "b", "c"], "gone": [False, None, False]}])
    by_key.write(1, [{"id": [1, 2, 2, 3], "word": [None, None, "d", "e"], "gone": [True, True, False, False]}])
    assert server.execute(f"SELECT id, word FROM {by_key.sink.table} ORDER BY id") == [(2, "d"), (3, "e")]


def test_a_row_without_its_key_is_a_dead_letter(by_key: Rig) -> None:
    by_key.write(0, [{"id": pa.array([1, None]), "word": ["a", "b"]}])
    assert [r.reason for r in by_key.rejects] == ["column 'id' is null, and must not be"]


def test_a_table_of_keys_alone(by_key: Rig, server: EmbeddedPostgres) -> None:
    for _ in range(2):
        by_key.write(0, [{"id": [1, 2]}])
    assert ids(server, by_key.sink.table) == [1, 2]


def test_at_least_once_repeats_rows(tmp_path: Path, server: EmbeddedPostgres, table: str) -> None:
    rig = Rig(tmp_path, PostgresSink(server.dsn, table, guarantee="at-least-once"))
    rig.sink.preflight()
    rig.checkpoint(rig.driver(), 0, [numbers(0, 2)], lambda: rig.write(0, [numbers(0, 2)]) and None)
    assert ids(server, table) == [0, 0, 1, 1]
    assert rig.epoch is not None
    rig.epoch.__exit__(None, None, None)


# What is refused before anything starts


def two_lines(error: BaseException) -> str:
    text = str(error)
    assert len(text.splitlines()) == 2, text
    assert "\nNext: " in text
    assert SECRET not in text
    return text


def refused(sink: PostgresSink, kind: type[Exception] = DefinitionError) -> str:
    with pytest.raises(kind) as caught:
        sink.preflight()
    return two_lines(caught.value)


def test_a_wrong_password_is_refused(server: EmbeddedPostgres, table: str) -> None:
    text = refused(PostgresSink(server.dsn_of("writer", "wrong"), table))
    assert 'password authentication failed for user "writer"' in text


def test_a_database_a_table_a_server_that_is_not_there(server: EmbeddedPostgres, table: str) -> None:
    assert "does not exist" in refused(PostgresSink(server.dsn_of("postgres", database="nothing"), table))
    assert "table nothing does not exist" in refused(PostgresSink(server.dsn, "nothing"))
    server.execute(f"CREATE VIEW v_{table} AS SELECT 1 AS id")
    assert "is no table" in refused(PostgresSink(server.dsn, f"v_{table}"))
    text = refused(PostgresSink("postgresql://postgres@127.0.0.1:1/x", table), TransientError)
    assert "no PostgreSQL answers at 127.0.0.1:1/x" in text


def test_rights_that_are_missing_are_named(server: EmbeddedPostgres, table: str) -> None:
    sink = PostgresSink(server.dsn_of("writer"), table, password=SECRET)
    assert f'GRANT INSERT ON public.{table} TO "writer"' in refused(sink)
    server.execute(f"GRANT INSERT ON {table} TO writer")
    own = PostgresSink(server.dsn_of("writer"), table, password=SECRET, marker_table=f"m_{table}")
    assert "CREATE TABLE IF NOT EXISTS" in refused(own)
    server.execute("GRANT CREATE ON SCHEMA public TO writer")
    own.preflight()
    server.execute("REVOKE CREATE ON SCHEMA public FROM writer")
    own.preflight()
    assert SECRET not in repr(own) + json.dumps(own.describe_json()) + own.describe()


def test_rows_by_key_need_temporary_tables(server: EmbeddedPostgres, table: str) -> None:
    server.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)", f"GRANT SELECT, INSERT, UPDATE ON {table} TO writer")
    server.execute("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    try:
        sink = PostgresSink(server.dsn_of("writer"), table, key="id", password=SECRET)
        assert 'GRANT TEMPORARY ON DATABASE "postgres" TO "writer"' in refused(sink)
    finally:
        server.execute("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")


def test_columns_and_types_that_do_not_fit_are_named(server: EmbeddedPostgres, table: str) -> None:
    sink = PostgresSink(server.dsn, table)
    sink.preflight()
    for columns, said in (
        (["id", "wort"], "the rows have a column 'wort'"),
        (["id", "x"], "the rows have a column 'x'"),
    ):
        with pytest.raises(DefinitionError, match=said) as caught:
            sink.check_columns("out", columns)
        two_lines(caught.value)
    with pytest.raises(DefinitionError, match="column 'id' of the rows is string") as caught:
        sink.check_schema("out", pa.schema({"id": pa.string(), "word": pa.string()}))
    assert "cast(id as bigint) as id" in two_lines(caught.value)
    server.execute(f"ALTER TABLE {table} ADD COLUMN must int NOT NULL")
    sink.preflight()
    with pytest.raises(DefinitionError, match=r"column 'must' of table .* must not be null"):
        sink.check_columns("out", ["id"])
    writer = sink.bind(job_id="a" * 32, sink="out").open_writer(Rig.context(_FakeRig(), 0))
    with pytest.raises(DefinitionError, match="must not be null"):
        writer.write(batch(**numbers(0, 1)))


class _FakeRig(Rig):
    def __init__(self) -> None:
        class _Identity:
            job_id = "a" * 32

        self.identity = _Identity()  # type: ignore[assignment]
        self.rejects = []


def test_a_key_must_be_unique_in_the_table(server: EmbeddedPostgres, table: str) -> None:
    sink = PostgresSink(server.dsn, table, key=["id"])
    assert f'ALTER TABLE public.{table} ADD UNIQUE ("id")' in refused(sink)
    server.execute(f"CREATE UNIQUE INDEX ON {table} (id) WHERE id > 5")
    refused(sink)
    server.execute(f"ALTER TABLE {table} ADD UNIQUE (id)")
    sink.preflight()
    assert "key column 'nr' is not in table" in refused(PostgresSink(server.dsn, table, key=["nr"]))


def test_an_unlogged_table_is_refused(server: EmbeddedPostgres, table: str) -> None:
    server.execute(f"ALTER TABLE {table} SET UNLOGGED")
    assert "SET LOGGED" in refused(PostgresSink(server.dsn, table))


def test_prepared_transactions_that_are_switched_off_or_too_few(server: EmbeddedPostgres, table: str) -> None:
    sink = PostgresSink(server.dsn, table)
    sink.preflight()
    with pytest.raises(DefinitionError, match=r"takes 64 prepared transactions, and 40 tasks and 2 sinks need 80"):
        sink.check_tasks(40, 2)
    sink.check_tasks(32, 2)
    server.settings["max_prepared_transactions"] = 0
    server.stop()  # in order, for no prepared transaction may be in the log that a crash leaves
    server.start()
    try:
        text = refused(sink)
        assert "max_prepared_transactions = 0" in text
        assert "ALTER SYSTEM SET max_prepared_transactions" in text
        PostgresSink(server.dsn, table, guarantee="at-least-once").preflight()
    finally:
        server.settings["max_prepared_transactions"] = 64
        server.restart()
