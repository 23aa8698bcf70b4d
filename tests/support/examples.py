"""How many examples a property is tried with: as many as its test asks for, and in make unit a share of them."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]

WHOLE = 100  # the examples of the profile that tries all of them, which is Hypothesis's default
FEWEST = 5


def examples(count: int) -> settings:
    """Return the settings of a property that is tried with `count` examples, or with the share that the profile has of a hundred.

    Five are tried in any profile, or `count` where that is less.
    """
    return settings(max_examples=min(count, max(FEWEST, count * settings().max_examples // WHOLE)))
