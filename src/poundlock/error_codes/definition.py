"""Errors of a job as it is written: steps, windows, functions, types, and the plan of them."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        10,
        "The job",
        modules=("job",),
        codes=(
            ErrorCode(
                2,
                "`Job(…)` or one of its methods is given what a job cannot have.",
                (
                    "a job without a sink",
                    "two steps with one name",
                    "a name with other characters than a file may have",
                ),
                ("correct the call in the job's file", "type: poundlock explain job.py"),
            ),
        ),
    ),
    ErrorSubject(
        11,
        "Steps of a stream",
        modules=("stream",),
        codes=(
            ErrorCode(
                2,
                "A step of a stream is written in a way in which it cannot run.",
                (
                    "a column that the rows do not have",
                    "streams of two jobs in one step",
                    "a keyed step on a stream without key_by",
                ),
                ("correct the line that is named", "see the columns of each step: poundlock explain job.py"),
            ),
        ),
    ),
    ErrorSubject(
        12,
        "Windows",
        modules=("stream.windows", "operators.windows"),
        codes=(
            ErrorCode(
                2,
                "A window, a trigger, an evictor or an aggregate of windows cannot work as it is written.",
                (
                    "a slide that is longer than the size, or a size of 0",
                    "a merging window with a trigger or function that cannot merge",
                    "allowed lateness or side output where the window has none",
                ),
                ("see which goes with which in docs/windows.md",),
            ),
        ),
    ),
    ErrorSubject(
        13,
        "Event time and watermarks",
        modules=(
            "stream.watermarks",
            "operators.watermarks",
            "operators.stream_times",
            "operators.time_graph",
            "operators.time_values",
            "tasks.event_time",
        ),
        codes=(
            ErrorCode(
                2,
                "An event time or a watermark cannot be worked out as the job is written.",
                (
                    "the column of the time is missing, or is no time",
                    "two watermark strategies on one stream",
                    "a step by event time on a stream that has none",
                ),
                ("give the source or the stream a watermark strategy: docs/watermarks.md",),
            ),
            ErrorCode(
                4,
                "The event time of the tasks and that of the driver do not agree, or the ledger keeps it in a form that this version cannot read.",
                (
                    "a watermark generator of your own that depends on the clock or on chance",
                    "an older poundlock on a newer checkpoint",
                ),
                (
                    "let the generator depend on nothing but what it is given",
                    "run the version of poundlock that wrote the checkpoint",
                ),
            ),
        ),
    ),
    ErrorSubject(
        14,
        "Functions of the job",
        modules=(
            "stream.functions",
            "operators.process",
            "operators.user_functions",
            "operators.generators",
            "operators.records",
            "operators.batches",
            "tasks.keyed_rows",
        ),
        codes=(
            ErrorCode(
                2,
                "A function of the job has a form in which it cannot be called, or uses its context in a way that is not allowed.",
                (
                    "a wrong number of parameters",
                    "an annotation that no record can be made of",
                    "state or a timer outside of a keyed stream",
                    "a schema that does not fit what the function gives",
                ),
                (
                    "see the forms there are in docs/process-functions.md",
                    "try the function in a harness: docs/testing.md",
                ),
            ),
            ErrorCode(
                4,
                "A function of the job gave a value that its declared schema has no place for.",
                ("a text where a number is declared", "a field that is missing"),
                ("correct the function or its schema; the job goes on from its last checkpoint",),
            ),
        ),
    ),
    ErrorSubject(
        15,
        "Joins",
        modules=("stream.joins", "stream.connected", "operators.columns.joins", "operators.process.joins"),
        codes=(
            ErrorCode(
                2,
                "A join of two streams cannot be made as it is written.",
                (
                    "keys of different types",
                    "bounds whose lower one is above the upper one",
                    "columns of one name on both sides",
                ),
                ("correct the join; rename columns that both sides have",),
            ),
            ErrorCode(
                4,
                "Rows that a join has kept in its state are of other types than the rows that come now.",
                ("a column of the input has another type since the state was written",),
                (
                    "cast the column to the type it had before the join",
                    "give the step another name, with which it begins without state",
                ),
            ),
        ),
    ),
    ErrorSubject(
        16,
        "The plan",
        modules=("plan",),
        codes=(
            ErrorCode(
                2,
                "The steps of a job do not go together.",
                (
                    "a column that a step needs and no step before it gives",
                    "an SQL expression that Spark cannot read",
                    "rows that change, where a step or sink takes only rows that are added",
                ),
                ("type: poundlock explain job.py", "correct the step that is named"),
            ),
        ),
    ),
    ErrorSubject(
        17,
        "The promise that is asked for",
        modules=("plan.guarantees",),
        codes=(
            ErrorCode(
                2,
                "A job asks for a promise, with `require=`, that its sources and sinks together do not give.",
                ("a sink that is at-least-once", "a source that cannot be read again"),
                (
                    "see which way promises what: poundlock explain job.py",
                    "choose another source or sink, or ask for less",
                ),
            ),
        ),
    ),
    ErrorSubject(
        18,
        "Aggregates and columns",
        modules=("operators", "operators.columns"),
        codes=(
            ErrorCode(
                2,
                "An aggregate or an operator by columns cannot work with what it is given.",
                ("a column that is missing or of another type", "a function name that is not known"),
                ("correct the expression that is named",),
            ),
            ErrorCode(
                4,
                "A value does not fit the type of the column or the sum that it goes into, or the state of a step holds rows of other types.",
                (
                    "a sum that has become larger than its type",
                    "a column whose type has changed since the state was written",
                ),
                (
                    "use a wider type, such as decimal(38, 0)",
                    "give the step another name, with which it begins without state",
                ),
            ),
        ),
    ),
    ErrorSubject(
        19,
        "Keyed state of a step",
        modules=("operators.keyed",),
        codes=(
            ErrorCode(
                2,
                "State of a step is declared or used in a way in which it cannot be kept.",
                ("a key or a value of a type that cannot be stored", "two states with one name"),
                ("use a type of docs/state.md",),
            ),
            ErrorCode(
                4,
                "State cannot be read as what the step declares: another kind of state, other types, with or without a time to live.",
                ("the declaration of a state was changed under its old name",),
                (
                    "give the new state or the step another name, with which it begins without state",
                    "put the declaration back as it was",
                ),
            ),
        ),
    ),
    ErrorSubject(
        20,
        "Tasks",
        modules=("tasks",),
        codes=(
            ErrorCode(
                2,
                "A task was given work that it cannot do.",
                ("driver and workers have different versions of poundlock or of the job's modules",),
                ("install the same version on all machines",),
            ),
            ErrorCode(
                4,
                "What a task did does not add up, and was therefore not decided.",
                ("a source or sink of your own that miscounts", "a bug"),
                ("report it, with the log", "start the job again: it goes on from its last checkpoint"),
            ),
        ),
    ),
    ErrorSubject(
        21,
        "A function failed on a record",
        classes=("UserCodeError",),
        codes=(
            ErrorCode(
                1,
                "A function of the job raised an exception. The first line has the exception, file and line, and where known the record.",
                ("a record that the function did not expect", "a service that the function calls"),
                (
                    "mend the function and start the job again: it goes on from its last checkpoint",
                    'send such records to the dead letters: on_error="dead_letter"',
                    "run the checkpoint again on this machine: poundlock replay",
                ),
            ),
        ),
    ),
    ErrorSubject(
        22,
        "Formats",
        modules=("formats",),
        codes=(
            ErrorCode(
                2,
                "A schema or a format cannot be read, or does not go with the rows.",
                (
                    "a type that is not known, or misspelt",
                    "a schema that names a column twice",
                    "options of another format",
                ),
                ('write the schema as in "user string, n bigint"',),
            ),
            ErrorCode(
                4,
                "A value cannot be turned into the type that it has to have.",
                ("data that does not keep to the declared schema",),
                ("correct the schema, or let such records go to the dead letters",),
            ),
        ),
    ),
    ErrorSubject(
        23,
        "Patterns of rows",
        modules=("operators.matching",),
        codes=(
            ErrorCode(
                2,
                "A pattern of rows cannot be matched as it is written.",
                ("a pattern that may match no row at all", "a variable that is not defined"),
                ("correct PATTERN or DEFINE: docs/sql.md",),
            ),
            ErrorCode(
                4,
                "AFTER MATCH SKIP TO names a variable that has no row in a match, or whose row is the match's first, so that it would come for ever.",
                ("a variable that is optional in the pattern",),
                ("write AFTER MATCH SKIP PAST LAST ROW, or name another variable",),
            ),
        ),
    ),
)
