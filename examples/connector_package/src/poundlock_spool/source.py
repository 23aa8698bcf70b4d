"""The source: whole files of a folder, by name; a checkpoint takes up to some files, and a split is one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock import DefinitionError
from poundlock.connectors import Batch, Chunk, FileOrigin, ReaderContext, Reject, ReplayPromise, Split, Storage

__all__ = ["SpoolSource"]

Position = Mapping[str, Any]


@dataclass(frozen=True)
class SpoolSource:
    """Read the lines of the files "*.txt" of a folder, as the text column `line`; a job that waits for more files.

    Files have to appear complete, and in the order of their names.

    Args:
        folder: where the files are.
        files_per_checkpoint: most files in one checkpoint.
    """

    folder: str
    files_per_checkpoint: int = 100

    @property
    def bounded(self) -> bool:
        return False

    @property
    def replay(self) -> ReplayPromise:
        return ReplayPromise("if-unchanged", "a file that is written over behind its back is not noticed")

    def schema(self) -> pa.Schema:
        return pa.schema([("line", pa.string())])

    def preflight(self) -> None:
        if not Path(self.folder).is_dir():
            raise DefinitionError(f"{self.folder} is no folder", next="make it, or give SpoolSource another one")

    def enumerator(self, workspace: Storage) -> SpoolEnumerator:
        return SpoolEnumerator(self)

    def reader(self, context: ReaderContext) -> SpoolReader:
        return SpoolReader(context)

    def describe(self, position: Position) -> str:
        return f"spool {self.folder}: files up to {position['file'] or 'none'}"


class SpoolEnumerator:
    """Driver's half. A position is the name of the last file that was read."""

    def __init__(self, source: SpoolSource) -> None:
        self._source = source

    def initial(self) -> Position:
        return {"file": ""}

    def latest(self, start: Position) -> Position:
        names = self._names(start["file"])[: self._source.files_per_checkpoint]
        return {"file": names[-1]} if names else start

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        names = [name for name in self._names(start["file"]) if name <= end["file"]]
        return [Split(name, {"path": str(Path(self._source.folder) / name)}) for name in names]

    def finished(self, position: Position) -> bool:
        return False

    def committed(self, position: Position) -> None:
        pass

    def _names(self, after: str) -> list[str]:
        return sorted(path.name for path in Path(self._source.folder).glob("*.txt") if path.name > after)


class SpoolReader:
    """Task's half."""

    def __init__(self, context: ReaderContext) -> None:
        self._context = context

    def read(self, split: Split) -> Iterator[Chunk]:
        path, lines, numbers = split.payload["path"], [], []
        for number, line in enumerate(Path(path).read_bytes().splitlines()):
            try:
                lines.append(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                self._context.reject(Reject(f"not UTF-8: {error}", line, {"file": path, "offset": number}))
            else:
                numbers.append(number)
        batch = pa.RecordBatch.from_pydict({"line": pa.array(lines, pa.string())})
        yield Batch(batch, FileOrigin(path, np.array(numbers, np.int64)))
