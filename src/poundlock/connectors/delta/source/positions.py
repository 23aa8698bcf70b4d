"""Where a Delta source stands: how many files of a snapshot were read, or which commit comes next and how many of its files were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError, TerminalError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """The place before file number `file` of a version.

    Args:
        version: of the table.
        file: counted from 0 in the order of the files' names.
        snapshot: whether all files of the version are meant, not only those that its commit added.
    """

    version: int
    file: int = 0
    snapshot: bool = False

    def to_json(self) -> JSON:
        """Return the JSON form."""
        return {"v": FORMAT, "version": self.version, "file": self.file, "snapshot": self.snapshot}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> DeltaPosition:
        """Return the position of its JSON form. Raises TerminalError where a newer poundlock wrote it."""
        if value.get("v") != FORMAT:
            raise TerminalError(
                f"a position in a Delta table of version {value.get('v')!r} is not known here",
                next="use a newer poundlock",
            )
        return cls(int(value["version"]), int(value["file"]), bool(value["snapshot"]))

    @classmethod
    def checked(cls, value: Mapping[str, Any]) -> DeltaPosition:
        """Return a position that a person wrote. Raises DefinitionError where it is none."""
        position = cls.of(value)
        if position.version < 0 or position.file < 0:
            raise DefinitionError(
                f"a Delta table has no version {position.version} with a file {position.file}",
                next='write such as {"v": 1, "version": 12, "file": 0, "snapshot": false}',
            )
        return position

    def describe(self) -> str:
        """Return it for the log."""
        if self.snapshot:
            return f"the first {self.file} files of version {self.version}"
        if self.file:
            return f"all before version {self.version} and {self.file} files of it"
        return f"all before version {self.version}"
