"""A share of the tests: which ones a machine runs when several machines run them together.

A test's share follows from its id alone, so that all shares together are all tests, each once, whoever computes them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

__all__ = ["Share"]


@dataclass(frozen=True)
class Share:
    """One of several shares.

    Args:
        number: which one, from 1.
        count: how many there are.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share written as "3/8". Raises ValueError if the text is none."""
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"{text!r} is no share; write it as 3/8, the third of eight")
        return cls(int(match[1]), int(match[2]))

    def __contains__(self, test_id: str) -> bool:
        digest = hashlib.sha256(test_id.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1
