"""Everything that is compared before a decision is made or a replay is believed.

Each check is a pure function that raises; a checkpoint that does not add up is never committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import JSON, Counts
from poundlock.errors import DefinitionError, TerminalError


def check_counts(results: TaskResults, sinks: Collection[str]) -> None:
    """Raise TerminalError unless, per sink, every row read is accounted for and every row written was prepared."""
    unknown = sorted({item.sink for item in results.prepared} - set(sinks))
    if unknown:
        raise TerminalError(f"tasks prepared output for {unknown}, which the job does not have", next=_REPORT)
    for name in sinks:
        counts = results.counts.get(name, Counts())
        if not counts.balanced():
            raise TerminalError(
                f"rows of sink {name!r} do not add up: {counts.to_json()}", next=_REPORT, participant=name
            )
        payloads = [item.payload for item in results.prepared if item.sink == name]
        if all("rows" in payload for payload in payloads):
            prepared = sum(payload["rows"] for payload in payloads)
            if prepared != counts.written:
                raise TerminalError(
                    f"sink {name!r} wrote {counts.written} rows but prepared {prepared}", next=_REPORT, participant=name
                )


def check_same_ranges(decided: Decision, delivered: Mapping[str, SourceRange]) -> None:
    """Raise TerminalError unless a checkpoint that is delivered again has the ranges it was decided with."""
    for name in sorted({*decided.sources, *delivered}):
        ours, theirs = decided.sources.get(name), delivered.get(name)
        if _span(ours) != _span(theirs):
            raise TerminalError(
                f"checkpoint {decided.checkpoint} of another history: source {name!r} was decided as {_say(ours)}"
                f" and is delivered again as {_say(theirs)}",
                next="restore Spark's checkpoint and the ledger from the same moment, or begin in a new checkpoint_dir",
                participant=name,
            )


def check_continues(decided: Mapping[str, SourceRange], checkpoint: int, delivered: Mapping[str, SourceRange]) -> None:
    """Raise TerminalError unless a new checkpoint begins where the newest decided one ended."""
    for name, ours in decided.items():
        theirs = delivered.get(name)
        if theirs is None or theirs.start is None:  # the source was taken out, or cannot say where it began
            continue
        if _canonical(ours.end) != _canonical(theirs.start):
            raise TerminalError(
                f"checkpoint {checkpoint} of another history: source {name!r} ended at {_canonical(ours.end)}"
                f" and goes on at {_canonical(theirs.start)}",
                next="restore Spark's checkpoint and the ledger from the same moment, or begin in a new checkpoint_dir",
                participant=name,
            )


def check_owner(decision: Decision | None, identity: Identity) -> None:
    """Raise TerminalError if a ledger record was written for another job."""
    if decision is not None and decision.job_id != identity.job_id:
        raise TerminalError(
            f"ledger record {decision.number} is of job {decision.job_id}, not {identity.job_id} ({identity.name!r})",
            next="restore job.json and ledger/ from the same backup",
        )


def check_removed_sinks(newest: Decision | None, sinks: Collection[str], job: str) -> None:
    """Raise DefinitionError if a sink that is no longer part of the job has data that is not visible yet."""
    for name, sink in newest.sinks.items() if newest else ():
        if name not in sinks and (sink.committables or holds_pending(sink.state)):
            raise DefinitionError(
                f"sink {name!r} was taken out of job {job!r} but still has pending data",
                next=f"put {name!r} back, run the job and stop it cleanly, then take it out",
                job=job,
                participant=name,
            )


def holds_pending(state: JSON) -> bool:
    """Return whether a sink's state names data that is still to become visible.

    Sinks keep it under "pending"; a state without that name counts as pending if it holds anything at all.
    """
    if "pending" in state:
        return bool(state["pending"])
    return any(isinstance(value, (list, dict)) and value for value in state.values())


def _span(source: SourceRange | None) -> tuple[str, str] | None:
    """Return a range to compare; one in which nothing was read equals one that is not there."""
    if source is None:
        return None
    start, end = _canonical(source.start), _canonical(source.end)
    return None if start == end else (start, end)


def _say(source: SourceRange | None) -> str:
    return "nothing" if source is None else f"{_canonical(source.start)} to {_canonical(source.end)}"


def _canonical(position: Any) -> str:
    return json.dumps(position, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_REPORT = "nothing was committed; report this with the job and its log"
