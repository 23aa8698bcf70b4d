"""Errors of lakehouse tables, search indices and wide-column tables."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        315,
        "The OpenSearch and Elasticsearch sinks",
        modules=("connectors.opensearch",),
        codes=(
            ErrorCode(2, "An OpenSearchSink cannot write to the index as it is set up.", ("a sink without key and without guarantee", "a wrong URL or login", "columns that a strict mapping does not have"), ("do what the second line says: docs/opensearch-sink.md",)),
            ErrorCode(3, "The cluster does not answer, is too busy, or has newer documents than this attempt; the checkpoint is repeated.", ("nodes that are away", "a disk that is nearly full", "another job that writes the same documents", "a clock that was ahead"), ("see GET /_cluster/health", "let one job write a document")),
            ErrorCode(4, "What the cluster answers means nothing here, or a task got more batches of rows than a version has numbers for.", ("a proxy that answers instead of the cluster", "checkpoints of very many rows"), ("see what stands before the cluster", "take checkpoints more often")),
        ),
    ),
    ErrorSubject(
        316,
        "The Cassandra sink",
        modules=("connectors.cassandra",),
        codes=(
            ErrorCode(2, "A CassandraSink cannot write to the table as it is set up.", ("columns that the table does not have, or of other types", "wrong credentials or rights", "clocks that are apart"), ("do what the second line says: docs/cassandra-sink.md",)),
            ErrorCode(3, "The cluster does not answer, or did not take rows for too long; the checkpoint is repeated.", ("nodes that are away or overloaded", "a consistency level that too few replicas can meet"), ("see nodetool status", "write with fewer tasks or requests=")),
            ErrorCode(4, "A task got more batches of rows in one checkpoint than there are timestamps for.", ("checkpoints of very many rows",), ("take checkpoints more often",)),
        ),
    ),
    ErrorSubject(
        351,
        "The Redis sink",
        modules=("connectors.redis",),
        codes=(
            ErrorCode(2, "A RedisSink cannot write as it is set up.", ("a wrong user or password", "a server whose settings may lose what it answered", "a cluster", "a column that rows do not have"), ("do what the second line says: docs/redis-sink.md",)),
            ErrorCode(3, "Redis did not answer, or staged rows were removed; the checkpoint is repeated.", ("a server that is away, or has no memory left", "somebody who removes keys that begin with poundlock:"), ("see that the server runs", "let nobody else touch these keys")),
            ErrorCode(4, "Decided rows are gone from Redis, or cannot be written.", ("a server that lost its newest writes, as after a failover", "FLUSHALL", "a key of another type under the name of one that is written"), ("restore Redis from its newest copy, or start the job over", "rename or remove the key that is named, and start the job again: it writes the rows first")),
            ErrorCode(7, "Whether decided rows are written is not known yet.", ("the server went away during the commit",), ("see that it runs; the commit is asked for again",)),
        ),
    ),
    ErrorSubject(
        370,
        "The MongoDB sink",
        modules=("connectors.mongodb",),
        codes=(
            ErrorCode(2, "A MongoSink cannot write to the collection as it is set up.", ("a sink without key and without guarantee", "a wrong address, login or right", "a collection in which documents cannot be replaced", "columns that its validator does not have"), ("do what the second line says: docs/mongodb-sink.md",)),
            ErrorCode(3, "The cluster does not answer, is too busy, or has newer documents than this attempt; the checkpoint is repeated.", ("no primary", "a disk that is full", "another job that writes the same documents", "a clock that was ahead"), ("see rs.status()", "let one job write a document")),
            ErrorCode(4, "What the cluster answers means nothing here, or a task got more batches of rows than a version has numbers for.", ("a proxy that answers instead of the cluster", "checkpoints of very many rows"), ("see what stands before the cluster", "take checkpoints more often")),
        ),
    ),
    ErrorSubject(
        307,
        "Delta tables",
        modules=("connectors.delta", "connectors.delta.sink"),
        codes=(
            ErrorCode(
                2,
                "A Delta table cannot be written or read as it is set up.",
                ("no table at the path", "columns that the table does not have", "a table feature that is not written here"),
                ("do what the second line says: docs/delta.md",),
            ),
            ErrorCode(
                3,
                "The store of a Delta table did not answer, or a file is not as its task left it; the checkpoint is repeated.",
                ("a store that is away", "a full disk", "VACUUM without a retention while the job runs"),
                ("see that the store answers; the job goes on by itself", "let VACUUM keep files for hours at least"),
            ),
            ErrorCode(
                4,
                "What was decided does not go into the Delta table.",
                ("columns or partitions that somebody changed", "files that were removed before their commit", "an older copy of the job's checkpoint folder"),
                ("put the table back as the second line says, and start the job again: it commits first", "compare with the ledger: poundlock audit"),
            ),
            ErrorCode(
                7,
                "Whether a commit of a Delta table was made is not known yet, or others were faster each time.",
                ("the store went away during the commit", "other programs that commit all the time"),
                ("see that the store answers; the commit is asked for again, and is there once",),
            ),
        ),
    ),
    ErrorSubject(
        308,
        "The Delta source",
        modules=("connectors.delta.source",),
        codes=(
            ErrorCode(
                2,
                "A DeltaSource cannot read the table as it is set up.",
                ("no table at the path", "a version or column that it does not have", "arguments that contradict each other"),
                ("do what the second line says: docs/delta.md",),
            ),
            ErrorCode(
                4,
                "A version of the table does what this source does not read.",
                ("an UPDATE, DELETE or MERGE without change_feed=True", "a column that was dropped or has another type", "deletion vectors"),
                ("read the change data feed, or say what is to be passed over: docs/delta.md",),
            ),
            ErrorCode(
                6,
                "Versions or files that the job still needs are gone from the table.",
                ("VACUUM removed the files", "the log was cleaned up", "the table was made again"),
                ("raise delta.logRetentionDuration and delta.deletedFileRetentionDuration", "begin with a new checkpoint folder to read what is there now"),
            ),
        ),
    ),
    ErrorSubject(
        305,
        "Iceberg tables, and the Iceberg sink",
        modules=("connectors.iceberg", "connectors.iceberg.sink"),
        codes=(
            ErrorCode(
                2,
                "An Iceberg table cannot be reached or written as it is set up.",
                ("a catalog's properties that are wrong", "a table that is not there", "columns, partitions or a format that cannot be written"),
                ("do what the second line says: docs/iceberg.md",),
            ),
            ErrorCode(
                3,
                "The catalog or the warehouse did not answer, or the table's partition spec changed meanwhile; the checkpoint is repeated.",
                ("a catalog that is away", "a store that does not answer", "somebody changed the partition spec"),
                ("see that catalog and warehouse answer; the job goes on by itself",),
            ),
            ErrorCode(
                4,
                "The table is not the one that was written, or it has not the commits that the job made.",
                ("a table that was dropped and made again", "a catalog that was put back to an older state", "a property of the table that was removed"),
                ("put the table back", "where the rows are there, set the table's property to what the second line names"),
            ),
            ErrorCode(
                7,
                "Whether a snapshot was committed is not known yet, or other writers were quicker again and again.",
                ("a catalog that went away during the commit", "many writers of one table"),
                ("see that the catalog answers; the commit is asked for again, and looked for first",),
            ),
        ),
    ),
    ErrorSubject(
        306,
        "The Iceberg source",
        modules=("connectors.iceberg.source",),
        codes=(
            ErrorCode(
                2,
                "An IcebergSource cannot read the table as it is set up.",
                ("a column, snapshot, branch or tag that is not there", "a condition that cannot be read"),
                ("correct the argument that is named: docs/iceberg.md",),
            ),
            ErrorCode(
                4,
                "The table has what an incremental reading cannot follow, or what pyiceberg does not read.",
                ("a snapshot that changes or removes rows", "equality deletes"),
                ('leave such snapshots out: on_overwrite="skip"', "have the table compacted by the engine that writes it"),
            ),
            ErrorCode(
                6,
                "A snapshot or data file that the job has still to read is gone.",
                ("snapshots that expired", "a table that was made again or set back"),
                ("keep snapshots for longer than the job may stand still", "begin with a new checkpoint folder"),
            ),
        ),
    ),
)  # fmt: skip
