"""Numbers the clicks of a user, and says when a user has been quiet for a second by the clock. Topic to topic."""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import Job, KafkaSink, KafkaSource, KeyedProcessFunction, Side, ValueStateDescriptor

QUIET_MS = 1_000


class Clicks(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.seen = context.get_state(ValueStateDescriptor("seen", default=0))
        self.due = context.get_state(ValueStateDescriptor("due"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        if self.due.value() is not None:
            timers.delete_processing_time_timer(self.due.value())
        self.seen.update(self.seen.value() + 1)
        self.due.update(timers.current_processing_time() + QUIET_MS)
        timers.register_processing_time_timer(self.due.value())
        yield {"user": value["user"], "n": self.seen.value()}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.due.clear()
        yield Side("quiet", {"user": ctx.get_current_key(), "n": self.seen.value()})


servers, name = environ["KEYED_SERVERS"], environ["KEYED_TOPIC"]
job = Job(
    "kafka-keyed",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["KEYED_CHECKPOINTS"],
    on_error="fail",
    parallelism=int(environ.get("KEYED_PARALLELISM", "2")),
    max_parallelism=8,
    require="exactly-once",
)
clicks = job.from_source(
    KafkaSource(bootstrap_servers=servers, topics=name, format="json", schema="user string", start="earliest"),
    name="clicks",
)
numbered = clicks.key_by("user").process(
    Clicks(), schema="user string, n bigint", side_outputs={"quiet": "user string, n bigint"}, name="numbered"
)
numbered.sink_to(KafkaSink(servers, f"{name}-numbered", key="user", format="json"), name="numbered-out")
numbered.side_output("quiet").sink_to(KafkaSink(servers, f"{name}-quiet", key="user", format="json"), name="quiet-out")
