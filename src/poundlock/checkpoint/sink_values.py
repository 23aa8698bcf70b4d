"""What a sink prepares, commits and tells its tasks, as frozen values of its own with a version.

They cross the seam to the coordinator, and stand in the ledger, as JSON, so that nobody but the sink has to know them. The sink
makes its value of them where they come in: what is of another sink or of a newer version is refused there, by name.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from poundlock.errors import TerminalError
from poundlock.storage.json_record import typed, untyped


class SinkValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of them.

    Args:
        v: the version of its form, up to FORMAT.
    """

    FORMAT: ClassVar[int] = 1

    v: int

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the value of a JSON object.

        Raises:
            TerminalError: it is none, or of a newer version.
        """
        try:
            made = typed(value, cls)
        except ValueError as error:
            raise TerminalError(
                f"{value!r:.200} is no {cls.__name__}: {error}",
                next="give the sink the name it had; two sinks of one job may not change their names",
            ) from None
        if made.v > cls.FORMAT:
            raise TerminalError(
                f"a {cls.__name__} has format {made.v}; this version reads up to {cls.FORMAT}",
                next="run the version of poundlock that wrote it, or a newer one",
            )
        return made

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return untyped(self)
