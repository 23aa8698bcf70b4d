"""`poundlock demo`: the reference job on a real broker, killed twice and audited. The exit code is the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from poundlock.errors import DefinitionError


def command(
    directory: Annotated[Path, typer.Option("--dir", help="Where it works; cleared at the start.")] = Path(
        "build/demo"
    ),
    events: Annotated[int, typer.Option(min=1, help="How many events are produced.")] = 200_000,
    kills: Annotated[int, typer.Option(min=0, help="How often the driver is killed.")] = 2,
) -> int:
    """Run the reference job on a real Kafka broker.

    Its driver is killed twice while it writes; then every file is compared with what was produced.
    """
    try:
        from poundlock.demo.program import DemoSettings, run_demo
    except ModuleNotFoundError as missing:
        raise DefinitionError(
            f"the demo needs the package {missing.name}, which is not installed",
            next="python -m pip install 'poundlock[demo]'",
        ) from missing

    return run_demo(DemoSettings(directory=directory, events=events, kills=kills)).exit_code
