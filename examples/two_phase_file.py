"""A two-phase-commit sink of one's own: a temporary file per transaction, moved into the target folder on commit.

The file example of Flink's article on two-phase commit, as a job. Run: poundlock run examples/two_phase_file.py
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from poundlock import DatagenSource, Job, TwoPhaseCommitSink


class FileTransactions(TwoPhaseCommitSink):
    """Writes the column `value` of each record as a line."""

    prepares_ahead = True  # a temporary file is in nobody's way

    def __init__(self, target: str) -> None:
        self.target, self.temporary = Path(target), Path(target) / ".open"

    def preflight(self) -> None:
        self.temporary.mkdir(parents=True, exist_ok=True)

    def begin_transaction(self, id: str) -> str:
        self.file = (self.temporary / id).open("wb")
        return id

    def invoke(self, transaction: str, record: Mapping[str, Any]) -> None:
        self.file.write(record["value"] + b"\n")

    def pre_commit(self, transaction: str) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def commit(self, transaction: str) -> None:
        temporary = self.temporary / transaction
        if temporary.exists():  # else it was moved before
            temporary.rename(self.target / transaction)

    def abort(self, transaction: str) -> None:
        (self.temporary / transaction).unlink(missing_ok=True)

    def lingering(self, prefix: str) -> Iterable[str]:
        return [path.name for path in self.temporary.iterdir() if path.name.startswith(prefix)]


job = Job("two-phase-file", checkpoint_interval="1 s", on_error="fail")
events = job.from_source(DatagenSource(count=100_000, rows_per_checkpoint=20_000), name="events")
events.sink_to(FileTransactions(os.environ.get("OUT", "two-phase-out")), name="files")
