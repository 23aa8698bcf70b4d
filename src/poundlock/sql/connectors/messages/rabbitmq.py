"""The rabbitmq connector: a queue that is read, and an exchange that is written to. Flink has no such table; options are arguments of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from poundlock.connectors.rabbitmq.sink import RMQSink
from poundlock.connectors.rabbitmq.source import RMQSource
from poundlock.sql.connectors.messages.fields import MessageField
from poundlock.sql.connectors.messages.table import ACKNOWLEDGED, Made, MessageTable, acknowledged
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.types import STRING, SqlType


class RabbitMQTable(MessageTable):
    """Reads queues, and publishes."""

    connector: ClassVar[str] = "rabbitmq"
    system: ClassVar[str] = "RabbitMQ"
    fields: ClassVar[Mapping[str, MessageField]] = {
        "message-id": MessageField("message_id", STRING, is_writable=True),
        "correlation-id": MessageField("correlation_id", STRING),
        "exchange": MessageField("exchange", STRING),
        "routing-key": MessageField("routing_key", STRING, is_writable=True),
        "timestamp": MessageField("timestamp", SqlType("TIMESTAMP_LTZ", (6,))),
        "content-type": MessageField("content_type", STRING),
        "headers": MessageField("headers", STRING),
    }
    read_only: ClassVar[tuple[str, ...]] = ("queue", *ACKNOWLEDGED)
    write_only: ClassVar[tuple[str, ...]] = ("exchange", "routing-key", "sink.unconfirmed")

    def reading(self, options: TableOptions) -> Made:
        given = {"url": options.required("url"), "ca": options.text("ca"), "queue": options.required("queue")}
        return RMQSource, {**given, **acknowledged(options)}

    def writing(self, options: TableOptions, columns: Collection[str]) -> Made:
        key, of_rows = options.text("routing-key"), "routing_key" in columns
        if (key is None) is not of_rows:
            raise OptionError(
                f"{options.table} needs 'routing-key', or a column of it, and not both",
                next="write 'routing-key' = 'orders', or declare a column STRING METADATA FROM 'routing-key'",
                kind="bad_option_value" if of_rows else "missing_option",
            )
        unconfirmed = options.whole("sink.unconfirmed")
        return RMQSink, {
            "url": options.required("url"),
            "ca": options.text("ca"),
            "exchange": options.text("exchange", ""),
            "routing_key": key,
            "routing_key_column": "routing_key" if of_rows else None,
            "id_column": "message_id" if "message_id" in columns else None,
            **({} if unconfirmed is None else {"unconfirmed": unconfirmed}),
        }
