"""`poundlock new`: a project that runs as it is, to be changed into one's own. Never writes over anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Annotated
from uuid import UUID

from typer import Argument, Option

from poundlock.cli.output import Output
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
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a small project that runs."""
    files = create(Path(name))
    lines = [*(f"made {file}" for file in files), "", f"Next: cd {name} && poundlock run job.py"]
    Output(as_json).show(lines, {"folder": name, "files": [str(file) for file in files]})


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
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise DefinitionError(f"{name!r} is not a job name", next='use letters, digits, ".", "_" and "-"')
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DefinitionError(f"{folder} exists and is not an empty folder", next="choose another name")
    contents = {
        "job.py": _JOB,
        "poundlock.toml": _TOML,
        "README.md": _README,
        ".gitignore": _GITIGNORE,
        "input/events.jsonl": _events(),
    }
    with refusing(f"{folder} cannot be made", next="choose a folder that you may write to"):
        (folder / "input").mkdir(parents=True, exist_ok=True)
        for file, text in contents.items():
            (folder / file).write_text(text.replace("{name}", name), encoding="utf-8")
    return [folder / file for file in contents]
