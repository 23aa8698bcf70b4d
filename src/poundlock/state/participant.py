"""Keyed state as a part of a checkpoint, seen from the driver: what tasks get, what they prepared, what a decision says of it.

Nothing here remembers anything: the manifest is a value that the decisions hold. Files are named by job, epoch, checkpoint and
attempt, so deleting what no kept manifest names can be repeated, and never touches a checkpoint that is still being written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from poundlock.errors import TerminalError
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.hashing import groups_of_task
from poundlock.state.manifest import Manifest, ManifestChange, OperatorChange, PartChange, RunFile, apply_change
from poundlock.state.runs.files import FOLDER, parse_name
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.runs.run import VERIFIED_WHOLE, damaged, difference, digest_of
from poundlock.storage.base import Storage


class StateParticipant:
    """The keyed state of a job."""

    def __init__(self, storage: Storage, *, job: str, epoch: int, policy: MergePolicy | None = None) -> None:
        self._storage = storage
        self._job = job
        self._epoch = epoch
        self._policy = policy or MergePolicy()

    def check_files(self, manifest: Manifest) -> None:
        """Raise unless every file of a manifest is there and as long as it was.

        Raises:
            DamagedRunError: one is missing or has another length.
        """
        for file, how in damage(self._storage, manifest.files):
            raise damaged(file, how, sorted(manifest.operators))

    def directive(self, manifest: Manifest, *, checkpoint: int, parallelism: int) -> StateDirective:
        """Return what the tasks of a checkpoint need.

        Raises:
            DefinitionError: there are more tasks than key groups.
        """
        groups_of_task(0, parallelism, manifest.max_parallelism)
        return StateDirective(
            job=self._job,
            epoch=self._epoch,
            checkpoint=checkpoint,
            parallelism=parallelism,
            manifest=manifest,
            merging=self._policy,
        )

    def verify(self, directive: StateDirective, prepared: Sequence[PreparedState]) -> None:
        """Raise unless what tasks prepared can be decided on.

        Raises:
            TerminalError: two tasks report the same key groups, or one reports those of another checkpoint.
            DamagedRunError: a file is not there, or not as long as the task wrote it.
        """
        expected = {
            groups_of_task(task, directive.parallelism, directive.manifest.max_parallelism)
            for task in range(directive.parallelism)
        }
        for report in prepared:
            groups = report.first, report.stop
            if groups not in expected or report.checkpoint != directive.checkpoint:
                raise TerminalError(
                    f"state was prepared for key groups {report.first} to {report.stop - 1} of checkpoint "
                    f"{report.checkpoint}, which checkpoint {directive.checkpoint} did not ask for, or has twice",
                    next="report this as a bug",
                )
            expected.remove(groups)
            for file, how in damage(self._storage, _files(report)):
                raise damaged(file, how, sorted(directive.manifest.operators))

    def apply(self, directive: StateDirective, prepared: Sequence[PreparedState]) -> tuple[ManifestChange, Manifest]:
        """Return what the decision of a checkpoint says of state, and the manifest as it is once that is recorded.

        Args:
            prepared: their reports; a task that had nothing to do may have none.
        """
        manifest, reports = directive.manifest, sorted(prepared, key=lambda report: report.first)
        added = enumerate((file for report in reports for file in _files(report)), manifest.next_file)
        change = ManifestChange(
            checkpoint=directive.checkpoint,
            added=tuple(msgspec.structs.replace(file, id=number) for number, file in added),
            parts=tuple(
                PartChange(
                    first=report.first,
                    stop=report.stop,
                    file=None if report.file is None else report.file.name,
                    spans=report.spans,
                    removed=report.removed,
                )
                for report in reports
                if report.file is not None or report.removed
            ),
            broadcast_removed=tuple(number for report in prepared for number in report.broadcast_removed),
            operators=_operator_changes(prepared),
            roster={name: meta.number for name, meta in manifest.operators.items()} if manifest.unrecorded else None,
            timers=tuple(bound for report in prepared for bound in report.timers),
        )
        return change, apply_change(manifest, change)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no manifest names any more; asks the storage for nothing else.

        Raises:
            OSError: the storage failed; what is left is deleted by the next sweep.
        """
        for name in names:
            self._storage.delete(name)

    def sweep(self, kept: Iterable[Manifest], *, below: int) -> int:
        """Delete the job's state files that nothing refers to; return how many.

        Args:
            kept: every manifest that may still be needed: the newest, the one before a decision whose commit is not known
                yet, those of retained checkpoints.
            below: checkpoints of this epoch from this number on are still being written; their files stay.

        Raises:
            OSError: the storage failed; what is left is deleted by the next sweep.
        """
        needed = {file.name for manifest in kept for file in manifest.files}
        deleted = 0
        for entry in self._storage.list(f"{FOLDER}/{self._job}"):
            written = parse_name(entry.path)
            if entry.path in needed or written is None:
                continue
            checkpoint, epoch = written
            # A later epoch has taken over: its files are not ours to judge.
            is_ours = epoch < self._epoch or (epoch == self._epoch and checkpoint < below)
            deleted += bool(is_ours and self._storage.delete(entry.path))
        return deleted


def damage(storage: Storage, files: Iterable[RunFile], *, digests: bool = False) -> Iterator[tuple[RunFile, str]]:
    """Yield the files that are not as they were written, and what is wrong with each.

    Args:
        digests: whether to read those that a job holds against their digest whenever it opens them, too.
    """
    for file in files:
        entry = storage.stat(file.name)
        if entry is None:
            yield file, "is missing"
            continue
        is_read = digests and entry.bytes == file.bytes <= VERIFIED_WHOLE
        if how := difference(file, entry.bytes, digest_of(storage.read(file.name)) if is_read else file.digest):
            yield file, how


def _files(report: PreparedState) -> list[RunFile]:
    return [file for file in (report.file, report.broadcast_file) if file is not None]


def _operator_changes(prepared: Sequence[PreparedState]) -> dict[int, OperatorChange]:
    """Return what became of each operator; its times are the latest that any task has reached, and so is how much arrived."""
    done: dict[int, OperatorChange] = {}
    for report in prepared:
        for number, change in report.operators.items():
            known = done.get(number, OperatorChange())
            done[number] = OperatorChange(
                tables={**known.tables, **change.tables},
                watermark=_later(known.watermark, change.watermark),
                processing_time=_later(known.processing_time, change.processing_time),
                arrived=_later(known.arrived, change.arrived),
            )
    return {number: change for number, change in done.items() if change != OperatorChange()}


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
