"""Errors of sources and sinks of message systems other than Kafka."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        320,
        "Messages that are received",
        modules=("connectors.messages",),
        codes=(
            ErrorCode(2, "A source or sink of messages is given what does not go together.", ("a column that a message does not have", "a format without its schema"), ("correct the argument that is named",)),
            ErrorCode(3, "Another driver has written what this one was about to write of received messages.", ("two drivers of one job",), ("end the other one; the job starts again from what is there",)),
            ErrorCode(6, "Messages that were received are no longer in the checkpoint folder, or not as they were.", ("a checkpoint folder that somebody else changed",), ("restore the checkpoint folder from one moment",)),
        ),
    ),
    ErrorSubject(
        321,
        "RabbitMQ",
        modules=("connectors.rabbitmq",),
        codes=(
            ErrorCode(2, "RabbitMQ cannot be read or written as it is set up.", ("a queue or exchange that is not there", "a user or virtual host that the broker refuses"), ("do what the second line says: docs/rabbitmq.md",)),
            ErrorCode(3, "RabbitMQ did not answer, or another consumer has the queue.", ("a broker that is away", "a second job that reads the queue", "an alarm of memory or disk at the broker"), ("see that the broker runs; the job goes on by itself", "end the other consumer")),
            ErrorCode(4, "RabbitMQ refuses what the job asks of it, and would again.", ("a routing key that no queue is bound to", "a right that this user does not have"), ("bind a queue, or leave such rows out", "check the user's rights")),
        ),
    ),
    ErrorSubject(
        322,
        "MQTT",
        modules=("connectors.mqtt",),
        codes=(
            ErrorCode(2, "MQTT cannot be read or written as it is set up.", ("a broker that does not speak MQTT 5", "a user that the broker refuses", "a topic with a wildcard, for a sink"), ("do what the second line says: docs/mqtt.md",)),
            ErrorCode(3, "The MQTT broker did not answer, or ended the connection.", ("a broker that is away", "a second client with the same client id"), ("see that the broker runs; the job goes on by itself", "give each job a client id of its own")),
            ErrorCode(4, "The MQTT broker does not take a message.", ("a right that this user does not have", "a quota"), ("check the user's rights and the limits of the broker",)),
            ErrorCode(6, "The broker no longer has the session of the job.", ("a broker that was started without its data", "a session that expired"), ("begin with a new checkpoint folder; let the broker keep sessions for longer",)),
        ),
    ),
    ErrorSubject(
        323,
        "Kinesis",
        modules=("connectors.kinesis",),
        codes=(
            ErrorCode(2, "Kinesis cannot be read or written as it is set up.", ("a stream that is not there", "no region", "credentials that do not allow it"), ("do what the second line says: docs/kinesis.md",)),
            ErrorCode(3, "Kinesis did not answer, or takes no more for now.", ("shards that are asked too much",), ("add shards; the job goes on by itself",)),
            ErrorCode(4, "Kinesis refuses what the job asks of it, and would again.", ("a record that the service does not take",), ("see what it says",)),
            ErrorCode(6, "Records may have expired before they were read.", ("a job that was off, or behind, for longer than the stream keeps records",), ("begin with a new checkpoint folder", "raise the retention of the stream")),
        ),
    ),
    ErrorSubject(
        380,
        "Pulsar",
        modules=("connectors.pulsar",),
        codes=(
            ErrorCode(2, "Pulsar cannot be read or written as it is set up.", ("a topic or tenant that cannot be", "a user that the brokers refuse"), ("do what the second line says: docs/pulsar.md",)),
            ErrorCode(3, "Pulsar did not answer, or another consumer has the subscription.", ("brokers that are away", "a second job with the same subscription"), ("see that the brokers run; the job goes on by itself", "give each job a subscription of its own")),
            ErrorCode(4, "Pulsar refuses what the job asks of it, or messages that are decided are gone from the staging folder.", ("a topic without message deduplication", "brokers that take smaller messages than max_message_size says", "a staging folder that somebody else changed"), ("switch deduplication on for the namespace", "do what the second line says: docs/pulsar.md")),
            ErrorCode(7, "It is not known whether Pulsar has the messages of a decision.", ("brokers that are away", "a driver before this one that is still connected"), ("see that the brokers run; they are sent again, and known by their numbers",)),
        ),
    ),
)  # fmt: skip
