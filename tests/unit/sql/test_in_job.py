"""SQL in jobs of Python, as far as their steps: what tables streams are, what streams queries give, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from poundlock import FileSource, Job, PrintSink, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.connectors.postgres.source.source import PostgresSource
from poundlock.errors import DefinitionError
from poundlock.plan.known_columns import columns_of
from poundlock.plan.plan import make_plan
from poundlock.sql.running.stream_tables import StreamColumns, sql_type
from poundlock.sql.types import SqlType
from poundlock.stream.nodes import SinkNode, SourceNode, WindowNode

COLUMNS = "color string, n bigint, at timestamp"


def job_and_events(**more: Any) -> tuple[Job, Any]:
    job = Job("sql-job", on_error="fail", **more)
    times = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at")
    return job, job.from_source(FileSource("in", format="json", schema=COLUMNS), times, name="events")


def with_view(**more: Any) -> Job:
    job, events = job_and_events(**more)
    job.create_temporary_view("events", events)
    return job


def test_a_query_gives_a_stream_on_which_steps_go_on() -> None:
    job = with_view()
    stream = job.sql("SELECT UPPER(color) AS color, n * 2 AS twice FROM events WHERE n > 1")
    assert columns_of(stream.node) == pa.schema([("color", pa.string()), ("twice", pa.int64())])
    stream.filter(lambda row: row["twice"] > 2, name="few").sink_to(PrintSink(), name="shown")
    assert [node.id for node in make_plan(job).nodes if isinstance(node, SourceNode | SinkNode)] == ["events", "shown"]


def test_rows_that_change_have_the_kind_of_change() -> None:
    stream = with_view().sql("SELECT color, COUNT(*) AS n FROM events GROUP BY color")
    assert columns_of(stream.node).names == ["color", "n", "row_kind"]


def test_event_time_is_carried_over_both_ways() -> None:
    job = with_view()
    timed = job.sql("SELECT color, event_time AS t FROM events")
    timed.key_by("color").window(TumblingEventTimeWindows("1 min")).aggregate("count(*) AS n", name="counts").sink_to(
        PrintSink(), name="shown"
    )
    job.sql(
        """CREATE TABLE o (b TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
        INSERT INTO o SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end"""
    )
    windows = {node.id.partition("-")[0]: node.column for node in make_plan(job).nodes if isinstance(node, WindowNode)}
    assert windows == {"counts": "t", "window": "event_time"}
    untimed = job.sql("SELECT color FROM events")
    with pytest.raises(DefinitionError, match="needs event time"):
        untimed.key_by("color").window(TumblingEventTimeWindows("1 min"))


def test_event_time_of_a_query_counts_where_a_table_and_a_stream_are_joined() -> None:
    job = with_view()
    job.sql(
        "CREATE TABLE t (color STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'filesystem', 'path' = 'there', 'format' = 'json')"
    )
    both = job.sql("SELECT color, CAST(event_time AS TIMESTAMP(3)) AS e, ts FROM events NATURAL JOIN t")
    with pytest.raises(DefinitionError, match="needs event time"):
        both.window_all(TumblingEventTimeWindows("1 min"))


def test_statements_of_a_job_share_their_tables_and_are_one_job() -> None:
    job, events = job_and_events()
    job.create_temporary_view("events", events)
    job.sql("CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'there', 'format' = 'json')")
    job.sql("CREATE TABLE o (n BIGINT) WITH ('connector' = 'print')")
    job.sql("SET 'table.exec.state.ttl' = '1 h'; INSERT INTO o SELECT n FROM t; INSERT INTO o SELECT n + 1 FROM t")
    job.sql("SELECT n FROM t UNION ALL SELECT n FROM events").sink_to(PrintSink(), name="both")
    assert [source.id for source in job.sources] == ["events", "t"]
    assert [sink.id for sink in job.sinks] == ["o-sink", "o-sink-2", "both"]
    job.sql(
        "DROP TABLE t; CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json')"
    )
    job.sql("INSERT INTO o SELECT n FROM t")
    assert [source.id for source in job.sources] == ["events", "t", "t-2"]


def test_a_table_is_asked_for_all_that_statements_behind_the_first_may_read() -> None:
    job, _ = job_and_events()
    job.sql(
        "CREATE TABLE d (n BIGINT, m BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 'd');"
        "CREATE TABLE o (n BIGINT) WITH ('connector' = 'print');"
        "INSERT INTO o SELECT n FROM d WHERE n > 1 LIMIT 5; INSERT INTO o SELECT m FROM d"
    )
    (source,) = (node.source for node in job.sources if isinstance(node.source, PostgresSource))
    assert (source.query, source.where, source.columns) == (None, None, ("n", "m"))


def test_results_are_final_in_a_batch_job() -> None:
    stream = with_view(runtime_mode="batch").sql("SELECT color, COUNT(*) AS n FROM events GROUP BY color")
    assert columns_of(stream.node).names == ["color", "n"]


def test_changes_of_a_stream_are_those_of_its_table() -> None:
    job, events = job_and_events()
    newest = events.key_by("color").deduplicate("last", update_before=True, name="newest")
    job.create_temporary_view("newest", newest)
    job.create_temporary_view("checked", newest.map(lambda row: row, schema=f"{COLUMNS}, row_kind string"))
    assert "row_kind" in columns_of(job.sql("SELECT color FROM newest").node).names
    assert "row_kind" in columns_of(job.sql("SELECT color FROM checked").node).names
    upserts = events.key_by("color").deduplicate("last", name="upserts")
    with pytest.raises(DefinitionError) as refused:
        job.create_temporary_view("upserts", upserts)
    assert "upserts gives rows that stand for others" in refused.value.what
    assert "update_before=True" in refused.value.next


def test_columns_whose_types_nobody_knows_are_declared() -> None:
    job, events = job_and_events()
    twice = events.with_column("twice", "n * 2")
    with pytest.raises(DefinitionError) as refused:
        job.create_temporary_view("twice", twice)
    assert "the type of the column twice is not known" in refused.value.what
    assert 'create_temporary_view("twice", stream, schema=' in refused.value.next
    job.create_temporary_view("twice", twice, schema="color string, twice bigint")
    assert columns_of(job.sql("SELECT * FROM twice").node).names == ["color", "twice"]
    with pytest.raises(DefinitionError, match="the stream has no column colour"):
        job.create_temporary_view("other", events, schema="colour string")


@pytest.mark.parametrize(
    ("script", "what", "next"),
    [
        ("SELECT colour FROM events", "there is no column colour", "color"),
        ("SHOW TABLES", "SHOW gives a job neither a stream nor a sink", "job.explain()"),
        ("EXPLAIN SELECT 1", "EXPLAIN gives a job", "job.explain()"),
        ("STOP JOB 'x'", "STOP gives a job", "poundlock sql"),
        ("SELECT 1; SELECT 2", "a query whose stream nobody is given", "by itself"),
        ("INSERT INTO events SELECT * FROM events", "events is a stream of the job", "union"),
        ("SET 'parallelism.default' = '3'", "SET 'parallelism.default' in a job of Python", "Job(…, parallelism=…)"),
        ("SET 'table.dml-sync' = 'true'", "SET 'table.dml-sync' in a job of Python", "leave it out"),
        ("SET 'execution.savepoint.path' = 's'", "in a job of Python", "poundlock run -s PATH"),
        ("SET 'table.exec.source.idle' = '3'", "there is no setting", "idle-timeout"),
        ("SELECT color AS row_kind, COUNT(*) FROM events GROUP BY color", "a column row_kind", "AS kind"),
        ("", "sql of ''", "job.sql("),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(script: str, what: str, next: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        with_view().sql(script)
    assert what in refused.value.what
    assert next in refused.value.next


def test_tables_are_streams_of_the_job_with_names_of_their_own() -> None:
    job, events = job_and_events()
    _, others = job_and_events()
    for name, stream, what in (
        ("events", others, "of another job"),
        ("events", "events", "which is no stream"),
        ("", events, "is no name"),
    ):
        with pytest.raises(DefinitionError, match=what):
            job.create_temporary_view(name, stream)  # type: ignore[arg-type]
    job.create_temporary_view("events", events)
    with pytest.raises(DefinitionError, match="there is a table or view"):
        job.create_temporary_view("events", events)


def test_rows_of_a_stream_become_those_of_a_table() -> None:
    micros, instants = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
    rows = pa.record_batch({"t": pa.array([1_999, None], micros), "a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    program = StreamColumns(("a", "t"), ("n", "time"), (pa.int64(), instants), "time", keeps_kind=False)
    made, places = program.run(rows)
    assert places is None
    assert made.schema == pa.schema([("n", pa.int64()), ("time", instants)])
    assert made.column("time").cast(pa.int64()).to_pylist() == [1_000, None]


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.int64(), "BIGINT"),
        (pa.string(), "STRING"),
        (pa.timestamp("us", tz="UTC"), "TIMESTAMP_LTZ(6)"),
        (pa.timestamp("us"), "TIMESTAMP(6)"),
        (pa.decimal128(10, 2), "DECIMAL(10, 2)"),
        (pa.list_(pa.int32()), "ARRAY<INT>"),
        (pa.map_(pa.string(), pa.float64()), "MAP<STRING NOT NULL, DOUBLE>"),
        (pa.struct([pa.field("a", pa.bool_(), nullable=False)]), "ROW<`a` BOOLEAN NOT NULL>"),
    ],
)
def test_types_of_columns(arrow: pa.DataType, kind: str) -> None:
    assert str(sql_type(arrow)) == kind
    assert isinstance(sql_type(arrow), SqlType)
