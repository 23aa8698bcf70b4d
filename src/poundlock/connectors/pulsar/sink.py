"""PulsarSink: rows staged as files by the tasks and sent by the driver when their checkpoint is decided, each with a number that brokers know again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from poundlock.arguments import TEXT, check_kind
from poundlock.checkpoint.capabilities import Bindable
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Occasion,
    Orphan,
    Participant,
    Prepared,
    Staged,
    WriterContext,
    unchecked,
)
from poundlock.connectors.messages.encoding import EncodedFormat, MessageFormat
from poundlock.connectors.postgres.sink.transaction_ids import gid, prefix_of
from poundlock.connectors.pulsar import committer
from poundlock.connectors.pulsar.connection import PulsarAddress
from poundlock.connectors.pulsar.writer import StagingWriter
from poundlock.connectors.staging import staged_files
from poundlock.errors import DefinitionError, TransientError
from poundlock.storage import Storage, open_storage
from poundlock.storage.storage_errors import refuse_unreachable
from poundlock.values import size


@dataclass(frozen=True, init=False)
class PulsarSink(Bindable, Participant):
    """Send each row as a message, once: behind the decision, by a producer whose name and numbers the brokers know again.

    The tasks leave messages in a folder. The driver sends those of a decision in one order, each with its number among all that the job
    has sent, so a commit that is repeated sends nothing a second time: brokers drop what they have, if deduplication is on.

    Args:
        url: "pulsar://host:6650" or "pulsar+ssl://host:6651".
        topic: its name; message deduplication has to be on for it, its namespace or the brokers.
        staging: a folder that tasks and driver reach, for messages on their way; only this sink may use it.
        key: the column that has each message's key, by which its partition is chosen; None = one partition after the other.
        format: "json", "csv", or "raw": one column as it is.
        value: the columns that are written; None = all, and with "raw" the column `value`.
        max_message_size: most bytes of a message, as brokers have it; a row that needs more is rejected.
        token: by which this user is known, such as "env:NAME" or "file:PATH" where it stands.
        ca: file with the certificates by which the brokers' are trusted, for pulsar+ssl.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True  # brokers see nothing before the decision
    bulk: ClassVar[bool] = True

    address: PulsarAddress
    topic: str
    staging: str
    key: str | None
    content: MessageFormat
    largest: int
    prefix: str = field(default="", repr=False)  # set by `bind`

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        staging: str,
        key: str | None = None,
        format: EncodedFormat = "json",
        value: str | Sequence[str] | None = None,
        max_message_size: str | int = "5 MB",
        token: str | None = None,
        ca: str | None = None,
        prefix: str = "",
    ) -> None:
        check_kind("PulsarSink", TEXT, {"url": url, "topic": topic, "staging": staging})
        check_kind("PulsarSink", TEXT, {"key": key, "token": token, "ca": ca}, optional=True)
        if not topic:
            raise DefinitionError("topic of PulsarSink is empty", next='write topic="orders"')
        values = {
            "address": PulsarAddress(url, token, ca),
            "topic": topic,
            "staging": staging,
            "key": key,
            "content": MessageFormat(format, value),
            "largest": size(max_message_size),
            "prefix": prefix,
        }
        for name, given in values.items():
            object.__setattr__(self, name, given)

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"Pulsar topic {self.topic} (by the driver, with numbers that brokers know again; exactly-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows have the columns that are named."""
        self.content.check(sink, columns, also=[] if self.key is None else [self.key])

    def bind(self, *, job_id: str, sink: str) -> PulsarSink:
        """Return this sink for one job: its files and its producer then have names of its own."""
        made = object.__new__(PulsarSink)
        made.__dict__.update({**self.__dict__, "prefix": prefix_of(job_id, sink)})
        return made

    def preflight(self) -> None:
        """Ask whether this user may look at the topic, and whether the folder can be used.

        Raises:
            DefinitionError: it may not, or the folder cannot.
            TransientError: no broker answers.
        """
        self.address.check(self.topic)
        refuse_unreachable(self.folder(), what="the folder for messages on their way")

    def folder(self) -> Storage:
        """Return the folder for messages on their way."""
        return open_storage(self.staging)

    # Participant

    def open_writer(self, context: WriterContext) -> StagingWriter:
        """Begin a file, in a task."""
        bound = self.bind(job_id=context.job_id, sink=context.sink)
        name = gid(bound.prefix, context.epoch, context.checkpoint, context.subtask, context.attempt)
        encoder = self.content.encoder(context.reject)
        return StagingWriter(context, encoder, self.folder(), f"{name}.arrow", self.key, self.largest)

    def verify(self, prepared: Sequence[Prepared]) -> None:
        storage = self.folder()
        for item in prepared:
            if not staged_files.is_as_left(storage, item):
                raise TransientError(
                    f"{item.payload['file']} in {self.staging} is not as the task left it",
                    next="let nobody else use the folder; the checkpoint is repeated",
                )

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        """Number the messages of a decision, behind those of the ones before, and name them in one committable."""
        since, first = int(state.get("since", now_ms)), int(state.get("sent", 0))
        files = [{"v": 1, "file": item.payload["file"], "rows": item.payload["rows"]} for item in prepared]
        rows = sum(int(item.payload["rows"]) for item in prepared)
        messages = {"v": 1, "since": since, "first": first, "rows": rows, "files": files}
        return Staged({"v": 1, "pending": [], "since": since, "sent": first + rows}, [messages] if rows else [])

    def commit(self, committable: JSON) -> Committed | Aborted:
        return committer.commit(self, committer.NumberedMessages.of(committable))

    def abort(self, prepared: Prepared) -> None:
        self.folder().delete(prepared.payload["file"])

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return staged_files.sweep(self.folder(), self.staging, self.prefix, remove=remove, check=check, ending=".arrow")
