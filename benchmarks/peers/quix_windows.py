"""Counts and sums by key and ten seconds on Quix Streams, exactly once into a topic. Arguments: SERVERS TOPIC OUT GROUP STATE."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum


def result(value: dict[str, Any], key: str, timestamp: int, headers: Any) -> dict[str, Any]:
    return {"key": key, "window_start": value["start"], "n": value["n"], "total": value["total"]}


if __name__ == "__main__":
    servers, topic, out, group, state = sys.argv[1:6]
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state,
    )
    rows = app.dataframe(app.topic(topic, key_deserializer="str"))
    # Windows go by the key and the time of the Kafka messages, which are those of the rows: no group_by and no topic for it.
    windows = rows.tumbling_window(timedelta(seconds=10), grace_ms=timedelta(seconds=5))
    sums = windows.agg(n=Count(), total=Sum("value")).final(closing_strategy="partition")
    sums.apply(result, metadata=True).to_topic(app.topic(out))
    app.run()
