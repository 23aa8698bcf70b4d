"""`poundlock torture`: kills a user's own job in a sandbox, and says whether it wrote what it would have written undisturbed."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.options import Call, JobArgument, ParallelismOption, with_shared_options
from poundlock.cli.output import plural
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.cli.torture.lives import Service
    from poundlock.config import Settings

KILLS = 10
RECORDS = 100_000
FILES = 1_000


@with_shared_options
def command(
    job: JobArgument,
    *,
    call: Call,
    kills: Annotated[
        int | None,
        Option("--kills", min=0, metavar="N", help="So many kills of chance; default: 10, and none beside --at."),
    ] = None,
    at: Annotated[
        list[str] | None,
        Option("--at", metavar="FAILPOINT[@N]", help="A kill at a step of the protocol, at its Nth pass; repeatable."),
    ] = None,
    seed: Annotated[int | None, Option("--seed", min=0, metavar="N", help="Of the kills; default: a new one.")] = None,
    records: Annotated[
        int, Option("--records", min=1, metavar="N", help="At most so many of each partition and generator.")
    ] = RECORDS,
    files: Annotated[int, Option("--files", min=1, metavar="N", help="At most so many of each file source.")] = FILES,
    sandbox: Annotated[
        Path | None,
        Option("--sandbox", metavar="DIR", help="An empty folder for it, which is kept; default: one that is removed."),
    ] = None,
    page: Annotated[Path | None, Option("--html", metavar="FILE", help="Write the report as a page, too.")] = None,
    stop_service: Annotated[
        list[str] | None,
        Option("--stop-service", metavar="COMMAND", help="Stops the broker or database, as a kill; repeatable."),
    ] = None,
    start_service: Annotated[
        list[str] | None,
        Option("--start-service", metavar="COMMAND", help="Starts it again, and waits until it answers; one for each."),
    ] = None,
    control: Annotated[
        str | None,
        Option("--control", metavar="lost|doubled", help="Break the output on purpose, to see that it is found."),
    ] = None,
    patience: Annotated[str, Option("--patience", metavar="SPAN", help="How long one life may take.")] = "10 min",
    parallelism: ParallelismOption = None,
) -> int:
    """Kill a job of yours again and again, and compare.

    In a sandbox: a sample of its own input, a checkpoint and an output of its own. The exit code is 0 if every record is there once and the ledger agrees, 1 if something differs or nothing could be killed.
    """
    from poundlock.cli.job_loader import load_job
    from poundlock.cli.jobs.run import typed_options
    from poundlock.cli.torture.kills import plan
    from poundlock.cli.torture.sample import SampleSize
    from poundlock.cli.torture.sandbox import refuse_what_stays_outside
    from poundlock.cli.torture.torture import Torture
    from poundlock.plan.outline import is_keyed
    from poundlock.stream.nodes import walk
    from poundlock.values import duration

    if control not in (None, "lost", "doubled"):
        raise DefinitionError(f"--control {control} is not known", next="use lost or doubled")
    services = _services(stop_service or [], start_service or [])
    settings = call.settings(parallelism=parallelism)
    _refuse_clusters(settings)
    loaded = load_job(job)
    refuse_what_stays_outside(loaded)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    chance = (0 if at else KILLS) if kills is None else kills
    keyed = any(is_keyed(node) for node in walk(loaded.graph()))
    planned = plan(seed, chance, at=at or (), keyed=keyed, services=len(services))
    if not planned:
        raise DefinitionError("nothing would be killed", next="leave --kills out, or give it a number above 0")
    root = _folder(sandbox, settings, loaded.name)
    torture = Torture(
        call=call,
        job=loaded,
        target=_absolute(job),
        root=root,
        kills=planned,
        arguments=typed_options(call, (), {"parallelism": parallelism}, no_rest=False),
        size=SampleSize(records=records, files=files, checkpoints=2 * len(planned) + 2),
        patience_s=duration(patience).total_seconds(),
        services=services,
        control=control,  # type: ignore[arg-type]
    )
    call.output.note(f"torture of {loaded.name}, seed {seed}: {plural(len(planned), 'kill')} in {root}")
    words = ["poundlock", "torture", job, "--seed", str(seed), "--kills", str(chance)]
    words += [word for name in at or () for word in ("--at", name)]
    words += ["--records", str(records)] if records != RECORDS else []
    words += ["--files", str(files)] if files != FILES else []
    for option, values in (("--stop-service", stop_service), ("--start-service", start_service)):
        words += [word for command in values or () for word in (option, command)]
    words += ["--control", control] if control is not None else []
    result = torture.run(seed, shlex.join([*words, *torture.arguments]), keep=sandbox is not None)
    if page is not None:
        from poundlock.cli.torture.report import page as page_of

        page.write_text(page_of(result), encoding="utf-8")
        call.output.note(f"page: {page}")
    call.output.show(result.lines(), result.to_json)
    return 0 if result.survived else 1


def _absolute(target: str) -> str:
    """Return a job's file, with its `:name`, as it is found from any folder."""
    from poundlock.cli.job_loader import split_target

    file, name = split_target(target)
    return f"{file.resolve()}:{name}" if name else str(file.resolve())


def _folder(asked: Path | None, settings: Settings, name: str) -> Path:
    """Return the folder of the sandbox, which is empty. Raises DefinitionError if it is not."""
    root = settings.state_dir / "torture" / f"{name}-{secrets.token_hex(4)}" if asked is None else asked
    root = root.resolve()
    if root.exists() and any(root.iterdir()):
        raise DefinitionError(f"the folder {root} is not empty", next="give --sandbox a new folder")
    root.mkdir(parents=True, exist_ok=True)
    return root


def _services(stop: Sequence[str], start: Sequence[str]) -> list[Service]:
    """Return the commands of services. Raises DefinitionError unless each has both."""
    from poundlock.cli.torture.lives import Service

    if len(stop) != len(start):
        raise DefinitionError(
            "a service that is stopped has to be started again",
            next="give --stop-service and --start-service for each, in the same order",
        )
    return [Service(stop=shlex.split(one), start=shlex.split(other)) for one, other in zip(stop, start, strict=True)]


def _refuse_clusters(settings: Settings) -> None:
    if not settings.master.startswith("local") or settings.deploy_mode != "client":
        raise DefinitionError(
            f"processes of {settings.master} cannot be killed from here", next="leave the master out: local[*] is one"
        )
