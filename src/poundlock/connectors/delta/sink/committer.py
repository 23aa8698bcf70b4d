"""One commit of a table for each decision, with a `txn` action by which a repetition is recognised.

The table itself refuses nothing but two commits of one application that do not know of each other, so that each attempt reads the newest version
first: what is there already is not committed again, whoever committed it, and however the answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.checkpoint.participant import Committed
from poundlock.connectors.delta.loading import (
    explained,
    is_of_store,
    load_deltalake,
    open_folder,
    open_table,
    words_of,
)
from poundlock.connectors.delta.shape import TableShape, refuse_unwritable, shape_of
from poundlock.connectors.delta.sink import merging
from poundlock.connectors.delta.sink.values import DecidedRows, WrittenFile
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.formats import ddl
from poundlock.storage import Storage
from poundlock.storage.at_once import at_once

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from poundlock.connectors.delta.sink.sink import DeltaSink

_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between two attempts that others were faster than
_HISTORY = (50, 1000, None)  # newest versions in which a commit is looked for, the nearest first
APP, CHECKPOINT, DECISION = "poundlock.app", "poundlock.checkpoint", "poundlock.decision"
"""What a commit says of itself in its `commitInfo`, besides the `txn` action."""


def commit(sink: DeltaSink, decided: DecidedRows) -> Committed:
    """Make what was decided visible in one commit, or find it there.

    Raises:
        TerminalError: the table has changed in a way that the files do not fit, files are gone, or another decision has the number.
        CommitUnknown: the store did not answer, or others were faster too often; it is asked for again.
    """
    storage = open_folder(decided.root)
    reason = ""
    for wait_s in (*_WAITS_S, None):
        table = _opened(storage, decided)
        with explained(storage, "reading its log"):
            version = table.transaction_version(decided.app)
        if is_there(version, decided):
            return _already_there(storage, table, decided)
        shape = shape_of(table)
        check_files(storage, decided.files)
        if add_columns(storage, table, shape, decided, allowed=sink.merge_schema):
            continue  # with the version that has them
        published, reason = _publish(sink, storage, table, decided)
        if published is not None:
            return published
        if wait_s is None:
            break
        time.sleep(wait_s)
    raise CommitUnknown(
        f"Delta table {storage.root}: checkpoint {decided.checkpoint} is not committed yet, others were faster each time: {reason}",
        next="nothing, where others write to the table all the time; it is asked for again",
    )


def _opened(storage: Storage, decided: DecidedRows) -> DeltaTable:
    try:
        with explained(storage, "reading its log"):
            return open_table(storage)
    except TerminalError:
        raise
    except Exception as error:
        raise _unknown(storage, decided, error) from error


def _unknown(storage: Storage, decided: DecidedRows, error: BaseException) -> CommitUnknown:
    return CommitUnknown(
        f"Delta table {storage.root}: whether checkpoint {decided.checkpoint} is committed is not known: {words_of(error)}",
        next="look at the store; the commit is asked for again, and is there once",
    )


def _publish(
    sink: DeltaSink, storage: Storage, table: DeltaTable, decided: DecidedRows
) -> tuple[Committed | None, str]:
    """Ask for the commit once. Return what came of it; None and why, where the table has to be looked at again."""
    errors = load_deltalake().exceptions
    properties = commit_properties(decided)
    try:
        if decided.key:
            detail: dict[str, Any] = dict(merging.merge(storage, table, decided, properties))
        else:
            table.create_write_transaction(
                actions_of(decided),
                mode="append",
                schema=table.schema(),
                partition_by=list(table.metadata().partition_columns),
                commit_properties=properties,
            )
            detail = {}
    except errors.CommitFailedError as error:
        return None, words_of(error)
    except (errors.DeltaError, OSError) as error:
        if is_of_store(error):
            raise _unknown(storage, decided, error) from error
        # It may have been raised behind the commit, as where a checkpoint of the log cannot be written.
        again = _opened(storage, decided)
        if is_there(again.transaction_version(decided.app), decided):
            return _already_there(storage, again, decided), ""
        raise TerminalError(
            f"Delta table {storage.root} does not take checkpoint {decided.checkpoint}: {words_of(error)}",
            next="mend the table, then start the job again: the commit is asked for again",
        ) from error
    detail |= {"version": table.version(), "rows": decided.rows, "files": len(decided.files)}
    return Committed({**detail, **after_commit(sink, storage, decided)}), ""


def is_there(version: int | None, decided: DecidedRows) -> bool:
    """Return whether a table with this version of the sink's transactions has the commit of a decision, or a later one."""
    return version is not None and version >= decided.checkpoint


def after_commit(sink: DeltaSink, storage: Storage, decided: DecidedRows) -> dict[str, Any]:
    """Do what is done once the rows are there, and may be left out: remove merged changes, compact small files."""
    if decided.key:
        for each in decided.files:
            storage.delete(each.path)
    if sink.compact_every is None or decided.checkpoint % sink.compact_every:
        return {}
    try:
        made = open_table(storage).optimize.compact(target_size=sink.target_bytes)
    except (load_deltalake().exceptions.DeltaError, OSError) as error:
        return {"compaction": f"not done: {words_of(error)}"}  # the files stay as they are, until the next time
    return {"compaction": f"{made['numFilesRemoved']} files into {made['numFilesAdded']}"}


def _already_there(storage: Storage, table: DeltaTable, decided: DecidedRows) -> Committed:
    """Return that a decision was committed before. Raises TerminalError where the table's commit with its number is another's."""
    with explained(storage, "reading its history"):
        entry = find_commit(table, decided.app, decided.checkpoint)
    if entry is None:
        raise TerminalError(
            f"Delta table {storage.root} has commits of checkpoints from {decided.checkpoint} on, and its log no longer says which",
            next="compare the table with the ledger: poundlock audit; then go on from a savepoint that fits",
        )
    if entry.get(DECISION) != decided.decision:
        raise TerminalError(
            f"Delta table {storage.root} has another commit of checkpoint {decided.checkpoint} of this job, in version {entry['version']}",
            next="one of two copies of the checkpoint folder has gone on already: go on with that one, or from a savepoint",
        )
    if decided.key:
        for each in decided.files:
            storage.delete(each.path)
    return Committed({"version": entry["version"], "rows": decided.rows, "already_there": True})


def find_commit(table: DeltaTable, app: str, checkpoint: int) -> dict[str, Any] | None:
    """Return the entry of a table's history that a sink's commit of a checkpoint left; None where the log has none, or no longer."""
    for limit in _HISTORY:
        entries = table.history(limit)
        for entry in entries:
            if entry.get(APP) == app and entry.get(CHECKPOINT) == str(checkpoint):
                return entry
        if limit is not None and len(entries) < limit:
            break
    return None


def commit_properties(decided: DecidedRows) -> CommitProperties:
    """Return what a commit says of itself."""
    library = load_deltalake()
    now_ms = int(time.time() * 1000)
    made: CommitProperties = library.CommitProperties(
        custom_metadata={APP: decided.app, CHECKPOINT: str(decided.checkpoint), DECISION: decided.decision},
        app_transactions=[library.Transaction(decided.app, decided.checkpoint, now_ms)],
    )
    return made


def actions_of(decided: DecidedRows) -> list[AddAction | RemoveAction]:
    """Return the actions that add the files."""
    from deltalake.transaction import AddAction

    return [
        AddAction(each.path, each.bytes, dict(each.values), each.modified_ms, True, each.stats)
        for each in decided.files
    ]


def missing_files(storage: Storage, files: Sequence[WrittenFile]) -> Iterator[WrittenFile]:
    """Yield the files that are not there as they were written."""
    for each, entry in zip(files, at_once(storage.stat, [each.path for each in files]), strict=True):
        if entry is None or entry.bytes != each.bytes:
            yield each


def check_files(storage: Storage, files: Sequence[WrittenFile]) -> None:
    """Raise TerminalError unless all files of a decision are there."""
    for each in missing_files(storage, files):
        raise TerminalError(
            f"{storage.root}/{each.path} was decided and is gone before its commit: something removed files that the table does not name yet",
            next="let VACUUM keep files for longer than the job is ever down; go on from a savepoint",
        )


def add_columns(storage: Storage, table: DeltaTable, shape: TableShape, decided: DecidedRows, *, allowed: bool) -> bool:
    """Check that the files fit the table as it is now, and add columns that it does not have yet; return whether there were any.

    Columns are added by a commit of their own, which is looked for before it is made.

    Raises:
        TerminalError: they do not fit.
    """
    refuse_unwritable(shape, storage.root, TerminalError)
    have, new = shape.schema, {}
    for part in decided.parts:
        if not decided.key and part.partition_by != shape.partition_by:
            raise _changed(
                storage, f"its partitions are by {list(shape.partition_by)}, and were by {list(part.partition_by)}"
            )
        written = ddl.parse(part.columns)
        for each in written:
            if each.name not in have.names:
                if not allowed:
                    raise _changed(storage, f"column {each.name!r} is gone")
                new[each.name] = each
            elif have.field(each.name).type != each.type:
                raise _changed(storage, f"column {each.name!r} has another type")
        for each in have:
            if not each.nullable and each.name not in written.names:
                raise _changed(storage, f"column {each.name!r} was added, and must not be null")
    if new:
        from deltalake import Schema

        fields = Schema.from_arrow(pa.schema([each.with_nullable(True) for each in new.values()])).fields
        with explained(storage, "adding columns"):
            try:
                table.alter.add_columns(fields)
            except load_deltalake().exceptions.CommitFailedError:
                return True  # somebody else changed it meanwhile: it is looked at again
    return bool(new)


def _changed(storage: Storage, what: str) -> TerminalError:
    return TerminalError(
        f"Delta table {storage.root} was changed since the rows of this checkpoint were written: {what}",
        next="put the table back as it was: the commit is asked for again; or go on from a savepoint with a table that fits",
    )
