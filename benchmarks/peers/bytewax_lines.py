"""Kafka to files on Bytewax: `python -m bytewax.run "bytewax_lines.py:flow(SERVERS, TOPIC, OUT)"`."""

from __future__ import annotations

from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSink
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow


def flow(servers: str, topic: str, out: str) -> Dataflow:
    """Return the dataflow: a file for each of the topic's partitions, as a DirSink's files are numbered beforehand."""
    lines = Dataflow("lines")
    messages = op.input("events", lines, KafkaSource([servers], [topic], tail=False))
    keyed = op.map("line", messages, lambda message: (str(message.partition), message.value.decode()))
    op.output("out", keyed, DirSink(Path(out), file_count=3, assign_file=int))
    return lines
