"""The sink: a hidden file per task and checkpoint, renamed when the checkpoint is decided."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from poundlock import DefinitionError, TwoPhaseCommitSink

__all__ = ["SpoolSink"]


class SpoolSink(TwoPhaseCommitSink):
    """Write the text column `line` of each record into files of a folder.

    Args:
        folder: where the files appear; programs that read it leave names that begin with "." alone.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def preflight(self) -> None:
        """Raise DefinitionError unless the folder can be made and written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DefinitionError(
                f"cannot write to {self.folder}: {error.strerror}",
                next="give SpoolSink a folder this user may write to",
            ) from None

    def begin_transaction(self, id: str) -> str:
        self.file = self._hidden(id).open("x", encoding="utf-8")
        return id

    def invoke(self, transaction: str, record: Mapping[str, Any]) -> None:
        self.file.write(record["line"] + "\n")

    def pre_commit(self, transaction: str) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def commit(self, transaction: str) -> None:
        if self._hidden(transaction).exists():  # else it was renamed before
            self._hidden(transaction).rename(self.folder / f"{transaction}.txt")

    def abort(self, transaction: str) -> None:
        self._hidden(transaction).unlink(missing_ok=True)

    def lingering(self, prefix: str) -> Iterable[str]:
        return [path.name[1:] for path in self.folder.glob(f".{prefix}*")]

    def _hidden(self, transaction: str) -> Path:
        return self.folder / f".{transaction}"
