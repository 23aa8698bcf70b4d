"""The first rows of a stream, without a sink: the stream runs as a job of its own beside a folder that is removed again.

Reading is bounded: tasks stop reading when they have rows enough, no source learns that anything was read, and nothing is kept.
"""

from __future__ import annotations

import base64
import pickle
import secrets
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from poundlock.checkpoint.participant import JSON, Committed, Kind, Participant, WriterContext
from poundlock.config import Settings, load_settings
from poundlock.connectors.base import PreviewRefused
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.restart import NoRestart
from poundlock.errors import DefinitionError
from poundlock.plan.plan import make_plan
from poundlock.spark.launch.session import active_session, user_session
from poundlock.storage import open_storage
from poundlock.stream.nodes import SinkNode, SourceNode, walk
from poundlock.stream.stream import DataStream
from poundlock.values import duration, format_duration

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk
    from poundlock.spark.launch.session import Session


_SINK = "preview"


def preview(
    stream: DataStream, n: int, *, spark: Any = None, timeout: Any = "60 s", settings: Settings | None = None
) -> list[dict[str, Any]]:
    """Return the first rows that a stream gives, at most `n`; fewer where its input ends, or the time is up, before.

    Args:
        stream: any stream of a job; the job's sinks are not run.
        n: how many rows.
        spark: where it runs, see `Job.start`.
        timeout: how long to wait for rows, the start of Spark included, such as "60 s"; what has come by then is returned, with a
            warning that there may be more.
        settings: the machine's and the run's settings; default: file and environment.

    Raises:
        DefinitionError: the stream cannot run, or one of its sources cannot be looked at without leaving something behind.
        PoundlockError: it failed.
    """
    if not isinstance(stream, DataStream):
        raise DefinitionError(f"preview is of a stream, and got {stream!r}", next="write stream.preview(5)")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise DefinitionError(f"preview({n!r}) shows nothing", next="ask for one row or more: stream.preview(5)")
    settings = (settings or load_settings()).model_copy(
        update={"on_error": None, "checkpoint_dir": None, "checkpointing_mode": None}
    )
    session = active_session() if spark is None else user_session(spark)
    sink = _RowSink(n)
    job = _job(stream, sink)
    plan = make_plan(job)
    stop = StopRequest()

    def enough(progress: Progress) -> None:
        if len(sink.rows()) >= n:
            stop.cancel()

    time_is_up = threading.Event()

    def give_up() -> None:
        time_is_up.set()
        stop.cancel()

    timer = threading.Timer(duration(timeout).total_seconds(), give_up)
    timer.daemon = True
    with _folder(settings, session, shared=plan.keyed or plan.has_streams) as folder:
        job.checkpoint_dir = folder
        timer.start()
        try:
            run(job, settings=settings, on_progress=enough, stop=stop, session=session, read_only=True)
        finally:
            timer.cancel()
    rows = sink.rows()
    if time_is_up.is_set() and len(rows) < n:
        what = f"preview: {len(rows)} of {n} rows came within {format_duration(duration(timeout))}, the start of Spark included"
        warnings.warn(f'{what}; for more say preview({n}, timeout="5 min")', stacklevel=4)  # where the user called it
    return rows


def _job(stream: DataStream, sink: _RowSink) -> Any:
    """Return a job that has nothing but the stream, what it is made of, and the sink."""
    from poundlock.job import Job

    for node in walk([stream.node]):
        if isinstance(node, SourceNode) and isinstance(node.source, PreviewRefused):
            node.source.refuse_preview()
    of = stream.job
    job = Job(
        f"{of.name[:80]}-preview-{secrets.token_hex(4)}",
        checkpoint_interval="0 s",
        on_error="skip",
        parallelism=of.parallelism,
        restart=NoRestart(),
        spark=dict(of.spark),
        max_parallelism=of.max_parallelism,
        runtime_mode=of.runtime_mode,
    )
    job.add_sink(SinkNode(_SINK, [stream.node], sink))
    return job


@contextmanager
def _folder(settings: Settings, session: Session | None, *, shared: bool) -> Iterator[str]:
    """Give a folder for what a job keeps, and remove it; one that all machines see where tasks keep state in it."""
    local = settings.master.startswith("local") if session is None else session.local
    if local or not shared:
        with TemporaryDirectory(prefix="poundlock-preview-", ignore_cleanup_errors=True) as made:
            yield made
        return
    folder = f"{settings.state_dir}/previews/{secrets.token_hex(8)}"
    try:
        yield folder
    finally:
        storage = open_storage(folder)
        for entry in list(storage.list("")):
            storage.delete(entry.path)


@dataclass
class _RowSink(Participant):
    """Keeps the first rows of each task; they travel in the decision, and are kept when it is carried out."""

    limit: int
    kind: ClassVar[Kind] = Kind.APPEND
    _parts: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Return what has come, in the order of checkpoints and tasks."""
        return [row for key in sorted(self._parts) for row in self._parts[key]][: self.limit]

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"preview of {self.limit} rows"

    def open_writer(self, context: WriterContext) -> _RowWriter:
        """Begin to collect rows in a task."""
        return _RowWriter(self.limit, context.checkpoint, context.subtask)

    def commit(self, committable: JSON) -> Committed:
        """Keep a task's rows, by checkpoint and task: the same ones again change nothing."""
        self._parts[committable["checkpoint"], committable["subtask"]] = pickle.loads(
            base64.b64decode(committable["data"])
        )
        return Committed({"rows": committable["rows"]})


class _RowWriter:
    """The first rows of one task attempt."""

    def __init__(self, limit: int, checkpoint: int, subtask: int) -> None:
        self._limit, self._checkpoint, self._subtask = limit, checkpoint, subtask
        self._rows: list[Mapping[str, Any]] = []
        self._written = 0

    @property
    def full(self) -> bool:
        """Whether further rows would be of no use."""
        return len(self._rows) >= self._limit

    def write(self, chunk: Chunk) -> int:
        """Keep the rows, up to the limit."""
        from poundlock.formats.convert import to_records

        if not self.full and len(chunk):
            self._rows += map(dict, list(to_records(chunk).rows)[: self._limit - len(self._rows)])
        self._written += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        """Return the rows."""
        if not self._written:
            return []
        data = base64.b64encode(pickle.dumps([_plain(row) for row in self._rows])).decode()
        return [{"v": 1, "checkpoint": self._checkpoint, "subtask": self._subtask, "rows": self._written, "data": data}]

    def abandon(self) -> None:
        """Drop the rows."""
        self._rows = []


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose values do not refer to a task's buffers."""
    return {name: bytes(value) if isinstance(value, memoryview | bytearray) else value for name, value in row.items()}
