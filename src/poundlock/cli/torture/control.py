"""The control: the output of a tortured run is broken on purpose, which the comparison has to find."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from poundlock.cli.torture.sandbox import TORTURED, Sandbox
from poundlock.cli.torture.topics import SandboxTopics
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.testing.audit import finished_files

Control = Literal["lost", "doubled"]


def break_output(job: Job, sandbox: Sandbox, control: Control) -> str:
    """Remove or repeat a finished file of the tortured run, or repeat a record of a topic; return what was done.

    Raises:
        DefinitionError: the job wrote nothing that can be broken so.
    """
    for node in job.sinks:
        if isinstance(node.sink, FileSink):
            folder = sandbox.output(TORTURED, node.id)
            files = finished_files(folder)[0] if folder.exists() else []
            if files:
                return _break_file(files[-1], control)
        if isinstance(node.sink, KafkaSink) and control == "doubled":
            topics, topic = SandboxTopics(node.sink), sandbox.topic(TORTURED, node.id)
            if records := topics.read(topic):
                topics.produce(topic, records[-1:])
                return f"the last record of {topic} was produced once more"
    raise DefinitionError(
        f"--control {control}: the job has written no file that could be {control}",
        next="give it more input; of a job with Kafka sinks alone, --control doubled repeats a record",
    )


def _break_file(path: Path, control: Control) -> str:
    if control == "lost":
        path.unlink()
        return f"{path} was removed"
    path.with_name(f"{path.stem}-again{path.suffix}").write_bytes(path.read_bytes())
    return f"{path} was copied beside itself"
