"""Who computes each function: the table has every function, the page has the table, and what is said of them is so."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from poundlock.sql.analysis.aggregate_calls import AGGREGATES
from poundlock.sql.functions.engines import ENGINES, NAMES, WRITTEN
from poundlock.sql.functions.kernels.columns import by_value
from poundlock.sql.functions.kernels.distinct import over_distinct
from poundlock.sql.functions.table import FUNCTIONS
from poundlock.sql.statements.results import ShownRows
from poundlock.sql.statements.session import SqlSession
from unit.sql.functions import test_recorded_calls as recorded

PAGE = Path(__file__).parents[4] / "docs/sql.md"
WORD = re.compile(r"[A-Z][A-Z0-9_]*")


def test_every_function_that_is_called_by_a_word_is_in_the_table() -> None:
    assert set(ENGINES) == {name for name in FUNCTIONS if WORD.fullmatch(name)}


def test_the_page_has_every_function_beside_who_computes_it() -> None:
    part = PAGE.read_text(encoding="utf-8").partition("## Functions")[2].partition("\n## ")[0]
    shown: dict[str, set[str]] = defaultdict(set)
    for row in re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", part, re.MULTILINE):
        shown[row[0].strip()] |= set(re.findall(r"`([^`]+)`", row[1]))
    wanted: dict[str, set[str]] = defaultdict(set)
    for name, engine in ENGINES.items():
        wanted[engine].add(WRITTEN.get(name, name))
    assert {engine: names for engine, names in shown.items() if engine in wanted} == wanted


def test_show_functions_has_them_and_the_aggregates() -> None:
    (shown,) = SqlSession().results("SHOW FUNCTIONS")
    assert isinstance(shown, ShownRows)
    assert [row[0] for row in shown.rows] == sorted(each.lower() for each in (*NAMES, *AGGREGATES))


def refused(*arguments: object, **others: object) -> object:
    raise AssertionError("Python computes values")


@pytest.mark.parametrize("case", sorted(recorded.CALLS))
def test_what_is_computed_by_columns_calls_python_for_no_value(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (over_distinct, by_value):
        monkeypatch.setattr(function, "__code__", refused.__code__)
    monkeypatch.setattr(recorded, "FUNCTIONS", FUNCTIONS)
    functions = recorded.Functions(list(FUNCTIONS.values()))
    seen = 0
    for call in recorded.CALLS[case].values():
        if ENGINES[call.name] not in ("Arrow", "columns"):
            continue
        arguments = [
            recorded.column(case, each[1:]) if isinstance(each, str) and each.startswith(":") else each
            for each in call.arguments
        ]
        functions.call(call.name, *arguments, options=call.options, returns=call.returns)
        seen += 1
    assert seen or case in (recorded.REGEX, recorded.ZONE, recorded.JSON, recorded.BUILD)
