"""Generated queries over small tables give what SQLite gives: all of a job but Spark, with changes from checkpoint to checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from support.examples import examples
from support.generated_queries import Example, answered, examples_of_queries, wanted
from support.in_process import PATCHES
from support.sql_lives import run_in_process

SLOWLY = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder, and jobs that run in this process."""
    with pytest.MonkeyPatch.context() as patched:
        for patch in PATCHES:
            patched.setattr(*patch)
        yield tmp_path_factory.mktemp("queries")


def assert_as_in_sqlite(made: Example, root: Path) -> None:
    """Run the queries of an example as one job, and hold each result beside SQLite's."""
    shutil.rmtree(root, ignore_errors=True)
    script = made.script(root)
    run_in_process(root, script, made.parallelism)
    for number, query in enumerate(made.queries):
        got, right = answered(query, root / f"out_{number}"), wanted(made, query)
        assert got == right, f"\n{query.text.flink}\nmore: {+(got - right)}\nmissing: {+(right - got)}"


@settings(examples(40), suppress_health_check=SLOWLY)
@given(made=examples_of_queries())
def test_generated_queries_give_what_sqlite_gives(root: Path, made: Example) -> None:
    assert_as_in_sqlite(made, root)


@pytest.mark.torture
@settings(examples(3_000), suppress_health_check=SLOWLY)
@given(made=examples_of_queries(queries=4, depth=4))
def test_many_generated_queries_give_what_sqlite_gives(root: Path, made: Example) -> None:
    assert_as_in_sqlite(made, root)
