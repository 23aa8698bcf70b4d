"""The recorded scripts, gone through without running anything: names and types of results, whether they change, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.errors import DefinitionError
from poundlock.sql.relations.changes import is_updating
from poundlock.sql.relations.tree import LogicalScan
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import Result, RunsQuery
from poundlock.sql.statements.session import SqlSession, error_kind
from support.sql_scripts import CASES, whole_script

NOT_YET = frozenset({"watermark.current"})
OTHERWISE = frozenset({"settings.unknown_key", "error.over_two_columns"})
OF_CONNECTORS = frozenset(
    {
        "error.update_into_files", "error.connector_unknown", "error.missing_option", "error.missing_connector",
        "error.option_unknown", "error.metadata_unknown", "error.match_on_updates", "error.lookup_join",
    }
)  # fmt: skip
"""What only the connector of a table knows."""
CHANGELOGS = ("debezium-json", "canal-json", "maxwell-json")


def last_of(script: str) -> tuple[SqlSession, Result]:
    """Return a session and what the last statement of a script comes to in it."""
    session = SqlSession()
    results = [session.take(statement, script) for statement in statements_of(script)]
    return session, results[-1]


@pytest.mark.parametrize("id", sorted(set(CASES) - NOT_YET - OTHERWISE - OF_CONNECTORS))
def test_what_is_known_before_anything_runs(id: str) -> None:
    case, expected = CASES[id], CASES[id]["expected"]
    if expected["kind"] == "error" and expected["stage"] == "prepare":
        with pytest.raises(DefinitionError) as refused:
            last_of(whole_script(case))
        assert expected["class"] in ("other", error_kind(refused.value)), str(refused.value)
        return
    session, last = last_of(whole_script(case))
    if not isinstance(last, RunsQuery) or "result" in case or expected["kind"] == "error":
        return
    got = [(field.name, plain_type(field.type)) for field in last.relation.fields]
    assert got == [(column["name"], column["type"]) for column in expected["columns"]]
    if not session.is_batch:
        changing = any(table["format"] in CHANGELOGS for table in case["tables"])
        updates = is_updating(last.relation, lambda scan: of_changelog(scan))
        assert updates is (expected["kind"] == "update") or changing


def of_changelog(scan: LogicalScan) -> bool:
    """Return whether the rows of a table change."""
    return scan.definition.options.get("format") in CHANGELOGS


def plain_type(kind: Any) -> str:
    """Return a type as the cases have it."""
    return str(kind).replace(" NOT NULL", "").replace("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE")
