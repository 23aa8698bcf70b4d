"""Work by key on poundlock, over lines of JSON in a topic. Arguments: WORK SERVERS/TOPIC OUT CHECKPOINTS.

WORK is window (tumbling, ten seconds), totals (the same with fewer aggregates, as the peers have them), sliding (a minute by ten
seconds), sessions (a gap of half a second) or process (a state and a timer for each key and ten seconds).
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.jobs.keyed_work import Count
from poundlock import (
    EventTimeSessionWindows,
    FileSink,
    Job,
    KafkaSource,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)

_TOTALS = ("count(*) as n", "sum(value) as total")
_AGGREGATES = (*_TOTALS, "min(value) as low", "max(value) as high")


def results(keyed: Any, work: str) -> Any:
    if work == "process":
        return keyed.process(Count(), schema="key string, n bigint", name="counts")
    if work == "sessions":
        return keyed.window(EventTimeSessionWindows("500 ms")).aggregate("count(*) as n", name="sessions")
    windows = SlidingEventTimeWindows("60 s", "10 s") if work == "sliding" else TumblingEventTimeWindows("10 s")
    return keyed.window(windows).aggregate(*(_TOTALS if work == "totals" else _AGGREGATES), name="windows")


def job(work: str, place: str, out: str, checkpoints: str) -> Job:
    servers, topic = place.split("/", 1)
    made = Job("keyed-kafka", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    rows = made.from_source(
        KafkaSource(
            bootstrap_servers=servers,
            topics=topic,
            format="json",
            schema="timestamp double, key string, value double",
            end="latest",
        ),
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_seconds(timestamp)"),
        name="rows",
    )
    results(rows.key_by("key"), work).sink_to(FileSink(out, format="json"), name="out")
    return made


if __name__ == "__main__":
    print(job(*sys.argv[1:]).run())
