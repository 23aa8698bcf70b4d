"""The queries as scripts: one text for both engines, in which connectors' options stand for ${events}, ${sink}, ${files} and ${side}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["QUERIES", "options_of", "script"]

QUERIES: Sequence[str] = tuple(f"q{number}" for number in range(23))
_TEXTS = Path(__file__).with_name("queries")


def options_of(options: Mapping[str, str]) -> str:
    """Return options as they stand in WITH."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def script(
    queries: Sequence[str],
    events: Mapping[str, str],
    sink: Mapping[str, str],
    files: Mapping[str, str],
    side: Mapping[str, str],
) -> str:
    """Return the statements of queries; of several as one job, each with a table of its own.

    Args:
        queries: their names, such as "q5".
        events: options of the table of events.
        sink: of the table that results go into; `files` where that is one of files; ${query} in them is the query's name.
        side: of the bounded table that q13 joins.
    """
    definitions, inserts = [(_TEXTS / "tables.sql").read_text()], []
    for query in queries:
        text = (_TEXTS / f"{query}.sql").read_text()
        for name, options in (("sink", sink), ("files", files)):
            text = text.replace(f"${{{name}}}", options_of(options))
        text = text.replace("${query}", query)
        if len(queries) > 1:
            text = text.replace("TABLE answer", f"TABLE answer_{query}").replace("INTO answer", f"INTO answer_{query}")
        before, _, insert = text.partition("INSERT INTO")
        definitions.append(before)
        inserts.append(f"INSERT INTO{insert}")
    together = "EXECUTE STATEMENT SET\nBEGIN\n{}\nEND;\n" if len(inserts) > 1 else "{}"
    text = "\n".join([*definitions, together.format("\n".join(inserts))])
    return text.replace("${events}", options_of(events)).replace("${side}", options_of(side))
