"""Savepoints made by hand, as a job of any shape would leave them: for tests that need no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock import FileSink
from poundlock.checkpoint.decision import Decision, SinkDecision, SourceRange
from poundlock.checkpoint.participant import JSON
from poundlock.plan.uses import source_of, spark_name
from poundlock.savepoint.metadata import Metadata, Operator, new_name
from poundlock.savepoint.take import Cut, finish
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, RunFile, TimerBound
from poundlock.storage import LocalStorage

JOB_ID = "0123456789abcdef" * 2
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
EVENTS = {"events": {"0": 120, "1": 80}}
TICK = {"offset": 8, "timestamp": 4000}
CHECKPOINT = 3


def part(sink: str, name: str, rows: int) -> JSON:
    """Return a part that waits, with one segment."""
    segment = {
        "path": f".{sink}.{name}.inprogress.tag-1-0",
        "bytes": rows * 10,
        "rows": rows,
        "crc32": 0,
        "checkpoint": 2,
    }
    return {
        "bucket": "dt=20181219", "subtask": 0, "name": name, "rows": rows, "bytes": rows * 10, "created_ms": 0,
        "last_write_ms": 0, "min_ms": None, "max_ms": None, "kind": "raw", "segments": [segment],
    }  # fmt: skip


def save(
    folder: Path,
    *,
    positions: Mapping[str, Any],
    split: Sequence[str] = (),
    state: Sequence[str] = (),
    keys: Sequence[str] = (),
    partitions: int = 4,
    provider: str = ROCKSDB,
    watermark: int = 0,
    sinks: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    more: Sequence[tuple[str, bytes]] = (),
    checkpoint: int = CHECKPOINT,
    query: bool = True,
) -> LocalStorage:
    """Make a savepoint.

    Args:
        folder: where.
        positions: of each use of a source.
        split: the sources that are split-planned, of which Spark's log knows only ticks.
        state: ids of stateful operators.
        keys: what their state is kept by.
        partitions, provider: of the state.
        watermark: of the next batch, ms.
        sinks: per sink, the parts that wait: name and rows.
        more: further files.
        checkpoint: the newest.
        query: whether a streaming query ran the job, whose log is in the savepoint.
    """
    name = new_name(JOB_ID)
    storage = LocalStorage(str(folder / name))
    sinks = {"out": [("part-0-0", 7)]} if sinks is None else sinks
    states: dict[str, dict[str, Any]] = {
        sink: {"v": 1, "tag": "tag", "root": "/data", "counters": {"0": 9}, "closing": [], "pending": len(parts),
               "parts": [part(sink, *each) for each in parts]}
        for sink, parts in sinks.items()
    }  # fmt: skip
    uses = list(dict.fromkeys(source_of(use) for use in positions))
    metadata = Metadata(
        name=name,
        job="made",
        job_id=JOB_ID,
        created_ms=1_545_184_226_000,
        versions={"poundlock": "0.1.0", "pyspark": "4.2.1"},
        decision=Decision(
            number=5,
            occasion="checkpoint",
            checkpoint=checkpoint,
            job_id=JOB_ID,
            epoch=1,
            time_ms=0,
            sources={use: SourceRange(None, end, {"topics": {"events": "id"}}) for use, end in positions.items()},
            sinks={sink: SinkDecision([], said) for sink, said in states.items()},
        ),
        operators={
            **{use: Operator("source") for use in uses},
            **{sink: Operator("sink") for sink in sinks},
            **{id: Operator("stateful", id != "window-0", {"keys": keys} if keys else {}) for id in state},
        },
        sinks={sink: FileSink("/data", row="value").describe_json() for sink in sinks},
    )
    cut = Cut(storage, metadata)
    if query:
        _put_query(cut, positions, split, state, partitions, provider, watermark)
    for sink, parts in states.items():
        for waiting in parts["parts"]:
            cut.put(f"sinks/{sink}/{waiting['segments'][0]['path']}", b"r" * waiting["bytes"])
    for path, data in more:
        cut.put(path, data)
    finish(cut)
    return storage


def _put_query(
    cut: Cut,
    positions: Mapping[str, Any],
    split: Sequence[str],
    state: Sequence[str],
    partitions: int,
    provider: str,
    watermark: int,
) -> None:
    """Add what a streaming query leaves."""
    checkpoint = cut.metadata.decision.checkpoint
    header = {
        "batchWatermarkMs": watermark,
        "batchTimestampMs": 1,
        "conf": {
            "spark.sql.shuffle.partitions": str(partitions),
            "spark.sql.streaming.stateStore.providerClass": provider,
        },
    }
    lines = []
    for use, end in positions.items():
        text = json.dumps(TICK if source_of(use) in split else end, separators=(",", ":"))
        lines.append(f"{spark_name(use)}:{text}")
    log = "\n".join(["v2", json.dumps(header), *lines]).encode()
    for batch in range(max(0, checkpoint - 1), checkpoint + 1):
        cut.put(f"spark/offsets/{batch}", log)
        cut.put(f"spark/commits/{batch}", b"v1\n" + json.dumps({"nextBatchWatermarkMs": watermark}).encode())
    cut.put("spark/metadata", b'{"id":"x"}')
    for use in positions:
        if source_of(use) not in split:
            cut.put(f"spark/sources/{spark_name(use)}/0", b"v1\n{}")
    for number in range(len(state)):
        said = {"operatorInfo": {"operatorId": number, "operatorName": "stateStoreSave"}}
        cut.put(f"spark/state/{number}/_metadata/metadata", b"v1\n" + json.dumps(said).encode())
        cut.put(f"spark/state/{number}/0/1_a.changelog", b"s" * 100)


def save_kept(folder: Path, stages: Mapping[str, Sequence[str]], positions: Mapping[str, Any]) -> LocalStorage:
    """Make a savepoint of a job that keeps its state itself: a file of state for each stage, of which only the names are real.

    Args:
        folder: where.
        stages: operators with state, by stage.
        positions: of each source.
    """
    name = new_name(JOB_ID)
    storage = LocalStorage(str(folder / name))
    manifests, files, number = {}, [], 1
    for stage, operators in stages.items():
        path = f"state/{JOB_ID}/{stage}.arrow"
        run = RunFile(name=path, digest="", bytes=50, rows=1, checkpoint=CHECKPOINT, first=0, stop=128, id=1)
        metas = {id: OperatorMeta(number=number + i, watermark=5) for i, id in enumerate(operators)}
        timers = tuple(TimerBound(meta.number, 0, 128, 7, None) for meta in metas.values())
        manifest = Manifest(
            max_parallelism=128, operators=metas, files=(run,), fragments=(Fragment(0, 128, (1,)),), timers=timers
        )
        manifests[stage] = json.loads(manifest.to_json())
        files.append(path)
        number += len(operators)
    metadata = Metadata(
        name=name,
        job="made",
        job_id=JOB_ID,
        created_ms=1_545_184_226_000,
        versions={},
        decision=Decision(
            number=5,
            occasion="checkpoint",
            checkpoint=CHECKPOINT,
            job_id=JOB_ID,
            epoch=1,
            time_ms=0,
            sources={use: SourceRange(None, end, {}) for use, end in positions.items()},
            sinks={},
            watermarks={"v": 2, "watermark": 5, "state": {}, "directive": {}},
            state={"v": 1, "manifest": manifests},
        ),
        operators={
            **{use: Operator("source") for use in positions},
            **{id: Operator("stateful") for operators in stages.values() for id in operators},
        },
    )
    cut = Cut(storage, metadata)
    for path in files:
        cut.put(path, b"s" * 50)
    finish(cut)
    return storage


def files_of(folder: Path | str) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
