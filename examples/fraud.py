"""Payments -> alerts: a card that pays less than 1 and then, within a minute, more than 500.

A function with state for each card and a timer that forgets it. Run it with: poundlock run examples/fraud.py
"""

from os import environ

from poundlock import FileSink, FileSource, Job, KeyedProcessFunction, ValueStateDescriptor, WatermarkStrategy

MINUTE_MS = 60_000


class Fraud(KeyedProcessFunction):
    """Remembers for a minute that a card has paid a small amount."""

    def open(self, context):
        self.small_at = context.get_state(ValueStateDescriptor("small-at"))

    def process_element(self, payment, ctx):
        timers = ctx.timer_service()
        at = self.small_at.value()
        if at is not None:
            # The timer fires once the watermark is there; a payment may come before that and still be too late.
            if payment["amount"] > 500 and ctx.timestamp() <= at + MINUTE_MS:
                yield {"card": payment["card"], "amount": payment["amount"], "paid_at": payment["paid_at"]}
            timers.delete_event_time_timer(at + MINUTE_MS)
            self.small_at.clear()
        if payment["amount"] < 1:
            self.small_at.update(ctx.timestamp())
            timers.register_event_time_timer(ctx.timestamp() + MINUTE_MS)

    def on_timer(self, timestamp, ctx):
        self.small_at.clear()
        return ()


job = Job("fraud", checkpoint_interval="1 s", checkpoint_dir=environ.get("FRAUD_CHECKPOINTS"), on_error="fail")
payments = job.from_source(
    FileSource(
        environ.get("FRAUD_FROM", "payments"),
        format="json",
        schema="card string, amount double, paid_at bigint",
        watch=environ.get("FRAUD_WATCH") == "1",
        max_files_per_checkpoint=int(environ.get("FRAUD_FILES", "100")),
    ),
    WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="paid_at"),
    name="payments",
)
alerts = payments.key_by("card").process(
    Fraud(), schema="card string, amount double, paid_at bigint", name="small-then-large"
)
alerts.sink_to(FileSink(environ.get("FRAUD_TO", "alerts"), format="json"), name="alerts")
