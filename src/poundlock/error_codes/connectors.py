"""Errors of sources and sinks."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        30,
        "Connectors in general",
        modules=("connectors",),
        codes=(
            ErrorCode(
                2,
                "A source or sink is not known, or does not go with the rows it is given.",
                ("a connector whose package is not installed", "a column that a sink needs and the rows do not have"),
                ("see which there are: poundlock connectors", "see the rows at each step: poundlock explain job.py"),
            ),
            ErrorCode(
                4,
                "Output that an outside system aborted was produced again, and came out differently.",
                ("a function before the sink that uses the current time, random values or other tables",),
                ("make what stands before the sink deterministic", "keep the parallelism until the job has gone on"),
            ),
            ErrorCode(
                7,
                "Whether rows have been printed is not known.",
                ("what reads the driver's output has gone",),
                ("let the driver's output go where it can be written",),
            ),
        ),
    ),
    ErrorSubject(
        40,
        "The file source",
        modules=("connectors.files.source",),
        codes=(
            ErrorCode(
                2,
                "A FileSource cannot read what it is given.",
                ("a path that is not there", "an option of another format", "a schema that cannot be inferred from an empty folder"),
                ("correct the argument that is named: docs/file-source.md",),
            ),
            ErrorCode(
                4,
                "A file cannot be read as what it should be, or the log of discovered files has a gap.",
                ("a file that is damaged or of another format", "a header with other columns", "a checkpoint folder with parts of two moments"),
                ("mend the file, or move it out of the folder", "put the checkpoint folder back as it was"),
            ),
            ErrorCode(
                6,
                "A file that the job has taken has changed or is gone.",
                ("a program that appends to files in the folder", "a cleaner that removed it"),
                ("put the file back as it was, with its time of modification", "write files under another name and rename them when they are complete"),
            ),
        ),
    ),
    ErrorSubject(
        41,
        "The file sink",
        modules=("connectors.files", "connectors.files.sink"),
        codes=(
            ErrorCode(
                2,
                "A FileSink cannot write as it is set up.",
                ("a folder that this user may not write to", "a format that the rows do not go into", "two sinks with the same files"),
                ("do what the second line says: docs/file-sink.md",),
            ),
            ErrorCode(
                3,
                "Writing a hidden file, or looking at one, failed for now. The checkpoint is repeated.",
                ("a full disk", "a store that does not answer", "another program that touches hidden files there"),
                ("free some space, or mend the file system", "keep other programs from hidden files in the folder"),
            ),
            ErrorCode(
                4,
                "Files that were decided cannot be made visible as they were decided.",
                ("hidden files or uploads were deleted from outside", "a file of another origin has the name", "the sink's path was changed while files were unfinished"),
                ("do what the second line says", "see what is missing: poundlock fsck job.py"),
            ),
            ErrorCode(
                7,
                "Decided files could not be made visible yet.",
                ("a full disk", "a store that does not answer"),
                ("free the disk or mend the file system: the next start goes on with them",),
            ),
        ),
    ),
    ErrorSubject(
        42,
        "Buckets",
        modules=("connectors.files.buckets",),
        codes=(
            ErrorCode(
                2,
                "A bucket assigner cannot name buckets as it is written.",
                ("a date pattern that Java does not know either", "a column that is missing or is no time", "a zone that is not known"),
                ("correct the pattern, such as \"'dt='yyyyMMdd\", or the column",),
            ),
        ),
    ),
    ErrorSubject(
        43,
        "Partitions that are complete",
        modules=("connectors.files.partitions",),
        codes=(
            ErrorCode(2, "A PartitionCommit is set up in a way that cannot work.", ("a trigger by time without a watermark", "a pattern that is none"), ("correct it: docs/file-sink.md",)),
            ErrorCode(
                3,
                "The catalog that partitions are registered in does not answer.",
                ("the network", "a quota of the catalog"),
                ("wait: it is asked again", "look at AWS_REGION, AWS_ENDPOINT_URL and the credentials"),
            ),
            ErrorCode(
                4,
                "A partition cannot be committed by its time, or with the policy that there is.",
                ("a partition whose name has no time in it", "the commit policy was taken out of the job while partitions waited"),
                ("give a pattern that fits all partitions, or commit by process time", "start the job with the policy it had"),
            ),
            ErrorCode(
                7,
                "The commit policy of a partition did not go through; it is called again.",
                ("a function of the policy that raised", "a full disk"),
                ("mend the function or what it calls",),
            ),
        ),
    ),
    ErrorSubject(
        50,
        "A PostgreSQL server",
        modules=("connectors.postgres",),
        codes=(
            ErrorCode(
                2,
                "PostgreSQL cannot be used as it is set up.",
                ("a wrong user, password or database", "max_prepared_transactions is 0", "wal_level is not logical"),
                ("check with psql and the same dsn", "do what the second line says: docs/postgres.md"),
            ),
            ErrorCode(
                3,
                "PostgreSQL did not answer, or could not do for now what it was asked.",
                ("a server that is away or restarting", "too many connections or prepared transactions", "a lock that another session holds"),
                ("see that the server runs; the job goes on by itself",),
            ),
            ErrorCode(
                4,
                "PostgreSQL refuses what the job writes or reads, and would refuse it again.",
                ("a constraint of the table", "a value that does not fit a column", "a right that this user does not have"),
                ("mend the table, the row or the right that is named", "start the job again"),
            ),
            ErrorCode(
                6,
                "Changes or a snapshot that the job still needs are gone from the server.",
                ("a replication slot that was dropped or invalidated", "a publication that was dropped", "the connection of a snapshot ended"),
                ("begin the job again with a new slot, and an empty target", "raise max_slot_wal_keep_size"),
            ),
            ErrorCode(
                7,
                "Whether a prepared transaction is committed is not known yet.",
                ("the connection broke during the commit",),
                ("see that the server runs; the commit is asked for again",),
            ),
        ),
    ),
    ErrorSubject(
        51,
        "The PostgreSQL source",
        modules=("connectors.postgres.source",),
        codes=(
            ErrorCode(
                2,
                "A PostgresSource cannot read the table as it is set up.",
                ("a table, column or publication that is not there", "a publication that leaves out rows, columns or kinds of changes", "a slot that another job reads"),
                ("type what the second line says into psql: docs/postgres.md",),
            ),
            ErrorCode(
                3,
                "A replication slot could not be made for now, or a chunk of a table cannot be read as it was at its place in the log.",
                ("all slots are in use", "a long transaction holds it up", "a table that was emptied or altered while a chunk of it was read"),
                ("a restart tries again", "raise max_replication_slots", "where the chunk was decided already, start the job over into an empty target"),
            ),
            ErrorCode(
                4,
                "The table has changed in a way that the job cannot follow, or the server did not log all that is needed.",
                ("a column that was dropped or altered", "REPLICA IDENTITY is not FULL", "a value behind which nothing new can come"),
                ("start the job again to read on with the columns as they are now", "ALTER TABLE … REPLICA IDENTITY FULL"),
            ),
            ErrorCode(
                6,
                "Changes that the job still needs are gone from its replication slot.",
                ("the slot was dropped, or invalidated for its size", "somebody else reads the slot", "the job was put back to an old savepoint"),
                ("begin the job again with a new slot, and an empty target", "raise max_slot_wal_keep_size"),
            ),
        ),
    ),
    ErrorSubject(
        52,
        "The PostgreSQL sink",
        modules=("connectors.postgres.sink",),
        codes=(
            ErrorCode(
                2,
                "A PostgresSink cannot write to the table as it is set up.",
                ("columns that the table does not have, or of other types", "max_prepared_transactions that is too low", "a key without a unique index"),
                ("type what the second line says into psql: docs/postgres-sink.md",),
            ),
            ErrorCode(3, "Writing to PostgreSQL failed for now; the checkpoint is repeated.", ("a prepared transaction that somebody rolled back", "rows of one task with unlike columns"), ("see who ends prepared transactions there", "give the rows a schema")),
            ErrorCode(
                4,
                "What was decided is not in the database and cannot be put there.",
                ("a prepared transaction that was rolled back from outside after the decision", "an older copy of the job's checkpoint folder"),
                ("compare with the ledger: poundlock ledger, poundlock audit", "restore the checkpoint folder from one moment"),
            ),
            ErrorCode(7, "Whether a prepared transaction is committed is not known yet.", ("the connection broke during the commit",), ("see that the server runs; the commit is asked for again",)),
        ),
    ),
    ErrorSubject(
        53,
        "Databases by JDBC",
        modules=("connectors.jdbc",),
        codes=(
            ErrorCode(2, "A database cannot be reached by JDBC, or a JdbcSink cannot write to the table as it is set up.", ("a driver's jar that is missing", "a wrong URL or login", "columns that the table does not have"), ("do what the second line says: docs/jdbc-sink.md",)),
            ErrorCode(3, "The database did not answer, or a staged file is not as its task left it; the checkpoint is repeated.", ("a server that is away", "somebody else uses the staging folder"), ("see that the server runs", "let nobody else use the folder")),
            ErrorCode(4, "The database does not take decided rows, or their staged file is gone.", ("a constraint of the table", "files that were removed from the staging folder"), ("mend the table, or put the file back, and start the job again: it writes them first",)),
            ErrorCode(7, "Whether decided rows are in the database is not known yet.", ("the database went away during the commit",), ("see that it runs; the commit is asked for again",)),
        ),
    ),
    ErrorSubject(
        350,
        "The JDBC source",
        modules=("connectors.jdbc.source",),
        codes=(
            ErrorCode(2, "A JdbcSource cannot read the table or query as it is set up.", ("a table or column that is not there", "a column to cut by that is no number, date or time", "another column than the job has read by so far"), ("do what the second line says: docs/jdbc-source.md",)),
            ErrorCode(3, "The database did not answer, or could not do for now what it was asked. The job goes on from its last checkpoint.", ("a server that is away or restarting", "too many connections"), ("see that the server runs; a restart goes on",)),
            ErrorCode(4, "The table has changed since the job was started, or has a value that cannot be read.", ("a column that was dropped or altered", "a value that Arrow's type does not have, such as the date infinity"), ("start the job again to read on with the columns as they are now", "leave the value out with where=…, or read it as text")),
            ErrorCode(6, "Rows that the job has read, or the plan of its ranges, are gone.", ("a table that was emptied, or restored from a copy", "a sequence that begins again", "a checkpoint folder with parts of two moments"), ("start the job over with a new checkpoint_dir", "put the checkpoint folder back as it was")),
        ),
    ),
    ErrorSubject(
        54,
        "Generated rows",
        modules=("connectors.datagen",),
        codes=(ErrorCode(2, "A DatagenSource cannot make the rows that are asked for.", ("a field without a generator", "a count or rate below 0"), ("correct it: docs/datagen-source.md",)),),
    ),
    ErrorSubject(
        55,
        "Print and socket",
        modules=("connectors.socket_source",),
        codes=(
            ErrorCode(2, "A socket source cannot be read as it is set up.", ("a port that is none", "a promise that a socket cannot keep"), ("correct the argument that is named",)),
            ErrorCode(3, "The connection to a socket broke, or nobody listens there.", ("the program at the other end has ended",), ("start it, such as: nc -lk PORT; the job connects again",)),
            ErrorCode(4, "A socket has sent more than 64 MB without the end of a line.", ("a program that sends no lines",), ("send lines of text",)),
        ),
    ),
    ErrorSubject(
        56,
        "Spark's own sources",
        modules=("connectors.spark_source", "spark.stream_source"),
        codes=(
            ErrorCode(2, "A SparkSource cannot be read as it is set up.", ("options that the connector does not take", "a schema that is missing"), ("see the connector's own manual, and docs/coming-from-spark.md",)),
            ErrorCode(3, "The query of Spark's that reads for the job stopped, or takes too long.", ("what the connector reads from is away",), ("start the job again; see what the connector logs",)),
            ErrorCode(4, "A staged batch is damaged.", ("a file of the checkpoint folder was changed",), ("start again from a savepoint",)),
            ErrorCode(6, "A batch that the job needs is not there any more, or Spark's checkpoint does not go on behind it.", ("a checkpoint folder with parts of two moments",), ("restore the whole checkpoint folder from one moment, or begin with a new one",)),
        ),
    ),
    ErrorSubject(
        57,
        "A two-phase sink of your own",
        modules=("connectors.two_phase",),
        codes=(
            ErrorCode(2, "A TwoPhaseCommitSink is written in a way that cannot work.", ("a method that is missing", "what cannot be sent to tasks"), ("see docs/own-sink.md",)),
            ErrorCode(4, "A TwoPhaseCommitSink gave a transaction that cannot be kept in the ledger.", ("an object, where plain JSON is due",), ("return text, or a dict of texts and numbers",)),
        ),
    ),
)  # fmt: skip
