"""A task of its own process for the tests of the Kafka sink: writes rows, prepares, says what, and is killed.

argv[1] is JSON: {"sink": arguments of KafkaSink, "context": fields of WriterContext, "values": [text], "die": "prepared" | "early" |
"writing" | "no"}. "early" dies when the writer of the next checkpoint has initialised its producer and has no row.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import pyarrow as pa

from poundlock import KafkaSink
from poundlock.checkpoint.participant import WriterContext
from poundlock.formats.chunk import Batch


def main() -> None:
    given = json.loads(sys.argv[1])
    sink = KafkaSink(**given["sink"])
    writer = sink.open_writer(WriterContext(**given["context"], directive={}, reject=print, started_ms=0))
    values = [value.encode() for value in given["values"]]
    writer.write(Batch(pa.record_batch({"value": pa.array(values, pa.binary())})))
    if given["die"] == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(list(writer.prepare())), flush=True)
    if given["die"] == "early":
        context = {**given["context"], "checkpoint": given["context"]["checkpoint"] + 1}
        before = threading.active_count()
        sink.open_writer(WriterContext(**context, directive={}, reject=print, started_ms=0))
        while threading.active_count() > before:
            time.sleep(0.001)
    if given["die"] in ("prepared", "early"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
