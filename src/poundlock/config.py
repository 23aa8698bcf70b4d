"""Settings of a run: defaults, then a TOML file, then the environment, then what is typed; the later one wins.

A key may be spelled as in TOML, as an environment variable or as in Flink; one that nobody knows is an error, never ignored.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from poundlock import values
from poundlock.errors import DefinitionError, did_you_mean, refusing
from poundlock.redaction import redact, secret_values
from poundlock.values import duration, size

CONFIG_FILE = "poundlock.toml"
ENVIRONMENT_PREFIX = "POUNDLOCK_"

# Variables with our prefix that are no settings.
_OTHER_VARIABLES = frozenset(
    {"POUNDLOCK_CONFIG", "POUNDLOCK_FAILPOINTS", "POUNDLOCK_SUBMITTED", "POUNDLOCK_SUPERVISED"}
)
_SAME_AS = {
    "spark.master": "master",
    "spark.submit.deployMode": "deploy_mode",
    "spark.submit.pyFiles": "py_files",
    "spark.archives": "archives",
    "execution.checkpointing.interval": "checkpoint_interval",
    "execution.checkpointing.dir": "checkpoint_dir",
    "state.checkpoints.dir": "checkpoint_dir",
    "execution.checkpointing.min-pause": "checkpoint_min_pause",
    "execution.checkpointing.timeout": "checkpoint_timeout",
    "execution.checkpointing.tolerable-failed-checkpoints": "tolerable_failed_checkpoints",
    "execution.checkpointing.externalized-checkpoint-retention": "checkpoint_retention",
    "execution.checkpointing.num-retained": "checkpoints_retained",
    "state.checkpoints.num-retained": "checkpoints_retained",
    "parallelism.default": "parallelism",
    "restart-strategy": "restart_strategy_type",
    "job.autoscaler.enabled": "autoscaler_enabled",
    "job.autoscaler.vertex.min-parallelism": "autoscaler_min_parallelism",
    "job.autoscaler.vertex.max-parallelism": "autoscaler_max_parallelism",
    "job.autoscaler.utilization.target": "autoscaler_utilization_target",
    "job.autoscaler.utilization.min": "autoscaler_utilization_min",
    "job.autoscaler.utilization.max": "autoscaler_utilization_max",
    "job.autoscaler.catch-up.duration": "autoscaler_catch_up_duration",
    "job.autoscaler.metrics.window": "autoscaler_metrics_window",
    "job.autoscaler.stabilization.interval": "autoscaler_stabilization_interval",
    "job.autoscaler.scale-down.interval": "autoscaler_scale_down_interval",
    "job.autoscaler.scale-down.max-factor": "autoscaler_scale_down_max_factor",
}
_RESTART_TYPES = {
    "none": "none", "off": "none", "disable": "none", "fixeddelay": "fixed-delay", "fixed-delay": "fixed-delay",
    "failurerate": "failure-rate", "failure-rate": "failure-rate", "exponentialdelay": "exponential-delay",
    "exponential-delay": "exponential-delay",
}  # fmt: skip

Span = Annotated[timedelta, BeforeValidator(duration)]


def _home(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / "poundlock"


def _path(value: object) -> object:
    if value == "":
        raise DefinitionError("it is empty", next="name a path, or leave it out")
    return Path(value).expanduser() if isinstance(value, str) else value


def _listed(value: object) -> object:
    """Split a text at its commas, as in `--py-files a.py,b.zip`."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _unlimited(value: object) -> object:
    return None if _lower(value) in ("infinite", "-1") else value


Folder = Annotated[Path, BeforeValidator(_path)]
Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Settings(BaseModel):
    """Everything that can be set from outside a job. What is set here wins over what the job says.

    Names are written `state_dir` or `state-dir` in the TOML file and after -D, POUNDLOCK_STATE_DIR in the environment;
    those of restart strategies are Flink's, such as `restart-strategy.fixed-delay.attempts`. `spark.…` goes to Spark.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    config: Folder | None = None
    master: str = "local[*]"
    deploy_mode: Literal["client", "cluster"] = "client"
    py_files: Listed = ()
    archives: Listed = ()
    executor_timeout: Span = timedelta(minutes=2)
    parallelism: Annotated[int, Field(gt=0)] | None = None
    checkpoint_dir: str | None = None
    checkpoint_interval: Span | None = None
    checkpoint_min_pause: Span | None = None
    checkpoint_timeout: Span | None = None
    tolerable_failed_checkpoints: Annotated[int, Field(ge=0)] | None = None
    checkpoint_retention: Annotated[str, BeforeValidator(values.checkpoint_retention)] | None = None
    checkpoints_retained: Annotated[int, Field(ge=1)] | None = None
    ledger_retention: Span | None = None
    on_error: Annotated[
        Literal["dead_letter", "fail", "skip"] | None,
        BeforeValidator(lambda value: value.lower().replace("-", "_") if isinstance(value, str) else value),
    ] = None
    dead_letters: str | None = None
    state_dir: Folder = Field(default_factory=lambda: _home("XDG_STATE_HOME", ".local/state"))
    cache_dir: Folder = Field(default_factory=lambda: _home("XDG_CACHE_HOME", ".cache"))
    log_dir: Folder | None = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(lambda value: "warning" if _lower(value) == "warn" else _lower(value)),
    ] = "info"
    jars_dir: Folder | None = None
    ivy_settings: Folder | None = None
    java_home: Folder | None = None
    driver_memory: Annotated[str, AfterValidator(lambda value: f"{max(1, size(value) >> 20)}m")] = "2g"
    rest_enabled: bool = True
    rest_port: Annotated[int, Field(ge=0, le=65535)] = 0
    rest_bind_address: str = "127.0.0.1"
    rest_token_file: Folder | None = None
    rest_insecure: bool = False
    rest_allowed_hosts: Listed = ()
    rest_operations_log: Folder | None = None
    security_ssl_rest_enabled: bool = False
    security_ssl_rest_certificate_file: Folder | None = None
    security_ssl_rest_key_file: Folder | None = None
    security_ssl_rest_key_password: str | None = Field(default=None, repr=False)
    security_ssl_rest_ca_file: Folder | None = None
    spark: dict[str, str] = Field(default_factory=dict, repr=False)

    restart_strategy_type: Annotated[
        Literal["none", "fixed-delay", "failure-rate", "exponential-delay"] | None,
        BeforeValidator(lambda value: _RESTART_TYPES.get(value.lower(), value) if isinstance(value, str) else value),
    ] = None
    restart_strategy_fixed_delay_attempts: int | None = None
    restart_strategy_fixed_delay_delay: Span | None = None
    restart_strategy_failure_rate_max_failures_per_interval: int | None = None
    restart_strategy_failure_rate_failure_rate_interval: Span | None = None
    restart_strategy_failure_rate_delay: Span | None = None
    restart_strategy_exponential_delay_initial_backoff: Span | None = None
    restart_strategy_exponential_delay_max_backoff: Span | None = None
    restart_strategy_exponential_delay_backoff_multiplier: float | None = None
    restart_strategy_exponential_delay_reset_backoff_threshold: Span | None = None
    restart_strategy_exponential_delay_jitter_factor: float | None = None
    restart_strategy_exponential_delay_attempts_before_reset_backoff: Annotated[
        int | None, BeforeValidator(_unlimited)
    ] = None

    autoscaler_enabled: bool | None = None
    autoscaler_min_parallelism: int | None = None
    autoscaler_max_parallelism: int | None = None
    autoscaler_utilization_target: float | None = None
    autoscaler_utilization_min: float | None = None
    autoscaler_utilization_max: float | None = None
    autoscaler_catch_up_duration: Span | None = None
    autoscaler_metrics_window: Span | None = None
    autoscaler_stabilization_interval: Span | None = None
    autoscaler_scale_down_interval: Span | None = None
    autoscaler_scale_down_max_factor: float | None = None

    def __init__(self, **typed: Any) -> None:
        file = typed.get("config") or os.environ.get("POUNDLOCK_CONFIG") or None
        spark, values = dict[str, str](), dict[str, Any]()
        for given in (_toml(file), _environment(), typed):
            spark |= given.get("spark") or {}
            values |= given
        super().__init__(**values | ({"spark": spark} if "spark" in values else {}))

    @property
    def operations_log(self) -> Path:
        """The file that has a line for each operation: `rest.operations-log`, or `operations.log` among the logs."""
        return self.rest_operations_log or self.logs / "operations.log"

    @property
    def logs(self) -> Path:
        """The folder of the logs: `log_dir`, or `logs` in the state directory."""
        return self.log_dir or self.state_dir / "logs"

    def secrets(self) -> frozenset[str]:
        """Return the values that must not appear in a log or on a terminal."""
        return secret_values({**self.spark, "password": self.security_ssl_rest_key_password})

    def shown(self) -> dict[str, Any]:
        """Return what is set, as plain data without secrets, for logs and explanations."""
        data: dict[str, Any] = redact(self.model_dump(mode="json", exclude_none=True), self.secrets())
        return data


def load_settings(
    options: Iterable[str] = (), *, conf: Iterable[str] = (), config: str | Path | None = None, **typed: Any
) -> Settings:
    """Return the settings of a run.

    Args:
        options: what followed each -D, as "key=value".
        conf: what followed each --conf; only keys that begin with "spark.".
        config: the TOML file; default: POUNDLOCK_CONFIG, or poundlock.toml in the working folder where there is one.
        typed: further settings by field name; None = not given. They win over `options`.

    Raises:
        DefinitionError: a key is not known, a value does not fit, or the file cannot be read.
    """
    values = _resolve({**_pairs(conf, "--conf"), **_pairs(options, "-D")}, "-D")
    values.update({name: value for name, value in typed.items() if value is not None})
    if config is not None:
        values["config"] = config
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _invalid(error) from error


def _pairs(options: Iterable[str], flag: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            such = "parallelism=2" if flag == "-D" else "spark.executor.memory=2g"
            raise DefinitionError(
                f"{flag} {option} is not key=value", next=f"write {flag} key=value, such as {flag} {such}"
            )
        if flag == "--conf" and not key.strip().startswith("spark."):
            raise DefinitionError(f"--conf {key.strip()} is no setting of Spark's", next=f"write -D {option}")
        flat[key.strip()] = value.strip()
    return flat


def _spelled(field: str) -> str:
    """Return how a field is written in a TOML file: restart strategies and the autoscaler as in Flink, all others as they are."""
    parts = re.fullmatch(
        r"(rest|security_ssl_rest|autoscaler|restart_strategy(?:_(?:fixed_delay|failure_rate|exponential_delay))?)_(.+)",
        field,
    )
    if parts is None:
        return field
    table = parts[1].replace("restart_strategy_", "restart_strategy.").replace("security_ssl_rest", "security.ssl.rest")
    return f"{table}.{parts[2]}".replace("_", "-")


def restart_settings() -> list[str]:
    """Return the names of the settings of restart strategies, as Flink has them."""
    fields = (field for field in Settings.model_fields if field.startswith("restart_strategy_"))
    return ["restart-strategy", *map(_spelled, fields)]


def _resolve(flat: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Turn keys in any spelling into fields; `spark.…` keys into the `spark` field."""
    values: dict[str, Any] = {}
    for key, value in flat.items():
        if key.startswith("spark.") and key not in _SAME_AS:
            values.setdefault("spark", {})[key] = str(value).lower() if isinstance(value, bool) else str(value)
            continue
        field = _SAME_AS.get(key) or re.sub(r"[-.]", "_", key).lower()
        if field not in Settings.model_fields or field == "spark":
            raise DefinitionError(f"{where}: there is no setting {key!r}", next=_suggestion(key))
        values[field] = value
    return values


_PEM = "security.ssl.rest.certificate-file, key-file or ca-file to PEM files"
_TABLES = "autoscaler.…, rest.…, restart-strategy.…, security.ssl.rest.…, spark.…"


def _suggestion(key: str) -> str:
    names = {_spelled(field): field for field in Settings.model_fields} | _SAME_AS
    if key.startswith("security.ssl.") and re.search(r"\.(?:keystore|truststore)", key):
        return (
            f"a store of Java's is not read here: set {_PEM}, which `openssl pkcs12 -in STORE -out FILE` makes of one"
        )
    every = f"use one of: {', '.join(sorted(n for n in names if '.' not in n))}, {_TABLES}"
    return did_you_mean(key.lower(), names, every, n=2)


def _environment() -> dict[str, Any]:
    flat: dict[str, str] = {}
    for variable, value in os.environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES or not value:
            continue
        field = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if field in Settings.model_fields and field != "spark":
            flat[field] = value
            continue
        # Another program may own variables with our prefix; only what looks like a slip of the pen is an error.
        if next := did_you_mean(
            field, Settings.model_fields, cutoff=0.8, show=lambda n: f"{ENVIRONMENT_PREFIX}{n.upper()}"
        ):
            raise DefinitionError(f"{variable} is set, but there is no such setting", next=next)
    return flat


def _toml(file: str | Path | None) -> dict[str, Any]:
    path = Path(file).expanduser() if file else Path(CONFIG_FILE)
    if file is None and not path.is_file():
        return {}
    try:
        with refusing(f"{path} cannot be read", next="give --config a file, or leave it out"):
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path} is not TOML: {error}", next="mend that line") from error
    values = _resolve(dict(_flatten(tables)), str(path))
    values.pop("config", None)  # a file that names another file is not followed
    return values


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _invalid(error: ValidationError) -> DefinitionError:
    first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else "settings"
    cause = first.get("ctx", {}).get("error")
    hint = cause.next if isinstance(cause, DefinitionError) else ""
    reason = cause.what if isinstance(cause, DefinitionError) else first["msg"]
    given = redact({field: first["input"]})[field]
    return DefinitionError(
        f"{_spelled(field)} = {given!r}: {reason}", next=hint or f"mend {_spelled(field)}, or leave it out"
    )
