"""Kafka to files on Quix Streams. Arguments: SERVERS TOPIC OUT GROUP STATE."""

from __future__ import annotations

import os
import sys

from quixstreams import Application
from quixstreams.sinks.base import SinkBatch
from quixstreams.sinks.community.file.formats import Format
from quixstreams.sinks.community.file.local import LocalFileSink


class Lines(Format):
    """The values as they are: JSONFormat decodes them and writes them anew, in an object with the key and the time."""

    @property
    def file_extension(self) -> str:
        return ".jsonl"

    @property
    def supports_append(self) -> bool:
        return True

    def serialize(self, batch: SinkBatch) -> bytes:
        return b"".join(item.value + b"\n" for item in batch)


if __name__ == "__main__":
    servers, topic, out, group, state = sys.argv[1:6]
    # The sink takes no path with other characters than letters, digits, dots, spaces and underscores.
    os.chdir(out)
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state,
    )
    events = app.dataframe(app.topic(topic, value_deserializer="bytes"))
    events.sink(LocalFileSink(directory="lines", format=Lines()))
    app.run()
