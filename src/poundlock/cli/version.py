"""`poundlock version`: what is installed. Reads package metadata only; nothing is imported."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from poundlock.cli.output import Output, Text

__all__ = ["command", "versions"]


def versions() -> Text:
    """Return the versions of this package, Python and what matters most below."""
    found = {"poundlock": _of("poundlock"), "python": platform.python_version()}
    found |= {name: _of(name) for name in ("pyspark", "pyarrow", "numpy", "pandas")}
    return Text(text=", ".join(f"{name} {version}" for name, version in found.items()), data=found)


def _of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package == "poundlock":
            from poundlock import __version__

            return __version__
        return "not installed"


def command(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what is installed."""
    Output(json).show(versions())
