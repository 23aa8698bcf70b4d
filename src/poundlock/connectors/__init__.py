"""Where records come from and go, one folder a system, and all that whoever writes a connector imports.

Each of these names has one path, `from poundlock.connectors import …`; importing the package itself loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.audit.read_back import Auditable as Auditable
    from poundlock.audit.read_back import AuditScope as AuditScope
    from poundlock.audit.read_back import Decided as Decided
    from poundlock.audit.read_back import Disagreement as Disagreement
    from poundlock.audit.read_back import ReadBack as ReadBack
    from poundlock.audit.read_back import Reading as Reading
    from poundlock.checkpoint.capabilities import Bindable as Bindable
    from poundlock.checkpoint.capabilities import ChecksColumns as ChecksColumns
    from poundlock.checkpoint.capabilities import ChecksSchema as ChecksSchema
    from poundlock.checkpoint.capabilities import Closable as Closable
    from poundlock.checkpoint.capabilities import CommitsMany as CommitsMany
    from poundlock.checkpoint.capabilities import ComputesColumns as ComputesColumns
    from poundlock.checkpoint.capabilities import Describable as Describable
    from poundlock.checkpoint.capabilities import Early as Early
    from poundlock.checkpoint.capabilities import HasPlace as HasPlace
    from poundlock.checkpoint.capabilities import HoldsReaders as HoldsReaders
    from poundlock.checkpoint.capabilities import Inspectable as Inspectable
    from poundlock.checkpoint.capabilities import LimitedWriter as LimitedWriter
    from poundlock.checkpoint.capabilities import LimitsTasks as LimitsTasks
    from poundlock.checkpoint.capabilities import MakesParticipant as MakesParticipant
    from poundlock.checkpoint.capabilities import Measurable as Measurable
    from poundlock.checkpoint.capabilities import Preflight as Preflight
    from poundlock.checkpoint.capabilities import ReadsOnlyValue as ReadsOnlyValue
    from poundlock.checkpoint.capabilities import Repeatable as Repeatable
    from poundlock.checkpoint.capabilities import TakesColumns as TakesColumns
    from poundlock.checkpoint.capabilities import TaskFolders as TaskFolders
    from poundlock.checkpoint.capabilities import TaskModules as TaskModules
    from poundlock.checkpoint.ledger.ledger import Ledger as Ledger
    from poundlock.checkpoint.participant import JSON as JSON
    from poundlock.checkpoint.participant import Aborted as Aborted
    from poundlock.checkpoint.participant import CommitOutcome as CommitOutcome
    from poundlock.checkpoint.participant import Committed as Committed
    from poundlock.checkpoint.participant import Finding as Finding
    from poundlock.checkpoint.participant import Kind as Kind
    from poundlock.checkpoint.participant import Occasion as Occasion
    from poundlock.checkpoint.participant import Orphan as Orphan
    from poundlock.checkpoint.participant import Participant as Participant
    from poundlock.checkpoint.participant import Prepared as Prepared
    from poundlock.checkpoint.participant import Staged as Staged
    from poundlock.checkpoint.participant import Writer as Writer
    from poundlock.checkpoint.participant import WriterContext as WriterContext
    from poundlock.checkpoint.participant import unchecked as unchecked
    from poundlock.checkpoint.portable import Legible as Legible
    from poundlock.checkpoint.portable import Newer as Newer
    from poundlock.checkpoint.portable import NewerOutput as NewerOutput
    from poundlock.checkpoint.portable import PendingFile as PendingFile
    from poundlock.checkpoint.portable import Portable as Portable
    from poundlock.connectors.base import BindableSource as BindableSource
    from poundlock.connectors.base import ClosableEnumerator as ClosableEnumerator
    from poundlock.connectors.base import Enumerator as Enumerator
    from poundlock.connectors.base import ExplainsErrors as ExplainsErrors
    from poundlock.connectors.base import IdentifyingEnumerator as IdentifyingEnumerator
    from poundlock.connectors.base import LagReportingEnumerator as LagReportingEnumerator
    from poundlock.connectors.base import MeteredReader as MeteredReader
    from poundlock.connectors.base import PartitionedEnumerator as PartitionedEnumerator
    from poundlock.connectors.base import PausableEnumerator as PausableEnumerator
    from poundlock.connectors.base import PreviewRefused as PreviewRefused
    from poundlock.connectors.base import RangeCheckingEnumerator as RangeCheckingEnumerator
    from poundlock.connectors.base import Reader as Reader
    from poundlock.connectors.base import ReaderContext as ReaderContext
    from poundlock.connectors.base import SparkRead as SparkRead
    from poundlock.connectors.base import SparkSource as SparkSource
    from poundlock.connectors.base import Split as Split
    from poundlock.connectors.base import SplitSource as SplitSource
    from poundlock.connectors.base import TaskPerPartition as TaskPerPartition
    from poundlock.connectors.files.manifest import ManifestEntry as ManifestEntry
    from poundlock.connectors.files.manifest import finished_files as finished_files
    from poundlock.connectors.reconcile import match as match
    from poundlock.connectors.registry import Connector as Connector
    from poundlock.connectors.registry import connectors as connectors
    from poundlock.connectors.registry import find as find
    from poundlock.connectors.replay_promise import DeclaresReplay as DeclaresReplay
    from poundlock.connectors.replay_promise import ReplayKind as ReplayKind
    from poundlock.connectors.replay_promise import ReplayPromise as ReplayPromise
    from poundlock.errors import SourceGoneError as SourceGoneError
    from poundlock.formats.chunk import Batch as Batch
    from poundlock.formats.chunk import Chunk as Chunk
    from poundlock.formats.chunk import FileOrigin as FileOrigin
    from poundlock.formats.chunk import KafkaOrigin as KafkaOrigin
    from poundlock.formats.chunk import Lines as Lines
    from poundlock.formats.chunk import Records as Records
    from poundlock.formats.convert import to_batch as to_batch
    from poundlock.formats.convert import to_records as to_records
    from poundlock.formats.reject import Reject as Reject
    from poundlock.storage import Storage as Storage
    from poundlock.storage import open_storage as open_storage

_MODULES = {
    "checkpoint.participant": (
        "JSON Aborted CommitOutcome Committed Finding Kind Occasion Orphan Participant Prepared Staged Writer "
        "WriterContext unchecked"
    ),
    "checkpoint.capabilities": (
        "Bindable ChecksColumns ChecksSchema Closable CommitsMany ComputesColumns Describable Early HasPlace "
        "HoldsReaders Inspectable LimitedWriter LimitsTasks MakesParticipant Measurable Preflight ReadsOnlyValue "
        "Repeatable TakesColumns TaskFolders TaskModules"
    ),
    "checkpoint.portable": "Legible Newer NewerOutput PendingFile Portable",
    "audit.read_back": "AuditScope Auditable Decided Disagreement ReadBack Reading",
    "checkpoint.ledger.ledger": "Ledger",
    "connectors.base": (
        "BindableSource ClosableEnumerator Enumerator ExplainsErrors IdentifyingEnumerator LagReportingEnumerator "
        "MeteredReader PartitionedEnumerator PausableEnumerator PreviewRefused RangeCheckingEnumerator Reader "
        "ReaderContext SparkRead SparkSource Split SplitSource TaskPerPartition"
    ),
    "connectors.files.manifest": "ManifestEntry finished_files",
    "connectors.reconcile": "match",
    "connectors.registry": "Connector connectors find",
    "connectors.replay_promise": "DeclaresReplay ReplayKind ReplayPromise",
    "errors": "SourceGoneError",
    "formats.chunk": "Batch Chunk FileOrigin KafkaOrigin Lines Records",
    "formats.convert": "to_batch to_records",
    "formats.reject": "Reject",
    "storage": "Storage open_storage",
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'poundlock.connectors' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"poundlock.{_NAMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
