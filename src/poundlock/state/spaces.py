"""The keyed state of a job by stage: each keyed stage has a manifest of its own, for its tasks merge runs by themselves.

A job that is cut into other stages takes each operator's state along: numbers of operators are told apart in the whole job, so
two stages can name one file, and each looks at the rows of its own operators only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import msgspec

from poundlock.errors import DefinitionError
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, TimerBound


def refuse_dropped(known: Mapping[str, Manifest], spaces: Mapping[str, Sequence[str]]) -> None:
    """Raise if there is state of an operator that the job no longer has.

    Raises:
        DefinitionError: there is.
    """
    wanted = {name for operators in spaces.values() for name in operators}
    dropped = sorted({name for manifest in known.values() for name in manifest.operators} - wanted)
    if dropped:
        raise DefinitionError(
            f"there is state of operators that the job no longer has: {', '.join(dropped)}",
            next="give an operator its name again; or begin with a savepoint, or with this checkpoint in another"
            " checkpoint_dir: poundlock run -s PATH with --rename-operator OLD=NEW, or with -n to leave state behind",
        )


def in_spaces(
    known: Mapping[str, Manifest], spaces: Mapping[str, Sequence[str]], *, max_parallelism: int
) -> dict[str, Manifest]:
    """Return the state of each stage of a job, out of what there is; new operators have a number and no state.

    Args:
        max_parallelism: number of key groups; the same as that of the state.

    Raises:
        DefinitionError: the state has another number of key groups.
    """
    for manifest in known.values():
        if manifest.max_parallelism != max_parallelism:
            raise DefinitionError(
                f"the state has {manifest.max_parallelism} key groups and the job asks for {max_parallelism}",
                next=f"set max_parallelism={manifest.max_parallelism}; it is fixed for the life of the state",
            )
    number = max((manifest.next_operator for manifest in known.values()), default=1)
    made: dict[str, Manifest] = {}
    for name, operators in spaces.items():
        parts = [restricted(manifest, operators) for manifest in known.values()]
        parts = [part for part in parts if part.operators]
        whole = parts[0] if parts else Manifest.empty(max_parallelism)
        for part in parts[1:]:
            whole = _joined(whole, part)
        metas = dict(whole.operators)
        for operator in operators:
            if operator not in metas:
                metas[operator] = OperatorMeta(number=number)
                number += 1
        made[name] = msgspec.structs.replace(whole, operators=metas, unrecorded=True)
    return {name: msgspec.structs.replace(manifest, next_operator=number) for name, manifest in made.items()}


def restricted(manifest: Manifest, operators: Collection[str]) -> Manifest:
    """Return what a manifest says of some operators."""
    metas = {name: meta for name, meta in manifest.operators.items() if name in operators}
    numbers = {meta.number for meta in metas.values()}
    timers = tuple(bound for bound in manifest.timers if bound.operator in numbers)
    return msgspec.structs.replace(manifest, operators=metas, timers=timers)


def _joined(one: Manifest, other: Manifest) -> Manifest:
    """Return two manifests of different operators as one."""
    ids = {file.id: one.next_file + number for number, file in enumerate(other.files)}
    files = (*one.files, *(msgspec.structs.replace(file, id=ids[file.id]) for file in other.files))
    edges = sorted({edge for each in (*one.fragments, *other.fragments) for edge in (each.first, each.stop)})
    fragments = tuple(
        Fragment(first, stop, (*_runs(one, first), *(ids[run] for run in _runs(other, first))))
        for first, stop in pairwise(edges)
    )
    timers: list[TimerBound] = sorted([*one.timers, *other.timers], key=lambda bound: (bound.operator, bound.first))
    return msgspec.structs.replace(
        one,
        checkpoint=max(one.checkpoint, other.checkpoint),
        operators={**one.operators, **other.operators},
        files=files,
        fragments=fragments,
        broadcast=(*one.broadcast, *(ids[run] for run in other.broadcast)),
        timers=tuple(timers),
        next_file=one.next_file + len(other.files),
    )


def _runs(manifest: Manifest, group: int) -> tuple[int, ...]:
    return next((each.runs for each in manifest.fragments if each.first <= group < each.stop), ())
