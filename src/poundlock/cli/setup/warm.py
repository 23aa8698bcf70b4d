"""`poundlock warm`: archives Spark's classes for the Java and pyspark that are here, so that jobs start sooner."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output, Text


def command(
    again: Annotated[bool, typer.Option("--again", help="Make the archive even if it is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Make jobs start sooner, once per installation.

    Archives Spark's classes: a minute or two and 150 MB. A job whose Java, pyspark or jars changed since then runs without.
    """
    from poundlock.config import load_settings
    from poundlock.spark.launch import class_archive as cds
    from poundlock.spark.launch.java import find_java, newest_java

    output, settings = Output(json), load_settings()
    environment = {**os.environ, "JAVA_HOME": str(settings.java_home)} if settings.java_home else None
    java = find_java(environment, newest=newest_java())
    made = str(cds.train(java, [], cache=settings.cache_dir, progress=output.note, again=again))
    output.show(Text(text=made, data={"archives": [made]}))
