"""What a user sees when a server around a job is not as it should be: the two lines on standard error, word by word.

Each case is a real process of the command line on a real server; afterwards nothing half-written is left there.
"""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from poundlock.storage import open_storage, s3_client
from poundlock.storage.s3 import S3Storage
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.testing.s3 import EmbeddedS3
from poundlock.testing.servers import free_port
from support.terminal import Terminal

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
    left = {path.name for path in terminal.folder.iterdir()} - {"in", "job.py", "state", "__pycache__", "out"}
    assert left == set()
    assert not list((terminal.folder / "out").glob("*")), "not more than a folder"


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


INTO_POSTGRES = {
    "wrong password": (
        '"{reader}", "t", password="env:WRONG_PASSWORD"',
        'PostgreSQL at {place} refuses the connection: password authentication failed for user "reader"',
        "check user, password and database: psql with the same dsn has to connect",
    ),
    "wrong password in the dsn": (
        '"{leaking}", "t"',
        'PostgreSQL at {place} refuses the connection: password authentication failed for user "reader"',
        "check user, password and database: psql with the same dsn has to connect",
    ),
    "no database": (
        '"{nowhere}", "t"',
        'PostgreSQL at {host}/nowhere refuses the connection: database "nowhere" does not exist',
        "check user, password and database: psql with the same dsn has to connect",
    ),
    "no table": (
        '"{dsn}", "absent"',
        "table absent does not exist in PostgreSQL at {place}",
        'CREATE TABLE absent (…), or name its schema: table="schema.absent"',
    ),
    "no right": (
        '"{reader}", "t", password="env:READER_PASSWORD"',
        "PostgreSQL at {place} does not allow user reader INSERT on table public.t",
        'let its owner type: GRANT INSERT ON public.t TO "reader"',
    ),
    "prepared transactions switched off": (
        '"{dsn}", "t"',
        "PostgreSQL at {place} has prepared transactions switched off: max_prepared_transactions = 0",
        "ALTER SYSTEM SET max_prepared_transactions = 64 and start the server again; or write by key: key=[…]",
    ),
}
OUT_OF_POSTGRES = {
    "wrong password": (
        '"{reader}", table="t", password="env:WRONG_PASSWORD"',
        'PostgreSQL at {place} refuses the connection: password authentication failed for user "reader"',
        "check user, password and database: psql with the same dsn has to connect",
    ),
    "no table": (
        '"{dsn}", table="absent"',
        "there is no table absent in database 'postgres', or this user may not see its schema",
        'give table="schema.name" as the server has it, in double quotes where it has capital letters',
    ),
    "no column": (
        '"{dsn}", table="t", columns=["n", "absent"]',
        "t has no column 'absent'; it has n, day",
        "mend columns=…",
    ),
    "no right": (
        '"{reader}", table="t", password="env:READER_PASSWORD"',
        "PostgreSQL at {place}, looking up t: permission denied for table t",
        "GRANT SELECT on it to this user; for cdc also: ALTER ROLE … REPLICATION",
    ),
    "a growing column of another type": (
        '"{dsn}", query="SELECT n::text AS n FROM t", mode="incremental", column="n"',
        "column 'n' is a text, and a column to read by must be a number, a date or a time",
        "name another column, one whose value only grows from row to row",
    ),
    "no logical log": (
        '"{dsn}", table="t", mode="cdc", slot="s", publication="pub"',
        "the server has wal_level=replica, and change data capture needs logical",
        "ALTER SYSTEM SET wal_level = logical, and restart the server",
    ),
}


def places(server: EmbeddedPostgres) -> dict[str, str]:
    return {
        "dsn": server.dsn, "reader": server.dsn_of("reader"), "leaking": server.dsn_of("reader", WRONG.replace(" ", "-")),
        "nowhere": server.dsn_of("postgres", database="nowhere"), "host": f"127.0.0.1:{server.port}",
        "place": f"127.0.0.1:{server.port}/postgres", "port": str(server.port),
    }  # fmt: skip


def untouched(server: EmbeddedPostgres) -> None:
    assert server.execute("SELECT n FROM t ORDER BY n") == [(1,), (2,), (3,)]
    assert server.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    ) == [("t",)]
    assert server.execute("SELECT gid FROM pg_prepared_xacts") == []
    assert server.execute("SELECT slot_name FROM pg_replication_slots") == []


@pytest.mark.parametrize("case", INTO_POSTGRES)
def test_a_table_that_cannot_be_written_to(terminal: Terminal, server: EmbeddedPostgres, case: str) -> None:
    sink, what, next = (text.format(**places(server)) for text in INTO_POSTGRES[case])
    into(terminal, f"PostgresSink({sink})")
    assert terminal.run_fails(code=2) == (what, next)
    nothing_local(terminal)
    untouched(server)


@pytest.mark.parametrize("case", OUT_OF_POSTGRES)
def test_a_table_that_cannot_be_read(terminal: Terminal, server: EmbeddedPostgres, case: str) -> None:
    source, what, next = (text.format(**places(server)) for text in OUT_OF_POSTGRES[case])
    terminal.job(OUT_OF, source=f"PostgresSource({source})")
    assert terminal.run_fails(code=2) == (what, next)
    nothing_local(terminal)
    untouched(server)


@pytest.mark.parametrize(
    ("schema", "what", "next"),
    [
        (
            "n bigint, m bigint",
            "sink 'sink': the rows have a column 'm', and table public.t has n, day",
            "ALTER TABLE public.t ADD COLUMN …, or leave the column out with columns=[…]",
        ),
        (
            "n string",
            "sink 'sink': column 'n' of the rows is string, and in table public.t it is bigint",
            'cast it before the sink, such as .select("cast(n as bigint) as n", …)',
        ),
    ],
)
def test_rows_that_do_not_fit_the_table(
    terminal: Terminal, server: EmbeddedPostgres, schema: str, what: str, next: str
) -> None:
    into(terminal, f'PostgresSink("{server.dsn}", "t", guarantee="at-least-once")', schema=schema)
    assert terminal.run_fails(*NO_RESTART, code=2) == (what, next)
    assert terminal.out == ""
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
        asked = urllib.request.Request(
            f"{self.endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST"
        )
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 200
        s3_client._clients.clear()  # which hold the key of before

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


KEYS = "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE, and that the clock is right"
RIGHTS = "let these credentials list, read, write and delete there, and list and abort uploads"
REACHED = "{what} s3://{bucket}/x cannot be reached: "
# A bucket, variables (None = the reader's), and what is said of a sink's folder, of a checkpoint, and what to do.
BUCKETS: dict[str, tuple[str, dict[str, str] | None, str, str, str]] = {
    "unknown key": (
        "events",
        {"AWS_ACCESS_KEY_ID": "AKIAWRONG"},
        f"{REACHED}the credentials are not accepted (InvalidAccessKeyId)",
        f"{REACHED}the credentials are not accepted (InvalidAccessKeyId)",
        KEYS,
    ),
    "wrong secret": (
        "events",
        {"AWS_SECRET_ACCESS_KEY": WRONG},
        f"{REACHED}the credentials are not accepted (SignatureDoesNotMatch)",
        f"{REACHED}the credentials are not accepted (SignatureDoesNotMatch)",
        KEYS,
    ),
    "no bucket": (
        "absent",
        {},
        f"{REACHED}there is no bucket 'absent'",
        f"{REACHED}there is no bucket 'absent'",
        "create the bucket, or correct the path or AWS_ENDPOINT_URL",
    ),
    "no right to write": (
        "events",
        None,
        "cannot write to s3://{bucket}/x: access denied",
        "access denied while beginning a checkpoint in s3://{bucket}/x",
        RIGHTS,
    ),
    "no server": (
        "events",
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        f"{REACHED}the store does not answer (EndpointConnectionError)",
        f"{REACHED}the store does not answer (EndpointConnectionError)",
        "look at AWS_ENDPOINT_URL and the network",
    ),
}


@pytest.mark.parametrize("case", BUCKETS)
@pytest.mark.parametrize("part", ["sink", "checkpoint"])
def test_a_bucket_that_cannot_be_written_to(terminal: Terminal, s3: StrictS3, part: str, case: str) -> None:
    bucket, variables, of_sink, of_checkpoint, next = BUCKETS[case]
    path = f"s3://{bucket}/x"
    if part == "sink":
        into(terminal, f'FileSink("{path}", format="json")')
        said = of_sink.format(what="the folder", bucket=bucket)
    else:
        into(terminal, 'FileSink("out", format="json")', checkpoint=path)
        said = of_checkpoint.format(what="the checkpoint", bucket=bucket)
    env = {**s3.environment, **(s3.reader if variables is None else variables)}
    assert terminal.run_fails(code=2, env=env) == (said, next)
    nothing_local(terminal)
    s3.untouched()


# --- HDFS -------------------------------------------------------------------------------------------------------------


def nothing_on(folder: str) -> None:
    assert [entry.path for entry in open_storage(folder).list()] == []


def test_a_namenode_that_is_not_there(terminal: Terminal) -> None:
    pytest.importorskip("hdfs_native")
    nowhere = f"hdfs://127.0.0.1:{free_port()}/x"
    next = "start the cluster it is on, or correct its address"
    into(terminal, f'FileSink("{nowhere}", format="json")')
    assert terminal.run_fails(code=2) == (f"the folder {nowhere} cannot be reached: no answer within 5 s", next)
    into(terminal, 'FileSink("out", format="json")', checkpoint=nowhere)
    assert terminal.run_fails(code=2) == (f"the checkpoint {nowhere} cannot be reached: no answer within 5 s", next)
    nothing_local(terminal)


def test_a_folder_of_hdfs_that_may_not_be_written(terminal: Terminal, own_hdfs: EmbeddedHdfs) -> None:
    terminal.environment["HADOOP_USER_NAME"] = "somebody"
    locked = f"{own_hdfs.uri}/of-the-owner/x"
    into(terminal, f'FileSink("{locked}", format="json")')
    assert terminal.run_fails(code=2) == (
        f"cannot write to {locked}: Permission denied",
        "give the sink a folder this user may write to, or change its owner",
    )
    into(terminal, 'FileSink("out", format="json")', checkpoint=locked)
    assert terminal.run_fails(code=2) == (
        f"Permission denied while beginning a checkpoint in {locked}",
        "let the user that runs the job write there, or choose another path",
    )
    nothing_local(terminal)
    nothing_on(own_hdfs.uri)


def test_a_quota_of_hdfs_that_is_used_up(terminal: Terminal, hdfs: EmbeddedHdfs) -> None:
    """At the start; tests/crash/test_stores.py reaches one in mid-job."""
    name = f"full-{uuid.uuid4().hex[:8]}"
    full = f"{hdfs.uri}/{name}"
    open_storage(full).create_exclusive("there", b"")
    hdfs.admin("-setQuota", "2", f"/{name}")
    next = "free some space; the job goes on from its last checkpoint, nothing is lost"
    into(terminal, f'FileSink("{full}", format="json")')
    assert terminal.run_fails(*NO_RESTART, code=3) == (
        f"the quota of names is used up while making a file in {full}",
        next,
    )
    into(terminal, 'FileSink("out", format="json")', checkpoint=full)
    assert terminal.run_fails(*NO_RESTART, code=3) == (
        f"the quota of names is used up while beginning a checkpoint in {full}",
        next,
    )
    nothing_local(terminal)
    assert [entry.path for entry in open_storage(full).list()] == ["there"]


# --- while it runs ----------------------------------------------------------------------------------------------------


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
        while server.execute("SELECT slot_name FROM pg_replication_slots"):
            with suppress(psycopg.errors.ObjectInUse):
                server.execute("SELECT pg_drop_replication_slot('s')")
        server.execute("INSERT INTO t VALUES (2)")
        what, next = run.result()
    if not what.endswith('replication slot "s" does not exist'):  # it was being asked for changes when it went
        assert what == "replication slot 's' is gone, and with it the changes since the checkpoint"
        assert next == "start the job over, with an empty target, a new checkpoint and another slot"
    (finished,) = (terminal.folder / "out").glob("*")
    assert [json.loads(line)["after"] for line in finished.read_text().splitlines()] == [{"n": 1}]
