"""The recorded scripts of Flink SQL: their input as files, and whether what came of one is what Flink gave."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from poundlock.config import load_settings
from poundlock.sql.relations.fields import Field
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.running.shown import Change, FinalTable, changes_as_values
from poundlock.sql.statements.results import ShownRows

PACK = json.loads((Path(__file__).parents[1] / "conformance/data/sql.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in PACK["cases"]}
_DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_PRINTED = re.compile(r"([+-][IUD])\[(.*)\]$")


def whole_script(case: dict[str, Any]) -> str:
    """Return the statements of a case, those that create its tables first."""
    return ";\n".join([*(table["ddl"] for table in case["tables"]), case["script"]])


def written(case: dict[str, Any], root: Path, *, file_per_row: bool, files: int | None = None) -> str:
    """Write the input of a case into a folder; return its script with the paths in it.

    Args:
        file_per_row: whether each row is a file, and each file a checkpoint: the watermark is known behind each row then.
        files: into how many files at most the rows of a table go then; None: as many as there are rows.
    """
    for table in case["tables"]:
        folder, ending = root / table["name"], "csv" if table["format"] == "csv" else "json"
        folder.mkdir(parents=True)
        lines = list(_lines(table))
        if not file_per_row or not lines:
            (folder / f"data.{ending}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            continue
        size = 1 if files is None else -(-len(lines) // files)
        for number in range(-(-len(lines) // size)):
            path = folder / f"data-{number:04}.{ending}"
            some = lines[number * size : (number + 1) * size]
            path.write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
            os.utime(path, (1e9 + number, 1e9 + number))
    tables = [table["ddl"] for table in case["tables"]]
    if file_per_row:
        tables = [each.replace("'path'='${", "'source.max-files-per-checkpoint'='1', 'path'='${") for each in tables]
    script = ";\n".join([*tables, case["script"]])
    return re.sub(r"\$\{path:([^}]*)\}", lambda name: str(root / name[1]), script)


def _lines(table: dict[str, Any]) -> Iterator[str]:
    if table.get("lines") is not None:
        yield from table["lines"]
        return
    rows = table["rows"]
    for row in PACK["datasets"][rows[1:]] if isinstance(rows, str) else rows:
        yield json.dumps(row, ensure_ascii=False)


ORDERS = """
CREATE TABLE orders (id INT, who BIGINT, `day` DATE, pt AS PROCTIME()) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000000', 'number-of-rows' = '1000',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '5000',
  'fields.who.min' = '1', 'fields.who.max' = '6', 'fields.who.null-rate' = '0.1');
"""
"""A table of generated rows."""


@dataclass
class Answers:
    """What came of a script: the rows of its queries, and what was shown at once."""

    changes: list[Change] = field(default_factory=list)
    shown: list[Sequence[Any]] | None = None

    def take(self, fields: tuple[Field, ...], rows: Any) -> None:
        """Take rows of a query."""
        self.changes += changes_as_values(fields, rows)

    def known(self, shown: ShownRows) -> None:
        """Take rows that are known at once."""
        self.shown = [list(row) for row in shown.rows]


def changes_of(script: str, parallelism: int = 2, *, folder: Path) -> list[tuple[str, tuple[Any, ...]]]:
    """Run a script on Spark, whose jobs are not started again; return the rows of its queries with their kinds of change.

    Args:
        folder: the working directory, below which the state is.
    """
    answers = Answers()
    settings = load_settings([f"state_dir={folder}/.state", "master=local[2]", "restart-strategy.type=none"])
    ScriptRunner("script", answers.take, answers.known, settings=settings, parallelism=parallelism).run(script)
    return [(kind, tuple(row)) for kind, row in answers.changes]


def difference(case: dict[str, Any], answers: Answers, root: Path, printed: str) -> str | None:
    """Return in what a result differs from Flink's, None where it does not.

    Args:
        root: the folder that holds the tables.
        printed: what stood on standard output.
    """
    expected = case["expected"]
    rows: Sequence[Sequence[Any]]
    if "result" in case:
        rows = list(_of_sink(case, root, printed))
    elif answers.shown is not None and not answers.changes:
        rows = answers.shown
    else:
        if expected["kind"] == "append" and any(kind != "+I" for kind, _ in answers.changes):
            return "rows were taken back, and Flink's are insertions alone"
        rows = _final(answers.changes)
        if case.get("ordered") and not _alike(rows, expected["rows"]):
            return f"order: {rows[:5]}, not {expected['rows'][:5]}"
    return _compared(rows, expected["rows"])


def _final(changes: Sequence[Change]) -> list[list[Any]]:
    table = FinalTable()
    table.take([(kind, _frozen(row)) for kind, row in changes])
    return [list(row) for row in table.rows()]


def _frozen(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(row)


def _of_sink(case: dict[str, Any], root: Path, printed: str) -> Iterator[list[Any]]:
    sink = case["result"]["sink"]
    columns = [column["name"] for column in case["expected"]["columns"]]
    if sink["as"] == "print":
        found = [_PRINTED.search(line) for line in printed.splitlines()]
        yield from _final([(each[1], tuple(each[2].split(", "))) for each in found if each is not None])
        return
    changes: list[Change] = []
    for values, line in _records(root / sink["table"]):
        if sink["as"] == "lines":
            yield [line, *values.values()]
        elif sink["as"] == "json":
            row = {**json.loads(line), **values}
            yield [row.get(name) for name in columns]
        else:
            change = json.loads(line)
            kind, side = ("+I", "after") if change["op"] == "c" else ("-D", "before")
            changes.append((kind, tuple(change[side].get(name) for name in columns)))
    yield from _final(changes)


def _records(folder: Path) -> Iterator[tuple[dict[str, str | None], str]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith((".", "_")):
            continue
        values: dict[str, str | None] = {}
        for part in path.relative_to(folder).parts[:-1]:
            name, _, value = part.partition("=")
            values[unquote(name)] = None if value == _DEFAULT_PARTITION else unquote(value)
        for line in path.read_text(encoding="utf-8").splitlines():
            yield values, line


def _compared(got: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    rest = list(wanted)
    extra = []
    for row in got:
        place = next((n for n, other in enumerate(rest) if close(row, other)), None)
        if place is None:
            extra.append(row)
        else:
            del rest[place]
    if not extra and not rest:
        return None
    return f"{len(got)} rows, not {len(wanted)}; more: {extra[:5]}; missing: {rest[:5]}"


def _alike(got: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return len(got) == len(wanted) and all(map(close, got, wanted))


def close(one: Any, other: Any) -> bool:
    """Return whether two values are equal, numbers with a point nearly."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, (int, float)):
        return type(one) is type(other) and one == other
    return isinstance(other, (int, float)) and math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)
