"""How Spark knows the sources of a query: each use of one by a name of its own, so that they can come, go and change places.

Spark's names have letters, digits and underscores only; ours go in and come out unchanged.
"""

from __future__ import annotations

import re

__all__ = ["nth_use", "source_of", "spark_name", "use_of"]

_AGAIN = "#"  # cannot be in a source's name
_OTHER = re.compile(r"[^A-Za-z0-9]")
_ESCAPE = re.compile(r"_(_|[0-9a-f]{2})")


def nth_use(source: str, number: int) -> str:
    """Return the name of a use of a source: the source's own for the first (1), with the number for the others."""
    return source if number == 1 else f"{source}{_AGAIN}{number}"


def source_of(use: str) -> str:
    """Return the source of a use."""
    return use.partition(_AGAIN)[0]


def spark_name(use: str) -> str:
    """Return what Spark calls a use: "_" is doubled, and what Spark does not take is "_" with two hex digits."""
    return _OTHER.sub(lambda found: "__" if found[0] == "_" else f"_{ord(found[0]):02x}", use)


def use_of(name: str) -> str:
    """Return the use that Spark calls so."""
    return _ESCAPE.sub(lambda found: "_" if found[1] == "_" else chr(int(found[1], 16)), name)
