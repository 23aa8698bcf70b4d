"""`poundlock version`: what is installed. Reads package metadata only; nothing is imported."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from poundlock.cli.output import Output, Text
from poundlock.versions import version_of


def versions() -> Text:
    """Return the versions of this package, Python and what matters most below."""
    result = {"poundlock": version_of("poundlock"), "python": platform.python_version()}
    result |= {name: version_of(name) for name in ("pyspark", "pyarrow", "numpy", "pandas")}
    return Text(text=", ".join(f"{name} {version}" for name, version in result.items()), data=result)


def command(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what is installed."""
    Output(json).show(versions())
