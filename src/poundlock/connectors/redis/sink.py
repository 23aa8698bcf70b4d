"""RedisSink: rows staged in Redis by the tasks, and made keys by a script when their checkpoint is decided.

The rows of a task and the markers that name them are written by transactions of Redis, so a commit that is repeated writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import ClassVar, Literal

from poundlock.arguments import NAMES, TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.checkpoint.capabilities import Bindable
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Orphan,
    Participant,
    Prepared,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.postgres.sink.transaction_ids import prefix_of
from poundlock.connectors.redis import committer
from poundlock.connectors.redis.login import RedisLogin, load_redis
from poundlock.connectors.redis.rows import KeyTemplate
from poundlock.errors import DefinitionError
from poundlock.values import positive, positive_number

KeyType = Literal["hash", "string", "set", "stream"]


@dataclass(frozen=True)
class RedisSink(Bindable, Participant):
    """Rows as keys of a Redis server: hashes, strings, members of sets, or entries of streams, exactly once.

    Numbers, times and all else are written as their text, bytes as they are.

    Args:
        url: "redis://host:6379/0" or "rediss://…", without the password.
        key: the name of a row's key, with columns in braces, such as "user:{id}".
        type: what keys are: "hash": a row sets its columns as fields, and removes those that are null; "string": a row sets the value,
            null removes the key; "set": a row adds a member; "stream": a row adds an entry, without columns that are null.
        columns: those that are written. None = all, without that of delete_when; of "string" and "set" there is one.
        delete_when: a boolean column that is not written: where it is true, the key is removed, or the member from the set. Not of streams.
        expire: how long a key stays after it was last written; None = for ever.
        max_length: most entries of a stream, about; None = any number.
        user, password: who asks; the password itself, "env:NAME" or "file:PATH".
        accept_loss: that the server may lose what it answered, when its machine fails or its memory is full. Otherwise a server is
            refused whose settings do not keep every write: appendonly yes, appendfsync always, no eviction of any key.
        batch: rows of one transaction at most, about, for which the server answers nobody else.
        keep_markers: how long markers stay; a job that is away for longer in the middle of a commit does not know its outcome, and stops.

    Raises:
        DefinitionError: settings contradict each other, or the client is not installed.
    """

    url: str
    _: KW_ONLY
    key: str
    type: KeyType = "hash"
    columns: Sequence[str] | None = None
    delete_when: str | None = None
    expire: str | timedelta | None = None
    max_length: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    accept_loss: bool = False
    batch: int = 10_000
    keep_markers: str | timedelta = "7 d"
    prefix: str = field(default="", repr=False)  # set by `bind`

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True  # what is staged is in nobody's way
    bulk: ClassVar[bool] = True
    task_modules: ClassVar[Sequence[str]] = ("redis",)

    def __post_init__(self) -> None:
        load_redis()
        check_kind("RedisSink", NAMES, {"columns": self.columns}, optional=True)
        check_kind("RedisSink", TEXT, {"user": self.user, "delete_when": self.delete_when}, optional=True)
        self.login.check()
        self.template.check()
        check_choices(self, {"type": ("hash", "string", "set", "stream")})
        if self.columns is not None:
            names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            if not names or (self.type in ("string", "set") and len(names) != 1):
                one = "one column" if self.type in ("string", "set") else "a column"
                raise DefinitionError(
                    f"columns={list(names)} of a {self.type}: {one} is needed", next='write columns=["name"]'
                )
            object.__setattr__(self, "columns", names)
        elif self.type in ("string", "set"):
            raise DefinitionError(f"type={self.type!r} needs the column that is written", next='write columns=["name"]')
        if self.delete_when is not None and self.delete_when in (*(self.columns or ()), *self.template.columns):
            raise DefinitionError(
                f"delete_when={self.delete_when!r} is a column that is written",
                next="give deletions a column of their own",
            )
        for name in ("batch", "max_length"):
            if (value := getattr(self, name)) is not None:
                positive_number(name, value)
        object.__setattr__(self, "expire", None if self.expire is None else positive("expire", self.expire))
        object.__setattr__(self, "keep_markers", positive("keep_markers", self.keep_markers))
        unused = (
            {"max_length": (self.max_length, None)}
            if self.type != "stream"
            else {"delete_when": (self.delete_when, None)}
        )
        refuse_without_effect("RedisSink", unused, because=f"type is {self.type!r}")

    # What plan and explain read

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"Redis {self.key} at {self.login.place} ({self.type}; exactly-once)"

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.login.place

    @property
    def login(self) -> RedisLogin:
        """How the server is reached."""
        return RedisLogin(self.url, self.user, self.password)

    @property
    def template(self) -> KeyTemplate:
        """How the name of a key is made."""
        return KeyTemplate(self.key)

    def value_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return which of the columns of rows are written."""
        return tuple(self.columns or (name for name in columns if name != self.delete_when))

    def needed(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return which columns rows must have."""
        flag = () if self.delete_when is None else (self.delete_when,)
        return (*self.template.columns, *self.value_names(columns), *flag)

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what is written."""
        need_columns(sink, self.needed(columns), columns)

    def bind(self, *, job_id: str, sink: str) -> RedisSink:
        """Return this sink for one job: what it stages and its markers then have names of its own."""
        return replace(self, prefix=prefix_of(job_id, sink))

    def preflight(self) -> None:
        """Check within seconds that the server takes rows, and keeps them.

        Raises:
            DefinitionError: wrong credentials, a cluster, or settings with which it may lose what it answered.
            TransientError: nobody answers.
        """
        committer.look(self)

    # Participant

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.redis.writer import RedisWriter

        return RedisWriter(context, self.bind(job_id=context.job_id, sink=context.sink))

    def verify(self, prepared: Sequence[Prepared]) -> None:
        committer.verify(self, [committer.StagedKeys.of(item.payload) for item in prepared])

    def commit(self, committable: JSON) -> Committed | Aborted:
        return committer.commit(self, committer.StagedKeys.of(committable))

    def abort(self, prepared: Prepared) -> None:
        committer.abort(self, committer.StagedKeys.of(prepared.payload))

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        if not self.prefix:
            return []
        left = committer.leftovers(self)
        if remove and left:
            check()
            committer.remove(self, [key for key, _, _ in left])
        return [Orphan(f"{self.login.place} {key}", size, at) for key, size, at in left]

    def close(self) -> None:
        """Close the driver's connections; they are made again when they are needed again."""
        committer.close(self)
