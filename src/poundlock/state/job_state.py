"""The keyed state of one attempt of a job: which runs there are, and what each decision changes of them.

All of it can be made again from the ledger; what is kept here is the newest version, and the one before a decision that is not
carried out yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poundlock.state.decided_state import FORMAT, DecidedState, Manifests, followed
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.state.manifest import Manifest, ManifestChange, in_spaces, least, refuse_dropped
from poundlock.state.participant import StateParticipant

_WHOLE_EVERY = 50  # so many decisions say what changed, then one says all there is


class JobState:
    """Prepared, verified and decided like a sink, though nothing of it ever becomes visible.

    Args:
        spaces: the operators that keep state, by the name of their stage.
    """

    def __init__(
        self, participant: StateParticipant, spaces: Mapping[str, Sequence[str]], *, max_parallelism: int
    ) -> None:
        self._participant = participant
        self._spaces = {name: list(operators) for name, operators in spaces.items()}
        self._max_parallelism = max_parallelism
        self._manifests: Manifests = {}
        self._before: Manifests | None = None
        self._staged: Manifests | None = None
        self._directives: dict[str, StateDirective] = {}
        self._since_whole = 0
        self._pinned: list[str] = []  # files that nobody needs, and that a savepoint may still copy
        self.pinned = False
        """Whether a savepoint is being copied, so that no file of it may be deleted."""

    @property
    def bytes(self) -> int:
        """The size of all runs."""
        return sum({file.name: file.bytes for each in self._manifests.values() for file in each.files}.values())

    def next_timers(self) -> tuple[int | None, int | None]:
        """Return when the first timer of any operator is due, by event time and by the clock, in ms; None: there is none."""
        result = [self._manifests[s].next_timers(operator) for s, names in self._spaces.items() for operator in names]
        return least([event for event, _ in result]), least([clock for _, clock in result])

    def resume(self, parts: Sequence[DecidedState], *, again: bool) -> DecidedState:
        """Take the state as the ledger has it; return what the record of this start says of it.

        Args:
            parts: what decisions say, oldest first, beginning with one that says all there is; none for a new job.
            again: whether part of the newest checkpoint has to be produced again, for which the state before it is needed.
        """
        known, before = followed(parts)
        refuse_dropped(known or {}, self._spaces)
        self._manifests = in_spaces(known or {}, self._spaces, max_parallelism=self._max_parallelism)
        self._before = None
        if again and before is not None:
            self._before = in_spaces(before, self._spaces, max_parallelism=self._max_parallelism)
        for manifest in self._manifests.values():
            self._participant.check_files(manifest)
        return DecidedState.whole(self._manifests, self._before)

    def directives(self, checkpoint: int, *, parallelism: int, again: bool) -> dict[str, StateDirective]:
        """Return which state the tasks of each stage begin a checkpoint with.

        Args:
            parallelism: how many tasks share the key groups; it may change from checkpoint to checkpoint.
            again: whether it is decided and its tasks run once more: they begin with the state before it.
        """
        manifests = self._before if again and self._before is not None else self._manifests
        self._directives = {
            name: self._participant.directive(manifest, checkpoint=checkpoint, parallelism=parallelism)
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
            self._participant.verify(directive, reports[name])
        if again:
            return None
        staged: dict[str, Manifest] = {}
        changes: dict[str, ManifestChange] = {}
        for name, directive in self._directives.items():
            changes[name], staged[name] = self._participant.apply(directive, reports[name])
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
            self._pinned += [name for name in _files(self._before) if name not in needed]
            self._before = None
        if not self.pinned:
            self._participant.delete(self._pinned)
            self._pinned = []

    def snapshot(self) -> DecidedState:
        """Return what a savepoint says of the state behind the newest decision."""
        return DecidedState.whole(self._manifests)

    def sweep(self) -> None:
        """Delete files that nothing refers to."""
        kept = [*self._manifests.values(), *(self._before or {}).values()]
        self._participant.sweep(kept, below=1 << 62)


def _files(manifests: Manifests) -> dict[str, None]:
    return {file.name: None for manifest in manifests.values() for file in manifest.files}
