"""The driver's half: one commit a decision, made once.

Whether the table's mark is there says what became of a commit that nobody answered. A commit is asked for only while the table has
the mark of the decision before it, and the catalog takes it only if nobody else committed meanwhile: so a driver that lost its
job to another cannot put rows there a second time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from poundlock.checkpoint.participant import Committed, Prepared
from poundlock.connectors.iceberg.catalog import TablePlace
from poundlock.connectors.iceberg.errors import changed_table, explain, load_pyiceberg
from poundlock.connectors.iceberg.files import partition_kinds, to_data_file
from poundlock.connectors.iceberg.sink.marks import DecisionMark, Owner, TableCommit, TaskFiles
from poundlock.errors import CommitUnknown, DefinitionError, PoundlockError, TerminalError, TransientError
from poundlock.redaction import secret_values

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

TRIES = 20
"""How often other writers may be quicker than one commit, before the checkpoint loop asks again."""
_WAIT_S = 0.05
_RETRIES = "commit.retry.num-retries"  # pyiceberg's own would put the same rows behind a commit that landed


class TableChange(Protocol):
    """What a decision changes in a table."""

    def stage(self, table: Table, transaction: Transaction, decided: TableCommit) -> int:
        """Put it into a transaction; return the id of the snapshot."""

    def refused(self) -> None:
        """Forget the last try: the catalog has answered that it does not take it, so nothing names its files."""


def verify(place: TablePlace, prepared: Sequence[Prepared]) -> None:
    """Raise unless what tasks wrote is all of one table, and of the spec that it has now."""
    if not prepared:
        return
    table = place.load("verifying a checkpoint")
    now = (str(table.metadata.table_uuid), table.metadata.default_spec_id)
    for item in prepared:
        wrote = TaskFiles.of(item.payload)
        if (wrote.table, wrote.spec) != now:
            raise TransientError(
                f"{place.shown} was made again or partitioned otherwise while a checkpoint was written",
                next="nothing: the checkpoint is repeated",
            )


def commit(place: TablePlace, owner: Owner, decided: TableCommit, change: TableChange) -> Committed:
    """Make a decision's rows visible, or see that they are.

    Raises:
        CommitUnknown: the catalog does not answer, or others commit all the time.
        TerminalError: the table is another one, or has not the commits that were made before.
    """
    doing = f"committing checkpoint {decided.checkpoint}"
    detail: dict[str, Any] = {"rows": decided.rows, "bytes": decided.bytes, "files": len(decided.files)}
    unanswered = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(random.uniform(0, _WAIT_S * min(2**attempt, 64)))
        try:
            table = place.load(doing)
        except TransientError as error:
            raise CommitUnknown(error.what, next=error.next) from error
        except DefinitionError as error:
            raise TerminalError(error.what, next="put the table back as it was, then start the job again") from error
        if _is_made(place, owner, decided, table):
            return Committed(detail)
        try:
            return Committed({**detail, "snapshot": _commit_once(table, owner, decided, change)})
        except PoundlockError:
            raise
        except Exception as error:
            # Refused for another commit, or not answered: in either case the table itself says whether it was made.
            meant = explain(error, place.shown, doing, secret_values(place.properties))
            if isinstance(meant, DefinitionError):
                raise TerminalError(
                    meant.what, next="mend what the catalog refuses, then start the job again: it commits first"
                ) from error
            unanswered = meant.what
    raise CommitUnknown(
        f"{unanswered} ({TRIES} times)", next="see that the catalog answers; other writers may commit less often"
    )


def _is_made(place: TablePlace, owner: Owner, decided: TableCommit, table: Table) -> bool:
    now = str(table.metadata.table_uuid)
    if now != decided.table:
        raise changed_table(place.shown, now, decided.table)
    newest = owner.newest(table)
    if newest is not None and newest >= decided.mark:
        other = owner.other_decision(table, decided)
        if other:
            raise TerminalError(
                f"{place.shown} has another commit of checkpoint {decided.checkpoint} of this job, in {other}",
                next="one of two copies of the checkpoint folder has gone on already: go on with that one, or from a savepoint",
            )
        return True
    before = DecisionMark.parse(decided.after) if decided.after else None
    if newest != before:
        raise TerminalError(
            f"{place.shown} has the commits of this sink up to {newest or 'none'}, and the job made them up to {before or 'none'}",
            next=f"put the table back, or, where the rows are there, set its property {owner.property} to {decided.after or '…'}",
        )
    return False


def _commit_once(table: Table, owner: Owner, decided: TableCommit, change: TableChange) -> int:
    of_one_try(table, decided.spec)
    transaction = table.transaction()
    snapshot = change.stage(table, transaction, decided)
    transaction.set_properties({owner.property: str(decided.mark), owner.decided_property: owner.decided(decided)})
    try:
        transaction.commit_transaction()
    except load_pyiceberg("exceptions").CommitFailedException:
        change.refused()
        raise
    return snapshot


def of_one_try(table: Table, spec: int) -> None:
    """Let a table's next commit be asked for once, by a partition spec. Of this object alone: the catalog gets updates, and none of these."""
    metadata = table.metadata
    table.metadata = metadata.model_copy(
        update={"properties": {**metadata.properties, _RETRIES: "0"}, "default_spec_id": spec}
    )


@dataclass(frozen=True)
class Append:
    """Adds the files of a decision to a table; see `TableChange`.

    Args:
        branch: of the table.
        tag: pattern of the snapshot's name; None = none.
    """

    owner: Owner
    branch: str
    tag: str | None

    def stage(self, table: Table, transaction: Transaction, decided: TableCommit) -> int:
        kinds = partition_kinds(table.metadata, decided.spec)
        update = transaction.update_snapshot(self.owner.summary(decided), self.branch)
        merges = table.metadata.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
        producer = update.merge_append() if merges else update.fast_append()
        for file in decided.files:
            producer.append_data_file(to_data_file(file, kinds))
        producer.commit()
        add_tag(transaction, producer.snapshot_id, self.tag, decided)
        return int(producer.snapshot_id)

    def refused(self) -> None:
        """The files are those of the decision, and are asked for again."""


def add_tag(transaction: Transaction, snapshot: int, tag: str | None, decided: TableCommit) -> None:
    """Give the snapshot of a decision a name, in the same commit. Behind the snapshot: the first reference that is asserted is the branch."""
    if tag is not None:
        from pyiceberg.table.update.snapshot import ManageSnapshots

        name = tag.replace("{checkpoint}", str(decided.checkpoint)).replace("{epoch}", str(decided.epoch))
        ManageSnapshots(transaction).create_tag(snapshot, name).commit()
