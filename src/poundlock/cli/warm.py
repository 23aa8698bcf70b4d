"""`poundlock warm`: archives Spark's classes for the Java, pyspark and connectors that are here, so that jobs start sooner."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output, Text

__all__ = ["command"]


def command(
    kafka: Annotated[bool, typer.Option("--kafka/--no-kafka", help="Also for jobs that read Kafka.")] = True,
    again: Annotated[bool, typer.Option("--again", help="Make the archives even if they are there.")] = False,
    json: JsonOption = False,
) -> None:
    """Make jobs start sooner, once per installation.

    Archives Spark's classes: a minute or two and 150 MB each. A job whose Java, pyspark or jars changed since then runs without.
    """
    from poundlock.config import load_settings
    from poundlock.runtime import cds
    from poundlock.runtime.jars import JarPlaces, jar_set
    from poundlock.runtime.java import find_java

    output, settings = Output(json), load_settings()
    java = find_java({**os.environ, "JAVA_HOME": str(settings.java_home)} if settings.java_home else None)
    kinds = [[], jar_set("kafka", progress=output.note, places=JarPlaces.of(settings))] if kafka else [[]]
    made = [str(cds.train(java, jars, cache=settings.cache_dir, progress=output.note, again=again)) for jars in kinds]
    output.show(Text(text="\n".join(made), data={"archives": made}))
