"""A checkpoint as a savepoint: that of a running job at its border, and the newest of a checkpoint folder given to `run -s`.

Such a folder is only read, with its job kept out meanwhile, and only what its job carried out is taken; the savepoint is there for
as long as it takes to restore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace

from poundlock.audit.fsck import rebuilt_sinks
from poundlock.checkpoint.capabilities import HoldsReaders, Inspectable, bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import DriverLock, described_sinks
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_parts, to_redo
from poundlock.checkpoint.participant import JSON, Participant
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.driver.savepoints.checkpoint_deletion import refuse_deleted
from poundlock.driver.savepoints.handover import refuse_left
from poundlock.driver.savepoints.restore import Beginning
from poundlock.driver.savepoints.retained_checkpoints import copies, copy_name
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.plan.plan import Plan, refuse_read, refuse_swept
from poundlock.savepoint.metadata import METADATA, Metadata, Operator, metadata_of, new_name, refuse_first_edition
from poundlock.savepoint.operator_ids import operators, operators_before
from poundlock.savepoint.take import Cut, finish, take
from poundlock.state.decided_state import DecidedState, manifests_of, state_behind
from poundlock.storage import Storage, below, open_checkpoint, open_storage
from poundlock.storage.copying import remove_root, remove_tree
from poundlock.values import Clock

FOLDER = "restoring"


def described(plan: Plan) -> JSON:
    """Return what a job is made of, to be kept with its start for whoever restores its checkpoint."""
    return {i: asdict(operator) for i, operator in operators(plan).items()}


@contextmanager
def savepoint_of(
    beginning: Beginning, checkpoint: Storage, plan: Plan, *, clock: Clock, say: Callable[[str], None]
) -> Iterator[tuple[Beginning, Callable[[str], None]]]:
    """Give the savepoint to begin with: the one that was named, or one made of the checkpoint that was named.

    Args:
        say: called with a line on what is done; use what is given instead, which knows how the user calls it.

    Raises:
        DefinitionError: the checkpoint is this job's own, its job is running, or there is nothing in it to go on from.
    """
    given = open_storage(beginning.path)
    if given.stat(METADATA) is not None or (identity := read_identity(given)) is None:
        yield beginning, say
        return
    if below(given, checkpoint) == "":
        raise DefinitionError(
            f"{given.root} is this job's own checkpoint", next="run it without -s: it goes on from there by itself"
        )
    if beginning.claim == "CLAIM":
        raise DefinitionError(
            f"{given.root} is the checkpoint folder of a job, which another one cannot own",
            next="leave --claim-mode out; copies kept in it, and savepoints, can be claimed",
        )
    made = open_storage(f"{checkpoint.root}/{FOLDER}")
    remove_tree(checkpoint, FOLDER)  # of a restore that was killed
    try:
        with DriverLock.keep_out(given):
            metadata = _metadata(given, identity, plan, clock)
            finish(take(given, made, metadata=metadata, sinks=plan.sinks, linked=True, noting=False))
        yield (
            replace(beginning, path=made.root, named=beginning.path),
            lambda line: say(line.replace(made.root, beginning.path)),
        )
        _let_readers_go_on(given, identity, metadata, plan, say)
    except PoundlockError as error:
        what, next = (text.replace(made.root, given.root) for text in (error.what, error.next))
        raise type(error)(
            what, next=next, job=error.job, checkpoint=error.checkpoint, participant=error.participant
        ) from error
    finally:
        remove_tree(checkpoint, FOLDER)
        remove_root(checkpoint)


def _let_readers_go_on(
    given: Storage, identity: Identity, metadata: Metadata, plan: Plan, say: Callable[[str], None]
) -> None:
    """Abort the transactions that the old job left open when it was killed: readers would wait until they run out of time.

    It is what the old job's next start would do. A job that has been started again meanwhile sees to it itself.
    """
    try:
        lock = DriverLock.keep_out(given)
    except DefinitionError:
        return
    try:
        if not lock.held:
            return  # nobody can tell whether it runs
        for name, part in metadata.decision.sinks.items():
            sink = plan.sinks.get(name)
            if not (isinstance(sink, HoldsReaders) and sink.holds_readers):
                continue
            with suppress(TransientError, DefinitionError):
                aborted = bound(sink, job_id=identity.job_id, sink=name).sweep(part.state, remove=True)
                if aborted:
                    say(f"Sink {name}: aborted {len(aborted)} transactions that job {identity.job_id} had left open")
    finally:
        lock.release()


def _metadata(given: Storage, identity: Identity, plan: Plan, clock: Clock) -> Metadata:
    """Return what a savepoint of a checkpoint's newest decision says. Raises DefinitionError where there can be none."""
    refuse_first_edition(given)
    refuse_deleted(given)
    refuse_left(given)
    ledger = Ledger(given)
    newest = ledger.newest()
    if newest is None or newest.checkpoint < 0:
        raise DefinitionError(f"{given.root} has no completed checkpoint", next="begin without -s")
    if to_redo(newest) or not _is_committed(given, identity, ledger, newest):
        raise DefinitionError(
            f"checkpoint {newest.checkpoint} of {given.root} is decided, and not all of it is visible yet",
            next="start its job once and stop it, or give an older checkpoint: " + _older(given),
        )
    record = next((r for r in ledger.back(newest) if r.occasion in ("checkpoint", "start")), newest)
    state = state_behind(state_parts(ledger, newest))
    return metadata_of(
        identity,
        copy_name(newest.checkpoint),
        replace(newest, sources=record.sources, watermarks=record.watermarks, state=state, metrics=record.metrics),
        operators=_operators(given, newest, record, plan, state),
        sinks=described_sinks(given),
        clock=clock,
    )


def _is_committed(given: Storage, identity: Identity, ledger: Ledger, newest: Decision) -> bool:
    """Return whether all that a decision names is visible; where nobody noted it, the sinks are asked."""
    if ledger.is_committed(newest.number):
        return True
    sinks: Mapping[str, Participant | None] = rebuilt_sinks(
        given, identity, newest, lambda name, description: rebuild_sink(description)
    )
    for name, part in newest.sinks.items():
        if not part.committables:
            continue
        sink = sinks.get(name)
        if not isinstance(sink, Inspectable):
            return False
        if any(finding.problem == "pending" for each in part.committables for finding in sink.inspect(each)):
            return False
    return True


def _older(given: Storage) -> str:
    kept = copies(given)
    return f"{given.root}/{kept[max(kept)]}" if kept else "none is kept, see checkpoints_retained"


def _operators(
    given: Storage, newest: Decision, record: Decision, plan: Plan, state: DecidedState | None
) -> dict[str, Operator]:
    before = operators_before(given)
    if not before:  # an older version started it: what has state cannot be known, so what the job has now must fit
        before = {i: Operator("source") for i in record.sources} | {i: Operator("sink") for i in newest.sinks}
        before |= {i: o for i, o in operators(plan).items() if o.kind == "stateful"}
    keeping = {name for manifest in manifests_of(state).values() for name in manifest.operators}
    return {i: o for i, o in before.items() if o.kind != "stateful" or i in keeping}


def cut(
    plan: Plan,
    checkpoint: Storage,
    coordinator: Coordinator,
    identity: Identity,
    directory: str,
    *,
    clock: Clock,
    retained: str | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Cut:
    """Copy what a savepoint is made of into a new folder of a directory; call it at a checkpoint's border.

    `retained` is the name of a copy that stays with the checkpoint, None for a savepoint. `ready` is called when the directory will
    do: a drain cannot be taken back.

    Raises:
        DefinitionError: the directory cannot be used.
    """
    root = open_checkpoint(directory, "savepoint").root
    name = retained or new_name(identity.job_id)
    made = open_storage(f"{root}/{name}")
    if retained is None:
        if below(made, checkpoint) is not None:
            raise DefinitionError(
                f"{directory} is in the job's own checkpoint folder {checkpoint.root}, where a restore or a cancel removes things",
                next="give a folder outside it",
            )
        refuse_swept(plan.sinks, directory, "the savepoint", plan.job.name)
        refuse_read(plan.job.sinks, made.root, "the savepoint", plan.job.name)
    ready()
    if coordinator.is_produced_again(coordinator.newest.checkpoint):
        raise DefinitionError(
            "part of the newest checkpoint is being produced again", next="take the savepoint when the job has gone on"
        )
    sinks = {n: bound(sink, job_id=identity.job_id, sink=n) for n, sink in plan.sinks.items()}
    c = coordinator
    metadata = metadata_of(
        identity,
        name,
        replace(
            c.newest,
            sources=c.sources,
            watermarks=c.watermarks,
            state=None if c.state is None else c.state.snapshot(),
            metrics=c.metrics,
        ),
        operators=operators(plan),
        sinks={n: sink.describe_json() for n, sink in sinks.items() if isinstance(sink, Inspectable)},
        clock=clock,
    )
    return take(checkpoint, made, metadata=metadata, sinks=sinks, linked=retained is not None)
