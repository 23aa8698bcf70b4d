"""The savepoints of a job, and the removal of one as Flink has it: asked for, then looked up by a trigger's id.

A removal deletes what the savepoint's own list names and nothing else; it can be done twice.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from http import HTTPStatus

from fastapi import APIRouter, Request

from poundlock.driver.requests import Status
from poundlock.driver.savepoints.retained_checkpoints import copies
from poundlock.errors import PoundlockError
from poundlock.rest import models as flink
from poundlock.rest.answers import JobCalled, TriggerId, failure_cause, refusal
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered
from poundlock.savepoint.metadata import METADATA, read_metadata
from poundlock.savepoint.restore import dispose
from poundlock.storage import Storage, open_storage
from poundlock.storage.storage_errors import explained

router = APIRouter()
_KEPT = 100
_LISTED = 50


class Disposals:
    """Removals of savepoints that were asked for; the newest hundred can be looked up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[Status, PoundlockError | None]] = OrderedDict()

    def begin(self, path: str) -> str:
        """Begin to remove a savepoint; return what to look it up by."""
        id = secrets.token_hex(16)
        self._set(id, "IN_PROGRESS", None)
        threading.Thread(target=self._dispose, args=(id, path), name="poundlock-disposal", daemon=True).start()
        return id

    def find(self, id: str) -> tuple[Status, PoundlockError | None] | None:
        """Return what became of a removal; None if it is not known."""
        with self._lock:
            return self._known.get(id)

    def _dispose(self, id: str, path: str) -> None:
        try:
            with explained(f"deleting {path}"):
                dispose(open_storage(path))
        except (PoundlockError, ValueError) as error:
            known = error if isinstance(error, PoundlockError) else PoundlockError(f"{path!r} is no path: {error}")
            self._set(id, "FAILED", known)
        else:
            self._set(id, "COMPLETED", None)

    def _set(self, id: str, status: Status, error: PoundlockError | None) -> None:
        with self._lock:
            self._known[id] = (status, error)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


@router.get("/jobs/{jid}/savepoints")
def savepoints(job: JobCalled, folder: FolderOfJob) -> models.ListedSavepoints:
    """The savepoints of the job in its usual folder, and the retained copies of its checkpoints, the newest first."""
    home = job.setup.settings.get("state_dir")
    usual = f"{home}/savepoints" if isinstance(home, str) else None
    with answered(), explained(f"listing the savepoints of job {job.entry.name}"):
        listed = [*_of_job(job.job_id, usual)] if usual is not None else []
        listed += [_described(f"{folder.storage.root}/{path}", "retained") for path in copies(folder.storage).values()]
    listed.sort(key=lambda each: each.created or 0, reverse=True)
    return models.ListedSavepoints(folder=usual, savepoints=listed[:_LISTED])


def _of_job(job_id: str, folder: str) -> Iterator[models.SavepointLine]:
    storage: Storage = open_storage(folder)
    for name in sorted(storage.names(".")):
        if name.startswith(f"savepoint-{job_id[:6]}-") and storage.stat(f"{name}/{METADATA}") is not None:
            yield _described(f"{storage.root}/{name}", "savepoint")


def _described(path: str, kind: str) -> models.SavepointLine:
    try:
        metadata = read_metadata(open_storage(path))
    except (PoundlockError, OSError) as error:
        return models.SavepointLine.model_validate(
            {"path": path, "kind": kind, "created": None, "checkpoint": None, "bytes": None, "trouble": str(error)}
        )
    size = sum(file.bytes for file in metadata.files.values())
    return models.SavepointLine.model_validate(
        {
            "path": path,
            "kind": kind,
            "created": metadata.created_ms,
            "checkpoint": metadata.decision.checkpoint,
            "bytes": size,
            "trouble": None,
        }
    )


@router.post("/savepoint-disposal", status_code=HTTPStatus.ACCEPTED)
def trigger_disposal(request: Request, body: models.DisposalRequest) -> flink.RequestId:
    """Remove a savepoint."""
    disposals: Disposals = request.app.state.disposals
    return flink.RequestId(request_id=disposals.begin(body.savepoint_path))


@router.get("/savepoint-disposal/{trigger_id}", response_model_exclude_none=True)
def disposal(request: Request, trigger_id: TriggerId) -> flink.SavepointTriggerInfo:
    """What became of a removal that was asked for."""
    disposals: Disposals = request.app.state.disposals
    known = disposals.find(trigger_id.lower())
    if known is None:
        raise refusal(404, "there is no such request", "the newest hundred requests can be looked up")
    status, error = known
    if status == "IN_PROGRESS":
        return flink.SavepointTriggerInfo(status=flink.TriggerStatus(id="IN_PROGRESS"))
    return flink.SavepointTriggerInfo(
        status=flink.TriggerStatus(id="COMPLETED"),
        operation=flink.SavepointOperation(failure_cause=failure_cause(error)),
    )
