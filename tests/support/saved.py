"""Savepoints made by hand, as a job of any shape would leave them: for tests that need no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock import FileSink
from poundlock.checkpoint.decision import Decision, SinkDecision, SourceRange
from poundlock.checkpoint.participant import JSON
from poundlock.operators.time_values import DecidedTime, TimeDirective, TimeState
from poundlock.savepoint.metadata import Metadata, Operator, new_name
from poundlock.savepoint.take import Cut, finish
from poundlock.state.decided_state import DecidedState
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, RunFile, TimerBound
from poundlock.state.runs.run import digest_of
from poundlock.storage import LocalStorage

JOB_ID = "0123456789abcdef" * 2
EVENTS = {"events": {"0": 120, "1": 80}}
CHECKPOINT = 3
_CONTENT = b"s" * 50


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
    state: Mapping[str, Sequence[str]] | Sequence[str] = (),
    watermark: int | None = None,
    sinks: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    more: Sequence[tuple[str, bytes]] = (),
    checkpoint: int = CHECKPOINT,
) -> LocalStorage:
    """Make a savepoint.

    Args:
        folder: where.
        positions: of each source.
        state: ids of stateful operators, by stage or all of one; a file of state for each stage, of which only the name is real.
        watermark: of the next checkpoint, ms; None where there is none.
        sinks: per sink, the parts that wait: name and rows.
        more: further files.
        checkpoint: the newest.
    """
    name = new_name(JOB_ID)
    storage = LocalStorage(str(folder / name))
    sinks = {"out": [("part-0-0", 7)]} if sinks is None else sinks
    states: dict[str, dict[str, Any]] = {
        sink: {"v": 1, "tag": "tag", "root": "/data", "counters": {"0": 9}, "closing": [], "pending": len(parts),
               "parts": [part(sink, *each) for each in parts]}
        for sink, parts in sinks.items()
    }  # fmt: skip
    stages = state if isinstance(state, Mapping) else {"stage-1": state} if state else {}
    manifests, files = _manifests(stages)
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
            sources={name: SourceRange(None, end, {"topics": {"events": "id"}}) for name, end in positions.items()},
            sinks={sink: SinkDecision([], said) for sink, said in states.items()},
            watermarks=None
            if watermark is None
            else DecidedTime(v=2, watermark=watermark, state=TimeState(), directive=TimeDirective(TimeState(), 0, {})),
            state=DecidedState.whole(manifests) if manifests else None,
        ),
        files={},
        operators={
            **{name: Operator("source") for name in positions},
            **{sink: Operator("sink") for sink in sinks},
            **{id: Operator("stateful", id != "window-0") for operators in stages.values() for id in operators},
        },
        sinks={sink: FileSink("/data", row="value").describe_json() for sink in sinks},
    )
    cut = Cut(storage, metadata)
    for path in files:
        cut.put(path, _CONTENT)
    for sink, parts in states.items():
        for waiting in parts["parts"]:
            cut.put(f"sinks/{sink}/{waiting['segments'][0]['path']}", b"r" * waiting["bytes"])
    for path, data in more:
        cut.put(path, data)
    finish(cut)
    return storage


def _manifests(stages: Mapping[str, Sequence[str]]) -> tuple[dict[str, Manifest], list[str]]:
    """Return the manifests of some stages, and their files."""
    manifests: dict[str, Manifest] = {}
    files: list[str] = []
    number = 1
    for stage, operators in stages.items():
        path = f"state/{JOB_ID}/{stage}.arrow"
        run = RunFile(
            name=path, digest=digest_of(_CONTENT), bytes=len(_CONTENT), rows=1, checkpoint=CHECKPOINT, first=0, stop=128,
            id=1,
        )  # fmt: skip
        metas = {id: OperatorMeta(number=number + i, watermark=5) for i, id in enumerate(operators)}
        timers = tuple(TimerBound(meta.number, 0, 128, 7, None) for meta in metas.values())
        manifest = Manifest(
            max_parallelism=128, operators=metas, files=(run,), fragments=(Fragment(0, 128, (1,)),), timers=timers
        )
        manifests[stage] = manifest
        files.append(path)
        number += len(operators)
    return manifests, files


def files_of(folder: Path | str) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
