"""The files of `poundlock new --connector`: a package with a source, a sink, their entry points and the suites that hold them to their contracts.

It works as it is made, against a folder, so that each piece can be replaced while the tests stay green. `examples/connector_package` is
what it makes for the name "spool"; a test holds the two together.
"""

from __future__ import annotations

import re

from poundlock.errors import DefinitionError

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "poundlock-{name}"
version = "0.1.0"
description = "A source and a sink for poundlock: lines in the files of a folder."
requires-python = ">=3.11"
dependencies = ["poundlock"]

[project.optional-dependencies]
test = ["pytest>=8"]

[project.entry-points."poundlock.connectors"]
{name}-source = "{module}.source:{Class}Source"
{name}-sink = "{module}.sink:{Class}Sink"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
pythonpath = ["src"]
"""
_README = """\
# poundlock-{name}

A source and a sink for poundlock in a package of their own: lines in the files of a folder, to be replaced piece by piece by the
system that it is for. docs/own-connector.md of poundlock says in which order.

    python -m pip install -e '.[test]'
    python -m pytest
    poundlock connectors

| File | What |
|---|---|
| `pyproject.toml` | the entry points, by which poundlock finds both |
| `src/{module}/sink.py` | the sink, as a `TwoPhaseCommitSink` |
| `src/{module}/source.py` | the source: a position is the name of the last file that was read |
| `tests/test_conformance.py` | the suites of `poundlock.testing`, a call each |
"""
_INIT = '''\
"""Lines in the files of a folder, as a source and as a sink."""

from {module}.sink import {Class}Sink
from {module}.source import {Class}Source

__all__ = ["{Class}Sink", "{Class}Source"]
'''
_SINK = '''\
"""The sink: a hidden file per task and checkpoint, renamed when the checkpoint is decided."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from poundlock import DefinitionError, TwoPhaseCommitSink

__all__ = ["{Class}Sink"]


class {Class}Sink(TwoPhaseCommitSink):
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
                next="give {Class}Sink a folder this user may write to",
            ) from None

    def begin_transaction(self, id: str) -> str:
        self.file = self._hidden(id).open("x", encoding="utf-8")
        return id

    def invoke(self, transaction: str, record: Mapping[str, Any]) -> None:
        self.file.write(record["line"] + "\\n")

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
'''
_SOURCE = '''\
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

__all__ = ["{Class}Source"]

Position = Mapping[str, Any]


@dataclass(frozen=True)
class {Class}Source:
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
            raise DefinitionError(f"{self.folder} is no folder", next="make it, or give {Class}Source another one")

    def enumerator(self, workspace: Storage) -> {Class}Enumerator:
        return {Class}Enumerator(self)

    def reader(self, context: ReaderContext) -> {Class}Reader:
        return {Class}Reader(context)

    def describe(self, position: Position) -> str:
        return f"{name} {self.folder}: files up to {position['file'] or 'none'}"


class {Class}Enumerator:
    """Driver's half. A position is the name of the last file that was read."""

    def __init__(self, source: {Class}Source) -> None:
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


class {Class}Reader:
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
'''
_TEST = '''\
"""The source and the sink keep the contracts of poundlock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from {module} import {Class}Sink, {Class}Source

from poundlock.testing import sink_conformance, source_conformance

ROWS = [{"line": f"line {n}"} for n in range(24)]


def visible(sink: {Class}Sink) -> list[dict[str, Any]]:
    return [{"line": line} for path in sink.folder.glob("*.txt") for line in path.read_text().splitlines()]


def test_sink() -> None:
    sink_conformance(lambda folder: {Class}Sink(str(folder)), read=visible, rows=ROWS)


def filled(folder: Path) -> {Class}Source:
    for n in range(3):
        (folder / f"{n}.txt").write_text("".join(f"{row['line']}\\n" for row in ROWS[n * 6 : n * 6 + 6]))
    (folder / "3.txt").write_bytes(b"\\xff\\n")
    return {Class}Source(str(folder), files_per_checkpoint=2)


def another(source: {Class}Source) -> Sequence[dict[str, Any]]:
    (Path(source.folder) / "4.txt").write_text("".join(f"{row['line']}\\n" for row in ROWS[18:]))
    return ROWS[18:]


def test_source() -> None:
    source_conformance(filled, rows=ROWS[:18], more=another, bad=1)
'''
_IGNORE = "__pycache__/\n*.egg-info/\ndist/\n"


def connector_files(name: str) -> dict[str, str]:
    """Return the files of a connector's package by their paths.

    Args:
        name: of the system, such as "tickets" or "my-queue"; its module is poundlock_my_queue, its classes MyQueueSource and MyQueueSink.

    Raises:
        DefinitionError: no package can have that name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise DefinitionError(
            f"{name!r} is no name for a connector", next='use small letters, digits and "-", such as my-queue'
        )
    module = f"poundlock_{name.replace('-', '_')}"
    texts = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        ".gitignore": _IGNORE,
        f"src/{module}/__init__.py": _INIT,
        f"src/{module}/source.py": _SOURCE,
        f"src/{module}/sink.py": _SINK,
        "tests/test_conformance.py": _TEST,
    }
    fields = {"{name}": name, "{module}": module, "{Class}": "".join(part.capitalize() for part in name.split("-"))}
    for field, value in fields.items():
        texts = {path: text.replace(field, value) for path, text in texts.items()}
    return texts
