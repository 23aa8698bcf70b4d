"""The state of one operator outside a job, for harnesses and benchmarks: in runs, written and read as a job's is.

They lie in a folder that goes with the object. What has to outlive it is taken out as bytes.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any, BinaryIO
from uuid import uuid4

import msgspec

from poundlock.operators.keyed.group import MIN
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.inspect import described
from poundlock.state.manifest import Manifest, ManifestChange, apply_change, in_spaces
from poundlock.state.operator_state import OperatorState
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import RunFiles
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.task_state import TaskState
from poundlock.storage.local import LocalStorage

OPERATOR = "operator"
_MANIFEST = "manifest.json"


class _Folder(LocalStorage):
    """A folder whose files need not outlive a power failure."""

    def sync(self, handle: BinaryIO) -> None:
        handle.flush()


class ScratchState:
    """State of one operator from checkpoint to checkpoint.

    Args:
        parallelism: how many tasks share them; it may be set again after `write`.
    """

    def __init__(self, groups: int, parallelism: int = 1, *, policy: MergePolicy | None = None) -> None:
        folder = tempfile.mkdtemp(prefix="poundlock-state-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.storage = _Folder(folder)
        self.files = RunFiles(self.storage)
        self.participant = StateParticipant(self.storage, job="scratch", epoch=1, policy=policy)
        self.manifest = _started({}, groups)
        self.parallelism = parallelism
        self.checkpoint = 0
        self._tasks: dict[int, TaskState] = {}
        self._directive: StateDirective | None = None

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> ScratchState:
        """Return the state that `to_files` returned."""
        state = cls(_manifest(files).max_parallelism)
        state.replace(files, 1)
        return state

    def open(self, task: int = 0, watermark: int = MIN, processing_time: int = 0) -> OperatorState:
        """Return the state of a task: the same object until it is written."""
        if self._directive is None:
            self.checkpoint += 1
            directive = self.participant.directive(
                self.manifest, checkpoint=self.checkpoint, parallelism=self.parallelism
            )
            self._directive = pickle.loads(pickle.dumps(directive))  # as it travels to tasks
        if task not in self._tasks:
            self._tasks[task] = TaskState(self._directive, task, self.files, uuid4().hex)
        return self._tasks[task].operator(OPERATOR, watermark=watermark, processing_time=processing_time)

    def write(self) -> list[PreparedState]:
        """Write what was changed, decide on it, and forget all that was in memory; return what the tasks report.

        Raises:
            DefinitionError: a value is of a type that state cannot keep. Nothing of the checkpoint is kept then.
        """
        if self._directive is None:
            return []
        directive, tasks = self._directive, self._tasks
        self._directive, self._tasks = None, {}
        reports = [pickle.loads(pickle.dumps(task.finish())) for task in tasks.values()]
        self.participant.verify(directive, reports)
        change, _ = self.participant.apply(directive, reports)
        self.manifest = apply_change(
            self.manifest, msgspec.json.decode(msgspec.json.encode(change), type=ManifestChange)
        )
        self.participant.sweep([self.manifest], below=self.checkpoint + 1)
        return reports

    def to_files(self) -> dict[str, bytes]:
        """Return all of it as files by name; raises as `write`."""
        self.write()
        files = {file.name: self.storage.read(file.name) for file in self.manifest.files}
        return {_MANIFEST: msgspec.json.encode(self.manifest), **files}

    def replace(self, files: Mapping[str, bytes], parallelism: int) -> None:
        """Go on with what `to_files` returned.

        Raises:
            DefinitionError: it has another number of key groups.
        """
        self._directive, self._tasks, self.parallelism = None, {}, parallelism
        manifest = _manifest(files)
        _started({OPERATOR: manifest}, self.manifest.max_parallelism)
        self.manifest = manifest
        for name, data in files.items():
            if name != _MANIFEST and self.storage.stat(name) is None:
                self.files.write(name, data)
        self.checkpoint = max(self.checkpoint, self.manifest.checkpoint)

    def described(self) -> dict[str, Any]:
        """Return it as `inspect.described` does; raises as `write`."""
        self.write()
        return described(self.manifest, self.files, OPERATOR)


def _started(known: Mapping[str, Manifest], groups: int) -> Manifest:
    return in_spaces(known, {OPERATOR: [OPERATOR]}, max_parallelism=groups)[OPERATOR]


def _manifest(files: Mapping[str, bytes]) -> Manifest:
    return msgspec.json.decode(files[_MANIFEST], type=Manifest)
