"""What a task writes at the end of a checkpoint: its changes, together with the older runs that are due to be merged.

Of key groups that are merged the new run has everything that their merged runs had; of the others it has the changes alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from poundlock.state.hashing import groups_of
from poundlock.state.manifest import Fragment
from poundlock.state.runs.adding import added_up
from poundlock.state.runs.columns import Rows, concat, empty_rows
from poundlock.state.runs.lookup import View, in_groups
from poundlock.state.runs.merge import MergePolicy, expire, in_chunks, merge_rows, runs_to_merge
from poundlock.state.runs.paging import will_read
from poundlock.state.runs.run import Removal, Run, SectionKey
from poundlock.state.runs.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerView, between, in_order, merge_timers
from poundlock.state.runs.writing import RunWriter

_TIMERS = (EVENT_TIMERS, PROCESSING_TIMERS)
CHUNK = 4 << 20  # bytes of rows that are merged at once
_ROW_BYTES = 32  # of a row besides its texts: hash and offsets


@dataclass(slots=True)
class Delta:
    """What was changed in a checkpoint: rows by section, in no order, and what older runs hold that is gone."""

    sections: dict[SectionKey, Rows] = field(default_factory=dict)
    cuts: list[Removal] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """About how long they are in a file."""
        return sum(rows.keys.nbytes + rows.values.nbytes + _ROW_BYTES * len(rows) for rows in self.sections.values())


@dataclass(frozen=True, slots=True)
class Merge:
    """Runs that become one with what was changed."""

    first: int  # the first key group that is merged
    stop: int  # the one behind the last
    runs: tuple[int, ...]  # their ids, oldest first
    is_whole: bool  # whether there is no older run of these groups
    bytes: int  # about how long they are, for these groups


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What is merged at a checkpoint."""

    merges: Sequence[Merge] = ()  # by their groups
    # groups and ids of runs that hold nothing of them any more: (first, stop, ids)
    dead: Sequence[tuple[int, int, tuple[int, ...]]] = ()
    owed: int = 0  # bytes of runs that are due and wait for a later checkpoint

    def spans(self, delta: Delta, groups: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        """Return the key groups that the new run is for: all of the task's, or those that were merged if nothing else was changed."""
        if delta.sections or delta.cuts:
            return (groups,)
        return tuple((merge.first, merge.stop) for merge in self.merges)

    @property
    def removed(self) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Groups and the ids of runs that they no longer need."""
        return (*((merge.first, merge.stop, merge.runs) for merge in self.merges), *self.dead)


def plan_merges(
    fragments: Sequence[Fragment], runs: Mapping[int, Run], delta: Delta, operators: Iterable[int], policy: MergePolicy
) -> MergePlan:
    """Return what is to be merged: of the groups with the most runs first, or those behind them would never have their turn.

    Args:
        operators: numbers of the operators there are; rows of others are of no use.
    """
    merges: list[Merge] = []
    dead: list[tuple[int, int, tuple[int, ...]]] = []
    groups = sum(fragment.stop - fragment.first for fragment in fragments)
    added = delta.bytes
    owed, left, known = 0, max(policy.budget, policy.rewrites * added), frozenset(operators)
    for fragment in sorted(fragments, key=lambda fragment: -len(fragment.runs)):
        sizes = _live_bytes(fragment, runs, delta, known)
        gone = tuple(number for number, size in sizes.items() if not size)
        if gone:
            dead.append((fragment.first, fragment.stop, gone))
        alive = [number for number in fragment.runs if number not in gone]
        width = fragment.stop - fragment.first
        count = runs_to_merge([sizes[number] for number in alive], added * width // groups, policy.fan_in)
        if not count:
            continue
        chosen = alive[-count:]
        size = sum(sizes[number] for number in chosen)
        # One key group at least, or a group that is larger than the budget would never be merged.
        part = partial(_bytes_of, chosen, runs, delta, known, first=fragment.first)
        fits = width if size <= left else max(bisect_right(range(1, width), left, key=part), 0 if merges else 1)
        if fits:
            done = size if fits == width else part(fits)
            merges.append(Merge(fragment.first, fragment.first + fits, tuple(chosen), count == len(alive), done))
            left -= done
            size -= done
        owed += size
    return MergePlan(sorted(merges, key=lambda merge: merge.first), dead, owed)


def _bytes_of(
    chosen: Sequence[int], runs: Mapping[int, Run], delta: Delta, operators: frozenset[int], width: int, *, first: int
) -> int:
    """Return about how many bytes some runs have of so many groups, from a first one on."""
    return sum(_live_bytes(Fragment(first, first + width, tuple(chosen)), runs, delta, operators).values())


def _live_bytes(fragment: Fragment, runs: Mapping[int, Run], delta: Delta, operators: frozenset[int]) -> dict[int, int]:
    """Return about how many bytes of each run are still of use to some groups, oldest first."""
    first, stop = fragment.first, fragment.stop
    below: set[SectionKey] = set()
    carries: dict[int, bool] = {}  # whether a run cuts away something that an older one has
    for number in fragment.runs:
        run = runs[number]
        carries[number] = any(cut.key in below and cut.operator in operators for cut in run.index.cuts)
        below |= run.sections.keys()
    gone = {cut.key for cut in delta.cuts if cut.before is None}
    sizes: dict[int, int] = {}
    for number in reversed(fragment.runs):
        run = runs[number]
        rows = sum(
            run.rows_between(section, first, stop)
            for section in run.index.sections
            if section.operator in operators and section.key not in gone
        )
        sizes[number] = max(run.file.bytes * rows // max(run.file.rows, 1), int(carries[number]))
        gone |= {cut.key for cut in run.index.cuts if cut.before is None and cut.first <= first and stop <= cut.stop}
    return dict(reversed(sizes.items()))


@dataclass
class Compaction:
    """Puts together the rows and cuts of a new run."""

    view: View
    runs: Mapping[int, Run]
    delta: Delta
    plan: MergePlan
    operators: Collection[int]
    expired_before: Callable[[SectionKey], int | None]  # up to what time in ms entries have expired; None: never
    merges: Callable[
        [SectionKey], tuple[str, ...]
    ]  # the aggregates that a key's rows are parts of; none: they are wholes

    def __post_init__(self) -> None:
        self._views = [
            View([Fragment(merge.first, merge.stop, merge.runs)], self.runs, self.view.max_parallelism, self.delta.cuts)
            for merge in self.plan.merges
        ]

    def write(self, writer: RunWriter) -> None:
        """Hand the rows of the new run to a writer: a chunk at a time, so that memory does not follow what is merged."""
        keys = set(self.delta.sections)
        for view in self._views:
            keys |= {key for key in view.section_keys() if key[0] in self.operators}
        for key in sorted(keys, key=_by_operator):
            chunks = self._timers(key) if key[1] in _TIMERS else self._entries(key)
            for rows in chunks:
                writer.add(key, rows)

    def _entries(self, key: SectionKey) -> Iterator[Rows]:
        """Yield the entries of a table by hash: groups that are merged, and between them what was changed in others."""
        changed = self.delta.sections.get(key, empty_rows())
        changed = changed.take(np.argsort(changed.hashes, kind="stable"))
        groups, limit, merges, done = self.view.max_parallelism, self.expired_before(key), self.merges(key), 0
        for merge, view in zip(self.plan.merges, self._views, strict=True):
            yield in_groups(changed, done, merge.first, groups)
            own, table, done = in_groups(changed, merge.first, merge.stop, groups), view.table(key), merge.stop
            for parts in in_chunks([own, *(table.parts if table else ())], limit=CHUNK):
                for part in parts:
                    will_read(part)
                if merges:
                    yield added_up(parts, merges, drop_deleted=merge.is_whole)
                    continue
                rows = merge_rows(parts, drop_deleted=False)
                if limit is not None:
                    rows = expire(rows, limit)
                if merge.is_whole:
                    rows = rows.without_deleted()
                yield rows
        yield in_groups(changed, done, groups, groups)

    def _timers(self, key: SectionKey) -> Iterator[Rows]:
        """Yield timers by time."""
        changed = in_order(self.delta.sections.get(key, empty_rows()))
        groups = groups_of(changed.hashes, self.view.max_parallelism)
        outside = np.ones(len(groups), np.bool_)
        merged: list[tuple[Merge, Rows, TimerView]] = []
        for merge, view in zip(self.plan.merges, self._views, strict=True):
            within = (groups >= merge.first) & (groups < merge.stop)
            outside &= ~within
            merged.append((merge, changed.take(np.flatnonzero(within)), TimerView(view, key)))
        rest = changed.take(np.flatnonzero(outside))
        after = None
        held = [rows for _, _, timers in merged for rows in timers.rows()]
        for pieces in in_chunks([changed, *held], by_time=True, limit=CHUNK):
            limit = max(int(piece.times_or_none()[-1]) for piece in pieces)
            parts = [between(rest, after, limit)]
            for merge, own, timers in merged:
                every = [between(own, after, limit), *timers.parts(after, limit)]
                parts.append(merge_timers(every, drop_deleted=merge.is_whole))
            yield in_order(concat(parts))
            after = limit

    def cuts(self) -> list[Removal]:
        """Return what the new run takes away from older ones: what this checkpoint did, and what the merged runs did."""
        widest: dict[tuple[SectionKey, int, int], Removal] = {}
        for cut in self.delta.cuts:
            _keep(widest, cut)
        for merge, view in zip(self.plan.merges, self._views, strict=True):
            if merge.is_whole:
                continue
            older = {
                key
                for visible in self.view.runs
                if visible.run.file.id < merge.runs[0]
                and any(first < merge.stop and merge.first < stop for first, stop in visible.groups)
                for key in visible.run.sections
            }
            for visible in view.runs:
                for cut in visible.run.index.cuts:
                    first, stop = max(cut.first, merge.first), min(cut.stop, merge.stop)
                    if first < stop and cut.key in older and cut.operator in self.operators:
                        _keep(widest, Removal(*cut.key, first, stop, cut.before))
        return list(widest.values())


def _keep(widest: dict[tuple[SectionKey, int, int], Removal], cut: Removal) -> None:
    """Keep of several cuts of a section and the same groups the one that takes away most."""
    place = cut.key, cut.first, cut.stop
    known = widest.get(place)
    if known is None or (known.before is not None and (cut.before is None or cut.before > known.before)):
        widest[place] = cut


def _by_operator(key: SectionKey) -> tuple[int, str, bool, tuple[int, int]]:
    operator, table, namespace = key
    return operator, table, namespace is not None, namespace or (0, 0)
