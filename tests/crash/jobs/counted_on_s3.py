"""The job of tests on Kubernetes: numbers at a rate, each with how many of its key came so far, into files on S3."""

from os import environ

from poundlock import DatagenSource, FileSink, Job, KeyedProcessFunction, RollingPolicy, ValueStateDescriptor

STORE = environ["COUNTED_STORE"]


class Count(KeyedProcessFunction):
    """Adds to each number how many of its key came so far."""

    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", 0))

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield {"n": value["n"], "seen": self.seen.value()}


job = Job("counted", checkpoint_interval="1 s", checkpoint_dir=f"{STORE}/checkpoint")
numbers = job.from_source(
    DatagenSource(
        "n bigint", fields={"n": "sequence"}, rate=100, count=int(environ["COUNTED_ROWS"]), rows_per_split=50
    ),
    name="numbers",
)
numbers.key_by("n % 7").process(Count(), schema="n bigint, seen bigint", name="counts").sink_to(
    FileSink(f"{STORE}/out", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="files"
)
