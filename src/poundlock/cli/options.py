"""Options that several commands share, each with one spelling and one help text. Nothing is parsed here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ConfigOption", "DefineOption", "JobArgument", "JsonOption", "MasterOption", "ParallelismOption"]

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
MasterOption = Annotated[str | None, typer.Option("--master", help='Spark master, such as "local[4]".')]
ParallelismOption = Annotated[
    int | None, typer.Option("-p", "--parallelism", min=1, help="Number of tasks; default: the cores of the master.")
]
