"""A topic copied to another by poundlock, value by value. Arguments: SERVERS/TOPIC OUT GUARANTEE CHECKPOINTS [INTERVAL STOP [MODE]].

With INTERVAL it goes on until a file STOP is there; without, it ends where the topic ended when it began. MODE is a checkpointing mode.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.jobs.life import watched
from poundlock import Job, KafkaSink, KafkaSource

if __name__ == "__main__":
    place, out, guarantee, checkpoints, *more = sys.argv[1:]
    servers, topic = place.split("/", 1)
    interval = more[0] if more else "0 s"
    mode = more[2] if len(more) > 2 else "EXACTLY_ONCE"
    job = Job(
        "copy",
        checkpoint_interval=interval,
        checkpoint_dir=checkpoints,
        parallelism=2,
        on_error="fail",
        checkpointing_mode=mode,
    )
    events = job.from_source(
        KafkaSource(bootstrap_servers=servers, topics=topic, end=None if more else "latest"), name="events"
    )
    events.sink_to(KafkaSink(servers, out, guarantee=guarantee), name="copy")
    print(job.run(stop=watched(Path(more[1])) if more else None))
