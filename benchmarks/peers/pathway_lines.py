"""Kafka to files on Pathway: `pathway spawn --threads 2 python pathway_lines.py SERVERS TOPIC OUT GROUP STATE`."""

from __future__ import annotations

import sys

import pathway as pw

if __name__ == "__main__":
    servers, topic, out, group, state = sys.argv[1:6]
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    events = pw.io.kafka.read(settings, topic, format="plaintext", mode="static", autogenerate_key=True, name="events")
    # Its writers know JSON and CSV: a line comes out as a text in an object, beside when it was added.
    pw.io.jsonlines.write(events.select(line=pw.this.data), f"{out}/lines.jsonl")
    backend = pw.persistence.Backend.filesystem(state)
    pw.run(persistence_config=pw.persistence.Config(backend), monitoring_level=pw.MonitoringLevel.NONE)
