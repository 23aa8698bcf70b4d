"""Tables of real databases in SQL: a PostgreSQL table copied to Parquet on S3, rows added and replaced in PostgreSQL and Derby, drivers killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from poundlock import JdbcSink
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.spark import jdbc_gateway
from poundlock.spark.launch.jars import jar_set
from poundlock.storage import open_storage
from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from support.sql_scripts import changes_of

pytestmark = [pytest.mark.engine, pytest.mark.services, pytest.mark.usefixtures("shared_jvm")]


@pytest.fixture
def pg(postgres_server: Any) -> Any:
    postgres_server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return postgres_server


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    return partial(changes_of, folder=tmp_path)


def options(pg: Any, table: str, more: str = "") -> str:
    url = f"jdbc:postgresql://127.0.0.1:{pg.port}/postgres"
    return f"WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}', 'username' = 'postgres'{more})"


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    folder.mkdir()
    (folder / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_table_is_copied_to_parquet_on_s3(pg: Any, new_bucket: Any, own_folder: Path) -> None:
    pg.execute(
        'CREATE TABLE events (id bigserial PRIMARY KEY, "atTime" timestamp, price numeric(9,2), whatever numeric, tags text[], day date)',
        'INSERT INTO events ("atTime", price, whatever, tags, day)'
        " SELECT timestamp '2026-01-05' + i * interval '1 minute', i * 0.25, i * 1.5, ARRAY['a', 'b' || i], date '2026-01-05' + i % 3"
        " FROM generate_series(1, 3000) i",
    )
    bucket = new_bucket()
    columns = 'id BIGINT, `"atTime"` TIMESTAMP(3), price DECIMAL(9, 2), whatever DECIMAL(12, 1), tags ARRAY<STRING>'
    cut = ", 'scan.partition.column' = 'id', 'scan.partition.num' = '4', 'scan.partition.lower-bound' = '1', 'scan.partition.upper-bound' = '3000'"
    script = f"""
        CREATE TABLE events ({columns}, `day` DATE) {options(pg, "public.events", cut)};
        CREATE TABLE files ({columns.replace('`"atTime"`', "happened")}, `day` DATE) PARTITIONED BY (`day`)
        WITH ('connector' = 'filesystem', 'path' = '{bucket}/events', 'format' = 'parquet', 'parquet.compression' = 'zstd');
        INSERT INTO files SELECT * FROM events WHERE id > 100"""
    (own_folder / "copy.sql").write_text(script)
    # A process of its own: it finds the bucket's keys in its environment, as its tasks do.
    command = [sys.executable, "-m", "poundlock", "sql", "copy.sql", "--master", "local[2]", "--parallelism", "2"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    storage = open_storage(f"{bucket}/events")
    finished = [entry.path for entry in storage.list() if not Path(entry.path).name.startswith((".", "_"))]
    assert {path.split("/")[0] for path in finished} == {"day=2026-01-05", "day=2026-01-06", "day=2026-01-07"}
    rows = [row for path in finished for row in pq.read_table(BytesIO(storage.read(path))).to_pylist()]
    query = 'SELECT id, "atTime", price, whatever, tags FROM events WHERE id > 100'
    wanted = Counter(repr([id, at, price, whatever, tags]) for id, at, price, whatever, tags in pg.execute(query))
    assert Counter(repr(list(row.values())[:5]) for row in rows) == wanted


def test_what_a_query_wants_is_asked_of_the_server(pg: Any, run: Any) -> None:
    pg.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text, secret text, born timestamptz)",
        "INSERT INTO people VALUES (1, 'ann', 'x', '2026-01-05 10:00+02'), (2, 'bob', 'y', NULL), (3, NULL, 'z', 'infinity')",
        "GRANT USAGE ON SCHEMA public TO reader",
        "GRANT SELECT ON people TO reader",
    )
    table = options(pg, "people").replace(
        "'username' = 'postgres'", "'username' = 'reader', 'password' = 'open sesame'"
    )
    head = f"CREATE TABLE people (id INT, name STRING, secret INT, born TIMESTAMP_LTZ(3)) {table};"
    changes = run(f"{head} SELECT name, born FROM people WHERE id < 3")
    assert Counter(changes) == Counter([("+I", ("ann", "2026-01-05T08:00:00.000Z")), ("+I", ("bob", None))])
    assert run(f"{head} SELECT COUNT(*) FROM people WHERE name = 'bob'")[-1] == ("+I", (1,))
    assert len(run(f"{head} SELECT id FROM people LIMIT 2")) == 2
    with pytest.raises(PoundlockError, match="a value does not fit"):
        run(f"{head} SELECT born FROM people WHERE id + 0 < 3")  # which is not asked of the server
    with pytest.raises(PoundlockError, match=r"people\.secret is declared INT, and the server's column is string"):
        run(f"{head} SELECT secret FROM people")


def test_rows_are_added_to_postgresql_and_those_that_change_replaced_and_deleted(
    pg: Any, run: Any, tmp_path: Path
) -> None:
    write(tmp_path / "in", [{"k": i % 3, "n": i, "s": "x" * (i % 4)} for i in range(300)])
    pg.execute(
        "CREATE TABLE added (k int, n bigint, s text)",
        "CREATE TABLE totals (k int PRIMARY KEY, total bigint, words bigint)",
        "CREATE TABLE few (n bigint PRIMARY KEY, k int)",
        "INSERT INTO few VALUES (0, 99), (1000, 1)",
    )
    source = "WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"
    script = f"""
        CREATE TABLE rows_in (k INT, n BIGINT, s STRING) {source};
        CREATE TABLE added (K INT, n BIGINT, s STRING) {options(pg, "added")};
        CREATE TABLE totals (k INT, total BIGINT, words BIGINT, PRIMARY KEY (k) NOT ENFORCED) {options(pg, "totals")};
        CREATE TABLE few (n BIGINT, k INT, PRIMARY KEY (n) NOT ENFORCED) {options(pg, "few")};
        EXECUTE STATEMENT SET BEGIN
        INSERT INTO added SELECT k, n, s FROM rows_in;
        INSERT INTO totals SELECT k, SUM(n), COUNT(DISTINCT s) FROM rows_in GROUP BY k;
        INSERT INTO few SELECT n, k FROM rows_in WHERE n < 2;
        END"""
    run(script)
    assert Counter(pg.execute("SELECT k, n, s FROM added")) == Counter((i % 3, i, "x" * (i % 4)) for i in range(300))
    assert sorted(pg.execute("SELECT * FROM totals")) == [(k, sum(range(k, 300, 3)), 4) for k in range(3)]
    assert sorted(pg.execute("SELECT n, k FROM few")) == [(0, 0), (1, 1), (1000, 1)]
    run(script)  # where it was: nothing is added twice
    assert pg.execute("SELECT count(*) FROM added") == [(300,)]
    with pytest.raises(DefinitionError, match="takes insertions alone"):
        run(script.replace("INSERT INTO few SELECT n, k FROM rows_in WHERE n < 2", "INSERT INTO added SELECT k, COUNT(*), '' FROM rows_in GROUP BY k"))  # fmt: skip


CHANGES = [
    {"before": None, "after": {"id": 1, "name": "ann"}, "op": "c"},
    {"before": None, "after": {"id": 2, "name": "bob"}, "op": "c"},
    {"before": {"id": 1, "name": "ann"}, "after": {"id": 1, "name": "eve"}, "op": "u"},
    {"before": {"id": 2, "name": "bob"}, "after": None, "op": "d"},
]


def test_rows_that_are_taken_back_are_deleted(pg: Any, run: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", CHANGES)
    pg.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text)", "INSERT INTO people VALUES (2, 'old'), (7, 'kept')"
    )
    key = "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    run(f"""
        CREATE TABLE changes ({key}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'debezium-json');
        CREATE TABLE people ({key}) {options(pg, "people")};
        INSERT INTO people SELECT * FROM changes""")
    assert sorted(pg.execute("SELECT * FROM people")) == [(1, "eve"), (7, "kept")]


def test_rows_are_replaced_and_deleted_in_derby(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", CHANGES)
    jdbc_gateway.install()
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    database = JdbcSink(url, "people", staging=str(tmp_path / "none"))

    def ask(statement: str) -> list[list[Any]]:
        connection = database.connect()
        try:
            if statement.startswith("SELECT"):
                return sorted(list(row) for row in connection.rows(statement))
            connection.run(statement)
            connection.commit()
            return []
        finally:
            connection.close()

    ask("CREATE TABLE people (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))")
    ask("INSERT INTO people VALUES (2, 'old'), (7, 'kept')")
    key = "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    run(f"""
        CREATE TABLE changes ({key}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'debezium-json');
        CREATE TABLE people ({key}) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 'people', 'sink.staging' = '{tmp_path}/staging');
        INSERT INTO people SELECT * FROM changes""")
    assert ask("SELECT id, name FROM people") == [["1", "eve"], ["7", "kept"]]


def test_a_table_of_mariadb_is_read_in_ranges(mariadb_server: EmbeddedMariaDb, run: Any) -> None:
    mariadb_server.execute(
        "CREATE TABLE orders (ID int PRIMARY KEY, amount decimal(9,2), at datetime(3), noon time)",
        "INSERT INTO orders SELECT seq, seq / 4, '2026-01-05' + INTERVAL seq MINUTE, '12:00:00' FROM seq_0_to_99",
    )
    cut = "'scan.partition.column' = 'id', 'scan.partition.num' = '3', 'scan.partition.lower-bound' = '10', 'scan.partition.upper-bound' = '19'"
    changes = run(f"""
        CREATE TABLE orders (id BIGINT, amount DECIMAL(9, 2), `at` TIMESTAMP(3), noon TIME) WITH (
          'connector' = 'jdbc', 'url' = '{mariadb_server.jdbc_url}', 'table-name' = 'orders', 'username' = 'root',
          'jars' = '{jar_set("mariadb-jdbc")[0]}', 'scan.fetch-size' = '2', {cut});
        SELECT id, amount, `at` FROM orders WHERE id <> 15 AND noon = TIME '12:00:00'""")
    wanted = [("+I", (n, n / 4, f"2026-01-05T00:{n}:00.000")) for n in range(10, 20) if n != 15]
    assert Counter((kind, (n, float(amount), at)) for kind, (n, amount, at) in changes) == Counter(wanted)
