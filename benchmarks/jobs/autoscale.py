"""A topic into files with a step that waits for each record, as for another system; the parallelism follows the lag.

Arguments: SERVERS/TOPIC OUT CHECKPOINTS SERIES STOP MASTER. SERIES gets a line of JSON for each change of what the job says of itself.
The job ends when the file STOP is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.jobs.life import watched
from poundlock import Autoscaler, FileSink, Job, KafkaSource
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress

__all__ = ["SCALER", "WAIT_S"]

WAIT_S = 0.002  # a task does 500 records a second at most
SCALER = Autoscaler(
    max_parallelism=8, min_parallelism=2, metrics_window="6 s", stabilization_interval="4 s", scale_down_interval="10 s",
    catch_up_duration="20 s",
)  # fmt: skip


def answered(row: dict[str, Any]) -> dict[str, Any]:
    """Wait as long as another system takes to answer."""
    time.sleep(WAIT_S)
    return {"value": row["value"]}


def main(place: str, out: str, checkpoints: str, series: Path, stop: Path, master: str) -> None:
    """See above."""
    servers, topic = place.split("/", 1)
    job = Job(
        "autoscale", checkpoint_interval="2 s", checkpoint_dir=checkpoints, on_error="fail", parallelism=2,
        autoscaler=SCALER,
    )  # fmt: skip
    events = job.from_source(KafkaSource(bootstrap_servers=servers, topics=topic), name="events")
    events.map(answered, schema="value binary", name="answered").sink_to(FileSink(out, row="value"), name="out")
    begun = time.time()
    with series.open("w") as lines:

        def note(progress: Progress) -> None:
            line = {"at": time.time() - begun, **{name: getattr(progress, name) for name in _NOTED}}
            lines.write(json.dumps(line) + "\n")
            lines.flush()

        dynamic = {} if master.startswith("local") else _DYNAMIC
        options = [f"master={master}", *(f"{name}={value}" for name, value in dynamic.items())]
        run(job, settings=load_settings(options), on_progress=note, stop=watched(stop))


_NOTED = ("state", "parallelism", "lag", "checkpoint", "rows_read", "restarts", "message")
_DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "10s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
}


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]), Path(sys.argv[5]), sys.argv[6])
