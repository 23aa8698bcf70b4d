"""The steps of the demo, one after the other, with live progress: broker, topic, events, job, two SIGKILLs, stop, audit.

Whatever happens, every process the demo started is ended before it returns; the files stay for the user to look at.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from poundlock.demo.report import DemoReport, DemoRun, directory_tree
from poundlock.errors import PoundlockError, TerminalError
from poundlock.testing.audit import audit_output
from poundlock.testing.events import ReferenceEvents
from poundlock.testing.job_process import JobProcess, end_tagged, new_tag
from poundlock.testing.kafka import EmbeddedKafka, Record

TOPIC = "flink_test"
PARTITIONS = 3
_PLAIN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo does.

    Args:
        directory: where it works; cleared at the start.
        seed: of the events and of the moments of the kills.
        checkpoints: about how many checkpoints the events are spread over; at least three for each life of the driver.
        patience_s: how long one step of the job may take.
    """

    directory: Path = Path("build/demo")
    events: int = 200_000
    kills: int = 2
    seed: int = 20_181_219
    checkpoints: int = 16
    patience_s: float = 240.0


class _Steps:
    """The steps on the terminal: a live bar for the running one, a line for each that is done.

    Where there is no terminal a plain line every few seconds takes the place of the bar.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._printed_at = 0.0

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[None]:
        started = self._printed_at = time.monotonic()
        self._task = self._bars.add_task(name, total=total, note="")
        self._bars.start()
        done = False
        try:
            yield
            done = True
        finally:
            self._bars.stop()
            self._bars.remove_task(self._task)
            self._task = None
            mark = "[green]done  [/]" if done else "[red]failed[/]"
            self.console.print(f"{mark} {name} [dim]{time.monotonic() - started:.1f} s[/]", soft_wrap=True)

    def update(self, completed: int | None = None, note: str = "") -> None:
        if self._task is None:
            return
        self._bars.update(self._task, completed=completed, note=note)
        if not self.console.is_terminal and time.monotonic() - self._printed_at > _PLAIN_EVERY_S:
            self._printed_at = time.monotonic()
            self.say(f"[dim]{'' if completed is None else f'{completed:,} '}{note}[/]")

    def say(self, text: str) -> None:
        self.console.print(f"       {text}", soft_wrap=True)


def run_demo(settings: DemoSettings | None = None, console: Console | None = None) -> DemoReport:
    """Run the whole demo and print the result.

    Raises:
        PoundlockError: a step could not be done at all, such as a broker that does not start.
    """
    demo = _Demo(settings or DemoSettings(), _Steps(console or Console()))
    shutil.rmtree(demo.root, ignore_errors=True)
    demo.root.mkdir(parents=True)
    with _ended_by_sigterm():
        try:
            report = demo.report()
        finally:
            end_tagged(demo.tag, patience_s=0)
    report.save(demo.root / "report.json")
    console = demo.steps.console
    console.print(directory_tree(demo.root / "event_log"))
    console.print(report.table())
    _next_commands(console, demo.settings.directory)
    return report


class _Demo:
    """One run of the demo, step by step."""

    def __init__(self, settings: DemoSettings, steps: _Steps) -> None:
        self.settings, self.steps = settings, steps
        self.root, self.tag = settings.directory.resolve(), new_tag()
        self._started = time.monotonic()
        self._run = DemoRun(settings.events)

    def report(self) -> DemoReport:
        """Do all steps, and return the result."""
        step, settings = self.steps.step, self.settings
        with self._broker() as kafka:
            with step(f"Create topic {TOPIC} with {PARTITIONS} partitions"):
                kafka.create_topic(TOPIC, PARTITIONS)
            events = f"{settings.events:,} events over two days, some malformed, some out of order"
            with step(f"Produce {events}", settings.events):
                produced = self._produce(kafka)
            self._consume(kafka.bootstrap_servers)
        with step("See that no process of the job is left"):
            left = end_tagged(self.tag)
        with step("Audit: read every finished file, compare with what was produced"):
            result = audit_output(self.root / "event_log", self.root / "dead_letters", produced)
        recoveries = [round(s, 2) for s in self._run.recoveries_s()]
        return DemoReport(
            **asdict(result),
            rows_per_s=self._run.rows_per_s(),
            recovery_s=max(recoveries, default=0.0),
            recoveries_s=recoveries,
            kills=settings.kills,
            checkpoints=self._run.all_checkpoints(),
            seed=settings.seed,
            left_behind=left,
            duration_s=round(time.monotonic() - self._started, 1),
        )

    @contextmanager
    def _broker(self) -> Iterator[EmbeddedKafka]:
        kafka = EmbeddedKafka(home=self.root / "kafka", progress=lambda line: self.steps.update(note=line))
        try:
            with self.steps.step("Start a Kafka broker on free ports"):
                kafka.start()
            self.steps.say(f"broker at {kafka.bootstrap_servers}")
            yield kafka
        finally:
            kafka.close()

    def _produce(self, kafka: EmbeddedKafka) -> Counter[bytes]:
        produced: Counter[bytes] = Counter()

        def records() -> Iterator[Record]:
            for number, value in enumerate(ReferenceEvents(count=self.settings.events, seed=self.settings.seed)):
                produced[value] += 1
                if number % 5000 == 0:
                    self.steps.update(number)
                yield Record(value, partition=number % PARTITIONS)

        kafka.produce(TOPIC, records(), enable_idempotence=True, linger_ms=20)
        return produced

    def _consume(self, servers: str) -> None:
        """Run the job until all is consumed, killing its driver on the way."""
        settings, steps, run = self.settings, self.steps, self._run
        job_file = Path(shutil.copy(Path(__file__).with_name("event_log.py"), self.root / "event_log.py"))
        rng = random.Random(settings.seed)
        for kill in range(1, settings.kills + 1):
            with steps.step(f"Run the job, life {kill}", settings.events):
                job = self._start(job_file, servers)
                self._await_checkpoints(job, 3 if kill == 1 else 2)
                time.sleep(rng.uniform(0, 0.8) * run.checkpoint_s())
                if run.consumed(job):
                    raise TerminalError(
                        "all events were consumed before the kill", next="run the demo with more --events"
                    )
                run.killed()
                job.kill()
            steps.say(f"[yellow]SIGKILL[/] to driver {job.pid} after {run.read:,} rows")
        with steps.step(f"Run the job, life {settings.kills + 1}, until all is consumed", settings.events):
            job = self._start(job_file, servers)
            self._await_checkpoints(job, 1)
            self._await(job, lambda: run.consumed(job), "did not consume everything")
        for seconds in run.recoveries_s():
            steps.say(
                f"recovered {seconds:.1f} s after the kill: new process, restored offsets, next checkpoint committed"
            )
        with steps.step("Stop the job cleanly (SIGTERM): every pending file is finished"):
            job.terminate()
            if code := job.wait(settings.patience_s):
                raise _job_failed(job, f"ended with exit code {code} when asked to stop")

    def _start(self, job_file: Path, servers: str) -> JobProcess:
        root, settings = self.root, self.settings
        environment = {
            "POUNDLOCK_STATE_DIR": str(root / "state"),
            "EVENT_LOG_SERVERS": servers,
            "EVENT_LOG_TOPIC": TOPIC,
            "EVENT_LOG_OUT": str(root / "event_log"),
            "EVENT_LOG_CHECKPOINTS": str(root / "checkpoints"),
            "EVENT_LOG_DEAD_LETTERS": str(root / "dead_letters"),
            "EVENT_LOG_INTERVAL": "0 s",
            "EVENT_LOG_ROLL_EVERY": "5 s",
            "EVENT_LOG_MAX_PER_CHECKPOINT": str(settings.events // settings.checkpoints + PARTITIONS),
        }
        return self._run.add(JobProcess(job_file, environment=environment, tag=self.tag, log=root / "job.log"))

    def _await_checkpoints(self, job: JobProcess, count: int) -> None:
        """Wait until this life of the job has completed `count` checkpoints."""
        self._await(job, lambda: self._run.checkpoints(job) >= count, f"did not complete {count} checkpoints")

    def _await(self, job: JobProcess, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.settings.patience_s
        while not reached():
            if job.exit_code is not None:
                raise _job_failed(job, f"ended by itself with exit code {job.exit_code}")
            if time.monotonic() > deadline:
                raise _job_failed(job, f"{what} within {self.settings.patience_s:.0f} s")
            self.steps.update(self._run.read, self._run.note(job))
            job.wait_line(lambda _: True, seconds=0.25, after=len(job.lines()))


def _job_failed(job: JobProcess, what: str) -> PoundlockError:
    lines = [line.removeprefix("error: ") for line in job.log_tail().splitlines() if line and line[0] not in "{N"]
    last = lines[-1] if lines else "it printed nothing"
    return TerminalError(f"the job {what}: {last[:200]}", next=f"read {job.log}")


def _next_commands(console: Console, directory: Path) -> None:
    console.print("Next:")
    for command, why in (
        ("poundlock new my-pipeline", "a project of your own that runs"),
        ("poundlock kafka up", "a broker for your own trials"),
        (f"poundlock explain {directory / 'event_log.py'}", "the stages of the job you just saw, and why"),
    ):
        console.print(f"  [bold]{command}[/]  [dim]# {why}[/]", soft_wrap=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that what was started is ended."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not in the main thread: whoever runs that thread sees to signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
