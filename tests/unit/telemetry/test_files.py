"""The dashboard and the alert rules parse, and name only metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from poundlock.cli.main import main
from poundlock.rest.catalogue import METRICS

LABELS = {name: {*metric.labels, "job", "job_id", "le"} for metric in METRICS for name in metric.exposed}
FUNCTIONS = {"rate", "increase", "max", "sum", "topk", "histogram_quantile", "time", "by", "on", "group_left", "offset"}
WORDS = FUNCTIONS | {"and", "unless", "or"}
_TOKEN = re.compile(
    r"(?P<matchers>\{[^}]*\})|(?P<range>\[[^\]]+\])|(?P<grouping>\b(?:by|on|group_left)\s*\([^)]*\))|(?P<time>\b\d+[smhd]\b)"
    r"|(?P<number>\b\d+(?:\.\d+)?\b)|(?P<word>[A-Za-z_:][\w:]*)|(?P<sign>==|[()<>/*+,-])|(?P<other>\S)"
)


def faults(expression: str) -> list[str]:
    """Return what is wrong with an expression of PromQL as far as these files use it: words, brackets, metrics, labels."""
    wrong, named, labels, depth = [], set[str](), set[str](), 0
    for token in _TOKEN.finditer(expression):
        kind, text = str(token.lastgroup), token[0]
        if kind == "word" and text.startswith("poundlock_"):
            named.add(text)
        elif kind == "word" and text not in WORDS:
            wrong.append(f"the word {text}")
        elif kind == "matchers":
            labels |= set(re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", text))
        elif kind == "grouping":
            labels |= set(re.findall(r"\w+", text.partition("(")[2]))
        elif kind == "other":
            wrong.append(f"the sign {text}")
        depth += text.count("(") - text.count(")")
        if depth < 0:
            wrong.append("a bracket")
    wrong += [f"no metric {name}" for name in sorted(named - LABELS.keys())]
    known = set[str]().union(*(LABELS.get(name, set()) for name in named))
    wrong += [f"no label {label}" for label in sorted(labels - known)]
    return wrong + (["brackets"] if depth else []) + ([] if named else ["no metric at all"])


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ('sum by (job) (rate(poundlock_rows_out_total{sink="a"}[5m])) > 1', []),
        ("rate(poundlock_rows_total[5m])", ["no metric poundlock_rows_total"]),
        ("max by (source) (poundlock_rows_out_total)", ["no label source"]),
        ('poundlock_job_state{phase="RUNNING"}', ["no label phase"]),
        ("rate(poundlock_rows_out_total[5m]", ["brackets"]),
        ("rat(poundlock_rows_out_total[5m])", ["the word rat"]),
        ("1 > 2", ["no metric at all"]),
    ],
)
def test_the_check_sees_what_is_wrong(expression: str, wrong: list[str]) -> None:
    assert faults(expression) == wrong


def written(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["metrics", *arguments]) == 0
    return capsys.readouterr().out


def test_the_dashboard_parses_and_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    dashboard = json.loads(written(capsys, "--grafana"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {each["name"] for each in dashboard["templating"]["list"]} == {"datasource", "job_id"}
    expressions = [(panel["title"], target) for panel in panels for target in panel.get("targets", ())]
    assert len(expressions) > 20
    for title, target in expressions:
        expression = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        assert faults(expression) == [], title
        named = re.findall(r"poundlock_\w+", expression)
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown <= set[str]().union(*(LABELS[name] for name in named)), title
    assert not list(overlaps(panels))


def overlaps(panels: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the titles of panels that cover each other."""
    for number, one in enumerate(panels):
        for other in panels[:number]:
            a, b = one["gridPos"], other["gridPos"]
            beside = a["x"] >= b["x"] + b["w"] or b["x"] >= a["x"] + a["w"]
            if not beside and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]:
                yield one["title"], other["title"]


def test_the_alert_rules_parse_and_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = yaml.safe_load(written(capsys, "--alerts"))["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 10
    for rule in group["rules"]:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert re.fullmatch(r"\d+m", rule.get("for", "0m"))
        assert faults(rule["expr"]) == [], rule["alert"]
        text = " ".join(rule["annotations"].values())
        known = set[str]().union(*(LABELS[name] for name in re.findall(r"poundlock_\w+", rule["expr"])))
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= known
        assert set(re.findall(r"poundlock_\w+", text)) <= LABELS.keys()


def test_files_are_written_and_none_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "alerts.yaml"
    written(capsys, "--alerts", "-o", str(path))
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for wrong in (["--alerts", "-o", str(path)], ["--alerts", "--grafana"], ["-o", str(path)]):
        assert main(["metrics", *wrong]) == 2
        assert "Next:" in capsys.readouterr().err
    lines = written(capsys).splitlines()
    assert "poundlock_lag_partition_records{source,partition}  gauge: Records waiting in a partition." in lines
    assert len(written(capsys, "--json").splitlines()) == len(lines) == len(METRICS)
