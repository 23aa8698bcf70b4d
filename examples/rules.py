"""Payments and rules -> payments over the limit of their country, which another stream sets and changes while the job runs.

Each rule goes to every key group, and the payments only read it. Payments of a country without a rule wait for one.
Run it with: poundlock run examples/rules.py
"""

from os import environ

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
)

LIMITS = MapStateDescriptor("limits")
WAITING = ListStateDescriptor("waiting")


class OverLimit(KeyedBroadcastProcessFunction):
    """Holds payments against the newest limit of their country."""

    def open(self, context):
        self.waiting = context.get_list_state(WAITING)

    def process_broadcast_element(self, rule, ctx):
        country, limit = rule["country"], rule["limit"]
        ctx.get_broadcast_state(LIMITS).put(country, limit)
        released = []

        def release(card, waiting):
            held = list(waiting.get())
            released.extend(p for p in held if p["country"] == country and p["amount"] > limit)
            waiting.update([p for p in held if p["country"] != country])

        ctx.apply_to_keyed_state(WAITING, release)
        yield from ({**payment, "limit": limit} for payment in released)

    def process_element(self, payment, ctx):
        limit = ctx.get_broadcast_state(LIMITS).get(payment["country"])
        if limit is None:
            self.waiting.add(payment)
        elif payment["amount"] > limit:
            yield {**payment, "limit": limit}


job = Job("rules", checkpoint_interval="1 s", checkpoint_dir=environ.get("RULES_CHECKPOINTS"), on_error="fail")
folder, watch = environ.get("RULES_FROM", "."), environ.get("RULES_WATCH") == "1"
payments = job.from_source(
    FileSource(f"{folder}/payments", format="json", schema="card string, country string, amount double", watch=watch),
    name="payments",
)
rules = job.from_source(
    FileSource(f"{folder}/limits", format="json", schema="country string, `limit` double", watch=watch), name="limits"
)
over = (
    payments.key_by("card")
    .connect(rules.broadcast(LIMITS))
    .process(OverLimit(), schema="card string, country string, amount double, `limit` double", name="over-limit")
)
over.sink_to(FileSink(environ.get("RULES_TO", "over-limit"), format="json"), name="out")
