"""Errors as commands print them, and their codes."""

from __future__ import annotations

import re

from poundlock.error_codes.registry import look_up

__all__ = ["bare"]


def bare(line: str) -> str:
    """Return the first line of an error without its code, which has to be one that is explained; every other line as it is."""
    if not line.startswith("error: "):
        return line
    written = re.fullmatch(r"(.*) \[(PL-\d{4})\]", line)
    assert written, line
    assert look_up(written[2]) is not None, line
    return written[1]
