"""The keyed state of one attempt of a job: which runs there are, and what each decision changes of them.

All of it can be made again from the ledger; what is kept here is the newest version, and the one before a decision that is not
carried out yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from poundlock.state.decided_state import FORMAT, DecidedState, Manifests, followed
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.manifest import Manifest, ManifestChange, in_spaces, least, refuse_dropped
from poundlock.state.participant import StateParticipant

_WHOLE_EVERY = 50  # so many decisions say what changed, then one says all there is


@dataclass
class JobState:
    """Prepared, verified and decided like a sink, though nothing of it ever becomes visible."""

    participant: StateParticipant
    spaces: Mapping[str, Sequence[str]]  # the operators that keep state, by the name of their stage
    _: KW_ONLY
    max_parallelism: int
    # whether a savepoint is being copied, so that no file of it may be deleted
    pinned: bool = field(default=False, init=False)
    _manifests: Manifests = field(default_factory=dict, init=False)
    _before: Manifests | None = field(default=None, init=False)
    _staged: Manifests | None = field(default=None, init=False)
    _directives: dict[str, StateDirective] = field(default_factory=dict, init=False)
    _since_whole: int = field(default=0, init=False)
    _unneeded: list[str] = field(default_factory=list, init=False)  # files that a savepoint may still copy

    @property
    def bytes(self) -> int:
        """The size of all runs."""
        return sum({file.name: file.bytes for each in self._manifests.values() for file in each.files}.values())

    def next_timers(self) -> tuple[int | None, int | None]:
        """Return when the first timer of any operator is due, by event time and by the clock, in ms; None: there is none."""
        result = [self._manifests[s].next_timers(operator) for s, names in self.spaces.items() for operator in names]
        return least([event for event, _ in result]), least([clock for _, clock in result])

    def resume(self, parts: Sequence[DecidedState], *, again: bool) -> DecidedState:
        """Take the state as the ledger has it; return what the record of this start says of it.

        Args:
            parts: what decisions say, oldest first, beginning with one that says all there is; none for a new job.
            again: whether part of the newest checkpoint has to be produced again, for which the state before it is needed.
        """
        known, before = followed(parts)
        refuse_dropped(known or {}, self.spaces)
        self._manifests = in_spaces(known or {}, self.spaces, max_parallelism=self.max_parallelism)
        self._before = None
        if again and before is not None:
            self._before = in_spaces(before, self.spaces, max_parallelism=self.max_parallelism)
        for manifest in self._manifests.values():
            self.participant.check_files(manifest)
        return DecidedState.whole(self._manifests, self._before)

    def directives(self, checkpoint: int, *, parallelism: int, again: bool) -> dict[str, StateDirective]:
        """Return which state the tasks of each stage begin a checkpoint with.

        Args:
            parallelism: how many tasks share the key groups; it may change from checkpoint to checkpoint.
            again: whether it is decided and its tasks run once more: they begin with the state before it.
        """
        manifests = self._before if again and self._before is not None else self._manifests
        self._directives = {
            name: self.participant.directive(manifest, checkpoint=checkpoint, parallelism=parallelism)
            for name, manifest in manifests.items()
        }
        return self._directives

    def stage(self, prepared: Sequence[Any], *, again: bool) -> DecidedState | None:
        """Check what the tasks prepared; return what the decision is to say.

        Args:
            prepared: their reports, as (name of the stage, PreparedState).
            again: whether they ran a decided checkpoint once more; its state is decided already.

        Raises:
            TerminalError: it does not add up.
        """
        reports: dict[str, list[PreparedState]] = {name: [] for name in self._directives}
        for name, report in prepared:
            reports[name].append(report)
        for name, directive in self._directives.items():
            self.participant.verify(directive, reports[name])
        if again:
            return None
        staged: dict[str, Manifest] = {}
        changes: dict[str, ManifestChange] = {}
        for name, directive in self._directives.items():
            changes[name], staged[name] = self.participant.apply(directive, reports[name])
        self._staged = staged
        self._since_whole += 1
        if self._since_whole >= _WHOLE_EVERY:
            self._since_whole = 0
            return DecidedState.whole(staged)
        return DecidedState(v=FORMAT, change=changes)

    def decided(self) -> None:
        """Take note that what was staged last is recorded."""
        if self._staged is not None:
            self._before, self._manifests, self._staged = self._manifests, self._staged, None

    def committed(self) -> None:
        """Delete the files that only the state before the newest decision named, once nobody copies them."""
        if self._before is not None:
            needed = _files(self._manifests)
            self._unneeded += [name for name in _files(self._before) if name not in needed]
            self._before = None
        if not self.pinned:
            self.participant.delete(self._unneeded)
            self._unneeded = []

    def snapshot(self) -> DecidedState:
        """Return what a savepoint says of the state behind the newest decision."""
        return DecidedState.whole(self._manifests)

    def sweep(self) -> None:
        """Delete files that nothing refers to."""
        kept = [*self._manifests.values(), *(self._before or {}).values()]
        self.participant.sweep(kept, below=1 << 62)


def _files(manifests: Manifests) -> dict[str, None]:
    return {file.name: None for manifest in manifests.values() for file in manifest.files}
