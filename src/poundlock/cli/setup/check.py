"""One thing that `poundlock doctor` looked at: what, how it stands, and what to type where it is not in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poundlock.errors import PoundlockError

LEAST_DISK = 1 << 30
"""Bytes that have to be free where a job writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    result: str
    next: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; programs read `result` as "found"."""
        return {"name": self.name, "ok": self.ok, "found": self.result, "next": self.next}


def tried(name: str, look: Callable[[], str], *, next: str = "") -> Check:
    """Return what a look at something shows, or what stands in the way."""
    try:
        return Check(name=name, ok=True, result=look())
    except PoundlockError as error:
        return Check(name=name, ok=False, result=error.what, next=error.next)
    except OSError as error:
        return Check(name=name, ok=False, result=str(error), next=next)
