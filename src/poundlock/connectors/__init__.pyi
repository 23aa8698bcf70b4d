"""What whoever writes a connector imports. `__init__.py` reads here where each of the names is."""

# ruff: noqa: I001 - the names of a module stand together

from poundlock.audit.read_back import (
    AuditScope as AuditScope,
    Auditable as Auditable,
    Decided as Decided,
    Disagreement as Disagreement,
    ReadBack as ReadBack,
    Reading as Reading,
)
from poundlock.checkpoint.capabilities import (
    AbortsMany as AbortsMany,
    Bindable as Bindable,
    ChecksColumns as ChecksColumns,
    ChecksSchema as ChecksSchema,
    Closable as Closable,
    CommitsBehind as CommitsBehind,
    CommitsMany as CommitsMany,
    ComputesColumns as ComputesColumns,
    Describable as Describable,
    Early as Early,
    FollowsTime as FollowsTime,
    HasPlace as HasPlace,
    HoldsReaders as HoldsReaders,
    InTasks as InTasks,
    Inspectable as Inspectable,
    KnowsColumns as KnowsColumns,
    LimitedWriter as LimitedWriter,
    LimitsTasks as LimitsTasks,
    MakesParticipant as MakesParticipant,
    Measurable as Measurable,
    NeedsJvm as NeedsJvm,
    OpensEarly as OpensEarly,
    Preflight as Preflight,
    PreparesAhead as PreparesAhead,
    ReadsOnlyValue as ReadsOnlyValue,
    Repeatable as Repeatable,
    SinkTime as SinkTime,
    SweepsMany as SweepsMany,
    TakesColumns as TakesColumns,
    TaskFolders as TaskFolders,
    TaskModules as TaskModules,
)
from poundlock.checkpoint.ledger.ledger import Ledger as Ledger
from poundlock.checkpoint.participant import (
    JSON as JSON,
    Aborted as Aborted,
    CommitOutcome as CommitOutcome,
    Committed as Committed,
    Finding as Finding,
    Kind as Kind,
    Leftover as Leftover,
    Occasion as Occasion,
    Orphan as Orphan,
    Participant as Participant,
    Prepared as Prepared,
    Staged as Staged,
    Writer as Writer,
    WriterContext as WriterContext,
    unchecked as unchecked,
)
from poundlock.checkpoint.portable import (
    Legible as Legible,
    Newer as Newer,
    NewerOutput as NewerOutput,
    PendingFile as PendingFile,
    Portable as Portable,
)
from poundlock.connectors.base import (
    BindableSource as BindableSource,
    ClosableEnumerator as ClosableEnumerator,
    Enumerator as Enumerator,
    ExplainsErrors as ExplainsErrors,
    IdentifyingEnumerator as IdentifyingEnumerator,
    LagReportingEnumerator as LagReportingEnumerator,
    PartitionLagEnumerator as PartitionLagEnumerator,
    MeasuringEnumerator as MeasuringEnumerator,
    MeteredReader as MeteredReader,
    ObjectSource as ObjectSource,
    PartitionedEnumerator as PartitionedEnumerator,
    PartitionRead as PartitionRead,
    PausableEnumerator as PausableEnumerator,
    PositionChecking as PositionChecking,
    PreviewRefused as PreviewRefused,
    RangeCheckingEnumerator as RangeCheckingEnumerator,
    Reader as Reader,
    ReaderContext as ReaderContext,
    SparkRead as SparkRead,
    SparkSource as SparkSource,
    Split as Split,
    SplitSource as SplitSource,
    TaskPerPartition as TaskPerPartition,
)
from poundlock.connectors.examination import Examinable as Examinable, Examination as Examination
from poundlock.connectors.files.manifest import ManifestEntry as ManifestEntry, finished_files as finished_files
from poundlock.connectors.messages.acknowledged import (
    AcknowledgedEnumerator as AcknowledgedEnumerator,
    ReceivedMessage as ReceivedMessage,
    Receiver as Receiver,
)
from poundlock.connectors.messages.append import (
    AppendSink as AppendSink,
    AppendWriter as AppendWriter,
    MessageSender as MessageSender,
)
from poundlock.connectors.messages.encoding import MessageEncoder as MessageEncoder, MessageFormat as MessageFormat
from poundlock.connectors.messages.inbox import Inbox as Inbox
from poundlock.connectors.messages.reader import InboxReader as InboxReader, Payload as Payload
from poundlock.connectors.reconcile import match as match
from poundlock.connectors.registry import Connector as Connector, connectors as connectors, find as find
from poundlock.connectors.base import (
    DeclaresReplay as DeclaresReplay,
    ReplayKind as ReplayKind,
    ReplayPromise as ReplayPromise,
)
from poundlock.errors import SourceGoneError as SourceGoneError
from poundlock.formats.chunk import (
    Batch as Batch,
    Chunk as Chunk,
    FileOrigin as FileOrigin,
    KafkaOrigin as KafkaOrigin,
    Lines as Lines,
    Records as Records,
)
from poundlock.formats.convert import to_batch as to_batch, to_records as to_records
from poundlock.formats.reject import Reject as Reject
from poundlock.storage import Storage as Storage, open_storage as open_storage
