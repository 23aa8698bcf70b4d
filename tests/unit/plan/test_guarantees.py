"""Every way from a source to a sink has a promise and a reason; a job may refuse to run with less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    KafkaSink,
    KafkaSource,
    PostgresSource,
    SocketSource,
    SparkSource,
)
from poundlock.checkpoint.participant import JSON, Committed, Kind, Participant, Writer, WriterContext
from poundlock.connectors.base import ReplayKind, ReplayPromise, replay_of
from poundlock.driver.driver import run
from poundlock.plan.guarantees import SINKS, SOURCES, check_required, guarantees
from poundlock.plan.plan import make_plan


@dataclass(frozen=True)
class OtherSink(Participant):
    """Stands for sinks that promise less than files do; only its kind is looked at."""

    kind: Kind = Kind.APPEND

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError

    def commit(self, committable: JSON) -> Committed:
        raise NotImplementedError


def promises(job: Job) -> dict[tuple[str, str], str]:
    return {(path.source, path.sink): path.guarantee for path in guarantees(make_plan(job))}


def test_files_and_kafka_to_files_are_exactly_once() -> None:
    job = Job("a")
    kafka = job.from_source(KafkaSource(bootstrap_servers="localhost:9092", topics="t"), name="kafka")
    files = job.from_source(FileSource("/in"), name="files")
    kafka.select("value").union(files).sink_to(FileSink("/out", row="value"), name="both")
    made = job.from_source(DatagenSource("n int"), name="made")
    made.sink_to(FileSink("/made", format="json"), name="numbers")
    assert promises(job) == {
        ("kafka", "both"): "exactly-once",
        ("files", "both"): "exactly-once",
        ("made", "numbers"): "exactly-once",
        ("kafka", "dead-letter"): "exactly-once",
        ("files", "dead-letter"): "exactly-once",
        ("made", "dead-letter"): "exactly-once",
    }
    job.require = "exactly-once"
    check_required(make_plan(job))


@pytest.mark.parametrize(
    ("format", "promise"), [("json", "exactly-once"), ("delta", "at-least-once"), ("strange", "at-least-once")]
)
def test_what_spark_reads_is_as_good_as_its_connector_is_known_to_be(format: str, promise: str) -> None:
    job = Job("a", on_error="skip")
    job.from_source(SparkSource(format), name="in").sink_to(FileSink("/out", format="json"), name="out")
    assert promises(job) == {("in", "out"): promise}


def test_a_user_may_say_that_a_spark_source_gives_the_same_rows_again() -> None:
    job = Job("a", on_error="skip", require="exactly-once")
    source = SparkSource("delta", path="/table", repeatable=True)
    job.from_source(source, name="in").sink_to(FileSink("/out", format="json"), name="out")
    check_required(make_plan(job))
    assert "repeatable=True" in guarantees(make_plan(job))[0].reason
    doubted = SparkSource("json", path="/in", schema="n int", repeatable=False)
    assert replay_of(doubted).kind == "unknown"


@dataclass(frozen=True)
class Undeclared:
    """A split source of somebody else's, with all that the protocol asks for and no word on a second reading."""

    bounded: bool = True

    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def preflight(self) -> None: ...

    def enumerator(self, workspace: Any) -> Any: ...

    def reader(self, context: Any) -> Any: ...

    def describe(self, position: Any) -> str:
        return "somewhere"


@dataclass(frozen=True)
class Declared(Undeclared):
    """The same, and declares what a second reading gives."""

    @property
    def replay(self) -> ReplayPromise:
        return ReplayPromise("exact", "numbers stay as they are")


POSTGRES = "postgresql://user@localhost/database"


@pytest.mark.parametrize(
    ("source", "promise", "reason"),
    [
        (Undeclared(), "at-least-once", "does not declare"),
        (Declared(), "exactly-once", "numbers stay as they are"),
        (PostgresSource(POSTGRES, table="t"), "exactly-once", "one snapshot"),
        (PostgresSource(POSTGRES, table="t", ranges_per_checkpoint=4), "exactly-once", "one snapshot"),
        (
            PostgresSource(POSTGRES, table="t", ranges_per_checkpoint=4, lost_snapshot="newer"),
            "none",
            'lost_snapshot="newer"',
        ),
        (PostgresSource(POSTGRES, table="t", mode="incremental", column="id"), "none", "append_only=True"),
        (
            PostgresSource(POSTGRES, table="t", mode="incremental", column="id", append_only=True, settle="0 s"),
            "none",
            "took its value a moment before",
        ),
        (
            PostgresSource(POSTGRES, table="t", mode="incremental", column="id", append_only=True),
            "exactly-once",
            "append_only=True",
        ),
        (PostgresSource(POSTGRES, table="t", mode="cdc", slot="s", publication="p"), "exactly-once", "slot"),
        (SocketSource("localhost", 9), "none", "on its way"),
    ],
)
def test_a_source_is_taken_at_its_word_and_at_nothing_else(source: Any, promise: str, reason: str) -> None:
    job = Job("a", on_error="skip", require="exactly-once")
    job.from_source(source, name="in").sink_to(FileSink("/out", format="json"), name="out")
    [path] = guarantees(make_plan(job))
    assert path.guarantee == promise
    assert reason in path.reason
    if promise != "exactly-once":
        with pytest.raises(DefinitionError, match="requires exactly-once") as caught:
            check_required(make_plan(job))
        assert 'require="none"' not in str(caught.value)


def test_append_only_is_for_incremental_reading() -> None:
    with pytest.raises(DefinitionError, match="append_only means nothing"):
        PostgresSource(POSTGRES, table="t", append_only=True)


@pytest.mark.parametrize("kind", list(Kind))
def test_the_weaker_end_decides(kind: Kind) -> None:
    job = Job("a", on_error="skip")
    job.from_source(FileSource("/in"), name="in").sink_to(OtherSink(kind), name="out")
    job.from_source(SparkSource("strange"), name="odd").sink_to(OtherSink(kind), name="other")
    found = promises(job)
    assert found["in", "out"] == SINKS[kind][0]
    weaker = "none" if kind is Kind.FORGETFUL else "at-least-once"
    assert found["odd", "other"] == weaker


def test_a_job_that_requires_more_than_it_gets_is_refused_before_anything_is_touched() -> None:
    job = Job("a", on_error="skip", require="exactly-once")
    job.from_source(SparkSource("strange"), name="in").sink_to(FileSink("/nowhere/out", format="json"), name="out")
    with pytest.raises(
        DefinitionError, match="in -> out is at-least-once, and the job requires exactly-once: in: "
    ) as e:
        run(job)
    assert 'require="at-least-once"' in str(e.value)


def test_a_requirement_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match="require='twice' is not a guarantee"):
        Job("a", require="twice")  # type: ignore[arg-type]


def test_every_kind_has_a_row() -> None:
    assert set(SINKS) == set(Kind)
    assert set(SOURCES) == set(get_args(ReplayKind))


def test_the_docs_have_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "docs/guarantees.md").read_text()
    for guarantee, why in [*SOURCES.values(), *SINKS.values()]:
        assert f"| {guarantee} | {why} |" in page


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        (KafkaSource(bootstrap_servers="localhost:9092", topics="t"), False),
        (KafkaSource(bootstrap_servers="localhost:9092", topics="t", min_partitions=9), False),
        (DatagenSource("n int"), True),
        (SparkSource("strange"), True),
    ],
)
def test_tasks_that_commit_by_themselves_need_tasks_that_come_again(source: Any, refused: bool) -> None:
    job = Job("a", on_error="skip")
    sink = KafkaSink("localhost:9092", "out", format="json", commit_mode="per_task")
    job.from_source(source, name="in").sink_to(sink, name="out")
    if refused:
        with pytest.raises(DefinitionError, match="in -> out") as caught:
            check_required(make_plan(job))
        assert 'commit_mode="two_phase"' in str(caught.value.next)
    else:
        check_required(make_plan(job))
        assert promises(job) == {("in", "out"): "effectively-once"}


def _kafka(**of: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers="localhost:9092", **of)


@pytest.mark.parametrize(
    ("build", "refused"),
    [
        (lambda a, b: a.where("value is null").union(a.where("value is not null")), "topic t"),
        (lambda a, b: a.union(b(_kafka(topics=["u", "t"]))), "topic t"),
        (lambda a, b: a.union(b(_kafka(pattern="t.*"))), "topic t"),
        (lambda a, b: a.union(b(_kafka(topics="u"))), None),
        (lambda a, b: a.apply(lambda frame: frame.where("true")), "DataFrame function"),
    ],
)
def test_tasks_that_commit_by_themselves_need_a_partition_of_their_own(build: Any, refused: str | None) -> None:
    job = Job("a", on_error="skip")
    sink = KafkaSink("localhost:9092", "out", commit_mode="per_task")
    stream = job.from_source(_kafka(topics="t"), name="in")
    build(stream, lambda source: job.from_source(source, name="second")).sink_to(sink, name="out")
    if refused is None:
        return check_required(make_plan(job))
    with pytest.raises(DefinitionError, match=refused) as caught:
        check_required(make_plan(job))
    assert 'commit_mode="two_phase"' in str(caught.value.next)
    return None
