"""Clicks -> sessions: the clicks of a user with less than half a minute between any two, and late clicks to a file of their own.

A session may still grow for ten seconds after it was written; it is written again then. What comes later than that is in `late`.
Run it with: poundlock run examples/sessions.py
"""

from os import environ

from poundlock import EventTimeSessionWindows, FileSink, FileSource, Job, WatermarkStrategy

job = Job("sessions", checkpoint_interval="1 s", checkpoint_dir=environ.get("SESSIONS_CHECKPOINTS"), on_error="fail")
clicks = job.from_source(
    FileSource(
        environ.get("SESSIONS_FROM", "clicks"),
        format="json",
        schema="user string, page string, at bigint",
        max_files_per_checkpoint=int(environ.get("SESSIONS_FILES", "100")),
    ),
    WatermarkStrategy.bounded_out_of_orderness("2 s", timestamp="at"),
    name="clicks",
)
sessions = (
    clicks.key_by("user")
    .window(EventTimeSessionWindows("30 s"))
    .allowed_lateness("10 s")
    .side_output_late_data("late")
    .aggregate(
        "count(*) as clicks", "count(distinct page) as pages", "min(at) as first", "max(at) as last", name="sessions"
    )
)
out = environ.get("SESSIONS_TO", "out")
lasted = sessions.select("user", "window_start", "clicks", "pages", "last - first as lasted_ms")
lasted.sink_to(FileSink(f"{out}/sessions", format="json"), name="sessions-out")
sessions.side_output("late").sink_to(FileSink(f"{out}/late", format="json"), name="late-out")
