"""The mqtt connector: a topic or filter that is read, and topics that are written to. Flink has no such table; options are arguments of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from poundlock.connectors.mqtt.sink import MqttSink
from poundlock.connectors.mqtt.source import MqttSource
from poundlock.sql.connectors.messages.fields import MessageField
from poundlock.sql.connectors.messages.table import ACKNOWLEDGED, Made, MessageTable, acknowledged
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.types import BYTES, STRING, SqlType


class MqttTable(MessageTable):
    """Reads what is published, and publishes. A column of the topic says where a row goes; 'topic' is then what is read."""

    connector: ClassVar[str] = "mqtt"
    system: ClassVar[str] = "MQTT"
    fields: ClassVar[Mapping[str, MessageField]] = {
        "topic": MessageField("topic", STRING, is_writable=True),
        "retain": MessageField("retain", SqlType("BOOLEAN")),
        "content-type": MessageField("content_type", STRING),
        "response-topic": MessageField("response_topic", STRING),
        "correlation-data": MessageField("correlation_data", BYTES, is_writable=True),
        "user-properties": MessageField("user_properties", STRING),
    }
    read_only: ClassVar[tuple[str, ...]] = ("client-id", *ACKNOWLEDGED)
    write_only: ClassVar[tuple[str, ...]] = ("sink.retain", "sink.unconfirmed")

    def reading(self, options: TableOptions) -> Made:
        given = {"url": options.required("url"), "ca": options.text("ca"), "topic": options.required("topic")}
        return MqttSource, {**given, "client_id": options.required("client-id"), **acknowledged(options)}

    def writing(self, options: TableOptions, columns: Collection[str]) -> Made:
        of_rows = "topic" in columns
        topic = options.text("topic") if of_rows else options.required("topic")
        unconfirmed = options.whole("sink.unconfirmed")
        return MqttSink, {
            "url": options.required("url"),
            "ca": options.text("ca"),
            "topic": None if of_rows else topic,
            "topic_column": "topic" if of_rows else None,
            "id_column": "correlation_data" if "correlation_data" in columns else None,
            "retain": options.flag("sink.retain"),
            **({} if unconfirmed is None else {"unconfirmed": unconfirmed}),
        }
