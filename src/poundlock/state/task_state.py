"""The state of a task during one checkpoint: opened from runs, handed to operators, written as one new run at the end.

Whatever the task does, nothing that exists is changed: its files have names of its own, by job, epoch, checkpoint, key group
and attempt, and count only when a decision names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poundlock.errors import TerminalError
from poundlock.operators.keyed.group import MIN
from poundlock.state.directive import PreparedState, StateDirective, StateWork
from poundlock.state.hashing import groups_of_task
from poundlock.state.manifest import BROADCAST, Fragment, OperatorMeta, RunFile, TableMeta, clip
from poundlock.state.operator_state import OperatorState
from poundlock.state.runs.compaction import Compaction, Delta, MergePlan, plan_merges
from poundlock.state.runs.files import RunFiles, run_name
from poundlock.state.runs.lookup import View
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.runs.run import Removal, SectionKey
from poundlock.state.runs.writing import HELD, RunWriter
from poundlock.state.tables import TableWork


@dataclass(frozen=True, slots=True)
class _Written:
    """A run that was written, None if there was nothing to write, and what was due to be merged."""

    file: RunFile | None
    plan: MergePlan


class TaskState:
    """The state of some key groups, all operators of them.

    Args:
        task: its number, 0 … parallelism - 1.
        attempt: a text that no other attempt of any task has.
    """

    def __init__(self, directive: StateDirective, task: int, files: RunFiles, attempt: str) -> None:
        self._directive, self._files, self._attempt = directive, files, attempt
        manifest = directive.manifest
        groups = manifest.max_parallelism
        self._first, self._stop = groups_of_task(task, directive.parallelism, groups)
        self._fragments = clip(manifest.fragments, self._first, self._stop)
        self._work = TableWork()
        self._operators: dict[str, OperatorState] = {}
        self._names = {meta.number: name for name, meta in manifest.operators.items()}
        whole = [Fragment(0, groups, manifest.broadcast)]
        needed = {i for fragment in (*self._fragments, *whole) for i in fragment.runs}
        self._runs = files.open_all([file for file in manifest.files if file.id in needed], self._names)
        self._view = View(self._fragments, self._runs, groups)
        self._broadcast = View(whole, self._runs, groups)

    def operator(self, name: str, *, watermark: int = MIN, processing_time: int = 0) -> OperatorState:
        """Return the state of an operator: one object for all key groups of the task, with the times in ms of the first call.

        Raises:
            TerminalError: the manifest does not have the operator.
        """
        known = self._operators.get(name)
        if known is None:
            meta = self._directive.manifest.operators.get(name)
            if meta is None:
                raise TerminalError(
                    f"the operator {name!r} has no place in the state's manifest", next="report this as a bug"
                )
            known = self._operators[name] = OperatorState(
                meta,
                self._view,
                self._broadcast,
                groups=(self._first, self._stop),
                watermark=watermark,
                processing_time=processing_time,
                work=self._work,
            )
        return known

    def finish(self) -> PreparedState:
        """Write what was changed, and what is due to be merged, as one run; return what the driver needs to know.

        Raises:
            DefinitionError: a value is of a type that state cannot keep.
            OSError: the storage failed.
        """
        groups = self._first, self._stop
        operators = [self._operators[name] for name in sorted(self._operators)]
        delta = Delta()
        for operator in operators:
            delta.sections.update((key, rows) for key, _, rows in operator.changed_tables(broadcast=False))
            delta.sections.update(operator.changed_timers(self._directive.checkpoint))
            delta.cuts += [cut for cut in operator.cuts() if self._is_in_runs(cut)]
        own = self._write(delta, self._view, self._fragments, groups)
        shared = self._write_broadcast(operators)
        for run in self._runs.values():
            run.leave_memory()
        return PreparedState(
            checkpoint=self._directive.checkpoint,
            first=self._first,
            stop=self._stop,
            file=own.file,
            spans=own.plan.spans(delta, groups) if own.file is not None else (),
            removed=own.plan.removed,
            broadcast_file=shared.file,
            broadcast_removed=tuple(number for _, _, ids in shared.plan.removed for number in ids),
            operators={operator.operator: operator.change() for operator in operators},
            timers=tuple(bound for operator in operators if (bound := operator.timer_bound()) is not None),
            work=StateWork(
                decoded=self._work.decoded,
                encoded=self._work.encoded,
                merged_bytes=sum(merge.bytes for merge in own.plan.merges),
                owed_bytes=own.plan.owed,
            ),
        )

    def _is_in_runs(self, cut: Removal) -> bool:
        return any(cut.key in visible.run.sections for visible in self._view.runs)

    def _write_broadcast(self, operators: Sequence[OperatorState]) -> _Written:
        """Write broadcast state, which is the same in all tasks, in the task of the first group."""
        delta = Delta()
        if self._first == 0:
            for operator in operators:
                delta.sections.update((key, rows) for key, _, rows in operator.changed_tables(broadcast=True))
        if not delta.sections:
            return _Written(None, MergePlan())
        manifest = self._directive.manifest
        whole = [Fragment(0, manifest.max_parallelism, manifest.broadcast)]
        return self._write(delta, self._broadcast, whole, BROADCAST)

    def _write(self, delta: Delta, view: View, fragments: Sequence[Fragment], groups: tuple[int, int]) -> _Written:
        directive = self._directive
        policy = MergePolicy(fan_in=directive.fan_in, budget=directive.budget)
        plan = plan_merges(fragments, self._runs, delta, self._names, policy)
        compaction = Compaction(view, self._runs, delta, plan, self._names, self._expired_before, self._merges)
        writer = RunWriter(self._files.folder, HELD)
        compaction.write(writer)
        cuts = compaction.cuts()
        if not writer.rows and not cuts:
            return _Written(None, plan)
        data, rows = writer.content(cuts, max_parallelism=directive.manifest.max_parallelism, operators=self._names)
        name = run_name(directive.job, directive.epoch, directive.checkpoint, groups[0], self._attempt)
        digest, size = self._files.write(name, data)
        first, stop = groups
        file = RunFile(
            name=name, digest=digest, bytes=size, rows=rows, checkpoint=directive.checkpoint, first=first, stop=stop
        )
        return _Written(file, plan)

    def _expired_before(self, key: SectionKey) -> int | None:
        """Return up to when an entry must have been touched last to have expired, in ms; None: it never expires."""
        of, table = self._described(key)
        ttl = table.ttl_ms
        return None if ttl is None or of is None or of.processing_time is None else of.processing_time - ttl

    def _merges(self, key: SectionKey) -> tuple[str, ...]:
        """Return the aggregates that rows of a section are parts of."""
        return self._described(key)[1].merges

    def _described(self, key: SectionKey) -> tuple[OperatorState | OperatorMeta | None, TableMeta]:
        """Return what is known of the operator and the table of a section."""
        name = self._names.get(key[0], "")
        known: Mapping[str, OperatorState | OperatorMeta] = (
            self._operators if name in self._operators else self._directive.manifest.operators
        )
        of = known.get(name)
        return of, TableMeta() if of is None else of.tables.get(key[1], TableMeta())
