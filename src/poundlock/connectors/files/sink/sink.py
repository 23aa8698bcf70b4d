"""FileSink: what the user writes down, and the participant that the checkpoint coordinator and the tasks call.

Everything is checked when it is written down; nothing here keeps state or imports anything heavy before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from poundlock.arguments import NAMES, TEXT, check_kind
from poundlock.audit.read_back import Auditable, AuditScope, Reading
from poundlock.checkpoint.capabilities import (
    AbortsMany,
    Bindable,
    CommitsBehind,
    CommitsMany,
    FollowsTime,
    Inspectable,
    InTasks,
    Measurable,
    SinkTime,
    SweepsMany,
)
from poundlock.checkpoint.participant import (
    JSON,
    CommitOutcome,
    Committed,
    Finding,
    Kind,
    Leftover,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.checkpoint.portable import Legible, Newer, NewerOutput, PendingFile, Portable
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.files import sink as parts
from poundlock.connectors.files.buckets.assigners import (
    BUCKET_COLUMN,
    BasePathBucketAssigner,
    BucketAssigner,
    ColumnBucketAssigner,
    EventTimeBucketAssigner,
    ExpressionBucketAssigner,
    ProcessingTimeBucketAssigner,
    PythonBucketAssigner,
)
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy
from poundlock.connectors.files.partitions.commit import CompletionRule, PartitionCommit, check_policies_work
from poundlock.connectors.files.partitions.sealed import SealedBuckets
from poundlock.connectors.files.sink import checks
from poundlock.connectors.files.sink.names import join, owner_tag
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.errors import DefinitionError
from poundlock.formats.own.custom import BULK, BulkWriterFactory, Encoder
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.storage import Storage, open_storage
from poundlock.storage.uploads import Uploads

if TYPE_CHECKING:
    from poundlock.connectors.examination import Examination
    from poundlock.connectors.files.file_values import FileSinkState
    from poundlock.connectors.files.sink.commit_plan import Rules
    from poundlock.formats.encode_bulk import BulkMerger

__all__ = ["FileSink", "RollingPolicy"]

Format = Literal["json", "csv", "parquet", "orc", "avro"]

_ENDING = {"gzip": ".gz", "zstd": ".zst"}


@dataclass(frozen=True)
class FileSink(
    Bindable,
    Portable,
    Legible,
    CommitsMany,
    CommitsBehind,
    FollowsTime,
    AbortsMany,
    SweepsMany,
    InTasks,
    Inspectable,
    Auditable,
    Measurable,
):
    """Records into files by bucket, exactly once: files appear complete and never change.

    Args:
        path: the folder. Give jobs that share one different prefixes.
        row: raw mode: the column whose bytes are written as they are, each with a line end. Of raw JSON in event-time
            buckets a line break between tokens becomes a space; another value with a line break is rejected.
        format: "json" (JSON lines; the default without `row`), "csv", "parquet", "orc" or "avro" of all columns; or an `Encoder` or `BulkWriterFactory` of yours.
        parquet: how Parquet files are laid out; None = as is usual.
        bucket: where records go: an assigner, or a function record -> bucket name.
        rolling: when a part file is finished. Parquet, ORC, Avro, and CSV with a header finish one at every checkpoint.
        prefix: of file names: `<prefix>-<subtask>-<counter><suffix>`.
        suffix: of file names; default by format and compression, "" for raw rows.
        compression: "gzip" or "zstd" for rows; a codec for Parquet (default snappy) or ORC (default zlib); "deflate" for Avro.
        compaction: merge small parts of a bucket before they become visible; None = no.
        columns: the columns to write, in this order; None = all.
        header: begin each CSV file with the column names.
        max_open_files: so many files are open in a task at once.
        overwrite: of a job that ends: its files replace those of the buckets that it writes into, and of these buckets in any case ("" is
            the folder with all below it); all at the end, and old files go once the decision is made. None = files are added.
        partition_commit: when a bucket is complete, and what makes that known, such as a file _SUCCESS in it; None = nothing does.
        sealed: when a bucket is whole, with a manifest of its files, and what becomes of later rows; instead of `partition_commit`.

    Raises:
        DefinitionError: settings contradict each other, or a package that a format needs is not installed.
    """

    path: str
    _: KW_ONLY
    row: str | None = None
    format: Format | Encoder | BulkWriterFactory | None = None
    bucket: BucketAssigner | Callable[[Any], str] = field(default_factory=BasePathBucketAssigner)
    rolling: RollingPolicy | CustomRollingPolicy = field(default_factory=RollingPolicy)
    prefix: str = "part"
    suffix: str | None = None
    compression: str | None = None
    compaction: FileCompaction | None = None
    columns: Sequence[str] | None = None
    header: bool = False
    max_open_files: int = 256
    overwrite: Sequence[str] | None = None
    partition_commit: PartitionCommit | None = None
    sealed: SealedBuckets | None = None
    parquet: ParquetOptions | None = None
    tag: str = field(default="", repr=False)  # set by `bind`

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise DefinitionError(f"columns={self.columns!r} is one text", next=f'write columns=["{self.columns}"]')
        check_kind("FileSink", NAMES, {"columns": self.columns}, optional=True)
        texts = {"suffix": self.suffix, "compression": self.compression, "row": self.row}
        check_kind("FileSink", TEXT, texts, optional=True)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        if isinstance(self.overwrite, str):
            raise DefinitionError(
                f"overwrite={self.overwrite!r} is one text", next="list the buckets, [] for those alone that get rows"
            )
        check_kind(
            "FileSink",
            NAMES,
            {"overwrite": None if self.overwrite is None else [each for each in self.overwrite if each]},
            optional=True,
        )
        checks.check_format(self)
        checks.check_names(self)

    # What plan and explain read

    @property
    def kind_of_rows(self) -> str:
        """ "raw", or the format: "custom" and "custom-bulk" of yours."""
        if isinstance(self.format, Encoder | BulkWriterFactory):
            return "custom" if isinstance(self.format, Encoder) else "custom-bulk"
        return "raw" if self.row is not None else self.format or "json"

    @property
    def format_name(self) -> str:
        """The format, for people."""
        is_own = isinstance(self.format, Encoder | BulkWriterFactory)
        return type(self.format).__name__ if is_own else self.kind_of_rows

    @property
    def bulk(self) -> bool:
        """Whether rows have to come as columns, not as dicts."""
        return self.kind_of_rows in ("csv", "custom", *BULK)

    @property
    def assigner(self) -> BucketAssigner:
        """The bucket assigner."""
        return self.bucket if isinstance(self.bucket, BucketAssigner) else PythonBucketAssigner(self.bucket)

    @property
    def bucket_column(self) -> str:
        """The column that has the bucket, where one has it: it is not written."""
        return self.bucket.column if isinstance(self.bucket, ColumnBucketAssigner) else BUCKET_COLUMN

    @property
    def computed_columns(self) -> Mapping[str, str]:
        """The columns the plan has to add, name to Spark SQL expression."""
        return {BUCKET_COLUMN: self.bucket.expression} if isinstance(self.bucket, ExpressionBucketAssigner) else {}

    @property
    def completion(self) -> CompletionRule | None:
        """When buckets are complete, and what is done then; None = nothing is."""
        return self.partition_commit if self.sealed is None else self.sealed.rule(self.assigner)

    @property
    def merging(self) -> FileCompaction | None:
        """How small parts are merged before they become visible; None = they are not."""
        return self.compaction if self.sealed is None else self.sealed.merging(self.compaction)

    @property
    def needs_only_value(self) -> bool:
        """Whether it reads nothing of a row but the bytes of column `value`."""
        by = self.bucket
        of_bytes = isinstance(by, EventTimeBucketAssigner) and by.source != "column"
        return self.row == "value" and (
            of_bytes or isinstance(by, BasePathBucketAssigner | ProcessingTimeBucketAssigner)
        )

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        packed = f" {self.compression}" if self.compression else ""
        rows = f"raw {self.row}" if self.row is not None else self.format_name
        roll = "each checkpoint" if self.whole else self.rolling.describe()
        roll = roll if self.overwrite is None else "at the end, replaces old files"
        roll += "" if self.completion is None else f"; {self.completion.describe()}"
        return f"files {self.path} ({rows}{packed}; bucket {self.assigner.describe()}; roll {roll}; exactly-once)"

    def bind(self, *, job_id: str, sink: str) -> FileSink:
        """Return this sink for one job: it then finds its orphans even before the first decision, and its tasks the driver's
        folder, whatever folder they work in."""
        return replace(self, tag=owner_tag(job_id, sink), path=self.storage().root)

    @property
    def task_folders(self) -> Sequence[str]:
        """Where tasks write and the driver has to find it."""
        return [self.storage().root]

    @property
    def task_modules(self) -> Sequence[str]:
        """What tasks import that need not be installed with poundlock."""
        return ["fastavro"] if self.kind_of_rows == "avro" else []

    # Participant, task side

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.files.sink.writer import FileWriter

        return FileWriter(context, self)

    # Participant, driver side

    def preflight(self) -> None:
        """Raise DefinitionError unless files can be made in the folder, TransientError where its disk is full."""
        self._refuse_names()
        parts.committer.preflight(self.storage())

    def examine(self) -> Examination:
        """Do what `preflight` does in the nearest folder that is there; see `Examinable`."""
        self._refuse_names()
        return parts.committer.examine(self.storage())

    def _refuse_names(self) -> None:
        storage, by = self.storage(), self.bucket
        pattern = by.pattern if isinstance(by, EventTimeBucketAssigner | ProcessingTimeBucketAssigner) else ""
        if refused := set(storage.refused_in_names) & set(pattern):
            raise DefinitionError(
                f"date pattern {pattern!r}: no name in {storage.root} may have a {min(refused)!r}",
                next="leave it out, such as HHmm or HH-mm",
            )
        check_policies_work(self.completion)

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what the sink reads of them."""
        needed = [self.row] if self.row is not None else list(self.columns or ())
        by = self.bucket
        if isinstance(by, EventTimeBucketAssigner) and not by.json(self.row is not None):
            needed.append(by.path[0])
        if isinstance(by, ColumnBucketAssigner):
            needed.append(by.column)
        need_columns(sink, needed, columns)
        if self.parquet is not None:
            written = [name for name in columns if name != self.bucket_column]
            self.parquet.check_columns(list(self.columns or written))

    def directive(self, state: JSON) -> JSON:
        # Also behind a state of another folder: counters that start over would hide files from who restores that state.
        seen = isinstance(self.rolling, CustomRollingPolicy)
        return parts.file_values.FileDirective.from_state(_state(state), named=self.uploads, seen=seen).to_json()

    def verify(self, prepared: Sequence[Prepared]) -> None:
        parts.committer.verify_many(self.storage(), prepared)

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return self._staged(state, prepared, occasion, now_ms, None)

    def _staged(
        self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int, time: SinkTime | None
    ) -> Staged:
        staging = self._rules(), _state(state), prepared, occasion, now_ms
        if self.overwrite is None:
            following, committables = parts.commit_plan.stage(*staging, time)
        else:
            following, committables = parts.overwriting.stage(*staging, self.storage(), self.overwrite, time)
        return Staged(following.to_json(), [each.to_json() for each in committables])

    def next_roll_ms(self, state: JSON) -> int | None:
        return parts.commit_plan.next_roll_ms(self._rules(), _state(state))

    def commit(self, committable: JSON) -> Committed:
        file = parts.file_values.FileCommittable.of(committable)
        return parts.committer.commit(self.storage(file.root), file, self._merger, self.completion)

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        return parts.committer.commit_many(self.storage, committables, self._merger, self.completion)

    def comes_behind(self, committable: JSON) -> bool:
        return "mark" in committable

    def pieces(self, calls: int) -> int:
        return parts.committer.pieces(self.storage(), calls)

    def abort(self, prepared: Prepared) -> None:
        parts.committer.abort(self.storage(), prepared)

    def abort_many(self, prepared: Iterable[Prepared]) -> Iterator[Exception | None]:
        return parts.committer.abort_many(self.storage(), prepared)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        left = self.leftovers(state)
        if remove and left:
            check()
            self.remove(left)
        return [each.orphan for each in left]

    def leftovers(self, state: JSON) -> Sequence[Leftover]:
        carried = _state(state)
        marks = self.completion.marks if self.completion is not None else ()
        return parts.committer.leftovers(self.storage(carried.root), self.tag or carried.tag, carried, marks)

    def remove(self, leftovers: Sequence[Leftover]) -> None:
        parts.committer.remove(self.storage, leftovers)

    # FollowsTime

    @property
    def needs_event_time(self) -> bool:
        return self.completion is not None and self.completion.needs_event_time

    def stage_at(
        self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int, time: SinkTime
    ) -> Staged:
        return self._staged(state, prepared, occasion, now_ms, time)

    def next_watermark(self, state: JSON) -> int | None:
        return parts.commit_plan.next_watermark(self.completion, _state(state).partitions)

    # Inspectable

    def describe_json(self) -> JSON:
        """Return what it takes to sweep, inspect and commit again; buckets, rolling and columns are the writers' matter."""
        return parts.description.described(self)

    @classmethod
    def from_json(cls, description: JSON) -> FileSink:
        """Return a sink that sweeps, inspects and commits as the described one does; it is not meant to write.

        Raises:
            DefinitionError: another version of poundlock wrote the description.
        """
        return cls(**parts.description.settings_of(description))

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        file = parts.file_values.FileCommittable.of(committable)
        return parts.inspection.inspect(self.storage(file.root), file, self._merger)

    def inspect_state(self, state: JSON) -> Sequence[Finding]:
        carried = _state(state)
        return parts.inspection.inspect_segments(self.storage(carried.root), carried.segments)

    # Auditable

    def open_audit(self, scope: AuditScope) -> Reading:
        return parts.inspection.FileReading(scope, self.storage)

    def rows_of(self, committable: JSON) -> int:
        return int(committable["rows"])

    def rows_pending(self, state: JSON) -> int:
        return sum(segment.rows for segment in _state(state).segments)

    # Measurable

    def measuring(self, folder: str) -> FileSink:
        return replace(self, path=folder, partition_commit=None)

    def places(self, committables: Sequence[JSON], state: JSON, checkpoint: int) -> Mapping[str, int]:
        return parts.commit_plan.rows_by_bucket(
            map(parts.file_values.FileCommittable.of, committables), _state(state), checkpoint
        )

    # Portable

    def save(self, state: JSON, savepoint: Storage, folder: str, copy: Callable[[Storage, str, str], None]) -> None:
        carried = _state(state)
        storage = self.storage(carried.root)
        for segment in carried.segments:
            copy(storage, segment.path, f"{folder}/{segment.path}")

    def check_saved(self, state: JSON) -> None:
        parts.savepoint_files.check_names(self.storage(), _state(state))

    def newer(self, state: JSON, note: JSON) -> Newer:
        return parts.savepoint_files.newer_output(self.storage(), self._rules(), _state(state))

    def restore(self, state: JSON, savepoint: Storage, folder: str, newer: NewerOutput) -> JSON:
        carried = _state(state)
        return parts.savepoint_files.restore(self.storage(), self._rules(), carried, savepoint, folder, newer).to_json()

    # Legible

    def pending(self, state: JSON) -> Sequence[PendingFile]:
        files = _state(state).files
        return [PendingFile(path=join(part.bucket, part.name), rows=part.rows, bytes=part.bytes) for part in files]

    # Parts

    def storage(self, root: str = "") -> Storage:
        """Return its folder, or another in which an earlier setting of the path made files."""
        return open_storage(root or self.path)

    @property
    def whole(self) -> bool:
        """Whether each segment is a part of its own."""
        return self.kind_of_rows in BULK or self.header or self.uploads

    @property
    def uploads(self) -> bool:
        """Whether tasks upload finished files, because each one ends with the checkpoint that began it."""
        ends = self.kind_of_rows in BULK or self.header or self._rolls_all
        return ends and self.merging is None and isinstance(self.storage(), Uploads)

    @property
    def _rolls_all(self) -> bool:
        """Whether every part is finished at every checkpoint."""
        return isinstance(self.rolling, RollingPolicy) and self.rolling.on_checkpoint

    @property
    def codec(self) -> str | None:
        """How bytes are compressed, in the format's own word; None = as is usual for it."""
        return checks.COMPRESSION[self.kind_of_rows][self.compression] if self.compression is not None else None

    @property
    def ending(self) -> str:
        """What finished names end with."""
        if self.suffix is not None:
            return self.suffix
        rows = self.kind_of_rows
        own = self.format.suffix if isinstance(self.format, Encoder | BulkWriterFactory) else checks.SUFFIX[rows]
        return own + (_ENDING.get(self.compression or "", "") if rows not in BULK else "")

    @property
    def _merger(self) -> BulkMerger:
        from poundlock.formats.encode_bulk import BulkMerger, BulkOptions

        return BulkMerger(BulkOptions(self.codec, self.parquet))

    def _rules(self) -> Rules:
        to = self.storage()
        return parts.commit_plan.Rules(
            to.root,
            self.rolling,
            self.whole,
            self.prefix,
            self.ending,
            self.merging,
            self.tag,
            to.moves_by_copy,
            self.completion,
        )


def _state(value: JSON) -> FileSinkState:
    return parts.file_values.FileSinkState.of(value)
