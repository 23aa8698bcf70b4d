"""Socket -> windows of two seconds by the clock -> files: what each month's sales of those seconds add up to.

Start what is to be read first, such as: nc -lk 9181 < sales.csv
Then run: poundlock run examples/sales.py
Lines are "date,month,category,product,profit". The product and category that come out are those of the month's first line.
"""

from os import environ

from poundlock import FileSink, Job, RollingPolicy, SocketSource, TumblingProcessingTimeWindows


def add(total: dict, sale: dict) -> dict:
    """Add a sale to those of the same month before it."""
    return {**total, "profit": total["profit"] + sale["profit"], "sales": total["sales"] + sale["sales"]}


job = Job("sales", checkpoint_interval="100 ms", checkpoint_dir=environ.get("SALES_CHECKPOINTS"), on_error="fail")
lines = SocketSource(
    "localhost",
    int(environ.get("SALES_PORT", "9181")),
    format="csv",
    schema="date string, month string, category string, product string, profit int",
)
(
    job.from_source(lines, name="lines")
    .select("month", "product", "category", "profit", "1 as sales")
    .key_by("month")
    .window(TumblingProcessingTimeWindows(environ.get("SALES_WINDOW", "2 s")))
    .reduce(add, name="per-month")
    .sink_to(FileSink(environ.get("SALES_TO", "sales"), format="json", rolling=RollingPolicy(every="1 s")), name="out")
)
