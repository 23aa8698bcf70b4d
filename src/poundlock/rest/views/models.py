"""The shapes of what the dashboard reads. Times are ms since 1970, sizes bytes; what is not known is null, never zero."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class JobCard(BaseModel):
    """A line of the list of jobs, running or ended."""

    jid: str
    name: str
    state: str
    started: int
    ended: int | None
    host: str
    process: int
    application: str | None
    checkpoint_dir: str
    command: str
    restarts: int
    checkpoint: int | None
    rows_read: int
    rows_written: int
    rows_per_s: float
    lag: int | None
    last_ms: int | None
    watermark: int | None
    dead_lettered: int
    state_bytes: int | None
    parallelism: int | None
    failure: list[str] | None
    gone: bool
    operable: bool = Field(description="Whether it can be asked for anything: it runs, and there is a way to it.")
    written: int | None = Field(description="When its driver last wrote how it goes; null where it answers itself.")


class JobCards(BaseModel):
    """The jobs there are, the newest start first; `unreadable` are places that could not be looked at, and why."""

    now: int
    jobs: list[JobCard]
    unreadable: list[str]


class NodeFigures(BaseModel):
    """How it goes at a node, as of the newest checkpoints.

    Args:
        rows_per_s, bytes_per_s: of a source what it read, of a sink what was written, of a keyed step what came to it.
        lag: records that wait in a source.
        busy: the part of the time of its tasks in which it had a core, 0 to 1, without the steps behind it.
        skew: how many times the average its largest key group or split has.
    """

    rows: int | None = None
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    watermark: int | None = None
    lag: int | None = None
    state_bytes: int | None = None
    state_rows: int | None = None
    busy: float | None = None
    skew: float | None = None


class DrawnNode(BaseModel):
    """A source, a step, a segment of Spark's or a sink."""

    id: str
    kind: str
    what: str
    stage: int
    figures: NodeFigures


class DrawnEdge(BaseModel):
    """How rows go from one node to another."""

    source: str
    target: str
    ship: str


class DrawnStage(BaseModel):
    """A stage: what runs in one pass."""

    number: int
    kind: str
    nodes: list[str]


class DrawnGraph(BaseModel):
    """The job as a picture; `busy` is the part of the time in which a checkpoint was under way."""

    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    stages: list[DrawnStage]
    parallelism: int | None
    busy: float | None
    watermark: int | None
    held_by: str | None


class DecisionLine(BaseModel):
    """A record of the ledger in a line.

    Args:
        durations: how long each phase took, ms: of "plan", "run", "verify", "decide" and "commit" those that are known.
        committed: how many files or transactions became visible.
        state_files: how many state files it added.
    """

    number: int
    occasion: str
    checkpoint: int
    epoch: int
    started: int | None
    decided: int
    durations: dict[str, int]
    rows_read: int | None
    rows_written: int
    bytes_read: int | None
    bytes_written: int | None
    late: int
    dead_lettered: int
    skipped: int
    filtered: int
    committed: int
    state_files: int
    state_bytes: int
    parallelism: int | None
    watermark: int | None
    redo: bool


class Failure(BaseModel):
    """Why a checkpoint failed or the job was restarted: `trace` is what the log has of it.

    Args:
        level: "restart"; "checkpoint" for one that failed where no restart is known; else as in the log.
    """

    at: int
    what: str
    next: str
    trace: str | None = None
    level: str = "error"


class CheckpointTimeline(BaseModel):
    """Checkpoints with their phases, the newest first, and what failed in between."""

    decisions: list[DecisionLine]
    failures: list[Failure]
    oldest: int | None = Field(description="The number of the oldest record that is kept.")
    newest: int | None


class DecisionInFull(BaseModel):
    """A record of the ledger, whole: `record` is what stands there."""

    line: DecisionLine
    record: dict[str, Any]
    committed: bool | None = Field(description="Whether all it names is known to be visible; null for older records.")


class PartitionLine(BaseModel):
    """A partition of a source: where it stands, its watermark, and how much waits where that is known."""

    name: str
    watermark: int | None
    idle: bool
    silent_since: int | None
    position: Any = None
    rows: int | None = None
    lag: int | None = None


class SourceLine(BaseModel):
    """A source: where it stands behind the newest checkpoint, and its partitions as far as they are known."""

    id: str
    assigner: str | None
    watermark: int | None
    idle: bool
    held_by: str | None
    rows: int | None
    bytes: int | None
    start: Any
    end: Any
    partitions: list[PartitionLine]


class StreamLine(BaseModel):
    """The watermark of a step."""

    id: str
    watermark: int | None
    idle: bool


class Watermarks(BaseModel):
    """Event time and lag behind the newest checkpoint."""

    decided: int | None
    watermark: int | None
    held_by: str | None
    lag: int | None
    earliest_event: int | None
    latest_event: int | None
    sources: list[SourceLine]
    streams: list[StreamLine]


class TableLine(BaseModel):
    """What an operator keeps under one name."""

    name: str
    kind: str
    ttl_ms: int | None
    windowed: bool
    broadcast: bool


class GroupRange(BaseModel):
    """A range of key groups that lie in the same files; rows and bytes of files that reach further are divided evenly."""

    first: int
    stop: int
    files: int
    rows: int
    bytes: int


class StateOfOperator(BaseModel):
    """The state of one operator. Files are of a stage: `ranges` are of all operators of it."""

    id: str
    stage: str
    tables: list[TableLine]
    watermark: int | None
    event_timer: int | None
    processing_timer: int | None
    skew: float | None
    largest: list[list[Any]] = Field(description="The key groups with the most rows of late: [group, rows, share].")
    ranges: list[GroupRange]
    rows: int
    bytes: int
    files: int


class StateView(BaseModel):
    """The keyed state of a job."""

    checkpoint: int | None
    max_parallelism: int | None
    bytes: int
    rows: int
    files: int
    operators: list[StateOfOperator]


class CommitLine(BaseModel):
    """What one decision made visible in a sink."""

    number: int
    checkpoint: int
    occasion: str
    decided: int
    what: list[str] = Field(description="Files or transactions, the first few.")
    pieces: int
    rows: int | None
    bytes: int | None


class ListedFile(BaseModel):
    """A file that readers may read."""

    path: str
    bucket: str
    rows: int
    bytes: int
    first_event: int | None
    last_event: int | None
    checkpoint: int
    decided: int


class SinkView(BaseModel):
    """A sink: what went in, what became visible of late, and what waits."""

    id: str
    description: str | None
    counts: dict[str, int] = Field(description="Rows of the checkpoints that were looked at.")
    bytes: int | None
    pending: int | None
    place: str | None
    commits: list[CommitLine]
    files: list[ListedFile]


class SinksView(BaseModel):
    """The sinks, by what the newest `looked_at` decisions say."""

    looked_at: int
    sinks: list[SinkView]


class DeadLetter(BaseModel):
    """A record that could not be used: where it was read, by which step, and why."""

    file: str
    checkpoint: int | None
    operator: str | None
    reason: str
    place: dict[str, Any]
    value: str


class DeadLetters(BaseModel):
    """Dead letters of the newest decisions: how many, by reason as far as samples tell, and samples."""

    rows: int
    place: str | None
    reasons: list[list[Any]] = Field(description="[reason, how many of the samples have it]")
    samples: list[DeadLetter]
    note: str | None


class LogLine(BaseModel):
    """A line of the log; `rest` is what else it says."""

    time: str | None
    level: str | None
    message: str
    rest: dict[str, Any]
    exception: str | None


class LogLines(BaseModel):
    """The end of a log, the oldest line first."""

    place: str
    truncated: bool
    lines: list[LogLine]


class JobFailures(BaseModel):
    """Why the job failed, was restarted, or warned."""

    state: str
    failure: list[str] | None
    restarts: int
    entries: list[Failure]


class Series(BaseModel):
    """Figures over time, in columns as charts take them: `columns` has as many values as `time`, in ms."""

    since: int
    until: int
    time: list[int]
    columns: dict[str, list[float | None]]
    truncated: bool = Field(description="Whether there were more checkpoints in this time than are looked at.")


class SavepointLine(BaseModel):
    """A savepoint of the job, or a retained copy of a checkpoint, which goes by itself."""

    path: str
    kind: Literal["savepoint", "retained"]
    created: int | None
    checkpoint: int | None
    bytes: int | None
    trouble: str | None


class ListedSavepoints(BaseModel):
    """The savepoints that are in the job's usual folder, and its retained copies."""

    folder: str | None
    savepoints: list[SavepointLine]


class DisposalRequest(BaseModel):
    """Which savepoint is to be removed."""

    model_config = {"extra": "forbid", "populate_by_name": True}

    savepoint_path: str = Field(alias="savepoint-path", min_length=1)
