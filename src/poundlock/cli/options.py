"""Options that several commands share, each with one spelling and one help text. Nothing is parsed here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB.PY[:NAME]", help="File of the job; :NAME where it defines several.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DefineOption = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="A setting; wins over environment and file. spark.… goes to Spark."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; default: poundlock.toml where there is one."),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="MASTER", help="local[N], spark://HOST:PORT, yarn or k8s://URL."),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's, as for spark-submit.")
]
PyFilesOption = Annotated[
    str | None,
    typer.Option(
        "--py-files", metavar="FILES", help="Modules for the tasks of a cluster: a.py,b.zip; comma-separated."
    ),
]
ArchivesOption = Annotated[
    str | None,
    typer.Option("--archives", metavar="FILES", help="Unpacked beside the tasks: env.tar.gz#env is their Python."),
]
DeployModeOption = Annotated[
    str | None,
    typer.Option("--deploy-mode", metavar="client|cluster", help="Where the driver runs; default: client, here."),
]
ParallelismOption = Annotated[
    int | None,
    typer.Option(
        "-p", "--parallelism", min=1, help="Number of tasks, and the cores asked of a cluster; default: those it gives."
    ),
]
