"""`poundlock metrics`: the metrics there are, and what shows them and alarms by them as files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from typer import Option

from poundlock.cli.output import Output
from poundlock.errors import DefinitionError


def command(
    grafana: bool = Option(False, "--grafana", help="Show a dashboard for Grafana, to be imported as it is."),
    alerts: bool = Option(False, "--alerts", help="Show alert rules for Prometheus."),
    output: Path = Option(
        None, "--output", "-o", metavar="FILE", help="Write it into a file; one that is there stays."
    ),
    as_json: bool = Option(False, "--json", help="Show the metrics as JSON, one a line."),
) -> None:
    """Show all metrics of a job, a Grafana dashboard of them, or Prometheus's alert rules."""
    from poundlock.rest.catalogue import METRICS, PREFIX

    out = Output()
    if grafana + alerts + as_json > 1:
        raise DefinitionError("--grafana, --alerts and --json are three things", next="give one of them")
    if grafana or alerts:
        text = (
            files("poundlock.telemetry")
            .joinpath("files", "grafana.json" if grafana else "alerts.yaml")
            .read_text("utf-8")
        )
        if output is None:
            out.line(text.rstrip("\n"))
        else:
            _write(output, text)
            out.line(f"Wrote {output}")
        return
    if output is not None:
        raise DefinitionError("--output is for --grafana and --alerts", next="give one of them, or leave it out")
    for metric in METRICS:
        if as_json:
            out.json(
                {"name": f"{PREFIX}{metric.name}", "kind": metric.kind, "labels": metric.labels, "what": metric.what}
            )
        else:
            labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
            out.line(f"{PREFIX}{metric.name}{labels}  {metric.kind}: {metric.what}")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DefinitionError(f"{path} is there already", next="name another file, or move that one away") from None
    except OSError as error:
        raise DefinitionError(f"{path} cannot be written: {error.strerror}", next="name another file") from error
