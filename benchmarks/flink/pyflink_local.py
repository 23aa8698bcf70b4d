"""A local Flink for the programs of PyFlink: two tasks, a checkpoint every 10 s, lines into files, exactly once.

Python runs in the threads of Flink's JVM. In processes of its own, the default, a function per record takes half as much CPU
again, and the first use of a key's state is a request to the JVM that takes about a millisecond.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from pyflink.common import Configuration
from pyflink.common.serialization import Encoder
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink

__all__ = ["environment", "lines_to"]


def environment(jars: str, checkpoints: str) -> StreamExecutionEnvironment:
    """Return the environment of a program.

    Args:
        jars: the URLs of the Kafka connector's jars, joined by semicolons.
        checkpoints: folder for them.
    """
    settings = Configuration()
    for name, value in {
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": Path(checkpoints).absolute().as_uri(),
        "taskmanager.numberOfTaskSlots": "2",
        "rest.port": "0",
        # With checkpoints a job that fails is started again for ever, and looks as if it hung.
        "restart-strategy.type": "none",
        "pipeline.object-reuse": "true",
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        # The interpreter in the JVM does not find the packages of a virtual environment by itself.
        "python.pythonpath": sysconfig.get_path("platlib"),
    }.items():
        settings.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(2)
    env.add_jars(*jars.split(";"))
    return env


def lines_to(folder: str) -> FileSink:
    """Return a sink that writes a line for each text into files of one folder."""
    return (
        FileSink.for_row_format(str(Path(folder).absolute()), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
