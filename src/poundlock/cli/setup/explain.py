"""`poundlock explain`: the stages of a job and why each step runs where it does, as text or as a picture. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from poundlock.cli.options import Call, JobArgument, with_shared_options
from poundlock.errors import DefinitionError, refusing


@with_shared_options
def command(
    job: JobArgument,
    mermaid: Annotated[bool, Option("--mermaid", help="As text for Mermaid, which GitHub draws.")] = False,
    svg: Annotated[bool, Option("--svg", help="As a picture in SVG.")] = False,
    file: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="Write the picture here instead of printing it.")
    ] = None,
    *,
    call: Call,
) -> None:
    """Show how a job would run: its stages, and why."""
    from poundlock.cli.job_loader import load_job
    from poundlock.driver.driver import with_settings
    from poundlock.plan.explain import explain, explain_json

    forms = [name for name, asked in (("--mermaid", mermaid), ("--svg", svg), ("--json", call.output.as_json)) if asked]
    if len(forms) > 1:
        raise DefinitionError(f"{forms[0]} does not go with {forms[1]}", next="give one of them")
    if file is not None and not (mermaid or svg):
        raise DefinitionError("-o is for a picture", next="add --svg or --mermaid")
    loaded = with_settings(load_job(job), call.settings())
    if not (mermaid or svg):
        call.output.show("" if call.output.as_json else explain(loaded), lambda: explain_json(loaded))
        return
    from poundlock.plan import picture

    drawn = picture.svg(loaded) if svg else picture.mermaid(loaded)
    if file is None:
        call.output.line(drawn.rstrip("\n"))
        return
    with refusing(f"{file} cannot be written", next="give -o a place that you may write to"):
        file.write_text(drawn, encoding="utf-8")
    call.output.line(f"made {file}")
