"""Errors of what is kept: checkpoints, the ledger, state, savepoints, and the stores they are on."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        60,
        "Checkpoints",
        modules=("checkpoint",),
        codes=(
            ErrorCode(2, "A checkpoint cannot be taken as the job is written.", ("a sink that was taken out while it had pending data",), ("put the sink back, run the job and stop it cleanly, then take it out",)),
            ErrorCode(3, "A decided checkpoint has not reached a sink yet.", ("the system that the sink writes to is away",), ("see that it runs; the commit is asked for again",)),
            ErrorCode(
                4,
                "What the checkpoint folder holds and what the job does now do not fit together.",
                ("a checkpoint folder put together from two moments", "a sink under another name", "counts that do not add up, which is a bug"),
                ("restore the whole checkpoint folder from one moment, or go on from a savepoint", "report counts that do not add up"),
            ),
        ),
    ),
    ErrorSubject(
        61,
        "The ledger",
        modules=("checkpoint.ledger",),
        codes=(
            ErrorCode(2, "A checkpoint that is asked for is not in the ledger.", ("it is older than ledger_retention", "its number was never used: numbers have gaps"), ("see which there are: poundlock ledger",)),
            ErrorCode(3, "The ledger could not be read or written for now.", ("the store of the checkpoint folder does not answer",), ("see that it answers; the job goes on by itself",)),
            ErrorCode(
                4,
                "A record of the ledger is missing, damaged, or of another history. Without it nobody can know what was committed.",
                ("files that were deleted or put back one by one", "a disk that flips bits"),
                ("see which: poundlock fsck", "restore the whole checkpoint folder from one moment, or go on from a savepoint"),
            ),
            ErrorCode(5, "Another driver of this job has recorded the checkpoint that this one was about to decide.", ("two drivers of one job",), ("let the other one run, or stop it before starting this one",)),
            ErrorCode(7, "Whether a decision was recorded is not known.", ("the store did not answer while the record was written",), ("start the job again when the store answers: it finds out and goes on",)),
        ),
    ),
    ErrorSubject(
        62,
        "Who may decide",
        modules=("checkpoint.epoch",),
        codes=(
            ErrorCode(
                2,
                "A driver cannot begin on this checkpoint folder, because another one runs on it, or because the store cannot keep two apart.",
                ("the job runs already, perhaps in the background or on another machine", "an object store that ignores If-None-Match: *"),
                ("see what runs: poundlock list", "give this job another checkpoint folder", "keep the checkpoint on a store that honours conditional puts"),
            ),
            ErrorCode(4, "The checkpoint folder was removed, moved or unmounted while its job ran.", ("a cleaner, or a mount that went away",), ("put the folder back in place, and start the job again",)),
            ErrorCode(5, "A newer driver has taken over this checkpoint. This one decides nothing more.", ("the job was started again elsewhere", "this process slept so long that it was taken for dead"), ("let the newer driver run; nothing is lost",)),
        ),
    ),
    ErrorSubject(
        63,
        "Whose checkpoint it is",
        modules=("checkpoint.identity",),
        codes=(
            ErrorCode(2, "The checkpoint folder is that of another job.", ("a copied job file with the old folder",), ("give this job a checkpoint_dir of its own",)),
            ErrorCode(4, "job.json of a checkpoint folder was there and is gone.", ("somebody deletes files there",), ("restore the folder, and see who deletes there",)),
        ),
    ),
    ErrorSubject(
        64,
        "State",
        modules=("state",),
        codes=(
            ErrorCode(2, "State cannot be read or changed as it is asked.", ("a key that is none of this operator's", "a savepoint without that state", "another number of key groups"), ("see what is there: poundlock state PATH",)),
            ErrorCode(
                4,
                "The files of the state do not fit the decision, or were written by a newer version.",
                ("a checkpoint folder with parts of two moments", "an older poundlock on a newer checkpoint", "a bug"),
                ("run the version that wrote it, or a newer one", "restore the folder from one moment, or go on from a savepoint"),
            ),
        ),
    ),
    ErrorSubject(
        65,
        "Files of the state",
        modules=("state.runs",),
        classes=("DamagedRunError",),
        codes=(
            ErrorCode(3, "A file of the state could not be read or written for now.", ("the store does not answer", "a full disk"), ("see to the store; the job goes on when it is started again",)),
            ErrorCode(4, "A file of the state is damaged, gone, or of a newer format.", ("files that were deleted or changed", "a disk that flips bits", "an older poundlock"), ("see which operators it concerns in the first line", "go on from a savepoint, or from a copy of a checkpoint: poundlock fsck names one")),
        ),
    ),
    ErrorSubject(
        70,
        "Savepoints",
        modules=("savepoint", "driver.savepoints"),
        codes=(
            ErrorCode(2, "A savepoint cannot be taken, read or used as it is asked.", ("a path that is no savepoint", "a folder inside the checkpoint folder", "a checkpoint that is not complete"), ("give the folder that has _metadata in it", "see what it holds: poundlock savepoint inspect PATH")),
            ErrorCode(3, "A savepoint could not be written for now; the job goes on without it.", ("the store does not answer", "a full disk"), ("ask again",)),
            ErrorCode(4, "A file that says how a restore or a deletion goes on cannot be read.", ("a file of the checkpoint folder that was changed",), ("restore the file from a backup, or begin in a new checkpoint folder",)),
        ),
    ),
    ErrorSubject(
        71,
        "Restoring",
        modules=("savepoint.restore", "savepoint.kept_state"),
        classes=("NoStateError",),
        codes=(
            ErrorCode(
                2,
                "A job cannot go on from this savepoint as it is started.",
                ("the folder has a checkpoint already", "output that was finished after the savepoint", "state without an operator of its name"),
                ("give a new checkpoint folder", "say --on-newer-output=retract or =keep", "give the operator the name it had, or say -n"),
            ),
        ),
    ),
    ErrorSubject(
        72,
        "Operators of a savepoint",
        modules=("savepoint.operator_ids",),
        codes=(ErrorCode(2, "The operators of the job and those of the savepoint do not go together.", ("a step that was renamed or removed", "a key or a parallelism that cannot change"), ("give the step the name it had, or say --allow-non-restored-state", "see both: poundlock savepoint inspect PATH")),),
    ),
    ErrorSubject(
        73,
        "Editing a savepoint",
        modules=("savepoint.edit", "savepoint.positions", "state.edit", "state.edited_values"),
        codes=(ErrorCode(2, "A savepoint cannot be changed as it is asked.", ("an offset or a position that is written in another form", "an operator or partition that it does not have"), ("write it as the second line shows", "see what is there: poundlock savepoint inspect PATH --json")),),
    ),
    ErrorSubject(
        80,
        "Stores",
        modules=("storage",),
        codes=(
            ErrorCode(2, "A path cannot be used as a store.", ("a scheme that is not known", "a bucket that is missing or refuses this user", "a folder that is a file"), ("correct the path", "see whether this user may list and write there")),
            ErrorCode(3, "A store does not answer, or is full.", ("a disk without room", "a server that is away or slows clients down"), ("free some space, or see that the server runs; the job goes on from its last checkpoint",)),
        ),
    ),
)  # fmt: skip
