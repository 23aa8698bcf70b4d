"""Restoring a savepoint: into an empty checkpoint folder, as a new job with an id of its own; and whose it is afterwards.

Everything is compared before anything is written. The folder becomes a job's by its identity, written last, so a restore
that was killed is started over. The savepoint stays its user's (NO_CLAIM), or becomes the job's, which deletes it (CLAIM). A claim is
noted in the checkpoint before the job is one, so that no crash forgets it; only what the savepoint's own list names is ever deleted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.checkpoint.capabilities import Describable
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.epoch import FOLDER as EPOCHS
from poundlock.checkpoint.identity import PATH as IDENTITY
from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_of
from poundlock.checkpoint.portable import Newer, NewerOutput, Portable
from poundlock.errors import DefinitionError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.savepoint.metadata import METADATA, Metadata, Operator, check_files, damaged, read_metadata, strays
from poundlock.savepoint.operator_ids import compare, refuse_stranger, renamed_operators, without_operators
from poundlock.savepoint.positions import check_moved
from poundlock.storage import Storage, open_storage
from poundlock.storage.copying import copy, remove_empty

ClaimMode = Literal["NO_CLAIM", "CLAIM"]
CLAIM = "claim.json"


def parse_mode(text: str) -> ClaimMode:
    """Return the claim mode a user gave, in any case. Raises DefinitionError."""
    wanted = text.strip().upper().replace("-", "_")
    if wanted == "LEGACY":
        raise DefinitionError(
            "claim mode LEGACY is not supported: Flink has removed it, because nobody owned the savepoint",
            next="use NO_CLAIM, the default, or CLAIM",
        )
    if wanted == "NO_CLAIM":
        return "NO_CLAIM"
    if wanted == "CLAIM":
        return "CLAIM"
    raise DefinitionError(f"claim mode {text!r} is not known", next="use NO_CLAIM, the default, or CLAIM")


def claim(checkpoint: Storage, savepoint: str) -> None:
    """Note that a savepoint is the job's. Nothing happens if that was noted."""
    checkpoint.create_exclusive(CLAIM, json.dumps({"v": 1, "savepoint": savepoint}).encode() + b"\n")


def claimed(checkpoint: Storage) -> str | None:
    """Return the savepoint that the job of a checkpoint folder owns and has not deleted yet, None if there is none."""
    try:
        return str(json.loads(checkpoint.read(CLAIM))["savepoint"])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, KeyError, TypeError):
        return None  # there is none; or it is damaged, and a savepoint that stays does no harm


def settle_claim(checkpoint: Storage) -> str | None:
    """Delete the savepoint that the job owns, where it owns one; call it when the job has a checkpoint of its own.

    Returns:
        What to say about it; None if there is none. It never raises: a savepoint that cannot be deleted stays.
    """
    path = claimed(checkpoint)
    if path is None:
        return None
    try:
        dispose(open_storage(path))
    except DefinitionError:
        message = f"The claimed savepoint {path} is no longer there"
    except OSError as error:
        message = f"The claimed savepoint {path} could not be deleted whole: {error.strerror or error}"
    else:
        message = f"Deleted the claimed savepoint {path}"
    with suppress(OSError):
        checkpoint.delete(CLAIM)
    return message


def dispose(savepoint: Storage, progress: Callable[[int, int], None] = lambda done, total: None) -> Metadata:
    """Delete what a savepoint's own list names, and nothing else. `progress` takes how many files of how many are gone, often.

    Raises:
        DefinitionError: it is no savepoint, or part of it is a link to elsewhere; nothing was deleted.
    """
    metadata = read_metadata(savepoint)
    for name in metadata.files:
        if strays(savepoint, name):
            raise damaged(savepoint, name, "is a link, and a savepoint has none")
    for number, name in enumerate(
        (*metadata.files, METADATA)
    ):  # the list goes last: what was cut short can be gone on with
        progress(number, len(metadata.files))
        savepoint.delete(name)
    remove_empty(savepoint, "")
    return metadata


OF_A_CHECKPOINT = ("sources", "state", "ledger", "ledger-archive", "carried-out", EPOCHS, CLAIM)
"""The files and folders of a job's checkpoint, besides its identity, notes and copies."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """A savepoint that fits a job."""

    savepoint: Storage
    metadata: Metadata
    dropped: Sequence[str]  # the operator ids whose part is not restored
    unseen: Sequence[str] = ()  # of which sinks nobody can tell whether they have newer output, and why, in words


def check(
    savepoint: Storage,
    checkpoint: Storage,
    *,
    job: str,
    operators: Mapping[str, Operator],
    sinks: Mapping[str, Any],
    allow_non_restored: bool = False,
    newer: NewerOutput = "refuse",
    replace: bool = False,
    renamed: Mapping[str, str] | None = None,
    sources: Mapping[str, Any] | None = None,
) -> Restoring:
    """Compare a savepoint with the job that is to go on from it; nothing is touched.

    Args:
        allow_non_restored: whether what the job has no operator for may be left behind.
        newer: what to do about output that was finished after the savepoint was taken.
        replace: whether the job in the folder has ended with a savepoint, so that its checkpoint may go.
        renamed: the ids that operators with state have now, by those they have in the savepoint.
        sources: the job's, by name; those whose position a person wrote are asked about it.

    Raises:
        DefinitionError: it is damaged, a stranger's, does not fit, output is newer and `newer` is "refuse", or it is
            "retract" where that cannot be done.
        TransientError: a sink's system, which has to be asked, is away.
    """
    metadata = read_metadata(savepoint)
    check_files(savepoint, metadata)
    metadata = renamed_operators(savepoint.root, metadata, renamed or {})
    other = f"give a savepoint of {job!r}, or its operators the names they had"
    refuse_stranger(f"the savepoint {savepoint.root}", metadata.job, job, metadata.operators, operators, next=other)
    if (identity := read_identity(checkpoint)) is not None and not replace:
        raise DefinitionError(
            f"{checkpoint.root} has the checkpoint of a job already ({identity.name}, id {identity.job_id})",
            next="run without -s to go on from it, or give a new folder: -D checkpoint_dir=…; a savepoint that has all of it is"
            f" made as it ends: poundlock cancel -s DIR {shlex.quote(identity.name)}",
        )
    dropped = compare(savepoint.root, metadata.operators, operators, allow_non_restored=allow_non_restored)
    for name, sink in sinks.items():
        if isinstance(sink, Portable) and (state := state_of(metadata.decision, name)):
            sink.check_saved(state)
    check_moved(savepoint, metadata, sources or {})
    unseen = [] if newer == "keep" else list(_refuse_newer(metadata, sinks, newer))
    return Restoring(savepoint, metadata, dropped, unseen)


def _refuse_newer(metadata: Metadata, sinks: Mapping[str, Any], then: NewerOutput) -> Iterator[str]:
    """Raise DefinitionError for newer output that may not be there or cannot be removed; yield what is not known."""
    for name, sink in sinks.items():
        state, note = state_of(metadata.decision, name), metadata.noted.get(name, {})
        known = bool(state or note)
        called = sink.describe().partition(" (")[0] if isinstance(sink, Describable) else type(sink).__name__
        output = sink.newer(state, note) if isinstance(sink, Portable) else Newer(unknown=called)
        if output.lost and known:
            raise DefinitionError(
                f"sink {name!r} {output.lost}",
                next="another savepoint was restored over it: give the sink a new place; or say --on-newer-output=keep if they were moved",
            )
        if output.unknown and known:
            yield f"sink {name!r}: whether it has output newer than the savepoint is not known ({output.unknown})"
        elif output.what and not known:
            raise DefinitionError(
                f"the savepoint knows nothing of sink {name!r}, which {output.what}",
                next="give the sink another place, or remove what is there, or say --on-newer-output=keep to leave it",
            )
        elif output.what and not output.retractable:
            raise DefinitionError(
                f"sink {name!r} {output.what}",
                next="say --on-newer-output=keep to leave them, with rows that come twice; they cannot be retracted",
            )
        elif output.what and then == "refuse":
            raise DefinitionError(
                f"sink {name!r} {output.what}",
                next="say --on-newer-output=retract to remove them, or =keep to leave them, with rows that come twice; or end the job"
                f" that wrote them by poundlock cancel -s DIR {shlex.quote(metadata.job)}, and give that savepoint",
            )


def restore(
    restoring: Restoring, checkpoint: Storage, *, job_id: str, sinks: Mapping[str, Any], newer: NewerOutput, now_ms: int
) -> Decision:
    """Make an empty checkpoint folder that of a job which goes on from a savepoint; return its first record.

    The caller writes the identity afterwards.

    Args:
        sinks: participants by name, as the new job owns them.
        newer: what to do about output that was finished after the savepoint was taken.
    """
    for entry in list(checkpoint.list()):  # of a restore that was killed, or of the job that ended with a savepoint
        if entry.path.partition("/")[0] in (*OF_A_CHECKPOINT, IDENTITY):
            checkpoint.delete(entry.path)
    metadata, savepoint = restoring.metadata, restoring.savepoint
    for path in metadata.files:
        if path.partition("/")[0] in ("sources", "state"):
            copy(savepoint, path, checkpoint, path, linked=path.startswith("state/"))
    hit(SavepointFailpoint.RESTORE_COPIED)
    states = {}
    for name, sink in sinks.items():
        state = state_of(metadata.decision, name)
        if state and isinstance(sink, Portable):
            state = sink.restore(state, savepoint, f"sinks/{name}", newer)
        states[name] = SinkDecision([], state)
    first = Decision(
        number=0,
        occasion="start",
        checkpoint=metadata.decision.checkpoint,
        job_id=job_id,
        epoch=0,
        time_ms=now_ms,
        sources={i: span for i, span in metadata.decision.sources.items() if i not in restoring.dropped},
        sinks=states,
        watermarks=metadata.decision.watermarks,
        state=without_operators(metadata.decision.state, restoring.dropped),
        metrics=metadata.decision.metrics,
        restored={"savepoint": metadata.name, "path": savepoint.root, "job_id": metadata.job_id},
    )
    ledger = Ledger(checkpoint)
    ledger.append(first)
    ledger.mark_committed(0)
    return first
