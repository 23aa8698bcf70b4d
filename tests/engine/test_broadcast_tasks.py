"""A broadcast record reaches the function once in every task, whatever the number of key groups: here the greatest there may be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, FileSource, Job, KeyedBroadcastProcessFunction, MapStateDescriptor, ValueStateDescriptor
from poundlock.driver.driver import run
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

RULES = MapStateDescriptor("rules")
TASKS, GROUPS = 3, 32_768


class Counted(KeyedBroadcastProcessFunction):
    """Yields each rule, and with each record how many of its key there were."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update(self.count.value() + 1)
        yield {"k": value["k"], "n": self.count.value()}

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(value["k"], value["n"])
        yield {"k": f"rule {value['k']}", "n": value["n"]}


def test_what_it_yields_comes_once_for_each_task(tmp_path: Path) -> None:
    for name, keys in (("rows", [f"u{n % 50}" for n in range(500)]), ("rules", ["x", "y"])):
        (tmp_path / name).mkdir()
        lines = "".join(json.dumps({"k": key, "n": 1}) + "\n" for key in keys)
        (tmp_path / name / "a.jsonl").write_text(lines)
    job = Job("broadcast", parallelism=TASKS, max_parallelism=GROUPS, checkpoint_interval="0 s")
    rows, rules = (
        job.from_source(FileSource(str(tmp_path / name), format="json", schema="k string, n bigint"), name=name)
        for name in ("rows", "rules")
    )
    counted = (
        rows.key_by("k").connect(rules.broadcast(RULES)).process(Counted(), schema="k string, n bigint", name="counted")
    )
    counted.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    files = [path for path in (tmp_path / "out").rglob("part-*") if path.is_file()]
    out = Counter((row["k"], row["n"]) for path in files for row in map(json.loads, path.read_text().splitlines()))
    wanted = Counter({("rule x", 1): TASKS, ("rule y", 1): TASKS})
    assert out == wanted + Counter((f"u{key}", n) for key in range(50) for n in range(1, 11))
