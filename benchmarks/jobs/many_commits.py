"""The checkpoints of a job that writes ten files a task, without Spark, on a store that is far away. Arguments: STORE FOLDER ANSWER TASKS…

STORE is "moves" or "uploads", see `benchmarks.far_store`. For each number of tasks ANSWER gets what it cost: a JSON list. The tasks run
in a process of their own, so that the memory of this one is a driver's.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.far_store import CALLS, FarFileSink, FarStore
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.in_tasks import Tasks
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, WriterContext
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.formats.chunk import Records
from poundlock.values import ManualClock

__all__ = ["BUCKETS", "Band", "row_of"]

BUCKETS = 10  # that each task writes to
SMALL = 1  # tasks of the checkpoints that touch few files
SMALL_CHECKPOINTS = 9
TAKES = 3  # of what all tasks write, of which the quickest counts: other programs' work is no growth
_BEGIN_MS = 1_545_184_226_432
SINK = "out"


@dataclass(frozen=True, kw_only=True)
class Band:
    """What a job cost whose checkpoints write so many files.

    Args:
        files: that one checkpoint of all tasks writes.
        verify_s, commit_s: of a checkpoint that finishes all of its files; of each step the quickest of `TAKES`.
        cpu_s: that the driver spent on these two and on the decision.
        record_bytes: of its decision.
        peak_kb: how much more memory the driver had at most than before the tasks' reports came.
        abort_s: of all that such a checkpoint prepared.
        sweep_s: at a start that finds as much.
        few_ms: a checkpoint of one task that finishes its files, the median.
        touch_ms, touch_bytes: a checkpoint of one task, the median, where all files are pending and none is finished; its decision.
        pending_bytes: of the decision that leaves all files pending.
        end_s: of the roll that finishes all of them.
        most_calls: that were on their way at once.
    """

    files: int
    verify_s: float
    commit_s: float
    cpu_s: float
    record_bytes: int
    peak_kb: float
    abort_s: float
    sweep_s: float
    few_ms: float
    touch_ms: float
    touch_bytes: float
    pending_bytes: int
    end_s: float
    most_calls: int


def row_of(checkpoint: int, task: int, bucket: int) -> dict[str, object]:
    """Return the row of one file."""
    return {"bucket": f"b{bucket}", "row": f"{checkpoint}/{task}/{bucket}"}


def bucket_of(row: dict[str, object]) -> str:
    return str(row["bucket"])


def write(sink: FarFileSink, job_id: str, directive: SinkDirectives, attempt: str, tasks: int) -> list[Prepared]:
    """Be the tasks of a checkpoint: each writes a row to each bucket."""
    made: list[Prepared] = []
    for task in range(tasks):
        context = WriterContext(
            job_id=job_id, sink=SINK, epoch=directive.epoch, checkpoint=directive.checkpoint, subtask=task,
            attempt=f"{attempt}{task}", directive=directive.sinks[SINK], reject=_refuse, started_ms=directive.started_ms,
        )  # fmt: skip
        writer = sink.open_writer(context)
        writer.write(Records([row_of(directive.checkpoint, task, bucket) for bucket in range(BUCKETS)]))
        made += [Prepared(SINK, task, payload) for payload in writer.prepare()]
    return made


def _refuse(record: object) -> None:
    raise SystemExit(f"a row was rejected: {record}")


class Life:
    """A job whose driver starts now and then, with its tasks in another process."""

    def __init__(self, folder: Path, sink: FarFileSink, pool: ProcessPoolExecutor) -> None:
        self.storage = FarStore(str(folder), sink.seconds)
        self.clock = ManualClock(_BEGIN_MS)
        self.sink, self.pool = sink, pool
        self.tasks: Tasks | None = None  # what runs very many calls on a cluster
        self.coordinator: Coordinator
        self._epoch: Epoch | None = None
        self.attempts = self.checkpoints = self.rows = 0
        self.peak_kb = 0.0

    def start(self) -> float:
        """Start the driver; return how long its recovery took, seconds."""
        if self._epoch is not None:
            self._epoch.release()
        identity = open_identity(self.storage, name="many-files", clock=self.clock)
        self._epoch = Epoch.claim(self.storage, clock=self.clock)
        bound_sink = bound(self.sink, job_id=identity.job_id, sink=SINK)
        self.coordinator = Coordinator(
            identity=identity, epoch=self._epoch, ledger=Ledger(self.storage), participants={SINK: bound_sink},
            clock=self.clock, tasks=self.tasks,
        )  # fmt: skip
        with timed() as took:
            self.coordinator.recover()
        return took()

    def write(self, directive: SinkDirectives, tasks: int) -> list[Prepared]:
        """Have so many tasks write; return what they prepared."""
        self.attempts += 1
        job_id, attempt = self.coordinator.identity.job_id, f"a{self.attempts}t"
        return self.pool.submit(write, self.sink.near(), job_id, directive, attempt, tasks).result()

    def take(self, tasks: int) -> tuple[dict[str, float], float]:
        """Take a checkpoint; return how long its steps took, ms by name, and how long it took behind its tasks, seconds."""
        n = self.checkpoints
        self.clock.set(self.clock.now_ms() + 1000)
        ended = 0.0

        def run(directive: SinkDirectives) -> TaskResults:
            nonlocal ended
            before = resident_kb()
            prepared = self.write(directive, tasks)
            rows = len(prepared)
            self.rows += rows
            forget_peak()
            self._before_kb = before
            ended = time.perf_counter()
            return TaskResults(
                prepared=prepared, counts={SINK: Counts(read=rows, written=rows)}, rows_read={"rows": rows}
            )

        with steps() as took:
            self.coordinator.checkpoint(n, {"rows": SourceRange(n, n + 1)}, run)
        whole = time.perf_counter() - ended
        self.peak_kb = resident_kb("VmHWM") - self._before_kb
        self.checkpoints += 1
        return took, whole

    @property
    def record_bytes(self) -> int:
        """How large the newest decision is."""
        return (Path(self.storage.root) / record_path(self.coordinator.newest.number)).stat().st_size


@contextmanager
def steps() -> Iterator[dict[str, float]]:
    """Time the steps of a checkpoint, seconds by name, and "cpu" of each and of all: the job's own clock stands still."""
    took: dict[str, float] = {}
    real = {name: getattr(Coordinator, name) for name in ("verify", "decide", "commit")}

    def around(name: str, step: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            begin, cpu = time.perf_counter(), time.process_time()
            try:
                return step(*arguments)
            finally:
                took[name] = time.perf_counter() - begin
                took[f"{name} cpu"] = time.process_time() - cpu
                took["cpu"] = took.get("cpu", 0.0) + took[f"{name} cpu"]

        return call

    for name, step in real.items():
        setattr(Coordinator, name, around(name, step))
    try:
        yield took
    finally:
        for name, step in real.items():
            setattr(Coordinator, name, step)


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """Time a block, seconds."""
    begin, ended = time.perf_counter(), 0.0
    yield lambda: ended - begin
    ended = time.perf_counter()


def resident_kb(what: str = "VmRSS") -> float:
    """Return this process's resident memory, or with VmHWM its peak since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{what}:")))


def forget_peak() -> None:
    """Let the peak be what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def finished(sink: FarFileSink) -> list[str]:
    """Return the rows of all finished files. Exits where a hidden file is left."""
    rows: list[str] = []
    for path in Path(sink.path).rglob("*"):
        if path.is_file():
            if path.name.startswith("."):
                raise SystemExit(f"a hidden file is left: {path}")
            rows += [json.loads(line)["row"] for line in path.read_bytes().splitlines()]
    return rows


def check(life: Life) -> None:
    """Exit unless every row that was decided is in one finished file, and nothing else is there."""
    rows = finished(life.sink)
    uploads = Path(f"{life.sink.path}.uploads")
    if len(rows) != life.rows or len(set(rows)) != life.rows:
        raise SystemExit(f"{len(rows)} rows came out, {len(set(rows))} of them once, of {life.rows}")
    if uploads.exists() and any(uploads.iterdir()):
        raise SystemExit("an upload is left open")


def rolling(folder: Path, store: str, pool: ProcessPoolExecutor, tasks: int) -> dict[str, float]:
    """Every checkpoint finishes its files; then one is aborted, and one is left for a start to sweep."""
    sink = FarFileSink(
        str(folder / "out"), bucket=bucket_of, rolling=RollingPolicy(on_checkpoint=True), kind_of_store=store
    )
    life = Life(folder / "checkpoints", sink, pool)
    life.start()
    life.take(SMALL)
    took = [life.take(tasks)[0] for _ in range(TAKES)]
    seen = {f"{step}_s": min(each[step] for each in took) for step in ("verify", "commit", "cpu")}
    seen["record_bytes"] = life.record_bytes
    seen |= {"peak_kb": life.peak_kb, "files": tasks * BUCKETS}
    few = sorted(life.take(SMALL)[1] for _ in range(SMALL_CHECKPOINTS))
    seen["few_ms"] = few[len(few) // 2] * 1000
    aborts, sweeps = list[float](), list[float]()
    for _ in range(TAKES):
        prepared = life.write(life.coordinator.begin(life.checkpoints), tasks)
        with timed() as abort:
            life.coordinator.abort(prepared)
        aborts.append(abort())
        check(life)
        life.write(life.coordinator.begin(life.checkpoints), tasks)
        sweeps.append(life.start())
        check(life)
    return seen | {"abort_s": min(aborts), "sweep_s": min(sweeps)}


def pending(folder: Path, store: str, pool: ProcessPoolExecutor, tasks: int) -> dict[str, float]:
    """A checkpoint leaves all of its files pending, some more touch few of them, and the end finishes all."""
    never = RollingPolicy(every=None, size=None, inactivity=None)
    sink = FarFileSink(str(folder / "out"), bucket=bucket_of, rolling=never, kind_of_store=store)
    life = Life(folder / "checkpoints", sink, pool)
    life.start()
    life.take(tasks)
    seen: dict[str, float] = {"pending_bytes": life.record_bytes}
    sizes, times = [], []
    for _ in range(SMALL_CHECKPOINTS):
        times.append(life.take(SMALL)[1])
        sizes.append(life.record_bytes)
    with timed() as end:
        life.coordinator.roll(Occasion.END)
    check(life)
    middle = SMALL_CHECKPOINTS // 2
    return seen | {"touch_ms": sorted(times)[middle] * 1000, "touch_bytes": sorted(sizes)[middle], "end_s": end()}


def main(store: str, folder: Path, answer: Path, sizes: Sequence[int]) -> None:
    """See above."""
    logging.basicConfig(level=logging.WARNING)
    bands = []
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for tasks in sizes:
            seen = rolling(folder / f"rolling-{tasks}", store, pool, tasks)
            seen |= pending(folder / f"pending-{tasks}", store, pool, tasks)
            bands.append(Band(**seen, most_calls=CALLS.most))  # type: ignore[arg-type]
            print(json.dumps(asdict(bands[-1])), flush=True)
    answer.write_text(json.dumps([asdict(band) for band in bands]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), [int(word) for word in sys.argv[4:]])
