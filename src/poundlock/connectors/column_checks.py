"""What every sink says, before anything runs, of rows that lack a column it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from poundlock.errors import DefinitionError, did_you_mean


def need_columns(
    sink: str,
    needed: Iterable[str],
    columns: Sequence[str],
    *,
    next_of: Callable[[str], str | None] = lambda name: None,
) -> None:
    """Raise DefinitionError unless rows have the columns that a sink, by its name in the job, reads.

    `next_of` says what to do about one that is missing; None = look whether another was meant.
    """
    for name in needed:
        if name not in columns:
            only = f"did you mean {columns[0]!r}?" if len(columns) == 1 else "name one of them"
            raise DefinitionError(
                f"sink {sink!r} needs a column {name!r}, and the rows have {', '.join(columns)}",
                next=next_of(name) or did_you_mean(name, columns, only, show=repr),
                participant=sink,
            )
