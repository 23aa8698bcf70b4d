"""Which files a source has taken, as a durable log: numbered JSON files, each with the files found in one look.

A file is in the log once, by its path; a number is written once, by create-exclusive; so a position (log, file, offset) means
the same bytes for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from poundlock.errors import TerminalError
from poundlock.storage import Entry, Storage
from poundlock.storage.json_record import of_format, read_record, typed

_FOLDER = "log"
_FILES_PER_ENTRY = 10_000
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
    """The log of one source, in the folder `log` of its workspace. Loaded once, then kept in step with what it writes."""

    def __init__(self, workspace: Storage, per_entry: int = _FILES_PER_ENTRY) -> None:
        self._workspace = workspace
        self._per_entry = per_entry
        self._entries: list[Sequence[FoundFile]] = []
        self._taken: set[tuple[str, str]] = set()
        self._more = False
        self._load()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def complete(self) -> bool:
        """Whether at least one look at the folder is in the log as a whole."""
        return bool(self._entries) and not self._more

    def has(self, number: int) -> bool:
        """Return whether a log file is there, also if another process wrote it a moment ago."""
        if number >= len(self._entries):
            self._load()
        return number < len(self._entries)

    def files(self, number: int) -> Sequence[FoundFile]:
        """Return the files of one log file. Raises TerminalError where the position is of another workspace."""
        if not self.has(number):
            raise TerminalError(
                f"the discovery log in {self._workspace.root} has no entry {number}",
                next="put the job's checkpoint folder back as it was",
            )
        return self._entries[number]

    def add(self, root: str, entries: Iterator[Entry], *, note_empty: bool) -> int:
        """Take the files that are not taken yet; return how many.

        A crash in between leaves whole log files, of which the last says that more were to come; the next look adds those.
        """
        untaken = [e for e in entries if (root, e.path) not in self._taken]
        untaken.sort(key=lambda e: (e.modified_ms, e.path))
        if not untaken and not self._more and not (note_empty and not self._entries):
            return 0
        start = 0
        while True:
            part = untaken[start : start + self._per_entry]
            more = start + len(part) < len(untaken)
            if not self._write(root, part, more):
                # Another process wrote this number: believe it, and look at what is left with its eyes.
                self._load()
                return start + self.add(root, iter(untaken[start:]), note_empty=note_empty)
            start += len(part)
            if not more:
                return start

    def _write(self, root: str, part: Sequence[Entry], more: bool) -> bool:
        body = {"v": 1, "root": root, "more": more, "files": [_listed(e) for e in part]}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")
        if not self._workspace.create_exclusive(_name(len(self._entries)), text):
            return False
        self._append([FoundFile(root, *_listed(e)) for e in part], more)
        return True

    def _append(self, files: Sequence[FoundFile], more: bool) -> None:
        self._entries.append(files)
        self._taken.update((f.root, f.path) for f in files)
        self._more = more

    def _load(self) -> None:
        next = "run the job with the version of poundlock that wrote it, or restore the file from a backup"
        while (look := read_record(self._workspace, _name(len(self._entries)), _look, next=next)) is not None:
            self._append([FoundFile(look["root"], *file) for file in look["files"]], look["more"])


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
