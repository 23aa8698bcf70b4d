"""Which files a source has taken, as a durable log: numbered JSON files, each with the files of one look.

A file is in the log once, by its path; a number is written once, by create-exclusive; so a position (log, file, offset) means
the same bytes for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, count, islice
from typing import Any, TypedDict

from poundlock.connectors.files.source.taken_files import TakenFiles, by_age
from poundlock.errors import TerminalError
from poundlock.storage import Entry, Storage
from poundlock.storage.json_record import of_format, read_record, typed

_FOLDER = "log"
_FILES_PER_ENTRY = 10_000
_HELD = 3  # log files whose files are in memory
_LOOKED_UP = 10_000  # files that are looked for among those taken at a time
_WILDCARDS = re.compile(r"[*?\[]")
_GLOB = re.compile(r"\*\*/|\*\*|\[(.[^\]]*)\]|.", re.DOTALL)
_SIGNS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was when it was taken. `path` is below `root`; nothing of it may change any more. See `Entry`."""

    root: str
    path: str
    bytes: int
    modified_ms: int
    tag: str = ""

    @property
    def name(self) -> str:
        """The whole path."""
        return f"{self.root.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files below a folder belong to a source."""

    # a glob; with "/" it is matched with the path below the folder, else with the name. "**" spans folders.
    pattern: str = "*"
    recursive: bool = True  # whether files in sub-folders count
    literal: bool = False  # the pattern is the name of one file, wildcards and all

    def matcher(self) -> re.Pattern[str]:
        """Return the pattern to match with the whole path below the folder."""
        if self.literal:
            return re.compile(re.escape(self.pattern))
        if "/" in self.pattern:
            return re.compile(_regex(self.pattern))
        return re.compile(("(?:[^/]+/)*" if self.recursive else "") + _regex(self.pattern))

    def select(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Yield the files that belong to the source; a name beginning with "." or "_", also of a folder, is hidden."""
        match = self.matcher().fullmatch
        for entry in entries:
            path = entry.path
            if not self.literal and (path[0] in "._" or "/." in path or "/_" in path):
                continue
            if match(path):
                yield entry


def split_glob(path: str) -> tuple[str, str | None]:
    """Return the folder of a path up to the first wildcard, and the pattern below it; None if there is no wildcard."""
    match = _WILDCARDS.search(path)
    if match is None:
        return path, None
    folder, _, _ = path[: match.start()].rpartition("/")
    pattern = path[len(folder) + 1 :] if folder or path.startswith("/") else path
    return folder or ("/" if path.startswith("/") else "."), pattern


def _regex(pattern: str) -> str:
    return _GLOB.sub(_translated, pattern)


def _translated(match: re.Match[str]) -> str:
    sign, inside = match[0], match[1]
    if inside is None:
        return _SIGNS.get(sign) or re.escape(sign)
    inside = inside.replace("\\", "\\\\")
    return f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]"


class DiscoveryLog:
    """The log of one source, in the folder `log` of its workspace, kept in step with what it writes.

    However many files there are, it has the newest log files that were asked for in memory, and 16 bytes of each file.
    """

    def __init__(self, workspace: Storage, per_entry: int = _FILES_PER_ENTRY) -> None:
        self._workspace = workspace
        self._per_entry = per_entry
        self._count = self._counted()
        self._more = False
        self._held: dict[int, Sequence[FoundFile]] = {}
        self._taken = TakenFiles()
        self._noted = 0  # of so many log files the files are among those taken
        if self._count:
            self._more = bool(self._read(self._count - 1))
            self._load()

    def __len__(self) -> int:
        return self._count

    @property
    def complete(self) -> bool:
        """Whether at least one look at the folder is in the log as a whole."""
        return self._count > 0 and not self._more

    def has(self, number: int) -> bool:
        """Return whether a log file is there, also if another process wrote it a moment ago."""
        if number >= self._count:
            self._load()
        return number < self._count

    def files(self, number: int) -> Sequence[FoundFile]:
        """Return the files of one log file. Raises TerminalError where the position is of another workspace."""
        if not self.has(number) or (number not in self._held and self._read(number) is None):
            raise TerminalError(
                f"the discovery log in {self._workspace.root} has no entry {number}",
                next="put the job's checkpoint folder back as it was",
            )
        return self._held[number]

    def add(self, root: str, entries: Iterator[Entry], *, note_empty: bool) -> int:
        """Take the files that are not taken yet, the oldest first; return how many.

        A crash in between leaves whole log files, of which the last says that more were to come; the next look adds those.
        """
        rest, taken = by_age(self._untaken(root, entries)), 0
        part = [*islice(rest, self._per_entry)]
        while part or self._more or (note_empty and not self._count):
            following = [*islice(rest, self._per_entry)]
            if self._write(root, part, bool(following)):
                taken += len(part)
                if not following:
                    break
                part = following
            else:
                # Another process wrote this number: believe it, and look at what is left with its eyes.
                self._load()
                rest = self._untaken(root, chain(part, following, rest))
                part = [*islice(rest, self._per_entry)]
        return taken

    def _untaken(self, root: str, entries: Iterable[Entry]) -> Iterator[Entry]:
        rest = iter(entries)
        while part := [*islice(rest, _LOOKED_UP)]:
            self._note()
            missing = self._taken.missing(root, [entry.path for entry in part])
            yield from compress(part, missing.tolist())

    def _note(self) -> None:
        """Take all that the log has among those taken; at the start of a job nobody needs to know."""
        while self._noted < self._count:
            files = self.files(self._noted)
            self._taken.add(files[0].root if files else "", [file.path for file in files])
            self._noted += 1

    def _write(self, root: str, part: Sequence[Entry], more: bool) -> bool:
        body = {"v": 1, "root": root, "more": more, "files": [_listed(e) for e in part]}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")
        if not self._workspace.create_exclusive(_name(self._count), text):
            return False
        self._keep(self._count, [FoundFile(root, *_listed(e)) for e in part])
        self._count, self._more = self._count + 1, more
        return True

    def _counted(self) -> int:
        names = set(self._workspace.names(_FOLDER))
        return next(number for number in count() if _name(number).rpartition("/")[2] not in names)

    def _load(self) -> None:
        while (more := self._read(self._count)) is not None:
            self._count, self._more = self._count + 1, more

    def _read(self, number: int) -> bool | None:
        """Read one log file; return whether more of its look were to come, None if there is no such file."""
        next = "run the job with the version of poundlock that wrote it, or restore the file from a backup"
        look = read_record(self._workspace, _name(number), _look, next=next)
        if look is None:
            return None
        self._keep(number, [FoundFile(look["root"], *file) for file in look["files"]])
        return look["more"]

    def _keep(self, number: int, files: Sequence[FoundFile]) -> None:
        self._held[number] = files
        while len(self._held) > _HELD:
            del self._held[next(iter(self._held))]


class _Look(TypedDict):
    root: str
    more: bool
    files: list[list[Any]]


def _look(data: bytes) -> _Look:
    return typed(of_format(json.loads(data.decode("utf-8", "surrogateescape"))), _Look)


def _listed(entry: Entry) -> list[Any]:
    return [entry.path, entry.bytes, entry.modified_ms, *([entry.tag] if entry.tag else [])]


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:020d}.json"
