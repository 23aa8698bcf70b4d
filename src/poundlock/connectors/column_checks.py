"""What every sink says, before anything runs, of rows that lack a column it reads, and of a key that cannot be one."""

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


def wrong_key(
    key: Sequence[str] | None, columns: Sequence[str] | None, delete_when: str | None
) -> tuple[str, str] | None:
    """Return what is wrong with the key of a sink, and what to write instead; None if nothing is.

    Args:
        columns: those that are written; None = all.
        delete_when: the column that says which rows are deleted.
    """
    if key is not None and not key:
        return "key=[] names no column", 'write key=["id"], or leave it out to add rows'
    if columns is not None and (missing := [name for name in key or () if name not in columns]):
        return f"key column {missing[0]!r} is not in columns=", "add it to columns="
    if delete_when is not None and (not key or delete_when in (*key, *(columns or ()))):
        return (
            f"delete_when={delete_when!r} needs a key, and is no column that is written",
            'name the key: key=["id"], and a column of its own in delete_when=',
        )
    return None
