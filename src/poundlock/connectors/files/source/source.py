"""Files as a source: a folder, a file or a glob, read once or watched for new files.

Every file is taken once, by its path, and read as it was when it was taken; every line is in exactly one split.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import pyarrow as pa

from poundlock.arguments import FLAG, TEXT, WHOLE, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.base import ReaderContext, ReplayPromise
from poundlock.connectors.files.source.discovery import DiscoveryLog, Selection, split_glob
from poundlock.connectors.files.source.enumerator import FileEnumerator, Limits, Position
from poundlock.connectors.files.source.inference import infer_schema
from poundlock.connectors.files.source.reader import FileReader, codec_of
from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import is_flat
from poundlock.formats.decode import decoder
from poundlock.storage import Entry, LocalStorage, Storage, below, is_uri, open_storage
from poundlock.storage.storage_errors import refuse_unreachable
from poundlock.values import Clock, SystemClock, duration, size

Format = Literal["text", "json", "csv", "parquet", "avro"]
Compression = Literal["auto", "none", "gzip", "zstd", "bz2"]


@dataclass(frozen=True, init=False)
class FileSource:
    r"""Read files: lines of text, JSON lines, CSV, Parquet or Avro.

    A file must be complete when it appears: write it under a name that begins with "." or "_", or in another folder, and
    rename it. Such hidden names are never read. A taken file must not change, be written again or go away before it is read.

    Args:
        path: a folder, a file, or a glob such as "/data/*/events-*.json" ("**" spans folders).
        format: "text" gives one binary column `value`, a line without its "\n" or "\r\n"; the others give columns. A UTF-8 byte
            order mark at the start of a file is no part of its first line, as in Spark.
        schema: DDL of the columns. Needed for json, and for csv without header; else read from the first file.
        watch: go on and take files that appear; default: read what is there, then end.
        glob: which names in the folder; with "/" it is matched with the path below the folder.
        recursive: take files in sub-folders too.
        split_size: how much one task reads at a time, such as "32 MB". Compressed, Avro and multiline files are not cut.
        max_bytes_per_checkpoint: most bytes in one checkpoint (at least one piece is read).
        max_files_per_checkpoint: most files in one checkpoint.
        compression: "auto" goes by the name (.gz, .zst, .bz2); or "none", "gzip", "zstd", "bz2".
        header: the first line of each CSV file names its columns; they are matched with the schema by name.
        multiline: CSV fields in quotes may hold line ends; such files are read whole, by one task.
        delimiter: the character between CSV fields.
        quote: the character around CSV fields that hold delimiters; "" = there is none.
        null: the CSV text, not in quotes, that means null.
        timestamp_unit: what one is in times given as numbers: "s", "ms" or "us".
        settle: when watching, leave a file alone until it was not modified for so long, for writers that cannot rename.
        discover_every: when watching, least time between two looks at the folder.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other or cannot be parsed.
    """

    path: str
    format: Format
    columns: str | None
    watch: bool
    selection: Selection
    limits: tuple[int, int, int]  # bytes a split, bytes a checkpoint, files a checkpoint
    compression: Compression
    header: bool
    multiline: bool
    options: tuple[tuple[str, str], ...]
    settle: timedelta
    discover_every: timedelta
    clock: Clock

    def __init__(
        self,
        path: str,
        *,
        format: Format = "text",
        schema: str | None = None,
        watch: bool = False,
        glob: str = "*",
        recursive: bool = True,
        split_size: str | int = "32 MB",
        max_bytes_per_checkpoint: str | int = "512 MB",
        max_files_per_checkpoint: int = 10_000,
        compression: Compression = "auto",
        header: bool = False,
        multiline: bool = False,
        delimiter: str = ",",
        quote: str = '"',
        null: str = "",
        timestamp_unit: str = "s",
        settle: str | timedelta = "0 s",
        discover_every: str | timedelta = "1 s",
        clock: Clock | None = None,
    ) -> None:
        check_kind("FileSource", TEXT, {"path": path, "format": format, "timestamp_unit": timestamp_unit, "glob": glob})
        check_kind("FileSource", WHOLE, {"max_files_per_checkpoint": max_files_per_checkpoint})
        flags = {"watch": watch, "recursive": recursive, "header": header, "multiline": multiline}
        check_kind("FileSource", FLAG, flags)  # "false" is a text, and true
        unused: dict[str, tuple[object, object]] = {}
        if format != "csv":
            unused |= {"delimiter": (delimiter, ","), "quote": (quote, '"'), "null": (null, "")}
        if format not in ("csv", "json"):
            unused["timestamp_unit"] = (timestamp_unit, "s")
        if format in ("parquet", "avro"):
            unused["compression"] = (compression, "auto")
        refuse_without_effect("FileSource", unused, because=f"format is {format!r}")
        if not watch:
            waits = {"settle": (settle, "0 s"), "discover_every": (discover_every, "1 s")}
            refuse_without_effect(
                "FileSource", waits, because="the files that are there are read once", next="give watch=True too"
            )
        if split_glob(path)[1] is not None:
            looks = {"glob": (glob, "*"), "recursive": (recursive, True)}
            instead = 'write it into the path, such as "/data/**/*.json"'
            refuse_without_effect("FileSource", looks, because="the path says which files", next=instead)
        csv = {"delimiter": delimiter, "quote": quote, "null": null, "timestamp_unit": timestamp_unit}
        options = {"csv": csv, "json": {"timestamp_unit": timestamp_unit}}.get(format, {})
        limits = (size(split_size), size(max_bytes_per_checkpoint), max_files_per_checkpoint)
        self.__dict__.update(
            path=path,
            format=format,
            columns=schema,
            watch=watch,
            selection=Selection(glob, recursive),
            limits=limits,
            compression=compression,
            header=header,
            multiline=multiline,
            options=tuple(options.items()),
            settle=duration(settle),
            discover_every=duration(discover_every),
            clock=clock or SystemClock(),
        )
        self._check()

    def _check(self) -> None:
        check_choices(self, {"format": get_args(Format), "compression": get_args(Compression)})
        if (self.header or self.multiline) and self.format != "csv":
            raise DefinitionError("header and multiline are for CSV files", next='give format="csv" too')
        if self.multiline and not dict(self.options)["quote"]:
            raise DefinitionError(
                'multiline has no effect where quote is ""', next="leave multiline out, or give a quote"
            )
        if self.format == "text" and self.columns is not None:
            raise DefinitionError(
                "text files have the one column value", next='leave schema out, or give format="json"'
            )
        names = ("split_size", "max_bytes_per_checkpoint", "max_files_per_checkpoint")
        for name, limit, such in zip(names, self.limits, ('"32 MB"', '"512 MB"', "10_000"), strict=True):
            if limit < 1:
                raise DefinitionError(
                    f"FileSource: {name} is zero", next=f"write such as {name}={such}, or leave it out"
                )
        open_storage(split_glob(self.path)[0])
        if self.format in ("json", "csv"):
            named_by_header = self.header and self.columns is None
            decoder(self.format, "any string" if named_by_header else self.columns, **dict(self.options))
        elif self.columns is not None:
            ddl.parse(self.columns)

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return not self.watch

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives: the same bytes, or an error that names the file."""
        return ReplayPromise("exact", "its position is in the decision, and a position always means the same rows")

    def schema(self) -> pa.Schema:
        """Return the columns of the rows.

        Raises:
            DefinitionError: they are in the files, and there is no file yet.
        """
        if self.format == "text":
            return pa.schema([("value", pa.binary())])
        if self.columns is not None:
            return ddl.parse(self.columns)
        storage, selection = self._place()
        first = min(selection.select(storage.list()), key=lambda e: (e.modified_ms, e.path), default=None)
        if first is None:
            raise DefinitionError(f"{self.path}: there is no file to read the columns from", next='give schema="…"')
        options = dict(self.options)
        return infer_schema(
            storage,
            first.path,
            self.format,
            compression=self.compression,
            delimiter=options.get("delimiter", ","),
            quote=options.get("quote", '"'),
        )

    @property
    def decodes_objects(self) -> bool:
        """Whether records can be made of lines without a dict."""
        return self.format == "json" and self.columns is not None and is_flat(ddl.parse(self.columns))

    @property
    def known_columns(self) -> pa.Schema | None:
        """The columns of the rows; None where they are in the files."""
        return self.schema() if self.format == "text" or self.columns is not None else None

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return self.path

    @property
    def task_folders(self) -> list[str]:
        """What tasks read."""
        return [self._place()[0].root]

    def takes(self, folder: Storage, names: Iterable[str]) -> bool:
        """Return whether it would read a file that came to be in a folder under one of these names; "*/" in one is any bucket."""
        root, selection = self._folder()
        if (path := below(folder, root)) is None:
            return False
        above = [part for part in path.split("/") if part]
        bucket = selection.pattern.split("/")[len(above) : -1] or ["any"]  # what a wildcard is itself, it matches
        paths = ("/".join([*above, name.replace("*", "/".join(bucket))]) for name in names)
        return any(True for _ in selection.select(Entry(each, 0, 0) for each in paths))

    def files(self) -> tuple[Storage, Iterator[Entry]]:
        """Return the folder, and the files below it that there are now and would be read."""
        storage, selection = self._place()
        return storage, selection.select(storage.list())

    def preflight(self) -> None:
        """Raise DefinitionError if there is nothing that could be read."""
        refuse_unreachable(open_storage(split_glob(self.path)[0]), what="the folder")
        storage, selection = self._place()
        if isinstance(storage, LocalStorage) and not os.path.isdir(storage.root):
            raise DefinitionError(f"{storage.root} is not a folder that exists", next=f"mkdir -p {storage.root}")
        first = next(selection.select(storage.list()), None)
        if first is None:
            if self.bounded:
                raise DefinitionError(
                    f"no file in {storage.root} matches {selection.pattern!r}",
                    next="mend the path, or give watch=True to wait for files",
                )
            return
        try:
            storage.open(first.path).close()
        except PermissionError:
            raise DefinitionError(
                f"{storage.root}/{first.path} may not be read", next="give this user the right to read it"
            ) from None
        self.schema()

    def enumerator(self, workspace: Storage) -> FileEnumerator:
        """Return the driver's half."""
        split_bytes, checkpoint_bytes, checkpoint_files = self.limits
        return FileEnumerator(
            DiscoveryLog(workspace),
            self._look,
            Limits(split_bytes, checkpoint_bytes, checkpoint_files, self._splittable),
            watch=self.watch,
            look_every_ms=self.discover_every // timedelta(milliseconds=1),
            clock=self.clock,
            extra={"ddl": ddl.render(self.schema())},
        )

    def reader(self, context: ReaderContext) -> FileReader:
        """Return the task's half."""
        return FileReader(
            self.format,
            dict(self.options),
            compression=self.compression,
            header=self.header,
            inferred=self.columns is None,
            multiline=self.multiline,
            context=context,
        )

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        log, file, offset = Position.of(position)
        return f"files of {self.path}: discovery {log}, file {file}, byte {offset}"

    def _place(self) -> tuple[Storage, Selection]:
        """Return the folder to look at and which files in it are meant."""
        folder, selection = self._folder()
        if selection is not self.selection:
            return folder, selection
        head, _, name = self.path.rstrip("/").rpartition("/")
        whole = is_uri(self.path) and head.endswith(":/")  # "s3://bucket": there is nothing above it
        if name and not self.path.endswith("/") and not whole:
            parent = open_storage(head or ("/" if self.path.startswith("/") else "."))
            if parent.stat(name) is not None:
                return parent, Selection(name, False, literal=True)
        return folder, selection

    def _folder(self) -> tuple[Storage, Selection]:
        """Return the same as if it were no single file, without a look at it."""
        folder, pattern = split_glob(self.path)
        return open_storage(folder), self.selection if pattern is None else Selection(pattern, False)

    def _look(self) -> tuple[str, Iterator[Entry]]:
        storage, selection = self._place()
        entries = selection.select(storage.list())
        if self.watch and self.settle:
            newest = self.clock.now_ms() - self.settle // timedelta(milliseconds=1)
            entries = (e for e in entries if e.modified_ms <= newest)
        return storage.root, entries

    def _splittable(self, path: str) -> bool:
        if self.format == "parquet":
            return True
        return self.format != "avro" and not self.multiline and codec_of(path, self.compression) is None
