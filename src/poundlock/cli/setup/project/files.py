"""The files of a new project that has a source and a sink of one's choice: job, test, packaging, containers, CI."""

from __future__ import annotations

from collections.abc import Mapping

from poundlock.cli.setup.project.connectors import EVENT, SINKS, SOURCES, End
from poundlock.errors import DefinitionError

SOURCE_NAMES = tuple(SOURCES)
SINK_NAMES = tuple(dict.fromkeys(name for name, _ in SINKS))

_JOB = '''\
"""Events from {source} into {sink}, each once, though its producer may send it twice. Make it your own."""

from os import environ

from functions import FirstOfEach

from poundlock import {imports}

SCHEMA = "at bigint, event string, uuid string"  # at: ms since the epoch

job = Job(
    "{name}",
    checkpoint_interval="10 s",
    checkpoint_dir={keep},
{dead_letters}    require="exactly-once",
)
events = job.from_source(
{source_code}    # An event may come five minutes after younger ones.
    WatermarkStrategy.bounded_out_of_orderness("5 min", timestamp="at"),
    name="events",
)
first = events.key_by("uuid").process(FirstOfEach(), schema=SCHEMA, name="first-of-each")
first.sink_to(
{sink_code}    name="out",
)
'''
_FUNCTIONS = '''\
"""What the job does with each event. It knows nothing of Spark, and is tested without."""

from poundlock import KeyedProcessFunction, ValueStateDescriptor

HOUR_MS = 3_600_000


class FirstOfEach(KeyedProcessFunction):
    """Lets the first event of each uuid through, and forgets the uuid an hour later, by event time."""

    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, event, ctx):
        if self.seen.value() is None:
            self.seen.update(1)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + HOUR_MS)
            # The stream's column of event time is left out: what is yielded has the columns of schema= in job.py.
            yield {"at": event["at"], "event": event["event"], "uuid": event["uuid"]}

    def on_timer(self, timestamp, ctx):
        self.seen.clear()
'''
_TEST = '''\
"""The function of the job, driven without Spark; and the job's plan, which starts nothing."""

from datetime import UTC, datetime

from functions import HOUR_MS
from job import first, job

from poundlock.testing import ProcessHarness


def event(uuid, at_ms):
    row = {"at": at_ms, "event": "page_view", "uuid": uuid}
    return {**row, "event_time": datetime.fromtimestamp(at_ms / 1_000, UTC)}, at_ms  # as the job's watermarks give it


def test_the_second_of_a_uuid_is_left_out():
    with ProcessHarness(first) as harness:
        harness.process_elements([event("a", 1_000), event("b", 2_000), event("a", 3_000)])
        harness.restore(harness.snapshot())  # as a crash and a start would
        harness.process_element(*event("b", 4_000))
        assert [(each.key, each.value["at"]) for each in harness.output] == [("a", 1_000), ("b", 2_000)]


def test_a_uuid_is_forgotten_after_an_hour():
    with ProcessHarness(first) as harness:
        harness.process_element(*event("a", 0))
        assert [timer.time for timer in harness.timers()] == [HOUR_MS]
        harness.process_watermark(HOUR_MS)
        assert harness.timers() == []
        harness.process_element(*event("a", HOUR_MS + 1))
        assert len(harness.output) == 2


def test_the_job_can_be_planned_and_is_exactly_once():
    assert "events -> out: exactly-once" in job.explain()
'''
_PYPROJECT = """\
[project]
name = "{package}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["poundlock[{extras}]"]

[project.optional-dependencies]
test = ["pytest>=8"]

[build-system]
requires = ["setuptools>=75"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["job", "functions"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""
_DOCKERFILE = """\
FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless && rm -rf /var/lib/apt/lists/*
WORKDIR /job
COPY wheels wheels
COPY pyproject.toml job.py functions.py ./
RUN pip install --no-cache-dir --find-links wheels .
# The JVM's heap; Python's workers need about as much again.
ENV POUNDLOCK_DRIVER_MEMORY=1g
ENTRYPOINT ["poundlock"]
CMD ["run", "job.py"]
"""
_COMPOSE = """\
# docker compose up --build: the job, and the servers that it needs, for trials.
services:
  job:
    build: .
    restart: on-failure
{job}{services}"""
_CI = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.13"}
      - run: pip install --find-links wheels ".[test]"
      - run: pytest
"""
_README = """\
# {name}

Events from {source} into {sink}. An event is a line of JSON such as
`{"at":1545263998000,"event":"page_view","uuid":"fbe7a763-b053-414c-b740-eb31ebd3039a"}`.

    pytest                          # test what it does, without Spark
    poundlock explain job.py        # see its stages and what it promises
{trial}    poundlock doctor job.py         # see whether this machine and the servers have what it needs
    poundlock run job.py            # run it; Ctrl-C stops it cleanly, and the next run goes on where it stopped
    poundlock dashboard             # its page, and that of all jobs, in a terminal of its own

A terminal of its own needs the environment that poundlock is in, too, as in `. ../.venv/bin/activate`.{visible}

The job is `job.py`, what it does with each event `functions.py`. Where its servers are comes from the environment:

{variables}
With containers, the servers for trials among them:

    pip wheel --no-deps -w wheels /path/to/poundlock   # once: images and CI install poundlock from there
    docker compose up --build

The position of the job is in `{kept}`: remove that and the output together to start over.
"""
_VISIBLE = """ A file is seen a minute after its
first row, in `output/` or where the job is told to write, and at once when the job is stopped; until then its name begins with a dot."""
_IGNORE = "checkpoint/\noutput/\ndead-letters/\n.poundlock/\n__pycache__/\n*.egg-info/\n"


def project_files(name: str, source: str, sink: str, *, table: bool) -> dict[str, str]:
    """Return the files of a project by their paths.

    Args:
        name: of the job and its folder.
        source, sink: of `SOURCE_NAMES` and `SINK_NAMES`.
        table: whether the sink is a table with a partition a day, each with a mark once it is complete.

    Raises:
        DefinitionError: the source or sink is not known, or the sink is none that has partitions.
    """
    if source not in SOURCES:
        raise DefinitionError(f"--from {source} is not known", next=f"use one of {', '.join(SOURCE_NAMES)}")
    if sink not in SINK_NAMES:
        raise DefinitionError(f"--to {sink} is not known", next=f"use one of {', '.join(SINK_NAMES)}")
    if (sink, table) not in SINKS:
        raise DefinitionError(
            f"--table is for files, and --to is {sink}", next="leave --table out, or write to s3 or files"
        )
    ends = (SOURCES[source], SINKS[sink, table])
    fields = _fields(name, *ends)
    texts = {
        "job.py": _JOB,
        "functions.py": _FUNCTIONS,
        "tests/test_job.py": _TEST,
        "pyproject.toml": _PYPROJECT,
        "Dockerfile": _DOCKERFILE,
        "compose.yaml": _COMPOSE,
        ".github/workflows/test.yml": _CI,
        "README.md": _README,
        ".gitignore": _IGNORE,
        "wheels/.gitkeep": "",
        **{path: text for end in ends for path, text in end.files.items()},
    }
    return {path: _filled(text, fields) for path, text in texts.items()}


def _fields(name: str, source: End, sink: End) -> Mapping[str, str]:
    variables = {**source.environment, **sink.environment}
    services = dict.fromkeys(end.service for end in (source, sink) if end.service)
    keep = sink.keep or 'environ.get("CHECKPOINT", "checkpoint")'
    if not sink.keep:
        variables["CHECKPOINT"] = "/checkpoint"
    places = [] if sink.keep else ["./checkpoint:/checkpoint"]
    if "INPUT" in source.code:
        variables["INPUT"] = "/input"
        places.append("./input:/input:ro")
    dead_letters = ""
    if "FileSink" not in sink.imports:  # which has a folder for them
        dead_letters = '    dead_letters=environ.get("DEAD_LETTERS", "dead-letters"),\n'
        variables["DEAD_LETTERS"] = "/dead-letters"
        places.append("./dead-letters:/dead-letters")
    if '"OUTPUT"' in sink.code:
        variables["OUTPUT"] = "/output"
        places.append("./output:/output")
    job = ["    environment:", *(f"      {variable}: {value}" for variable, value in variables.items())]
    job += [f"    volumes: [{', '.join(places)}]"] if places else []
    if services:
        job.append(f"    depends_on: [{', '.join(each.strip().partition(':')[0] for each in services)}]")
    topics = "".join(f" --topic {end.topic}:3" for end in (source, sink) if end.topic)
    imports = sorted({"Job", "WatermarkStrategy", *source.imports, *sink.imports})
    return {
        "source_code": source.code,
        "sink_code": sink.code,
        "source": source.title,
        "sink": sink.title,
        "imports": "(\n" + "".join(f"    {each},\n" for each in imports) + ")",
        "keep": keep,
        "dead_letters": dead_letters,
        "kept": "$BUCKET/checkpoint" if sink.keep else "checkpoint/",
        "extras": ",".join(sorted({"rest", *(end.extra for end in (source, sink) if end.extra)})),
        "job": "\n".join(job) + "\n",
        "services": "".join(services),
        "trial": _trial(topics, source),
        "visible": _VISIBLE if '"OUTPUT"' in sink.code and 'every="60 s"' in sink.code else "",
        "variables": "".join(f"- `{variable}`, in the containers `{value}`\n" for variable, value in variables.items()),
        "package": name.lower(),
        "name": name,
    }


def _filled(text: str, fields: Mapping[str, str]) -> str:
    """Return a text with its fields; other braces stay."""
    for field, value in fields.items():
        text = text.replace(f"{{{field}}}", value)
    return text


def _trial(topics: str, source: End) -> str:
    """Return the lines of the README that start a broker for trials, where there are topics, and send a first event."""
    if not topics:
        return ""
    up = f"    poundlock kafka up{topics}    # a broker for trials, in a terminal of its own, until Ctrl-C\n"
    event = EVENT.strip()
    return up + (f"    echo '{event}' | poundlock kafka send {source.topic}    # an event\n" if source.topic else "")
