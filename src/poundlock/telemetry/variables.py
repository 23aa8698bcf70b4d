"""The environment variables of OpenTelemetry's SDK that say whether anything is exported, and how often.

Where to, with which headers and certificates is read by the exporters themselves. See
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
https://opentelemetry.io/docs/specs/otel/protocol/exporter/. What is exported nowhere unless a variable asks for it: the specification's
default, a collector on this machine, would be an error every minute for whoever has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from poundlock.errors import DefinitionError, missing_package

Signal = Literal["TRACES", "METRICS"]
_PROTOCOL = "http/protobuf"
_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the variables ask for.

    Args:
        traces, metrics: whether they are exported.
        interval_ms: how often metrics are.
    """

    traces: bool
    metrics: bool
    interval_ms: int = _INTERVAL_MS

    def __bool__(self) -> bool:
        return self.traces or self.metrics


def wanted(environment: Mapping[str, str]) -> Wanted:
    """Return what the variables ask for.

    Raises:
        DefinitionError: an exporter or a protocol that is not known here, or an interval that is none.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Wanted(traces=False, metrics=False)
    asked = Wanted(
        traces=_is_wanted("TRACES", environment),
        metrics=_is_wanted("METRICS", environment),
        interval_ms=_interval(environment),
    )
    for name in _asked_protocols(asked):
        protocol = environment.get(name, "").strip()
        if protocol not in ("", _PROTOCOL):
            raise DefinitionError(
                f"{name}={protocol} is not spoken here",
                next=f"set it to {_PROTOCOL}, which collectors take on port 4318",
            )
    return asked


def not_installed() -> DefinitionError | None:
    """Return what to install where the extra `otel` is not."""
    names = {"opentelemetry.sdk": "opentelemetry-sdk", "opentelemetry.exporter.otlp.proto.http": "its OTLP exporter"}
    missing = [package for name, package in names.items() if not _is_there(name)]
    return missing_package("OpenTelemetry", " and ".join(missing), "otel") if missing else None


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _is_wanted(signal: Signal, environment: Mapping[str, str]) -> bool:
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip()
    if exporter not in ("", "otlp", "none"):
        raise DefinitionError(
            f"OTEL_{signal}_EXPORTER={exporter} is not known here", next="set it to otlp or none, or leave it out"
        )
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    given = any(environment.get(name, "").strip() for name in names)
    return exporter == "otlp" or (exporter == "" and given)


def _asked_protocols(asked: Wanted) -> list[str]:
    signals = [name for name, on in (("TRACES", asked.traces), ("METRICS", asked.metrics)) if on]
    return (
        ["OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_EXPORTER_OTLP_{name}_PROTOCOL" for name in signals)] if signals else []
    )


def _interval(environment: Mapping[str, str]) -> int:
    given = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if given == "":
        return _INTERVAL_MS
    if not given.isdecimal() or int(given) == 0:
        raise DefinitionError(
            f"OTEL_METRIC_EXPORT_INTERVAL={given} is no number of milliseconds", next=f"set it to {_INTERVAL_MS}"
        )
    return int(given)
