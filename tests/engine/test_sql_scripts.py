"""The recorded scripts of Flink SQL, run on a real Spark: the final tables are Flink's, and so are the reasons of what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.config import load_settings
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.sql.running.runner import ScriptRunner
from support.sql_scripts import CASES, Answers, difference, written

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

NOT_YET: frozenset[str] = frozenset()
"""The scripts that cannot be run, or give something else, so far."""
OTHERWISE = {
    "settings.unknown_key": "a setting that is not known is refused",
    "error.over_two_columns": "an order of two columns is answered",
    "error.decimal_not_null_overflow": "NULL is answered, whatever the type of the CAST says",
}
"""Where Flink's answer is left on purpose, as the recorded case allows."""
KEPT = {
    "settings.time_zone_windows": "4 rows, not 4; more: [['2025-03-09T00:00:00.000', '2025-03-10T00:00:00.000', 3]]; "
    "missing: [['2025-03-09T00:00:00.000', '2025-03-10T00:00:00.000', 1]]",
    "settings.time_zone_etl": "7 rows, not 5; more: [['2025-03-09T00:00:00.000', '2025-03-09T18:29:59.999Z', 'a', 1], "
    "['2025-03-09T00:00:00.000', '2025-03-09T18:29:59.999Z', 'c', 1]]; missing: []",
}
"""Where Flink loses rows that are not late (the first of its two stages holds them until the next midnight of UTC), and we do not."""
LATE = ("tvf.", "legacy.", "watermark.", "over.", "dedup.", "match.", "order_by.", "ddl.view", "sink.window", "join.interval", "join.temporal")  # fmt: skip
"""Where a row may be late: the watermark has to be known behind each row."""


@pytest.mark.parametrize("id", sorted(set(CASES) - NOT_YET - set(OTHERWISE)))
def test_a_script_gives_what_flink_gives(
    id: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[id]
    monkeypatch.chdir(tmp_path)
    script = written(case, tmp_path, file_per_row=id.startswith(LATE))
    answers = Answers()
    settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]"])
    runner = ScriptRunner("script", answers.take, answers.known, settings=settings, parallelism=1)
    stage, error = run_to_its_end(runner, script)
    expected = case["expected"]
    if expected["kind"] == "error":
        assert error is not None, f"Flink says {expected['flink']}"
        assert (stage, isinstance(error, DefinitionError)) == (expected["stage"], stage == "prepare"), str(error)
        assert expected["class"] in ("other", kind_of(error)), str(error)
    else:
        assert error is None, f"{stage}: {error}"
        assert difference(case, answers, tmp_path, capfd.readouterr().out) == KEPT.get(id)


def run_to_its_end(runner: ScriptRunner, script: str) -> tuple[str, PoundlockError | None]:
    """Run a script; return how far it came, and what it failed with."""
    stage = "prepare"
    try:
        runner.check(script)
        stage = "run"
        runner.run(script)
    except PoundlockError as error:
        return stage, error
    return stage, None


def kind_of(error: PoundlockError) -> str:
    """Return what kind of error it is, as the cases call it."""
    return str(getattr(error, "kind", "other"))


@pytest.mark.parametrize("id", sorted(OTHERWISE))
def test_where_flinks_answer_is_left_the_case_says_that_it_may_be(id: str) -> None:
    assert CASES[id].get("quirk"), OTHERWISE[id]


def test_what_is_not_there_yet_is_known() -> None:
    assert set(CASES) >= NOT_YET
