"""The shapes that go over the wire: Flink's where Flink has them, with its hyphens and underscores as they are.

Requests refuse what they do not know, so that nothing that was asked for is ignored in silence.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    """Names with hyphens, as in most of Flink's answers; those about checkpoints have underscores."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Errors(BaseModel):
    """What went wrong: what happened, then what to do, as in an error of the command line."""

    errors: list[str]


class Overview(_Answer):
    """The process as a whole."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    poundlock_version: str


class Configuration(_Answer):
    """What a dashboard asks for first."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    poundlock_version: str
    features: dict[str, bool]


class JobStatus(BaseModel):
    """A job's id and state."""

    id: str
    status: str


class Jobs(BaseModel):
    """The jobs of this server: one."""

    jobs: list[JobStatus]


class JobSummary(_Answer):
    """A line of a list of jobs."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    tasks: dict[str, int]


class JobsOverview(BaseModel):
    """The jobs of this server with their times."""

    jobs: list[JobSummary]


class VertexDetails(_Answer):
    """A source or sink and what went through it."""

    id: str
    name: str
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: dict[str, int | None]


class JobDetails(_Answer):
    """A job whole."""

    jid: str
    name: str
    isStoppable: bool
    state: str
    start_time: int
    end_time: int
    duration: int
    now: int
    timestamps: dict[str, int]
    vertices: list[VertexDetails]
    status_counts: dict[str, int]
    progress: dict[str, Any]


class RowsOfPart(BaseModel):
    """A key group or a split: its rows, and what part of all that is."""

    name: str
    rows: int
    share: float


class RowShares(BaseModel):
    """How rows lie over the key groups of an operator or the splits of a source: `skew` is how many times the average the largest is."""

    id: str
    parts: int
    rows: int
    skew: float
    largest: list[RowsOfPart]


class RowSkew(_Answer):
    """How unevenly the rows of the newest checkpoint that had any lie."""

    key_groups: list[RowShares]
    splits: list[RowShares]


class KeptEntry(BaseModel):
    """What is kept under one name, of one window where it is kept by window."""

    key: Any
    window: Any
    windowed: bool
    value: Any


class NamedState(BaseModel):
    """What an operator keeps under one name: `count` entries, of which some are listed."""

    kind: str | None
    ttl_ms: int | None
    count: int
    entries: list[KeptEntry]


class StateTimer(BaseModel):
    """A timer, at a time in ms."""

    time: int
    key: Any
    window: Any


class KeyState(BaseModel):
    """What an operator keeps for one key, and its timers: `timers` are how many of each kind there are."""

    operator: str
    watermark: int
    processing_time: int | None
    state: dict[str, NamedState]
    event_timers: list[StateTimer]
    processing_timers: list[StateTimer]
    timers: dict[str, int]


class CheckpointCounts(BaseModel):
    """How many checkpoints, since this process started."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class MinMaxAverage(BaseModel):
    """The least, greatest and mean of a figure."""

    min: int
    max: int
    avg: int


class CheckpointSummary(BaseModel):
    """Figures of the checkpoints that are kept in mind."""

    checkpointed_size: MinMaxAverage
    end_to_end_duration: MinMaxAverage


class CheckpointLine(BaseModel):
    """One checkpoint. Sizes are of what it wrote to sinks; null where a sink does not tell."""

    id: int
    status: Literal["COMPLETED"] = "COMPLETED"
    is_savepoint: bool = False
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int | None
    end_to_end_duration: int
    rows_read: int | None
    rows_written: int
    rows_late: int
    rows_dead_lettered: int


class SourceOfCheckpoint(BaseModel):
    """What a checkpoint read of one source; the end is not part of it."""

    start: Any
    end: Any
    rows: int | None
    bytes: int | None


class CheckpointDetails(CheckpointLine):
    """One checkpoint with its sources."""

    sources: dict[str, SourceOfCheckpoint]


class Restored(BaseModel):
    """The checkpoint or savepoint this process went on from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool = False
    external_path: str | None = None


class Latest(BaseModel):
    """The newest of each kind."""

    completed: CheckpointLine | None
    savepoint: CheckpointLine | None = None
    failed: CheckpointLine | None = None
    restored: Restored | None


class Checkpoints(BaseModel):
    """All about the checkpoints of this process."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: Latest
    history: list[CheckpointLine]
    began_with: str | None = None


class ExceptionEntry(BaseModel):
    """One failure that led to a restart."""

    exceptionName: str
    stacktrace: str
    timestamp: int


class ExceptionHistory(BaseModel):
    """The newest failures."""

    entries: list[ExceptionEntry]
    truncated: bool = False


class Exceptions(_Answer):
    """Why a job was restarted."""

    root_exception: str | None
    timestamp: int | None
    exceptionHistory: ExceptionHistory


class Metric(BaseModel):
    """A metric's name, with its value where it was asked for by name."""

    id: str
    value: str | None = None


class JobConfiguration(_Answer):
    """How a job was set up."""

    jid: str
    name: str
    execution_config: dict[str, Any]


class RequestId(_Answer):
    """What to ask for to learn what became of a request."""

    request_id: str


class TriggerStatus(BaseModel):
    """Whether it is done."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


class FailureCause(_Answer):
    """Why it failed: what happened, and what to do."""

    class_: str = Field(alias="class")
    stack_trace: str
    code: str = Field(default="", description="The error's code, which `poundlock help` explains.")


class CheckpointOperation(_Answer):
    """What became of a checkpoint that was asked for."""

    checkpointId: int | None = None
    failure_cause: FailureCause | None = None


class SavepointOperation(_Answer):
    """What became of a savepoint or a stop."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class CheckpointTriggerInfo(BaseModel):
    """Whether it is done, and what came of it."""

    status: TriggerStatus
    operation: CheckpointOperation | None = None


class SavepointTriggerInfo(BaseModel):
    """Whether it is done, and what came of it."""

    status: TriggerStatus
    operation: SavepointOperation | None = None


class CheckpointRequest(_Request):
    """A checkpoint now. Every checkpoint here is what Flink calls full."""

    checkpointType: Literal["CONFIGURED", "FULL"] = "CONFIGURED"


class SavepointRequest(_Request):
    """A savepoint; the job goes on unless `cancel-job`."""

    target_directory: str | None = Field(default=None, alias="target-directory", min_length=1)
    cancel_job: bool = Field(default=False, alias="cancel-job")
    formatType: Literal["CANONICAL"] = "CANONICAL"


class StopRequestBody(_Request):
    """A clean stop; with a directory or `drain`, a savepoint first."""

    targetDirectory: str | None = Field(default=None, min_length=1)
    drain: bool = False
    formatType: Literal["CANONICAL"] = "CANONICAL"
