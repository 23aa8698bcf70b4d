"""Windows with lateness and a side output of late rows, and a function with state and timers, for a job that is killed."""

import sys
from collections.abc import Iterator
from os import environ
from pathlib import Path
from typing import Any

from poundlock import (
    EventTimeSessionWindows,
    FileSink,
    FileSource,
    Job,
    KafkaSink,
    KeyedProcessFunction,
    RollingPolicy,
    Side,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)


class Quiet(KeyedProcessFunction):
    """Numbers the rows of a key, and says when it has been quiet for some time."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))
        self.last = context.get_state(ValueStateDescriptor("last", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        self.last.update(max(self.last.value(), value["at"]))
        ctx.timer_service().register_event_time_timer(value["at"] + 6_000)
        yield {"k": value["k"], "n": self.rows.value(), "at": value["at"]}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if timestamp == self.last.value() + 6_000:
            yield Side("quiet", {"k": ctx.get_current_key(), "since": self.last.value(), "n": self.rows.value()})


scaled: dict[str, Any] = {"checkpoint_interval": "0 s"}
if environ.get("CRASH_SCALES") == "1":  # each checkpoint behind the first of a life has another parallelism
    sys.path.append(str(Path(__file__).parents[2]))
    from support.scripted_scaler import ScriptedScaler

    scaled = {"checkpoint_interval": "50 ms", "autoscaler": ScriptedScaler(), "parallelism": 2}
job = Job("crash-keyed", checkpoint_dir=environ["CRASH_CHECKPOINTS"], on_error="fail", **scaled)
rows = job.from_source(
    FileSource(
        environ["CRASH_IN"],
        format="json",
        schema="k string, at bigint",
        max_files_per_checkpoint=1,
        **({"watch": True, "discover_every": "200 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at"),
    name="rows",
)
rolling = RollingPolicy(every="1 h", size="200 B")


def files(name: str) -> FileSink:
    return FileSink(f"{environ['CRASH_OUT']}/{name}", format="json", rolling=rolling)


counts = (
    rows.key_by("k")
    .window(TumblingEventTimeWindows("10 s"))
    .allowed_lateness("4 s")
    .side_output_late_data("late")
    .aggregate("count(*) as n", "sum(at) as total", name="counts")
)
counts.sink_to(files("counts"), name="counts-out")
counts.side_output("late").sink_to(files("late"), name="late-out")
quiet = rows.key_by("k").process(
    Quiet(), schema="k string, n bigint, at bigint", side_outputs={"quiet": "k string, since bigint, n bigint"},
    name="quiet",
)  # fmt: skip
quiet.sink_to(files("numbered"), name="numbered-out")
sessions = (
    rows.key_by("k")
    .window(EventTimeSessionWindows("2 s"))
    .reduce(lambda a, b: {"k": a["k"], "at": max(a["at"], b["at"])}, name="sessions")
)
for stream, name in (
    (quiet.side_output("quiet"), "quiet"),
    (sessions, "sessions"),
    (counts, "counts-too"),
    (counts.side_output("late"), "late-too"),
):
    sink = (
        KafkaSink(environ["CRASH_SERVERS"], f"{environ['CRASH_TOPIC']}-{name}", format="json", create_topic=2)
        if "CRASH_SERVERS" in environ
        else files(name)
    )
    stream.sink_to(sink, name=f"{name}-out")
