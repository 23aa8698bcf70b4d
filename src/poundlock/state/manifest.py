"""The manifest: which runs hold the state of which key groups. It is a value; a decision carries its changes.

Groups with the same runs are one range, so its size follows tasks and runs, not key groups. Runs are listed from the oldest to
the newest, and what a newer one says of a key is true.

Each keyed stage of a job has a manifest of its own, for its tasks merge runs by themselves. A job that is cut into other stages takes
each operator's state along: numbers of operators are unique in the whole job, so two stages can name one file, and each looks at
the rows of its own operators only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from poundlock.errors import DefinitionError

FORMAT = 1
BROADCAST = (-1, 0)  # the "groups" of a run with broadcast state, which belongs to every task


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """A state file."""

    name: str  # path below the checkpoint directory
    digest: str  # of its content, blake2b of 16 bytes in hex
    bytes: int
    rows: int
    checkpoint: int  # at which it was written
    first: int  # the first key group that it may have rows of
    stop: int  # the one behind the last
    id: int = 0  # number in the manifest, given when it is decided on; 0 before that


class Fragment(msgspec.Struct, frozen=True, array_like=True):
    """A range of key groups and the ids of their runs, oldest first."""

    first: int
    stop: int
    runs: tuple[int, ...] = ()


class TableMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a table holds."""

    kind: str = ""  # such as "value", "list", "panes"
    ttl_ms: int | None = None  # time to live; None for ever
    windowed: bool = False  # whether an entry is (key, window)
    broadcast: bool = False  # whether all tasks have the same
    # the aggregates that rows of one key in several runs are parts of, or the columns of rows that all count; none: the newest
    # row is the whole
    merges: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()  # what an entry is of: aggregates, or an order; none: it says so itself


class OperatorMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator with state."""

    number: int  # what its rows have in the files; an operator that is renamed keeps it
    tables: Mapping[str, TableMeta] = {}
    watermark: int | None = None  # event time in ms that it has reached; None before its first checkpoint
    processing_time: int | None = None  # the clock in ms as of its last checkpoint
    arrived: int | None = (
        None  # how many places in the order of rows are taken; None where rows are not numbered as they come
    )


class TimerBound(msgspec.Struct, frozen=True, array_like=True):
    """When the first timer of an operator in some key groups is due: by event time and by the clock, in ms; None: there is none."""

    operator: int
    first: int
    stop: int
    event: int | None
    processing: int | None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All state of a job as of a checkpoint."""

    v: int = FORMAT
    max_parallelism: int  # number of key groups, fixed for the life of the state
    checkpoint: int = 0  # that it was decided with
    operators: Mapping[str, OperatorMeta] = {}  # by id
    files: tuple[RunFile, ...] = ()  # every run that is referenced, by age
    fragments: tuple[Fragment, ...] = ()  # ranges of key groups, in order and without gaps
    broadcast: tuple[int, ...] = ()  # ids of the runs of broadcast state, oldest first
    timers: tuple[TimerBound, ...] = ()  # the first timers, by operator and range
    # numbers that were never given
    next_file: int = 1
    next_operator: int = 1
    # whether operators were added, renamed or dropped since the last decision, so that the next one must say which there
    # are
    unrecorded: bool = False

    @classmethod
    def empty(cls, max_parallelism: int) -> Manifest:
        """Return the manifest of a job that has no state yet."""
        return cls(max_parallelism=max_parallelism, fragments=(Fragment(0, max_parallelism),))

    def next_timers(self, operator: str) -> tuple[int | None, int | None]:
        """Return when the first timer of an operator is due, by event time and by the clock, in ms; None: there is none."""
        meta = self.operators.get(operator)
        bounds = [bound for bound in self.timers if meta is not None and bound.operator == meta.number]
        return least(bound.event for bound in bounds), least(bound.processing for bound in bounds)


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an operator: tables that are new or changed, its times in ms, and what `OperatorMeta` has more."""

    tables: Mapping[str, TableMeta] = {}
    watermark: int | None = None
    processing_time: int | None = None
    arrived: int | None = None


class PartChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a range of key groups."""

    first: int  # the first group
    stop: int  # the one behind the last
    file: str | None = None  # name of the new run, None if nothing changed
    spans: tuple[tuple[int, int], ...] = ()  # the groups it is for: (first, stop)
    # ranges whose runs with these ids are no longer needed: (first, stop, ids)
    removed: tuple[tuple[int, int, tuple[int, ...]], ...] = ()


class ManifestChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision says of state."""

    v: int = FORMAT
    checkpoint: int  # of the decision
    added: tuple[RunFile, ...] = ()  # the new files, with their ids
    parts: tuple[PartChange, ...] = ()
    # ids of runs of broadcast state that are no longer needed; a new one is among `added`
    broadcast_removed: tuple[int, ...] = ()
    operators: Mapping[int, OperatorChange] = {}  # what became of them, by number
    # numbers of all operators by id, where that is not what the decision before had
    roster: Mapping[str, int] | None = None
    # of the operators and groups that were worked on; they replace what was known of those
    timers: tuple[TimerBound, ...] = ()


def apply_change(manifest: Manifest, change: ManifestChange) -> Manifest:
    """Return the manifest as it is after a decision."""
    ids = {file.name: file.id for file in change.added}
    fragments = list(manifest.fragments)
    for part in change.parts:
        fragments = _part_applied(fragments, part, 0 if part.file is None else ids[part.file])
    fragments = _joined(fragments)
    new_broadcast = [file.id for file in change.added if (file.first, file.stop) == BROADCAST]
    broadcast = (*(i for i in manifest.broadcast if i not in change.broadcast_removed), *new_broadcast)
    needed = {i for fragment in fragments for i in fragment.runs} | set(broadcast)
    return Manifest(
        max_parallelism=manifest.max_parallelism,
        checkpoint=change.checkpoint,
        operators=_operators(_enrolled(manifest.operators, change.roster), change.operators),
        files=tuple(file for file in (*manifest.files, *change.added) if file.id in needed),
        fragments=tuple(fragments),
        broadcast=broadcast,
        timers=_timers(manifest.timers, change),
        next_file=max([manifest.next_file, *(i + 1 for i in ids.values())]),
        next_operator=max([manifest.next_operator, *(i + 1 for i in (change.roster or {}).values())]),
    )


def clip(fragments: Iterable[Fragment], first: int, stop: int) -> list[Fragment]:
    """Return what fragments say of a range of key groups."""
    return [
        Fragment(max(fragment.first, first), min(fragment.stop, stop), fragment.runs)
        for fragment in fragments
        if fragment.first < stop and first < fragment.stop
    ]


def _part_applied(fragments: Sequence[Fragment], part: PartChange, added: int) -> list[Fragment]:
    done: list[Fragment] = []
    for fragment in _split(fragments, part):
        runs = fragment.runs
        if part.first <= fragment.first and fragment.stop <= part.stop:
            gone = {i for first, stop, ids in part.removed if first <= fragment.first < stop for i in ids}
            is_new = any(first <= fragment.first < stop for first, stop in part.spans)
            runs = (*(i for i in runs if i not in gone), *((added,) if added and is_new else ()))
        done.append(Fragment(fragment.first, fragment.stop, runs))
    return done


def _split(fragments: Sequence[Fragment], part: PartChange) -> list[Fragment]:
    """Return fragments, cut wherever something begins or ends in a part."""
    ranges = [(part.first, part.stop), *part.spans, *((first, stop) for first, stop, _ in part.removed)]
    cuts = sorted({edge for span in ranges for edge in span})
    result: list[Fragment] = []
    for fragment in fragments:
        edges = [fragment.first, *(cut for cut in cuts if fragment.first < cut < fragment.stop), fragment.stop]
        result += [Fragment(a, b, fragment.runs) for a, b in pairwise(edges)]
    return result


def _joined(fragments: Sequence[Fragment]) -> list[Fragment]:
    joined: list[Fragment] = []
    for fragment in fragments:
        if joined and joined[-1].runs == fragment.runs and joined[-1].stop == fragment.first:
            joined[-1] = Fragment(joined[-1].first, fragment.stop, fragment.runs)
        else:
            joined.append(fragment)
    return joined


def _enrolled(known: Mapping[str, OperatorMeta], roster: Mapping[str, int] | None) -> Mapping[str, OperatorMeta]:
    if roster is None:
        return known
    by_number = {meta.number: meta for meta in known.values()}
    return {name: by_number.get(number, OperatorMeta(number=number)) for name, number in roster.items()}


def _operators(known: Mapping[str, OperatorMeta], changed: Mapping[int, OperatorChange]) -> dict[str, OperatorMeta]:
    done: dict[str, OperatorMeta] = {}
    for name, meta in known.items():
        change = changed.get(meta.number)
        if change is not None:
            times = {name: getattr(change, name) for name in ("watermark", "processing_time", "arrived")}
            newer = {name: time for name, time in times.items() if time is not None}
            meta = msgspec.structs.replace(meta, tables={**meta.tables, **change.tables}, **newer)
        done[name] = meta
    return done


def _timers(known: Sequence[TimerBound], change: ManifestChange) -> tuple[TimerBound, ...]:
    """Return the bounds: what tasks have reported now, and of other groups what was known."""
    done = [bound for bound in change.timers if bound.event is not None or bound.processing is not None]
    spans: dict[int, list[tuple[int, int]]] = {}
    for bound in change.timers:
        spans.setdefault(bound.operator, []).append((bound.first, bound.stop))
    for bound in known:
        for first, stop in subtract([(bound.first, bound.stop)], spans.get(bound.operator, ())):
            done.append(TimerBound(bound.operator, first, stop, bound.event, bound.processing))
    return tuple(sorted(done, key=lambda bound: (bound.operator, bound.first)))


def subtract(spans: Sequence[tuple[int, int]], gone: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is left of ranges without others; a range is (first, stop)."""
    left = list(spans)
    for first, stop in gone:
        left = (
            [piece for a, b in left for piece in ((a, min(b, first)), (max(a, stop), b)) if piece[0] < piece[1]]
            if any(a < stop and first < b for a, b in left)
            else left
        )
    return left


def least(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def refuse_dropped(known: Mapping[str, Manifest], spaces: Mapping[str, Sequence[str]]) -> None:
    """Raise DefinitionError if there is state of an operator that the job no longer has."""
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
            whole = _united(whole, part)
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


def _united(one: Manifest, other: Manifest) -> Manifest:
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
