"""What a Delta table has of a sink: files that no decision names, and commits that are there or missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from poundlock.checkpoint.participant import JSON, Finding, Orphan
from poundlock.checkpoint.portable import Newer
from poundlock.connectors.delta.loading import explained, load_deltalake, open_folder, open_table
from poundlock.connectors.delta.sink.committer import find_commit, is_there, missing_files
from poundlock.connectors.delta.sink.names import changes_folder, parsed, tag_of
from poundlock.connectors.delta.sink.values import DecidedRows, check_format
from poundlock.storage import Storage
from poundlock.storage.base import Entry


def sweep(storage: Storage, app: str, state: JSON, *, remove: bool, check: Callable[[], None]) -> Sequence[Orphan]:
    """Return, and remove, the files of a sink that no version of its table names or named.

    Everything decided was committed before. So these are files of a checkpoint that the table has no commit of yet, of the newest one by
    attempts that the decision does not name, and all changes that wait to be merged. What a dead task of an older checkpoint left looks like
    a file that the table named once and may still be asked for by its version; VACUUM knows the two apart.

    Args:
        app: the sink's; "" = it is not known, and nothing is found.
        state: of the newest decision; {} if there is none.
    """
    if not app:
        return []
    if state:
        check_format(state)
    with explained(storage, "reading its log"):
        library = load_deltalake()
        try:
            newest = open_table(storage).transaction_version(app)
        except library.exceptions.TableNotFoundError:
            newest = None
    tag = tag_of(app)
    newest = -1 if newest is None else newest
    attempts = set(state.get("attempts", ())) if state.get("app") == app else set()
    decided = state.get("checkpoint") if state.get("app") == app else None

    def is_orphan(entry: Entry) -> bool:
        name = parsed(entry.path, tag)
        if name is None:
            return False
        if entry.path.startswith(f"{changes_folder(tag)}/") or name.checkpoint > newest:
            return True
        return name.checkpoint == decided and name.attempt not in attempts

    left = [entry for entry in storage.list() if is_orphan(entry)]
    if remove and left:
        check()
        for entry in left:
            storage.delete(entry.path)
    return [Orphan(f"{storage.root}/{entry.path}", entry.bytes, entry.modified_ms) for entry in left]


def inspect(decided: DecidedRows) -> Sequence[Finding]:
    """Return what is not as a decision says: its commit is pending, or its files are gone before it."""
    storage = open_folder(decided.root)
    with explained(storage, "reading its log"):
        table = open_table(storage)
        if is_there(table.transaction_version(decided.app), decided):
            entry = find_commit(table, decided.app, decided.checkpoint)
            if entry is None or entry.get("poundlock.decision") == decided.decision:
                return []
            place = f"{storage.root} version {entry['version']}"
            return [Finding("foreign", place)]
    gone = {each.path for each in missing_files(storage, decided.files)}
    return [
        Finding("missing" if each.path in gone else "pending", f"{storage.root}/{each.path}", each.bytes)
        for each in decided.files
    ]


def newer(state: JSON) -> Newer:
    """Return whether a table has commits of a sink behind its saved state."""
    if not state.get("app"):
        return Newer()
    check_format(state)
    storage = open_folder(state["root"])
    with explained(storage, "reading its log"):
        version = open_table(storage).transaction_version(state["app"])
    if version is None or version < state["checkpoint"]:
        return Newer(lost=f"has no commit of checkpoint {state['checkpoint']} in Delta table {storage.root}")
    if version == state["checkpoint"]:
        return Newer()
    return Newer(
        what=f"has commits up to checkpoint {version} in Delta table {storage.root}, behind checkpoint {state['checkpoint']} of the savepoint",
        retractable=False,
    )
