"""The crash tests' cheap job: lines of files into files by the day of the event. No record crosses into the JVM."""

import sys
from os import environ
from pathlib import Path

from poundlock import EventTimeBucketAssigner, FileSink, FileSource, Job, RollingPolicy

if environ.get("CRASH_FORGETS") == "1":  # the control
    sys.path.append(str(Path(__file__).parents[2]))
    from poundlock.driver import context
    from support.forgetful_ledger import ForgetfulLedger

    context.Ledger = ForgetfulLedger

job = Job(
    "crash-files",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    dead_letters=environ["CRASH_DEAD_LETTERS"],
    parallelism=2,
)
job.from_source(
    FileSource(
        environ["CRASH_IN"],
        format="text",
        watch=environ.get("CRASH_WATCH") == "1",
        max_bytes_per_checkpoint=environ.get("CRASH_BYTES", "128 KB"),
        split_size="64 KB",
    ),
    name="events",
).sink_to(
    FileSink(
        environ["CRASH_OUT"],
        row="value",
        bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="UTC"),
        rolling=RollingPolicy(on_checkpoint=True)
        if environ.get("CRASH_EACH") == "1"
        else RollingPolicy(every="1 s", size="256 KB"),
    ),
    name="files",
)
