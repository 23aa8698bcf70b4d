"""Rows of all topics that match a pattern, into files, on poundlock. Arguments: SERVERS PATTERN OUT CHECKPOINTS FOUND.

FOUND gets how long a plan over all partitions took with nothing new in them, ms, its CPU time, and how many there are: a JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from poundlock import FileSink, Job, KafkaSource
from poundlock.connectors.kafka.offsets import from_json
from poundlock.storage import LocalStorage

PLANS = 21


def main(servers: str, pattern: str, out: str, checkpoints: str, found: Path) -> None:
    """See above."""
    source = KafkaSource(bootstrap_servers=servers, pattern=pattern, end="latest")
    job = Job("many-topics", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    job.from_source(source, name="events").sink_to(FileSink(out, row="value"), name="out")
    print(job.run())
    watched = KafkaSource(bootstrap_servers=servers, pattern=pattern, start="latest").bind(job="plans", name="events")
    enumerator = watched.enumerator(LocalStorage(f"{checkpoints}-plans"))
    try:
        position, took, cpu = enumerator.initial(), list[float](), time.process_time()
        for _ in range(PLANS):
            begin = time.perf_counter()
            position = enumerator.latest(position)
            enumerator.partitions(position)
            took.append((time.perf_counter() - begin) * 1000)
        cpu_ms = (time.process_time() - cpu) * 1000 / PLANS
    finally:
        enumerator.close()
    figures = {"partitions": len(from_json(position)), "plan ms": statistics.median(took), "plan CPU ms": cpu_ms}
    found.write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:5], Path(sys.argv[5]))
