"""What a job writes: sinks with their newest commits and finished files, and dead letters with samples and reasons.

All of it is named by the newest decisions; no folder is listed, and of files only the ends of dead letters are read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.participant import DEAD_LETTER, JSON, Counts
from poundlock.connectors.files.manifest import ManifestEntry, finished_files
from poundlock.errors import PoundlockError
from poundlock.redaction import redact_text
from poundlock.rest.answers import JobCalled
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered
from poundlock.storage import open_storage

router = APIRouter()
_LOOKED_AT = 150  # decisions
_COMMITS = 20
_FILES = 50
_NAMED = 5
_SAMPLE_FILES = 12
_TAIL = 64 << 10
_VALUE = 2000
_REASON = 200
_NUMBERS = re.compile(r"[0-9]+")

Last = Annotated[int, Query(ge=1, le=500, description="How many decisions are looked at.")]


@router.get("/jobs/{jid}/sinks")
def sinks(job: JobCalled, folder: FolderOfJob, last: Last = _LOOKED_AT) -> models.SinksView:
    """The sinks with their newest commits and finished files."""
    with answered():
        decisions = folder.newest_first(last)
    names = list(decisions[0].sinks) if decisions else [v.name for v in job.setup.vertices if v.kind == "sink"]
    described = {node.id: node.what for node in job.setup.graph.nodes}
    kinds = {vertex.name: vertex.description for vertex in job.setup.vertices}
    return models.SinksView(
        looked_at=len(decisions),
        sinks=[_sink(name, described.get(name) or kinds.get(name), decisions) for name in names],
    )


def _sink(name: str, description: str | None, decisions: Sequence[Decision]) -> models.SinkView:
    counts, size, known = Counts(), 0, True
    for decision in decisions:
        part = decision.sinks.get(name)
        if part is not None and decision.occasion == "checkpoint":
            counts.add(part.counts)
            if part.wrote is not None:
                known = known and part.wrote.bytes is not None
                size += part.wrote.bytes or 0
    newest = decisions[0].sinks.get(name) if decisions else None
    pending = None if newest is None else newest.state.get("pending")
    when = {decision.number: decision.time_ms for decision in decisions}
    files = islice((f for d in decisions for f in reversed([*finished_files([d], sink=name)])), _FILES)
    commits = (_commit(each, name) for each in decisions if name in each.sinks and each.sinks[name].committables)
    root = None if newest is None else newest.state.get("root")
    return models.SinkView(
        id=name,
        description=description,
        counts=counts.to_json(),
        bytes=size if known else None,
        pending=pending if isinstance(pending, int) else len(pending) if isinstance(pending, list) else None,
        place=root if isinstance(root, str) else None,
        commits=list(islice(commits, _COMMITS)),
        files=[_file(each, when[each.decision]) for each in files],
    )


def _commit(decision: Decision, name: str) -> models.CommitLine:
    committables = decision.sinks[name].committables
    return models.CommitLine(
        number=decision.number,
        checkpoint=decision.checkpoint,
        occasion=decision.occasion,
        decided=decision.time_ms,
        what=[_called(each) for each in committables[:_NAMED]],
        pieces=len(committables),
        rows=_total(committables, "rows"),
        bytes=_total(committables, "bytes"),
    )


def _called(committable: JSON) -> str:
    """Return what stands for what is committed: the name of a file, or that of a transaction."""
    for name in ("final", "tid", "gid", "file", "path", "id"):
        if isinstance(called := committable.get(name), str) and called:
            return called
    return str(committable.get("kind", "a commit"))


def _total(committables: Sequence[JSON], name: str) -> int | None:
    values = [value for each in committables if isinstance(value := each.get(name), int)]
    return sum(values) if len(values) == len(committables) else None


def _file(file: ManifestEntry, decided: int) -> models.ListedFile:
    return models.ListedFile(
        path=f"{file.root}/{file.path}",
        bucket=file.bucket,
        rows=file.rows,
        bytes=file.bytes,
        first_event=file.min_event_ms,
        last_event=file.max_event_ms,
        checkpoint=file.checkpoint,
        decided=decided,
    )


@router.get("/jobs/{jid}/dead-letters")
def dead_letters(
    job: JobCalled,
    folder: FolderOfJob,
    last: Last = _LOOKED_AT,
    samples: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
) -> models.DeadLetters:
    """Dead letters of the newest decisions, with samples and reasons."""
    with answered():
        decisions = folder.newest_first(last)
    rows = sum(each.sinks[DEAD_LETTER].counts.written for each in decisions if DEAD_LETTER in each.sinks)
    files = list(
        islice((f for d in decisions for f in reversed([*finished_files([d], sink=DEAD_LETTER)])), _SAMPLE_FILES)
    )
    taken: list[models.DeadLetter] = []
    notes: list[str] = []
    for file in files:
        try:
            taken += _letters(file, samples - len(taken))
        except (OSError, PoundlockError) as error:
            notes.append(f"{file.path} cannot be read: {error}")
        if len(taken) >= samples:
            break
    if not decisions or all(DEAD_LETTER not in each.sinks for each in decisions):
        notes.append("the job keeps no dead letters: give it a folder with dead_letters=…")
    reasons = Counter(_NUMBERS.sub("…", letter.reason)[:_REASON] for letter in taken).most_common()
    return models.DeadLetters(
        rows=rows,
        place=files[0].root if files else None,
        reasons=[[reason, count] for reason, count in reasons],
        samples=taken,
        note="; ".join(notes) or None,
    )


def _letters(file: ManifestEntry, most: int) -> list[models.DeadLetter]:
    """Return the newest letters of a file, read from its end."""
    with open_storage(file.root).open(file.path) as handle:
        size = handle.seek(0, 2)
        handle.seek(max(0, size - _TAIL))
        lines = handle.read(_TAIL).split(b"\n")
    if size > _TAIL:
        del lines[0]
    return [_letter(file, line) for line in reversed([line for line in lines if line.strip()][-most:])]


def _letter(file: ManifestEntry, line: bytes) -> models.DeadLetter:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = {}
    its: dict[str, Any] = value if isinstance(value, dict) else {}
    text = its.get("value", line.decode(errors="replace"))
    place = {name: each for name, each in its.items() if name not in ("reason", "value", "checkpoint", "operator")}
    checkpoint, operator = its.get("checkpoint"), its.get("operator")
    return models.DeadLetter(
        file=file.path,
        checkpoint=checkpoint if isinstance(checkpoint, int) else file.checkpoint,
        operator=operator if isinstance(operator, str) else None,
        reason=redact_text(str(its.get("reason", "")))[:_VALUE],
        place=place,
        value=(text if isinstance(text, str) else json.dumps(text))[:_VALUE],
    )
