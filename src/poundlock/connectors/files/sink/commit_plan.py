"""The file sink's part of a decision, as pure functions of the carried state: which parts go on, which become visible.

Every segment that was prepared is named by exactly one of: an open part, a waiting part, a committable. A counter is
never given twice, so no two parts of a job ever have one name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poundlock.checkpoint.participant import JSON, Occasion, Prepared, Staged
from poundlock.connectors.files.checksums import combined
from poundlock.connectors.files.sink.compaction import Compactor, FileCompaction, Request
from poundlock.connectors.files.sink.multipart import is_upload, known_as
from poundlock.connectors.files.sink.names import final_name, join, numbers_of
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.errors import TerminalError

FORMAT = 1
# What is kept of a segment: what it takes to join and delete it, and for the audit to tell which checkpoint's rows it has.
_SEGMENT = ("path", "bytes", "rows", "crc32", "checkpoint", "upload")
# A part of so many segments is finished whatever the policy says: every decision carries all of their names.
MAX_SEGMENTS = 500


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the sink's settings the decision needs.

    Args:
        root: the sink's folder; hidden files are named below it.
        rolling: when a part is finished.
        whole: each segment is a part of its own (bulk formats).
        prefix, suffix: of finished names.
        compaction: None = none.
        tag: stands for job and sink in hidden names; "" = take it from what was prepared.
        joins: whether several segments are joined by an upload, which a crash may leave.
    """

    root: str
    rolling: RollingPolicy
    whole: bool
    prefix: str
    suffix: str
    compaction: FileCompaction | None
    tag: str
    joins: bool = False


def stage(rules: Rules, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
    """Return the next state and what becomes visible with it; see `Participant.stage`."""
    _check(rules, state)
    counters: dict[str, int] = dict(state.get("counters", {}))
    parts = {(p["bucket"], p["subtask"]): copy.deepcopy(p) for p in state.get("parts", ())}
    tag = rules.tag or state.get("tag", "")
    closed: list[JSON] = []
    for item in sorted(prepared, key=lambda p: (p.subtask, p.payload["k"], p.payload["path"])):
        tag = tag or item.payload["tag"]
        _fold(rules, item, parts, counters, closed)
    for key in list(parts):
        if _closes(rules, parts[key], occasion, now_ms):
            closed.append(parts.pop(key))
    requests, waiting = _compact(rules, state.get("compaction"), closed, occasion, now_ms)
    committables = [_committable(rules, tag, request) for request in requests]
    next_state: JSON = {
        "v": FORMAT,
        "tag": tag,
        "root": rules.root,
        "counters": counters,
        "parts": list(parts.values()),
        # Repeated here so that a sweep before the commits are done spares them.
        "closing": [known_as(s) for c in committables for s in c["segments"]],
        "newest": _newest(rules, state.get("newest", {}), committables, now_ms),
    }
    if waiting is not None:
        next_state["compaction"] = waiting
    if rules.joins:
        next_state["joined"] = [c["final"] for c in committables if not is_upload(c["segments"][0])]
    # How much is still to become visible: at 0 the sink may be taken out of the job, its counters stay.
    next_state["pending"] = len(carried_segments(next_state))
    return Staged(next_state, committables)


def _check(rules: Rules, state: JSON) -> None:
    if state and state.get("v") != FORMAT:
        raise TerminalError(
            f"the file sink's state has format {state.get('v')!r}, which this version does not know",
            next="run the version of poundlock that wrote the checkpoint",
        )
    if state.get("root", rules.root) != rules.root and (state["parts"] or state.get("compaction", {}).get("waiting")):
        raise TerminalError(
            f"the checkpoint holds unfinished files below {state['root']}, but the sink now writes to {rules.root}",
            next="set the sink's path back, stop the job cleanly once, then change it",
        )


def _fold(
    rules: Rules,
    item: Prepared,
    parts: dict[tuple[str, int], JSON],
    counters: dict[str, int],
    closed: list[JSON],
) -> None:
    payload = item.payload
    key = (payload["bucket"], item.subtask)
    part = parts.get(key)
    other = part is not None and (payload["new_part"] or part.get("closed") or part["kind"] != payload["kind"])
    if other:
        closed.append(parts.pop(key))
        part = None
    if part is None:
        counter = max(counters.get(str(item.subtask), 0), payload.get("floor", 0))
        if is_upload(payload):  # its writer gave the name, unique to the attempt
            counter = payload["counter"]
        counters[str(item.subtask)] = max(counters.get(str(item.subtask), 0), counter + 1)
        part = parts[key] = {
            "bucket": payload["bucket"],
            "subtask": item.subtask,
            "name": payload["path"].rpartition("/")[2]
            if is_upload(payload)
            else final_name(rules.prefix, item.subtask, counter, rules.suffix),
            "created_ms": payload["at_ms"],
            "last_write_ms": payload["at_ms"],
            "bytes": 0,
            "rows": 0,
            "min_ms": None,
            "max_ms": None,
            "kind": payload["kind"],
            "segments": [],
        }
    part["last_write_ms"] = max(part["last_write_ms"], payload["at_ms"])
    part["segments"].append({name: payload[name] for name in _SEGMENT if name in payload})
    _widen(part, payload)


def _widen(total: JSON, piece: JSON) -> None:
    total["bytes"] += piece["bytes"]
    total["rows"] += piece["rows"]
    for name, pick in (("min_ms", min), ("max_ms", max)):
        values = [v for v in (total[name], piece[name]) if v is not None]
        total[name] = pick(values) if values else None


def _closes(rules: Rules, part: JSON, occasion: Occasion, now_ms: int) -> bool:
    if occasion is Occasion.END or part.get("closed") or len(part["segments"]) >= MAX_SEGMENTS:
        return True
    if rules.rolling.due(part["created_ms"], part["last_write_ms"], now_ms):
        return True
    if occasion is Occasion.ROLL:
        return False
    return rules.whole or rules.rolling.on_checkpoint or rules.rolling.full(part["bytes"])


def _compact(
    rules: Rules, state: JSON | None, closed: Sequence[JSON], occasion: Occasion, now_ms: int
) -> tuple[list[Request], JSON | None]:
    """Return what becomes visible now, and the waiting parts where there is compaction (or was, before a restart)."""
    policy = rules.compaction
    if policy is None:
        left = [Request(w["bucket"], [w["file"]]) for w in (state or {}).get("waiting", ())]
        return [*left, *(Request(p["bucket"], [p]) for p in closed)], None
    compactor = Compactor(policy, state)
    requests: list[Request] = []
    for part in closed:
        file = {**part, "file": part["segments"][0]["path"], "queued_ms": now_ms}
        requests += compactor.pending(part["bucket"], file)
    if occasion is Occasion.CHECKPOINT:
        requests += compactor.checkpoint()
    requests += compactor.end_of_input() if occasion is Occasion.END else compactor.overdue(now_ms)
    return requests, compactor.to_json()


def _committable(rules: Rules, tag: str, request: Request) -> JSON:
    """Return what commit needs. Several parts merged take the name of the first; the other names are never used."""
    files = [*request.compact, *request.pass_through]
    total: JSON = {"bytes": 0, "rows": 0, "min_ms": None, "max_ms": None}
    for file in files:
        _widen(total, file)
    return {
        "v": FORMAT,
        "tag": tag,
        "root": rules.root,
        "bucket": request.bucket,
        "final": join(request.bucket, files[0]["name"]),
        "kind": files[0]["kind"],
        **total,
        "segments": [segment for file in files for segment in file["segments"]],
    }


def _newest(rules: Rules, before: JSON, committables: Sequence[JSON], now_ms: int) -> JSON:
    """Return the file of the highest counter that each subtask has finished: its path, size, checksum, and when it was finished."""
    highest = dict(known for file in before.values() if (known := _numbers(rules, file["path"])) is not None)
    kept = {subtask: before[subtask] for subtask in highest}
    newer: dict[str, JSON] = {}
    for committable in committables:
        subtask, counter = _numbers(rules, committable["final"]) or ("", 0)
        if highest.get(subtask, -1) < counter:
            highest[subtask], newer[subtask] = counter, committable
    # A checkpoint may finish thousands of files: only those that are kept are described.
    return kept | {subtask: _described(rules, committable, now_ms) for subtask, committable in newer.items()}


def _described(rules: Rules, committable: JSON, now_ms: int) -> JSON:
    segments = committable["segments"]
    joined = rules.whole and len(segments) > 1  # record by record, so that it is of another size
    return {
        "path": committable["final"],
        "bytes": None if joined else committable["bytes"],
        "crc32": None if joined else combined((s["bytes"], s["crc32"]) for s in segments),
        "finished_ms": now_ms,
    }


def _numbers(rules: Rules, path: str) -> tuple[str, int] | None:
    return numbers_of(rules.prefix, rules.suffix, path)


def next_roll_ms(rules: Rules, state: JSON) -> int | None:
    """Return when time alone makes something visible, or moves it on to wait for others; see `Participant.next_roll_ms`."""
    parts = state.get("parts", ())
    due = [rules.rolling.due_ms(p["created_ms"], p["last_write_ms"]) for p in parts]
    due += [p["created_ms"] for p in parts if p.get("closed")]
    if rules.compaction is not None and "compaction" in state:
        due.append(Compactor(rules.compaction, state["compaction"]).next_due_ms())
    return min((at for at in due if at is not None), default=None)


def rescale(state: JSON, parallelism: int) -> JSON:
    """Return the state for fewer subtasks: a part of a subtask that is gone goes on under another, or closes next time.

    Subtask s becomes s mod parallelism. Where that one has an open part in the bucket, the part that came is marked to
    be finished at the next decision; names stay as they were given.
    """
    moved: list[JSON] = []
    taken = {(p["bucket"], p["subtask"]) for p in state.get("parts", ()) if p["subtask"] < parallelism}
    for part in state.get("parts", ()):
        if part["subtask"] >= parallelism:
            heir = (part["bucket"], part["subtask"] % parallelism)
            part = {**part, "closed": True} if heir in taken else {**part, "subtask": heir[1]}
            taken.add(heir)
        moved.append(part)
    return {**state, "parts": moved} if state else {}


def carried_segments(state: JSON) -> list[JSON]:
    """Return the segments, {"path", "bytes"}, that are to become visible with a later decision."""
    waiting: Iterable[JSON] = (w["file"] for w in state.get("compaction", {}).get("waiting", ()))
    return [segment for part in (*state.get("parts", ()), *waiting) for segment in part["segments"]]


def rows_by_bucket(committables: Sequence[JSON], state: JSON, checkpoint: int) -> dict[str, int]:
    """Return the rows of one checkpoint per bucket, of what becomes visible and of what is carried on."""
    waiting = (w["file"] for w in state.get("compaction", {}).get("waiting", ()))
    rows: dict[str, int] = {}
    for part in (*committables, *state.get("parts", ()), *waiting):
        for segment in part["segments"]:
            if segment.get("checkpoint") == checkpoint:
                rows[part["bucket"]] = rows.get(part["bucket"], 0) + int(segment["rows"])
    return rows


def known_paths(state: JSON) -> set[str]:
    """Return every hidden file, and every upload as `known_as` says, that the state names."""
    return {segment["path"] for segment in carried_segments(state)} | set(state.get("closing", ()))
