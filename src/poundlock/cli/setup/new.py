"""`poundlock new`: a project that runs as it is, to be changed into one's own. Never writes over anything.

Without more than a name it is a small one, from files to files; with a source and a sink, or on a terminal where they are asked for, it has a
test, packaging, containers and CI, too. `--connector` makes a connector's package instead of a job.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Annotated
from uuid import UUID

from typer import Argument, Option, confirm, prompt

from poundlock.cli.output import Output
from poundlock.cli.setup.project.connector import connector_files
from poundlock.cli.setup.project.files import SINK_NAMES, SOURCE_NAMES, project_files
from poundlock.errors import DefinitionError, refusing

_FIRST_EVENT = 1_545_177_600  # 2018-12-19 00:00 UTC

_JOB = '''\
"""Events from files into files by the day of the event, each in exactly one finished file. Make it your own."""

from poundlock import EventTimeBucketAssigner, FileSink, FileSource, Job, RollingPolicy

job = Job("{name}", checkpoint_interval="2 s", checkpoint_dir="checkpoint")
events = job.from_source(FileSource("input"), name="events")  # watch=True goes on with files that come later
events.sink_to(
    FileSink(
        "output",
        row="value",
        bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="UTC"),
        rolling=RollingPolicy(every="60 s", size="128 MB"),
    ),
    name="files",
)
'''

_TOML = """\
# Settings of this machine; each can also be given as POUNDLOCK_NAME in the environment or as -D name=value.
state_dir = ".poundlock"
driver_memory = "1g"
log_level = "info"

[restart-strategy]
type = "exponential-delay"
exponential-delay.initial-backoff = "1 s"
exponential-delay.max-backoff = "1 min"
"""

_README = """\
# {name}

    poundlock run job.py        # run it; Ctrl-C stops it cleanly, and the next run goes on where it stopped
    poundlock explain job.py    # see its stages and why they run where they do
    poundlock ledger checkpoint # see what each checkpoint made visible
    find output -type f         # see the files; the one line of input that is no event is in _dead_letters

The job is `job.py`; settings of the machine are in `poundlock.toml`. The position of the job is in `checkpoint/`: remove that
folder and `output/` together to start over.
"""

_GITIGNORE = "checkpoint/\noutput/\n.poundlock/\n__pycache__/\n"


def command(
    name: Annotated[str, Argument(metavar="NAME", help="Folder to make, and name of the job.")],
    source: Annotated[
        str | None, Option("--from", metavar="SOURCE", help="kafka or files: where events come from.")
    ] = None,
    sink: Annotated[
        str | None, Option("--to", metavar="SINK", help="files, s3, kafka or postgres: where events go to.")
    ] = None,
    table: Annotated[
        bool, Option("--table", help="Write Parquet with a partition a day, each with _SUCCESS once it is complete.")
    ] = False,
    connector: Annotated[
        bool, Option("--connector", help="Make a package with a source and a sink of your own, and its tests.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a project that runs.

    With --from or --to it has a test, packaging, containers and CI, too. On a terminal it asks for what is not given. With --connector it
    is no job, but a connector's package.
    """
    if connector and (source, sink, table) != (None, None, False):
        raise DefinitionError(
            "--connector makes no job, so --from, --to and --table mean nothing beside it", next="leave them out"
        )
    if not connector and not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        check_place(Path(name))
        source, sink, table = _asked(source, sink, table)
    if connector:
        files, next = write(Path(name), connector_files(Path(name).resolve().name)), "python -m pytest"
    elif source is None and sink is None and not table:
        files, next = create(Path(name)), "poundlock run job.py"
    else:
        chosen = project_files(Path(name).resolve().name, source or "files", sink or "files", table=table)
        files, next = write(Path(name), chosen), "python -m pytest"
    lines = [*(f"made {file}" for file in files), "", f"Next: cd {name} && {next}"]
    Output(as_json).show(lines, {"folder": name, "files": [str(file) for file in files]})


def _asked(source: str | None, sink: str | None, table: bool) -> tuple[str | None, str | None, bool]:
    """Return what was given, and for the rest what a person answers; files to files is the small project, as without a terminal."""
    nothing = source is None and sink is None and not table
    source = source or str(prompt(f"Where do events come from ({', '.join(SOURCE_NAMES)})?", default="files")).strip()
    if sink is None:
        sink = str(prompt(f"Where do they go to ({', '.join(SINK_NAMES)})?", default="files")).strip()
        table = table or (sink in ("files", "s3") and confirm("As a table of Parquet with a partition a day?"))
    return (
        (None, None, False) if nothing and (source, sink, table) == ("files", "files", False) else (source, sink, table)
    )


def _events(count: int = 2_000, seed: int = 7) -> str:
    """Return JSON lines of made-up events over two days, the same for the same seed, and one line that is none."""
    random = Random(seed)
    lines = [
        json.dumps(
            {
                "timestamp": round(_FIRST_EVENT + random.uniform(0, 2 * 86_400), 3),
                "event": random.choice(("page_view", "adv_click", "thumbs_up")),
                "uuid": str(UUID(int=random.getrandbits(128), version=4)),
            },
            separators=(",", ":"),
        )
        for _ in range(count)
    ]
    lines.insert(count // 2, "this line is no event")
    return "\n".join(lines) + "\n"


def create(folder: Path) -> list[Path]:
    """Make the project and return its files.

    Raises:
        DefinitionError: the name is no job name, or the folder has files in it.
    """
    contents = {
        "job.py": _JOB,
        "poundlock.toml": _TOML,
        "README.md": _README,
        ".gitignore": _GITIGNORE,
        "input/events.jsonl": _events(),
    }
    name = folder.resolve().name
    return write(folder, {file: text.replace("{name}", name) for file, text in contents.items()})


def check_place(folder: Path) -> None:
    """Raise DefinitionError where the folder's name is no job name, or it has files in it."""
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise DefinitionError(f"{name!r} is not a job name", next='use letters, digits, ".", "_" and "-"')
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DefinitionError(f"{folder} exists and is not an empty folder", next="choose another name")


def write(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    """Write the files of a new project and return them. Raises DefinitionError as `check_place` does, and where it cannot be written."""
    check_place(folder)
    with refusing(f"{folder} cannot be made", next="choose a folder that you may write to"):
        for file, text in contents.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in contents]
