"""A scene for the crash tests: input files, a job over them, as many lives as it takes, and the audit at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poundlock.testing.audit import AuditResult, audit_output
from poundlock.testing.events import ReferenceEvents
from poundlock.testing.job_process import JobProcess
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives, offsets_read
from support.stores import Store, make_store

JOBS = Path(__file__).parent / "jobs"
REFERENCE_JOB = Path(__file__).parents[2] / "examples/event_log.py"
PARTITIONS = 3


class Scene:
    """One job, its folders on a store, and what was produced for it.

    `root` is a local folder, for logs and marks; of a store on the local disk it is the store's own.
    """

    def __init__(
        self, root: Path, store: Store, job: Path, environment: dict[str, str], arguments: tuple[str, ...] = ()
    ) -> None:
        self.root, self.store = root, store
        self.out = root / "out"
        self.dead_letters = root / "dead_letters"
        self.checkpoints = root / "checkpoints"
        self.hit = root / "hit"
        self.produced: list[bytes] = []
        self.lives = Lives(
            job,
            environment={**environment, **store.environment},
            folder=root,
            arguments=(*arguments, *store.arguments),
        )

    def audit(self) -> AuditResult:
        """Compare the finished files with what was produced."""
        out, letters = (self.store.fetch(name, self.root) for name in ("out", "dead_letters"))
        return audit_output(out, letters, self.produced)

    def notes(self) -> list[Path]:
        """Return the notes of decisions that are carried out, oldest first: a help to a start, and no truth."""
        return sorted((p for p in (self.checkpoints / "carried-out").iterdir()), key=lambda p: p.name)

    def assert_exact(self) -> None:
        """Assert that each record is in exactly one finished file, nothing is left over and no process stayed behind."""
        assert self.lives.left_behind() == []
        result = self.audit()
        assert result.exact, result
        assert result.produced == result.in_files + result.dead_lettered == len(self.produced)
        assert result.dead_lettered > 0
        assert result.hidden == 0, sorted(str(p) for p in self.root.rglob(".*") if p.is_file())
        assert [self.store.open_uploads(name) for name in ("out", "dead_letters")] == [[], []]


class FileScene(Scene):
    """A job from files to files."""

    def __init__(self, root: Path, store: Store) -> None:
        environment = {
            "CRASH_IN": store.at("in"),
            "CRASH_OUT": store.at("out"),
            "CRASH_CHECKPOINTS": store.at("checkpoints"),
            "CRASH_DEAD_LETTERS": store.at("dead_letters"),
        }
        super().__init__(root, store, JOBS / "files_to_files.py", environment)

    def produce(self, count: int, *, files: int = 2) -> None:
        """Put more records into the input folder, each file whole at once."""
        for _ in range(files):
            first = len(self.produced)
            values = list(ReferenceEvents(count=count // files, malformed=0.01, first_serial=first))
            whole = b"".join(value + b"\n" for value in values)
            assert self.store.storage("in").create_exclusive(f"{first:09d}.log", whole)
            self.produced += values


class KafkaScene(Scene):
    """The reference job on a topic of its own."""

    def __init__(
        self, root: Path, store: Store, broker: EmbeddedKafka, topic: str, *, per_checkpoint: int = 1500
    ) -> None:
        self.broker, self.topic = broker, topic
        broker.create_topic(topic, PARTITIONS)
        environment = {
            "EVENT_LOG_SERVERS": broker.bootstrap_servers,
            "EVENT_LOG_TOPIC": topic,
            "EVENT_LOG_GROUP": topic,
            "EVENT_LOG_OUT": store.at("out"),
            "EVENT_LOG_CHECKPOINTS": store.at("checkpoints"),
            "EVENT_LOG_DEAD_LETTERS": store.at("dead_letters"),
            "EVENT_LOG_INTERVAL": "0 s",
            "EVENT_LOG_ROLL_EVERY": "1 s",
            "EVENT_LOG_MAX_PER_CHECKPOINT": str(per_checkpoint),
        }
        super().__init__(root, store, REFERENCE_JOB, environment)

    def produce(self, count: int) -> None:
        """Append more records to the topic."""
        first = len(self.produced)
        values = list(ReferenceEvents(count=count, malformed=0.01, first_serial=first))
        self.broker.produce(
            self.topic,
            [Record(v, partition=(first + i) % PARTITIONS) for i, v in enumerate(values)],
            enable_idempotence=True,
        )
        self.produced += values

    def waiting(self) -> int:
        """Return how many records no decided checkpoint has read."""
        return len(self.produced) - offsets_read(self.store.storage("checkpoints"))

    def caught_up(self) -> bool:
        """Return whether the newest decided checkpoint ends where the topic ends."""
        return self.waiting() == 0

    def wait_until_caught_up(self, job: JobProcess) -> JobProcess:
        """Wait until all records are consumed, giving the job further lives where it needs them; return the living one."""
        return self.lives.until(self.caught_up, job)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The local disk, or what a test is parametrised with: see `stores`."""
    return make_store(getattr(request, "param", "local"), request, tmp_path)


@pytest.fixture
def make_file_scene() -> Callable[[Path, Store], FileScene]:
    """What makes a scene on a store that a test has of its own."""
    return FileScene


@pytest.fixture
def file_scene(tmp_path: Path, store: Store) -> Iterator[FileScene]:
    scene = FileScene(tmp_path, store)
    with scene.lives:
        yield scene


@pytest.fixture(scope="session")
def crash_broker() -> Iterator[EmbeddedKafka]:
    """A broker for the crash tests; a test may restart it, never leave it stopped."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def kafka_scene(
    tmp_path: Path, store: Store, crash_broker: EmbeddedKafka, request: pytest.FixtureRequest
) -> Iterator[KafkaScene]:
    topic = f"crash-{store.name}-{request.node.originalname}".replace("_", "-")[:80]
    scene = KafkaScene(tmp_path, store, crash_broker, topic)
    with scene.lives:
        yield scene
