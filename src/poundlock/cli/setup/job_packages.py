"""The packages and jars that a job needs, for `poundlock doctor`: by its sources, sinks and stores, from poundlock's own metadata.

Nothing is installed and nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from poundlock.cli.setup.check import Check, tried
from poundlock.errors import PoundlockError, pip_install

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.job import Job
    from poundlock.plan.plan import Plan

_CONNECTORS = (
    "kafka",
    "postgres",
    "mysql",
    "iceberg",
    "delta",
    "opensearch",
    "cassandra",
    "rabbitmq",
    "mqtt",
    "kinesis",
)
_BY_MODULE = {f"poundlock.connectors.{name}": name for name in _CONNECTORS}
_BY_TASK_MODULE = {"fastavro": "avro", "google.protobuf": "protobuf", "jsonschema_rs": "json-schema"}
_BY_SCHEME = {
    "s3": "s3",
    "s3a": "s3",
    "hdfs": "hdfs",
    **dict.fromkeys(("gs", "az", "abfs", "abfss"), "objects"),
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:[>=]=([0-9.]+))?.*; *extra *== *[\"']([a-z0-9-]+)[\"']")
_OF_SPARK = ("rate", "rate-micro-batch", "socket", "csv", "json", "orc", "parquet", "text", "binaryFile")


def package_checks(plan: Plan, checkpoint: str | PoundlockError, more: Mapping[str, str]) -> Iterator[Check]:
    """Yield the packages of each extra that a job uses.

    Args:
        more: extras that are used beside those that its sources, sinks and stores say, each with what uses it.
    """
    wanted = {**more, **_extras(plan, checkpoint)}
    known = _requirements()
    for extra, why in wanted.items():
        for package, least in known.get(extra, {}).items():
            yield _package(package, least, f"extra {extra}, for {why}", f"poundlock[{extra}]")


def jar_checks(job: Job, plan: Plan, settings: Settings, checkpoint: str | PoundlockError) -> Iterator[Check]:
    """Yield the jars that Spark needs for a job, and those that the job's settings name."""
    from poundlock.connectors.base import SparkSource
    from poundlock.spark.launch.jars import JAR_SETS, JarPlaces, missing_jars
    from poundlock.spark.launch.session_conf import needs_of
    from poundlock.storage import open_storage

    def state(name: str) -> str:
        missing = missing_jars(name, JarPlaces.of(settings))
        if missing:
            return (
                f"{len(missing)} jars for {JAR_SETS[name].what} are fetched when the job starts: {', '.join(missing)}"
            )
        return f"{JAR_SETS[name].what}: {len(JAR_SETS[name].pins)} jars are here"

    if plan.has_streams and isinstance(checkpoint, str):
        for name in needs_of(open_storage(checkpoint)).jar_sets:
            yield tried(f"jars {name}", partial(state, name))
    conf = {**job.spark, **settings.spark}
    named = [
        each for key in ("spark.jars", "spark.driver.extraClassPath") for each in re.split("[,:]", conf.get(key, ""))
    ]
    gone = [each for each in named if each.startswith("/") and not each.endswith("*") and not Path(each).exists()]
    for each in gone:
        yield Check(name="jars", ok=False, result=f"{each} is not there", next="mend the path in spark.jars")
    for name, source in plan.sources.items():
        if isinstance(source, SparkSource) and (form := source.spark_read().format) not in _OF_SPARK:
            given = [f"{key}={conf[key]}" for key in ("spark.jars", "spark.jars.packages") if key in conf]
            result = ", ".join(given) or "no jar is named, so that it has to be among Spark's own"
            yield Check(name=f"jars {name}", ok=True, result=f"connector {form!r} of Spark: {result}")


def _extras(plan: Plan, checkpoint: str | PoundlockError) -> dict[str, str]:
    """Return the extras that a job's sources, sinks and stores need, each with the first that needs it."""
    from poundlock.checkpoint.capabilities import TaskModules

    wanted: dict[str, str] = {}
    for role, parts in (("source", plan.sources), ("sink", plan.sinks)):
        for name, part in parts.items():
            why = f"{role} {name}"
            for prefix, extra in _BY_MODULE.items():
                if type(part).__module__.startswith(prefix):
                    wanted.setdefault(extra, why)
            for module in part.task_modules if isinstance(part, TaskModules) else ():
                if module in _BY_TASK_MODULE:
                    wanted.setdefault(_BY_TASK_MODULE[module], why)
    places = [("the checkpoint", checkpoint), *((f"{role} {name}", path) for role, name, path in file_paths(plan))]
    for why, path in places:
        if isinstance(path, str) and (store := _BY_SCHEME.get(path.partition(":")[0].lower())):
            wanted.setdefault(store, why)
    return wanted


def file_paths(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield role, name and folder of file sources and file sinks."""
    from poundlock.connectors.files.sink.sink import FileSink
    from poundlock.connectors.files.source.source import FileSource

    yield from (("source", name, each.path) for name, each in plan.sources.items() if isinstance(each, FileSource))
    yield from (("sink", name, each.path) for name, each in plan.sinks.items() if isinstance(each, FileSink))


def _requirements() -> Mapping[str, Mapping[str, str]]:
    """Return the packages of each extra of this installation, with the least version; nothing where poundlock was not installed."""
    try:
        lines = metadata.requires("poundlock") or []
    except metadata.PackageNotFoundError:
        return {}
    known: dict[str, dict[str, str]] = {}
    for line in lines:
        if (parts := _REQUIREMENT.match(line)) and parts[1] != "poundlock":
            known.setdefault(parts[3], {})[parts[1]] = parts[2] or "0"
    return known


def _package(package: str, least: str, why: str, requirement: str) -> Check:
    name, next = f"package {package}", pip_install(requirement)
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Check(name=name, ok=False, result=f"not installed ({why})", next=next)
    ok = _numbers(version) >= _numbers(least)
    return Check(name=name, ok=ok, result=f"{version} ({why})" + ("" if ok else f"; {least} is needed"), next=next)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
