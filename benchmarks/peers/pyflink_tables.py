"""A local Flink for the programs of PyFlink's Table API: two tasks, a checkpoint every 10 s; a job that fails ends."""

from __future__ import annotations

from pyflink.table import EnvironmentSettings, TableEnvironment

__all__ = ["environment"]


def environment(jars: str, checkpoints: str) -> TableEnvironment:
    """Return the environment of a program.

    Args:
        jars: the URLs of the Kafka connector's jars, joined by semicolons.
        checkpoints: folder for them.
    """
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "pipeline.jars": jars,
        "parallelism.default": "2",
        "execution.checkpointing.interval": "10 s",
        "restart-strategy.type": "none",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "table.local-time-zone": "UTC",
    }.items():
        tables.get_config().set(name, value)
    return tables
