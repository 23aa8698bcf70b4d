"""A sink of segments and parts for the protocol tests, small enough to be seen to be right.

It stages like the file sink: hidden segments, several to a part, a part visible by one rename.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Finding,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.errors import CommitUnknown, TerminalError, TransientError
from poundlock.storage.base import Storage


class ModelSink:
    """Rows go to `<name>/.seg-…`, two segments or a roll make `<name>/part-<k>`.

    Args:
        storage: where it writes.
        name: its folder.
        unknown: asked at each commit: None, "before" (nothing happened) or "after" (it happened, the answer was lost).
    """

    kind = Kind.TRANSACTIONAL

    def __init__(self, storage: Storage, name: str, unknown: Callable[[], str | None] = lambda: None) -> None:
        self.storage = storage
        self.name = name
        self._unknown = unknown

    def describe_json(self) -> JSON:
        return {"v": 1, "kind": "model", "name": self.name}

    def write_segment(self, attempt: str, rows: Sequence[int]) -> JSON:
        path = f"{self.name}/.seg-{attempt}"
        assert self.storage.create_exclusive(path, "".join(f"{row}\n" for row in rows).encode())
        return {"v": 1, "path": path, "rows": len(rows)}

    def open_writer(self, context: WriterContext) -> Writer:
        raise NotImplementedError("the model's tasks call write_segment")

    def directive(self, state: JSON) -> JSON:
        return {"pending": len(state.get("pending", []))}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        for item in prepared:
            if self.storage.stat(item.payload["path"]) is None:
                raise TransientError(f"{item.payload['path']} is gone")

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        pending = [*state.get("pending", []), *(item.payload["path"] for item in prepared)]
        count = state.get("next", 0)
        if not pending or (occasion is Occasion.CHECKPOINT and len(pending) < 2):
            return Staged({"v": 1, "pending": pending, "next": count}, [])
        part = {"v": 1, "sources": pending, "target": f"{self.name}/part-{count}"}
        return Staged({"v": 1, "pending": [], "next": count + 1}, [part])

    def next_roll_ms(self, state: JSON) -> int | None:
        return 0 if state.get("pending") else None

    def commit(self, committable: JSON) -> Committed | Aborted:
        unknown = self._unknown()
        if unknown == "before":
            raise CommitUnknown("no answer")
        target, sources = committable["target"], committable["sources"]
        folder, _, name = target.rpartition("/")
        merged = f"{folder}/.merged-{name}"
        if self.storage.stat(target) is None:
            missing = [source for source in sources if self.storage.stat(source) is None]
            if missing and self.storage.stat(merged) is None:
                # A rival may have finished between the two looks: ask once more before saying that data is lost.
                if self.storage.stat(target) is None:
                    raise TerminalError(f"{missing} are neither there nor in {target}")
                return Committed()
            try:
                if self.storage.stat(merged) is None:
                    self.storage.concat(sources, merged)
                self.storage.rename(merged, target)
            except (FileExistsError, FileNotFoundError):
                if self.storage.stat(target) is None:
                    raise
        for source in [*sources, merged]:
            self.storage.delete(source)
        if unknown == "after":
            raise CommitUnknown("answer lost")
        return Committed({"path": target})

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        target = committable["target"]
        if self.storage.stat(target) is not None:
            return []
        there = all(self.storage.stat(source) is not None for source in committable["sources"])
        return [Finding("pending" if there else "missing", target)]

    def inspect_state(self, state: JSON) -> Sequence[Finding]:
        return [Finding("missing", path) for path in state.get("pending", []) if self.storage.stat(path) is None]

    def abort(self, prepared: Prepared) -> None:
        self.storage.delete(prepared.payload["path"])

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        keep = set(state.get("pending", []))
        found = [
            Orphan(entry.path, entry.bytes, entry.modified_ms)
            for entry in self.storage.list(self.name)
            if entry.path.rpartition("/")[2].startswith(".") and entry.path not in keep
        ]
        if remove:
            check()
            for orphan in found:
                self.storage.delete(orphan.path)
        return found


class TransactionSink(ModelSink):
    """Each segment is a transaction: visible by one rename, and gone for ever when it times out, also after the decision."""

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        parts = [
            {
                "v": 1,
                "sources": [path],
                "target": path.replace(".seg-", "part-"),
                "rows": self.storage.read(path).decode(),
            }
            for path in (item.payload["path"] for item in prepared)
        ]
        return Staged({"v": 1, "pending": []}, parts)

    def next_roll_ms(self, state: JSON) -> int | None:
        return None

    def commit(self, committable: JSON) -> Committed | Aborted:
        try:
            return super().commit(committable)
        except TerminalError as error:
            return Aborted(error.what)

    def match(
        self, again: Sequence[JSON], done: Sequence[JSON], prepared: Sequence[Prepared]
    ) -> tuple[Sequence[Prepared], Sequence[Prepared]]:
        wanted = [part["rows"] for part in again]
        visible = [part["rows"] for part in done]
        keep, drop = [], []
        for item in prepared:
            rows = self.storage.read(item.payload["path"]).decode()
            if rows in wanted:
                wanted.remove(rows)
                keep.append(item)
            elif rows in visible:
                visible.remove(rows)
                drop.append(item)
            else:
                raise TerminalError(f"{rows!r} was not in the checkpoint before")
        if wanted or visible:
            raise TerminalError(f"{wanted or visible} was not produced again")
        return keep, drop


def visible_rows(storage: Storage, name: str) -> list[int]:
    """Return every row a reader of a sink sees, duplicates and all."""
    rows: list[int] = []
    for entry in storage.list(name):
        if not entry.path.rpartition("/")[2].startswith("."):
            rows.extend(int(line) for line in storage.read(entry.path).splitlines())
    return rows


def ledger_files(storage: Storage) -> dict[str, bytes]:
    """Return the ledger's records by path, as bytes."""
    return {e.path: storage.read(e.path) for e in storage.list("ledger") if "/.tmp-" not in e.path}


def decided_targets(storage: Storage) -> set[str]:
    """Return every visible name that a decision promises."""
    return {
        part["target"]
        for data in ledger_files(storage).values()
        for sink in json.loads(data)["sinks"].values()
        for part in sink["committables"]
    }
