"""The jobs of a script of SQL as `poundlock doctor script.sql` looks at them: those of its INSERTs and of its queries, planned as a run would.

The script is gone through as by `poundlock sql --check`: on a copy of a session, and nothing of it runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from poundlock.cli.options import Call
from poundlock.cli.setup.job_checks import LoadedJob, planned
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.sql.connectors.table import RowLookup
    from poundlock.sql.tables import TableDefinition


_BY_FORMAT = {
    "avro": ("avro",),
    "protobuf": ("protobuf",),
    "avro-confluent": ("registry", "avro"),
    "debezium-avro-confluent": ("registry", "avro"),
    "protobuf-confluent": ("registry", "protobuf"),
    "json-schema-confluent": ("registry", "json-schema"),
}


def is_script(target: str) -> bool:
    """Whether what was typed names a script of SQL, and no file of Python."""
    return target.lower().endswith(".sql")


def load_script_jobs(target: str, settings: Settings, call: Call) -> list[LoadedJob]:
    """Return the jobs of a script in their order.

    Raises:
        PoundlockError: it cannot be read, a statement cannot be run, or there is nothing in it that runs.
    """
    from poundlock.cli.job_loader import find_modules_in
    from poundlock.cli.jobs.sql import job_name, read_script
    from poundlock.cli.jobs.sql_jobs import ListedJobs
    from poundlock.sql.running.runner import ScriptRunner
    from poundlock.sql.statements.results import RunsInserts, RunsQuery

    script = Path(target)
    text = read_script(script)
    find_modules_in(script.parent)
    nobody = lambda *given: None  # noqa: E731
    runner = ScriptRunner(job_name(script), nobody, nobody, settings=settings, control=ListedJobs(call))
    of_query = partial(settings.model_copy, update={"on_error": None, "checkpoint_dir": None})
    loaded = []
    for checked in runner.check(text):
        if checked.builder is not None and isinstance(checked.result, RunsInserts | RunsQuery):
            job = checked.builder.job
            job.command, job.script = "sql", shlex.quote(target)
            its = of_query() if isinstance(checked.result, RunsQuery) else settings
            tables, lookups = checked.builder.tables, checked.builder.lookups
            loaded.append(replace(planned(target, job, its), lookups=lookups, extras=_extras(tables, lookups)))
    if not loaded:
        raise DefinitionError(
            f"{target} has no statement that runs a job",
            next="write INSERT INTO … SELECT …, or a query, behind what it defines",
        )
    return loaded


def _extras(tables: Mapping[str, TableDefinition], lookups: Mapping[str, RowLookup]) -> dict[str, str]:
    """Return the extras that formats of tables need, and databases that are looked up in, each with the first that needs it."""
    wanted: dict[str, str] = {}
    for name, table in tables.items():
        for option in ("format", "key.format", "value.format"):
            for extra in _BY_FORMAT.get(table.options.get(option, ""), ()):
                wanted.setdefault(extra, f"{option} of table {name}")
    for name in lookups:
        if tables[name].options.get("connector") == "jdbc":
            wanted.setdefault("postgres", f"lookup {name}")
    return wanted
