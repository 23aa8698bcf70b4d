"""Settings: order of sources, spellings, and what is refused."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from poundlock import DatagenSource, FileSink, Job
from poundlock.config import Settings, load_settings
from poundlock.errors import DefinitionError


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("POUNDLOCK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = load_settings()
    assert settings.master == "local[*]"
    assert settings.state_dir == tmp_path / "state" / "poundlock"
    assert settings.logs == tmp_path / "state" / "poundlock" / "logs"
    assert settings.model_fields_set == set()


def test_each_source_wins_over_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poundlock.toml").write_text('master = "local[1]"\nlog_level = "debug"\nparallelism = 1\n')
    assert (load_settings().master, load_settings().log_level) == ("local[1]", "debug")
    monkeypatch.setenv("POUNDLOCK_MASTER", "local[2]")
    monkeypatch.setenv("POUNDLOCK_PARALLELISM", "2")
    assert (load_settings().master, load_settings().parallelism) == ("local[2]", 2)
    assert load_settings(["master=local[3]"]).master == "local[3]"
    assert load_settings(["master=local[3]"], master="local[4]").master == "local[4]"
    assert load_settings(["master=local[3]"], master=None).master == "local[3]"
    assert load_settings(["master=local[3]"]).parallelism == 2


def test_config_file_by_option_and_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poundlock.toml").write_text('log_level = "debug"\n')
    (tmp_path / "a.toml").write_text('log_level = "error"\n')
    (tmp_path / "b.toml").write_text('log_level = "warn"\n')
    monkeypatch.setenv("POUNDLOCK_CONFIG", str(tmp_path / "a.toml"))
    assert load_settings().log_level == "error"
    assert load_settings(config=tmp_path / "b.toml").log_level == "warning"


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("state-dir=/x", "state_dir", Path("/x")),
        ("state_dir=/x", "state_dir", Path("/x")),
        ("parallelism.default=3", "parallelism", 3),
        ("execution.checkpointing.interval=5 s", "checkpoint_interval", timedelta(seconds=5)),
        ("execution.checkpointing.min-pause=5 s", "checkpoint_min_pause", timedelta(seconds=5)),
        ("execution.checkpointing.timeout=10 min", "checkpoint_timeout", timedelta(minutes=10)),
        ("execution.checkpointing.tolerable-failed-checkpoints=3", "tolerable_failed_checkpoints", 3),
        (
            "execution.checkpointing.externalized-checkpoint-retention=delete_on_cancellation",
            "checkpoint_retention",
            "DELETE_ON_CANCELLATION",
        ),
        ("execution.checkpointing.num-retained=3", "checkpoints_retained", 3),
        ("state.checkpoints.num-retained=4", "checkpoints_retained", 4),
        ("execution.checkpointing.dir=/c", "checkpoint_dir", "/c"),
        ("on_error=dead-letter", "on_error", "dead_letter"),
        ("driver_memory=4g", "driver_memory", "4096m"),
        ("restart-strategy.type=exponentialdelay", "restart_strategy_type", "exponential-delay"),
        ("restart-strategy=off", "restart_strategy_type", "none"),
        ("restart-strategy.fixed-delay.attempts=7", "restart_strategy_fixed_delay_attempts", 7),
        (
            "restart-strategy.failure-rate.failure-rate-interval=5 min",
            "restart_strategy_failure_rate_failure_rate_interval",
            timedelta(minutes=5),
        ),
        (
            "restart-strategy.exponential-delay.attempts-before-reset-backoff=infinite",
            "restart_strategy_exponential_delay_attempts_before_reset_backoff",
            None,
        ),
    ],
)
def test_spellings(option: str, field: str, value: Any) -> None:
    settings = load_settings([option])
    assert getattr(settings, field) == value
    assert settings.model_fields_set == {field}


def test_spark_settings_from_file_and_options_are_joined(tmp_path: Path) -> None:
    (tmp_path / "poundlock.toml").write_text(
        '[spark]\nui.enabled = true\n"sql.shuffle.partitions" = 4\n\n[restart-strategy]\ntype = "none"\n'
    )
    settings = load_settings(["spark.sql.shuffle.partitions=8", "spark.x=a=b"])
    assert settings.spark == {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "8", "spark.x": "a=b"}
    assert settings.restart_strategy_type == "none"


@pytest.mark.parametrize(
    ("options", "what", "next"),
    [
        (["paralelism=3"], "no setting 'paralelism'", "did you mean parallelism"),
        (["restart-strategy.fixed-delay.atempts=3"], "atempts", "did you mean restart-strategy.fixed-delay.attempts"),
        (["zzzz=1"], "no setting 'zzzz'", "use one of:"),
        (["master"], "not key=value", "write -D key=value"),
        (["=1"], "not key=value", "write -D key=value"),
        (["parallelism=x"], "parallelism = 'x'", "mend parallelism"),
        (["parallelism=0"], "parallelism = '0'", "mend parallelism"),
        (["checkpoint_interval=5"], "not a duration", "number and a unit"),
        (["driver_memory=lots"], "not a size", "number and a unit"),
        (["on_error=ignore"], "on_error = 'ignore'", "mend on_error"),
        (["restart-strategy.type=often"], "restart-strategy.type = 'often'", "mend restart-strategy.type"),
        (["spark=1"], "no setting 'spark'", ""),
    ],
)
def test_refused_in_two_lines(options: list[str], what: str, next: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        load_settings(options)
    assert what in caught.value.what
    assert next in caught.value.next
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [("master = ", "is not TOML"), ("mastr = 1", "no setting 'mastr'"), ("[spark\n", "is not TOML")],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "poundlock.toml").write_text(text)
    with pytest.raises(DefinitionError, match=what) as caught:
        load_settings()
    assert "poundlock.toml" in caught.value.what


def test_a_missing_config_file_is_an_error_only_when_named(tmp_path: Path) -> None:
    assert load_settings().config is None
    with pytest.raises(DefinitionError, match=r"none\.toml cannot be read"):
        load_settings(config=tmp_path / "none.toml")


def test_environment_slips_are_errors_and_foreign_variables_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POUNDLOCK_FAILPOINTS", "sink.writing:raise")
    monkeypatch.setenv("POUNDLOCK_SOMETHING_ELSE", "1")
    monkeypatch.setenv("POUNDLOCK_MASTER", "")
    assert load_settings().master == "local[*]"
    monkeypatch.setenv("POUNDLOCK_STATE_DRI", "/x")
    with pytest.raises(DefinitionError, match="POUNDLOCK_STATE_DRI") as caught:
        load_settings()
    assert caught.value.next == "did you mean POUNDLOCK_STATE_DIR?"


def test_secrets_are_neither_shown_nor_printed() -> None:
    settings = load_settings(["spark.ssl.keyStorePassword=hunter22", "spark.ui.enabled=false"])
    assert settings.secrets() == {"hunter22"}
    assert settings.spark["spark.ssl.keyStorePassword"] == "hunter22"
    assert "hunter22" not in f"{settings!r} {settings} {settings.shown()}"
    assert settings.shown()["spark"]["spark.ui.enabled"] == "false"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().master = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("state_backend=rocksdb", "there is no setting 'state_backend'"),
        ("state.backend.type=hashmap", "there is no setting 'state.backend.type'"),
        ("checkpoint_retention=NO_EXTERNALIZED_CHECKPOINTS", "'NO_EXTERNALIZED_CHECKPOINTS' is not known"),
        ("checkpoints_retained=0", "checkpoints_retained = '0'"),
        ("tolerable_failed_checkpoints=-1", "tolerable_failed_checkpoints = '-1'"),
        ("checkpoint_timeout=soon", "'soon' is not a duration"),
    ],
)
def test_what_is_no_setting_of_checkpoints_is_refused_in_two_lines(option: str, says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_settings([option])
    what, next = str(refused.value).splitlines()
    assert says in what
    assert next.startswith("Next: ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoints_retained": 0},
        {"checkpoints_retained": True},
        {"tolerable_failed_checkpoints": -1},
        {"checkpoint_min_pause": "5"},
        {"checkpoint_timeout": "ever"},
        {"checkpoint_retention": "KEEP"},
    ],
)
def test_a_job_refuses_them_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        Job("a", **wrong)


def test_what_is_set_is_explained() -> None:
    job = Job("a", on_error="fail", checkpoint_retention="delete-on-cancellation")
    job.from_source(DatagenSource(rate=1), name="in").sink_to(FileSink("out", row="value"), name="out")
    assert job.explain().splitlines()[1] == "checkpoints: deleted when cancelled"
