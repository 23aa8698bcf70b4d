"""The peers and poundlock on two jobs: a topic's lines into files, by event time where the engine can; counts and sums by key and ten seconds.

Each peer runs what its documentation would write, with the strongest guarantee it has, as two workers. Rows that one leaves out
or counts twice are a figure of its result.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import confluent_kafka

from benchmarks.bench import ROOT, Bench, Case, program
from benchmarks.data import WrongOutput, check
from benchmarks.flink.install import installed_pyflink
from benchmarks.measure import process_cpu_s, run
from benchmarks.peers.inputs import visible
from benchmarks.peers.install import BYTEWAX, PATHWAY, PEERS, PYFLINK, QUIX, Peer, installed
from benchmarks.result import Result
from benchmarks.topics import PARTITIONS, committed_values, output_topic
from poundlock.testing.servers import free_port
from poundlock.testing.topics import Topics

__all__ = ["CASES"]

Work = Literal["lines", "windows"]
_OUT = "peer_sums"
# What was looked up for each, besides session windows, which all of them have: SessionWindower of Bytewax, session_window of
# Quix Streams, pw.temporal.session, EventTimeSessionWindows of PyFlink.
_BUCKETS, _ONCE_TO_FILES, _ONCE_TO_KAFKA = "event-time buckets", "exactly once to files", "exactly once to Kafka"
_SAVEPOINTS = "savepoints"


@dataclass(frozen=True, slots=True)
class Setting:
    """One run.

    Args:
        engine: its name.
        work: which job.
        folder: a folder of the run's own.
        servers: the broker.
        topic: what is read.
        out: a folder, or a topic's name.
        group: a consumer group of the run's own.
    """

    engine: str
    work: Work
    folder: Path
    servers: str
    topic: str
    out: str
    group: str

    @property
    def program(self) -> str:
        """The peer's program for the job."""
        return str(ROOT / "benchmarks" / "peers" / f"{self.engine}_{self.work}.py")

    def words(self, *more: object) -> list[str]:
        """Return the program with what all of them take, and more."""
        return [self.program, self.servers, self.topic, self.out, *map(str, more)]

    @property
    def stop(self) -> Path:
        """The file that asks processes to end that do not end by themselves."""
        return self.folder / "stop"


def _poundlock(setting: Setting) -> list[str]:
    place, checkpoints = f"{setting.servers}/{setting.topic}", setting.folder / "checkpoints"
    if setting.work == "lines":
        return program("jobs/event_log.py", "kafka", place, setting.out, checkpoints)
    return program("jobs/keyed_kafka.py", "totals", place, setting.out, checkpoints)


def _bytewax(setting: Setting) -> list[str]:
    recovery, python = setting.folder / "recovery", str(BYTEWAX.bin / "python")
    recovery.mkdir()
    subprocess.run([python, "-m", "bytewax.recovery", str(recovery), "2"], check=True)
    first = free_port()
    addresses = f"localhost:{first};localhost:{free_port({first})}"
    dataflow = f"{setting.program}:flow({setting.servers!r}, {setting.topic!r}, {setting.out!r})"
    words = ["-i", "{process}", "-a", addresses, "-r", str(recovery), "-s", "10", "-b", "0"]
    return program("peers/together.py", 2, "", python, "-m", "bytewax.run", dataflow, *words)


def _quix(setting: Setting) -> list[str]:
    words = setting.words(setting.group, setting.folder / "state-{process}")
    return program("peers/together.py", 2, setting.stop, QUIX.bin / "python", *words)


def _pathway(setting: Setting) -> list[str]:
    # Two threads took less CPU than two processes: 13 s instead of 18 s for a million lines.
    spawn = [str(PATHWAY.bin / "pathway"), "spawn", "--threads", "2", str(PATHWAY.bin / "python")]
    return [*spawn, *setting.words(setting.group, setting.folder / "state")]


def _pyflink(setting: Setting) -> list[str]:
    pyflink = installed_pyflink()
    assert pyflink is not None
    return pyflink.command(*setting.words(setting.folder / "checkpoints"))


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs the jobs.

    Args:
        name: its part of the case's name.
        command: the program with its arguments.
        peer: what has to be installed; None = poundlock.
        work: the jobs it has a program for.
        buckets: its lines come out by event time.
        endless: it does not end at the end of a topic, and is ended once all is read.
        to_topic: its sums go to a topic.
        cannot: what its documentation says it does not do, or says nothing of.
    """

    name: str
    command: Callable[[Setting], list[str]]
    peer: Peer | None = None
    work: tuple[Work, ...] = ("lines", "windows")
    buckets: bool = False
    endless: bool = False
    to_topic: bool = False
    cannot: Sequence[str] = ()


_ENGINES = (
    Engine("poundlock", _poundlock, buckets=True),
    # API reference, bytewax.connectors.files: DirSink has a fixed number of files, and "can support exactly-once processing in a
    # batch context". bytewax.connectors.kafka: KafkaSink "can support at-least-once processing". Concepts, Recovery: a dataflow
    # resumes from the newest snapshot, and there is no other.
    Engine("bytewax", _bytewax, BYTEWAX, cannot=(_BUCKETS, _ONCE_TO_KAFKA, _SAVEPOINTS)),
    # Connectors, Local File Sink: files by topic and partition, "provides at-least-once guarantees". Configuration, Processing
    # Guarantees: exactly once is of topics. Advanced, Stateful Processing: state is in changelog topics, and there are no savepoints.
    Engine("quix", _quix, QUIX, endless=True, to_topic=True, cannot=(_BUCKETS, _ONCE_TO_FILES, _SAVEPOINTS)),
    # API reference, pw.io.fs and pw.io.jsonlines: one file; only pw.io.deltalake has partition_columns. Deployment, Persistence:
    # "the guarantee, given by Pathway's persistent recovery, is at-least-once delivery".
    Engine("pathway", _pathway, PATHWAY, cannot=(_BUCKETS, _ONCE_TO_FILES, _ONCE_TO_KAFKA, _SAVEPOINTS)),
    # Table API connectors, FileSystem: PARTITIONED BY a column. DataStream connectors, Fault Tolerance Guarantees: files and Kafka
    # exactly once. Operations, Savepoints.
    Engine("pyflink", _pyflink, PYFLINK, buckets=True),
    # API reference, pyflink.datastream.connectors.file_system.BucketAssigner: by system time or none, and no class of one's own.
    Engine(
        "pyflink_datastream",
        _pyflink,
        PYFLINK,
        work=("windows",),
        cannot=(_BUCKETS,),
    ),
)


def measure(bench: Bench, engine: Engine, work: Work) -> Result | None:
    """One job on one engine; None where it is not installed, or where no peer is."""
    if not (installed(engine.peer) if engine.peer else any(map(installed, PEERS))):
        return None
    if engine.peer is None:
        bench.warm()
    name, folder, broker = f"peers_{work}/{engine.name}", bench.folder(f"peers_{work}_{engine.name}"), bench.broker
    topic = bench.peers.lines_topic(broker) if work == "lines" else bench.peers.rows_topic(broker)
    group = f"{engine.name}-{work}-{uuid.uuid4().hex}"
    into_topic = engine.to_topic and work == "windows"
    setting = Setting(engine.name, work, folder, broker.bootstrap_servers, topic, str(folder / "out"), group)
    with ExitStack() as stack:
        if into_topic:
            out = stack.enter_context(output_topic(broker, _OUT, PARTITIONS))
            setting = replace(setting, out=out)
        elif engine.peer:
            Path(setting.out).mkdir()
        if engine.endless:
            stack.callback(_remove_changelogs, broker, group)
            stack.enter_context(_stopped_once_read(setting))
        environment = _environment() if engine.peer else bench.environment(folder)
        pid = broker.pid or 0
        before = process_cpu_s(pid)
        usage = run(engine.command(setting), env=environment, cwd=folder, log=bench.log(name))
        broker_cpu_s = process_cpu_s(pid) - before
        faults = _prove(bench, engine, setting, into_topic)
    if faults and engine.peer is None:
        raise WrongOutput(", ".join(f"{what}: {count:g}" for what, count in faults.items()))
    shutil.rmtree(folder)
    rows = bench.peers.rows
    return Result.of(name, rows, usage, broker_cpu_s=broker_cpu_s, figures=faults, cannot=engine.cannot)


def _environment() -> Mapping[str, str]:
    """Return the environment of a peer's programs: nothing of poundlock's."""
    ours = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _prove(bench: Bench, engine: Engine, setting: Setting, into_topic: bool) -> Mapping[str, float]:
    """Return what is amiss with the output, by name."""
    out = Path(setting.out)
    if setting.work == "windows":
        written = _values(setting) if into_topic else visible(out)
        return bench.peers.prove_sums(written)
    faults = bench.peers.prove_lines(visible(out))
    if engine.buckets and not faults:
        check(out, bench.peers.lines)
    return faults


def _values(setting: Setting) -> Iterable[bytes]:
    return (b"\n".join(values) for values in committed_values(setting.servers, setting.out))


@contextmanager
def _stopped_once_read(setting: Setting) -> Iterator[None]:
    """Make the stop file once the consumer group has committed all that the topic has."""
    over = threading.Event()

    def watch() -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": setting.servers, "group.id": setting.group})
        try:
            partitions = [confluent_kafka.TopicPartition(setting.topic, number) for number in range(PARTITIONS)]
            ends = [consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions]
            while not over.wait(0.5):
                with suppress(confluent_kafka.KafkaException):  # the group's coordinator may not be there yet
                    committed = consumer.committed(partitions, timeout=30)
                    if all(partition.offset >= end for partition, end in zip(committed, ends, strict=True)):
                        setting.stop.touch()
                        return
        finally:
            consumer.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _remove_changelogs(broker: Topics, group: str) -> None:
    for name in broker.admin.list_topics(timeout=30).topics:
        if name.startswith(f"changelog__{group}"):
            broker.delete_topic(name)


# Engine after engine on each job, so that what is compared ran in the same minutes.
CASES: tuple[Case, ...] = tuple(
    Case(f"peers_{work}/{engine.name}", partial(measure, engine=engine, work=work))
    for work in ("lines", "windows")
    for engine in _ENGINES
    if work in engine.work
)
