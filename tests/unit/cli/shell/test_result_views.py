"""What is on the terminal while a query runs, and behind it."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.cli.shell.result_views import ChangelogView, ResultTableView, TailView
from poundlock.cli.text_tables import table_lines
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING

UTC = ZoneInfo("UTC")
FIELDS = (Field("who", "who", STRING),)


def batch(*changes: tuple[str, str | None]) -> pa.RecordBatch:
    kinds, values = zip(*changes, strict=True)
    columns = {"who": pa.array(values, pa.string()), ROW_KIND: pa.array(kinds, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def test_a_table_changes_in_place_and_is_printed_at_the_end() -> None:
    view = ResultTableView(["who"], UTC, 100)
    view.take(FIELDS, batch(("+I", "ann"), ("+I", "bob")))
    view.take(FIELDS, batch(("-U", "ann"), ("+U", "amy")))
    assert view.lines(20)[3:] == ["| amy |", "| bob |", "+-----+", "2 rows"]
    printed: list[str] = []
    view.end(printed.append)
    assert printed == ["+-----+", "| who |", "+-----+", "| amy |", "| bob |", "+-----+", "2 rows"]


def test_a_table_that_is_longer_than_the_terminal_shows_its_last_rows() -> None:
    view = ResultTableView(["who"], UTC, 100)
    view.take(FIELDS, batch(*(("+I", str(n)) for n in range(50))))
    lines = view.lines(10)
    assert len(lines) == 10
    assert lines[3:-2] == [f"| {n}  |" for n in range(45, 50)]
    assert lines[-1] == "50 rows, the last 5 of them here"


def test_what_is_not_kept_is_named() -> None:
    view = ResultTableView(["who"], UTC, 2)
    view.take(FIELDS, batch(*(("+I", str(n)) for n in range(5))))
    printed: list[str] = []
    view.end(printed.append)
    assert printed[-2:] == ["2 rows", "3 older rows not kept: sql-client.execution.max-table-result.rows is 2"]


def test_the_tail_has_the_newest_changes_with_their_kinds() -> None:
    view = TailView(["who"], UTC, 2, has_kinds=True)
    view.take(FIELDS, batch(("+I", "ann"), ("-U", "ann"), ("+U", None)))
    printed: list[str] = []
    view.end(printed.append)
    assert printed[1] == "| op | who  |"
    assert printed[3:5] == ["| -U | ann  |", "| +U | NULL |"]
    assert printed[-2:] == [
        "Received a total of 3 rows",
        "1 older row not kept: sql-client.execution.max-table-result.rows is 2",
    ]


def test_a_changelog_is_printed_as_it_comes() -> None:
    view = ChangelogView(["who"], UTC)
    printed: list[str] = []
    view.take(FIELDS, batch(("+I", "ann"), ("-D", "ann")))
    view.print_new(printed.append, stopped=lambda: False)
    assert printed == ["op[who]", "+I[ann]", "-D[ann]"]
    view.take(FIELDS, batch(("+I", "bob")))
    view.print_new(printed.append, stopped=lambda: True)
    view.end(printed.append)
    assert printed[3:] == ["Received a total of 2 rows"]


def test_a_value_does_not_break_the_table() -> None:
    lines = table_lines(["name"], [["two\nlines"], ["\x1b[2J"], ["漢字"], ["plain"]])
    assert lines[3:-1] == ["| two␊lines |", "| ␛[2J      |", "| 漢字      |", "| plain     |"]
