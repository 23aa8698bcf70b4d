"""What a user sees when a server around a job is not as it should be: the two lines on standard error, word by word.

Each case is a real process of the command line on a real server; afterwards nothing half-written is left there.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from terminal import Terminal

from poundlock.storage.s3 import S3Storage
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.testing.s3 import EmbeddedS3
from poundlock.testing.servers import free_port

pytestmark = pytest.mark.services

SECRET, WRONG = "open sesame", "wrong horse"
NO_RESTART = ("-D", "restart-strategy.type=none")
INTO = """
from poundlock import *
job = Job("rows", checkpoint_dir="{checkpoint}", on_error="fail", checkpoint_interval="0 s")
rows = job.from_source(FileSource("in", format="json", schema="{schema}"), name="events")
rows.sink_to({sink}, name="sink")
"""
OUT_OF = """
from poundlock import *
job = Job("rows", checkpoint_dir="checkpoint", on_error="fail", checkpoint_interval="0 s")
job.from_source({source}, name="table").sink_to(
    FileSink("out", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="files"
)
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    made = Terminal(tmp_path)
    made.environment |= {"READER_PASSWORD": SECRET, "WRONG_PASSWORD": WRONG}
    return made


def into(terminal: Terminal, sink: str, *, schema: str = "n bigint", checkpoint: str = "checkpoint") -> None:
    terminal.job(INTO, sink=sink, schema=schema, checkpoint=checkpoint)


def nothing_local(terminal: Terminal) -> None:
    """The job has not even begun: no checkpoint, no output."""
    assert terminal.out == ""
    left = {path.name for path in terminal.folder.iterdir()} - {"in", "job.py", "state", "__pycache__"}
    assert left == set()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server as it is fresh from the package: no prepared transactions, no logical log."""
    with EmbeddedPostgres(max_prepared_transactions=0, wal_level="replica", passwords={"reader": SECRET}) as running:
        running.execute(
            "CREATE TABLE t (n bigint, day date)", "INSERT INTO t SELECT generate_series(1, 3)", "CREATE PUBLICATION pub FOR TABLE t",
            "ALTER TABLE t REPLICA IDENTITY FULL",
        )  # fmt: skip
        yield running


SINKS = {
    "wrong password": ('"{reader}", "t", password="env:WRONG_PASSWORD"', "", ""),
    "wrong password in the dsn": ('"{leaking}", "t"', "", ""),
    "no database": ('"{nowhere}", "t"', "", ""),
    "no table": ('"{dsn}", "absent"', "", ""),
    "no right": ('"{reader}", "t", password="env:READER_PASSWORD"', "", ""),
    "prepared transactions switched off": ('"{dsn}", "t"', "", ""),
}
SOURCES = {
    "wrong password": ('"{reader}", table="t", password="env:WRONG_PASSWORD"', "", ""),
    "no table": ('"{dsn}", table="absent"', "", ""),
    "no column": ('"{dsn}", table="t", columns=["n", "absent"]', "", ""),
    "no right": ('"{reader}", table="t", password="env:READER_PASSWORD"', "", ""),
    "a growing column of another type": ('"{dsn}", query="SELECT n::text AS n FROM t", mode="incremental", column="n"', "", ""),
    "no logical log": ('"{dsn}", table="t", mode="cdc", slot="s", publication="pub"', "", ""),
}  # fmt: skip


def places(server: EmbeddedPostgres) -> dict[str, str]:
    return {
        "dsn": server.dsn, "reader": server.dsn_of("reader"), "leaking": server.dsn_of("reader", WRONG.replace(" ", "-")),
        "nowhere": server.dsn_of("postgres", database="nowhere"), "place": f"127.0.0.1:{server.port}",
    }  # fmt: skip


def untouched(server: EmbeddedPostgres) -> None:
    assert server.execute("SELECT n FROM t ORDER BY n") == [(1,), (2,), (3,)]
    assert server.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    ) == [("t",)]
    assert server.execute("SELECT gid FROM pg_prepared_xacts") == []
    assert server.execute("SELECT slot_name FROM pg_replication_slots") == []


def test_print(terminal, server):
    for k, (s, _, _) in SINKS.items():
        into(terminal, f"PostgresSink({s.format(**places(server))})")
        try:
            print(k, "\n   ", *terminal.run_fails(code=2), sep="\n   ")
            nothing_local(terminal)
        except Exception as e:
            print(k, "EXC", e)
    for k, (s, _, _) in SOURCES.items():
        terminal.job(OUT_OF, source=f"PostgresSource({s.format(**places(server))})")
        try:
            print(k, "\n   ", *terminal.run_fails(code=2), sep="\n   ")
            nothing_local(terminal)
        except Exception as e:
            print(k, "EXC", e)
    untouched(server)


# --- S3 ---------------------------------------------------------------------------------------------------------------


class StrictS3(EmbeddedS3):
    """An S3 server that looks at who asks: its owner, a reader who may not write, and nobody else."""

    def prepare(self) -> None:
        """Make the users; from then on each request needs a key."""
        from botocore.session import Session

        iam = Session().create_client(
            "iam", region_name=self.region, endpoint_url=self.endpoint, aws_access_key_id="a", aws_secret_access_key="b"
        )
        keys = {}
        for user, actions in (("owner", '"s3:*"'), ("reader", '["s3:ListBucket", "s3:GetObject"]')):
            iam.create_user(UserName=user)
            policy = f'{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": {actions}, "Resource": "*"}}]}}'
            iam.put_user_policy(UserName=user, PolicyName=user, PolicyDocument=policy)
            made = iam.create_access_key(UserName=user)["AccessKey"]
            keys[user] = (made["AccessKeyId"], made["SecretAccessKey"])
        self.access_key, self.secret_key = keys["owner"]
        self.reader = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys["reader"], strict=True))
        asked = urllib.request.Request(f"{self.endpoint}/moto-api/reset-auth", data=b"0", method="POST")
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 200

    def untouched(self) -> None:
        """Assert that nothing is in the bucket, and nothing on its way there."""
        with self.in_environment():
            storage = S3Storage("events", "", self.address)
            assert list(storage.list()) == []
            assert list(storage.uploads()) == []


@pytest.fixture(scope="module")
def s3() -> Iterator[StrictS3]:
    with StrictS3() as running:
        running.bucket("events")
        running.prepare()
        yield running


S3 = {
    "an unknown key": ("events", {"AWS_ACCESS_KEY_ID": "AKIAWRONG"}, "", ""),
    "a wrong secret": ("events", {"AWS_SECRET_ACCESS_KEY": WRONG}, "", ""),
    "no bucket": ("absent", {}, "", ""),
    "no right to write": ("events", None, "", ""),
    "no server": ("events", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "", ""),
}


def test_print_s3(terminal, s3):
    for what in ("sink", "checkpoint"):
        for k, (bucket, env, _, _) in S3.items():
            env = {**s3.environment, **(s3.reader if env is None else env)}
            if what == "sink":
                into(terminal, f'FileSink("s3://{bucket}/out", format="json")')
            else:
                into(terminal, 'FileSink("out", format="json")', checkpoint=f"s3://{bucket}/checkpoint")
            try:
                print(what, k, "\n   ", *terminal.run_fails(code=2, env=env), sep="\n   ")
                nothing_local(terminal)
            except Exception as e:
                print(what, k, "EXC", e)
            s3.untouched()


# --- HDFS -------------------------------------------------------------------------------------------------------------


def test_print_hdfs(terminal, own_hdfs):
    hdfs = own_hdfs
    nowhere = f"hdfs://127.0.0.1:{free_port()}/x"
    locked = f"{hdfs.uri}/of-the-owner/x"
    from poundlock.storage import open_storage

    open_storage(f"{hdfs.uri}/full").create_exclusive("there", b"")
    hdfs.admin("-setQuota", "2", "/full")
    for k, root, env in (
        ("nowhere", nowhere, {}),
        ("locked", locked, {"HADOOP_USER_NAME": "somebody"}),
        ("full", f"{hdfs.uri}/full", {}),
    ):
        for what in ("sink", "checkpoint"):
            if what == "sink":
                into(terminal, f'FileSink("{root}", format="json")')
            else:
                into(terminal, 'FileSink("out", format="json")', checkpoint=root)
            try:
                print(what, k, "\n   ", *terminal.run_fails(*NO_RESTART, code=2, env=env), sep="\n   ")
                nothing_local(terminal)
            except Exception as e:
                print(what, k, "EXC", e)


def test_print_jvm(terminal, server):
    for sink, schema in (
        (f'PostgresSink("{server.dsn}", "t", guarantee="at-least-once")', "n bigint, m bigint"),
        (f'PostgresSink("{server.dsn}", "t", guarantee="at-least-once")', "n string"),
    ):
        into(terminal, sink, schema=schema)
        try:
            print(schema, "\n   ", *terminal.run_fails(*NO_RESTART, code=2), sep="\n   ")
        except Exception as e:
            print(schema, "EXC", e)
        print(
            terminal.out,
            os.listdir(terminal.folder),
            os.listdir(terminal.folder / "checkpoint") if (terminal.folder / "checkpoint").exists() else "",
        )
    untouched(server)


def test_a_slot_that_goes_stops_the_job(terminal: Terminal) -> None:
    with EmbeddedPostgres() as server, ThreadPoolExecutor(1) as pool:
        server.execute(
            "CREATE TABLE t (n int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY FULL", "CREATE PUBLICATION pub FOR TABLE t",
            "INSERT INTO t VALUES (1)",
        )  # fmt: skip
        source = (
            f'PostgresSource("{server.dsn}", table="t", mode="cdc", slot="s", publication="pub", poll_every="0.2 s")'
        )
        terminal.job(OUT_OF, source=source)
        run = pool.submit(terminal.run_fails, *NO_RESTART, code=4)
        while not list((terminal.folder / "out").glob("part-*")):
            assert not run.done(), run.result()
            time.sleep(0.2)
        while server.execute("SELECT FROM pg_replication_slots"):
            with suppress(psycopg.errors.ObjectInUse):
                server.execute("SELECT pg_drop_replication_slot('s')")
        server.execute("INSERT INTO t VALUES (2)")
        what, next = run.result()
    print(what, next, sep="\n")
    assert what == "replication slot 's' is gone, and with it the changes since the checkpoint"
    assert next == "start the job anew, with an empty target, a new checkpoint and another slot"
    (finished,) = (terminal.folder / "out").glob("*")
    assert [json.loads(line)["after"] for line in finished.read_text().splitlines()] == [{"n": 1}]
