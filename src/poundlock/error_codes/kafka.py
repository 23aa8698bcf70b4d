"""Errors of Kafka: clusters, topics, source, sink, and the registry of their schemas."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        31,
        "A Kafka cluster",
        modules=("connectors.kafka", "connectors.kafka.wire"),
        codes=(
            ErrorCode(
                2,
                "Kafka cannot be reached with what is given, or an argument that concerns Kafka is wrong.",
                ("a login or certificate that the brokers refuse", "a misspelt topic or server", "a codec whose package is not installed"),
                ("check bootstrap_servers and KafkaSecurity(…)", "log in with a Kafka client of your own and the same user"),
            ),
            ErrorCode(
                3,
                "Kafka did not answer, or could not do for now what it was asked.",
                ("a broker that is away or restarting", "a partition without a leader", "a network that loses packets"),
                ("see that the brokers run; the job goes on by itself",),
            ),
            ErrorCode(
                4,
                "Kafka refuses what the job asks of it, and would refuse it again.",
                ("the login fails, or TLS does", "a right that this user no longer has", "a record batch that is damaged"),
                ("check KafkaSecurity(…) and the user's rights: READ and DESCRIBE on topics and groups", "start the job again: it goes on where it was"),
            ),
            ErrorCode(
                6,
                "What Kafka has is not what the job has read so far.",
                ("the topic was created again, or lost records", "an edited savepoint"),
                ("begin with a new checkpoint folder, or from a savepoint that fits the topic",),
            ),
        ),
    ),
    ErrorSubject(
        32,
        "The Kafka source",
        modules=("connectors.kafka.source",),
        codes=(
            ErrorCode(
                2,
                "A KafkaSource is given what it cannot read by.",
                (
                    "a topic that is not there, or that this user may not see",
                    "a pattern that no topic matches",
                    "an offset or timestamp that is none",
                    "a client property that poundlock sets itself",
                ),
                ("correct the argument that is named: docs/kafka-source.md",),
            ),
            ErrorCode(4, "What the job has kept of its topics cannot be read.", ("a file of the checkpoint folder that was changed",), ("restore the checkpoint folder from one moment, or go on from a savepoint",)),
            ErrorCode(
                6,
                "Where the job is to begin or to go on there is nothing in the topic any more.",
                ("offsets that expired", "partitions that are gone"),
                ("raise the topic's retention", "begin with a new checkpoint folder, and with start=\"earliest\""),
            ),
        ),
    ),
    ErrorSubject(
        33,
        "The Kafka sink",
        modules=("connectors.kafka.sink",),
        codes=(
            ErrorCode(
                1,
                "Kafka refuses a message for what it is.",
                ("it is larger than the topic's max.message.bytes", "a compacted topic needs a key", "a timestamp that the topic does not take"),
                ("leave such records out before the sink, or change the topic's settings",),
            ),
            ErrorCode(
                2,
                "A KafkaSink cannot write as it is set up.",
                (
                    "a transaction timeout above the broker's transaction.max.timeout.ms",
                    "a prefix of transactional ids that another job uses",
                    "a key, value or header column that the rows do not have",
                ),
                ("do what the second line says: docs/kafka-sink.md",),
            ),
            ErrorCode(
                3,
                "Writing to Kafka failed for now. The checkpoint is repeated, and readers with read_committed see nothing of the first attempt.",
                ("a broker that is away", "a transaction that ran out of time before its checkpoint was decided"),
                ("see that the brokers run", "raise the transaction timeout where checkpoints take long"),
            ),
            ErrorCode(
                4,
                "A transaction cannot be brought to the end that was decided.",
                ("the job was off for longer than Kafka keeps transactions and markers", "a checkpoint folder that was set back"),
                ("compare the topic with the ledger: poundlock audit job.py", "restore the checkpoint folder from one moment"),
            ),
            ErrorCode(
                7,
                "Whether a transaction is committed is not known yet.",
                ("a broker that went away during the commit",),
                ("see that the brokers run; the commit is asked for again",),
            ),
        ),
    ),
    ErrorSubject(
        300,
        "A schema registry",
        modules=("connectors.kafka.schemas",),
        codes=(
            ErrorCode(
                2,
                "A format of a schema registry cannot be as it is given.",
                ("a schema that cannot be read, or does not compile", "columns that the schema does not have", "settings that contradict each other"),
                ("do what the second line says: docs/schema-registry.md",),
            ),
            ErrorCode(
                3,
                "The registry does not answer for now. The checkpoint is repeated, and no record is left out.",
                ("a registry, or a provider of its tokens, that is away or restarting", "a network that loses packets"),
                ("see that the registry runs; the job goes on by itself",),
            ),
            ErrorCode(
                4,
                "The registry refuses, or a value was written by a schema that the job's cannot read.",
                ("a schema that is not compatible with the subject's others", "a login that the registry refuses", "a producer that went over to another schema"),
                ("give the job a schema that can read both", "on_incompatible=\"bad_record\", where such values may be left out", "check the login of SchemaRegistry(…)"),
            ),
        ),
    ),
    ErrorSubject(
        34,
        "A Kafka topic that was created again",
        kinds=("topic_recreated",),
        codes=(
            ErrorCode(
                6,
                "A topic of that name exists, but it is not the one that the job has read: its offsets mean something else now.",
                ("somebody deleted the topic and created it again", "the job points to another cluster"),
                ("check bootstrap_servers", "begin with a new checkpoint folder; output that is there stays"),
            ),
        ),
    ),
    ErrorSubject(
        35,
        "Offsets of Kafka that expired",
        kinds=("offsets_expired",),
        codes=(
            ErrorCode(
                6,
                "Records that the job has not read yet are gone from the topic. poundlock does not skip them in silence.",
                ("the job was off, or behind, for longer than retention.ms", "retention.bytes is small for what comes in", "records were deleted"),
                ("raise the topic's retention", "begin with a new checkpoint folder; the lost range is in the first line", "give the job more tasks if it was behind"),
            ),
        ),
    ),
    ErrorSubject(
        36,
        "A Kafka topic that is gone",
        kinds=("topic_deleted",),
        codes=(
            ErrorCode(
                6,
                "A topic or partition that the job reads does not exist any more.",
                ("it was deleted", "the job points to another cluster", "this user may no longer DESCRIBE it"),
                ("check bootstrap_servers and the user's rights", "create it again and begin with a new checkpoint folder, or read other topics"),
            ),
        ),
    ),
    ErrorSubject(
        37,
        "No Kafka broker answers",
        kinds=("kafka_away",),
        codes=(
            ErrorCode(
                3,
                "None of the servers in bootstrap_servers answers.",
                ("the brokers do not run", "a wrong host or port", "a firewall, or advertised.listeners that this machine cannot reach"),
                ("check bootstrap_servers", "type: poundlock kafka up, which starts a broker for trials"),
            ),
        ),
    ),
)  # fmt: skip
