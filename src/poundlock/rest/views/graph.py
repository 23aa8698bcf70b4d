"""The job as a picture: the graph that its driver wrote down, with the figures of the newest checkpoints at each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.control.registry import now_ms
from poundlock.plan.graph import GraphEdge, GraphNode, JobGraph
from poundlock.rest.answers import JobCalled
from poundlock.rest.observed import Observed
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered
from poundlock.state.decided_state import Manifests

router = APIRouter()
_LOOKED_AT = 12  # checkpoints that rates are of
_STALE_MS = 60_000


@router.get("/jobs/{jid}/graph")
def graph(job: JobCalled, folder: FolderOfJob) -> models.DrawnGraph:
    """The job as a picture, with figures at its nodes."""
    with answered():
        decisions = [each for each in folder.newest_first(_LOOKED_AT) if each.occasion == "checkpoint"]
        manifests = folder.manifests()
    its = job.setup.graph if job.setup.graph.nodes else _without_a_plan(job)
    figures = _Figures(job, decisions, manifests)
    return models.DrawnGraph(
        nodes=[
            models.DrawnNode(id=n.id, kind=n.kind, what=n.what, stage=n.stage, figures=figures.of(n)) for n in its.nodes
        ],
        edges=[models.DrawnEdge(source=e.source, target=e.target, ship=e.ship) for e in its.edges],
        stages=[models.DrawnStage(number=s.number, kind=s.kind, nodes=list(s.nodes)) for s in its.stages],
        parallelism=job.progress.parallelism or job.setup.parallelism,
        busy=figures.busy,
        watermark=figures.watermark,
        held_by=job.progress.held_by,
    )


def _without_a_plan(job: Observed) -> JobGraph:
    """Return what is known of a job whose driver wrote no graph: its sources and sinks."""
    nodes = [
        GraphNode(id=v.name, kind="source" if v.kind == "source" else "sink", what=v.description)
        for v in job.setup.vertices
    ]
    sources, sinks = ([node.id for node in nodes if node.kind == kind] for kind in ("source", "sink"))
    return JobGraph(nodes=nodes, edges=[GraphEdge(source=a, target=b) for a in sources for b in sinks])


class _Figures:
    """What the newest checkpoints tell of each node."""

    def __init__(self, job: Observed, decisions: Sequence[Decision], manifests: Manifests) -> None:
        self._job = job
        self._decisions = decisions
        self._span_s = self._seconds(decisions)
        self._state = _state_sizes(manifests)
        newest = decisions[0].watermarks if decisions else None
        self.watermark = job.progress.watermark
        if self.watermark is None and newest is not None:
            self.watermark = newest.watermark
        self._streams = {} if newest is None else newest.state.streams
        self._sources = (
            {} if newest is None else {name: its for of in newest.state.sources.values() for name, its in of.items()}
        )
        worked = sum(sum(each.durations_ms.values()) for each in decisions[:-1])
        self.busy = None if self._span_s is None else min(1.0, worked / 1000 / self._span_s)
        parallelism = job.progress.parallelism or job.setup.parallelism
        known = self._span_s is not None and parallelism is not None
        self._busy = job.trend.busy(parallelism or 1) if known else {}

    def _seconds(self, decisions: Sequence[Decision]) -> float | None:
        """Return how long the time was in which all but the oldest of these were made; None where that says nothing of now."""
        if len(decisions) < 2 or self._job.ended or now_ms() - decisions[0].time_ms > _STALE_MS:
            return None
        return max(0.001, (decisions[0].time_ms - decisions[-1].time_ms) / 1000)

    def _rate(self, amounts: Sequence[int | None]) -> float | None:
        """Return so much a second, given amounts of each checkpoint; None where it is not known."""
        known = [amount for amount in amounts if amount is not None]
        if self._span_s is None or len(known) < len(amounts) or not known:
            return None
        return sum(known) / self._span_s

    def _rate_of_newest(self, rows: int | None) -> float | None:
        """Return rows a second, given those of the newest checkpoint: what came since the one before began."""
        began = [each.started_ms for each in self._decisions[:2] if each.started_ms is not None]
        if rows is None or self._span_s is None or len(began) < 2:
            return None
        return rows * 1000 / max(1, began[0] - began[1])

    def of(self, node: GraphNode) -> models.NodeFigures:
        """Return the figures of a node."""
        busy = self._busy.get(node.id)
        return self._of(node).model_copy(update={"busy": None if busy is None else round(busy, 4)})

    def _lag(self, source: str) -> int | None:
        """Return how many records wait in a source: what it says itself, else what is said of the job where it has one source."""
        progress = self._job.progress
        if source in progress.lags:
            return sum(progress.lags[source].values())
        sources = sum(vertex.kind == "source" for vertex in self._job.setup.vertices)
        return progress.lag if sources == 1 else None

    def _of(self, node: GraphNode) -> models.NodeFigures:
        recent = self._decisions[:-1]
        skew = self._job.progress.skew
        if node.kind == "source":
            ranges = [each.sources[node.id] for each in recent if node.id in each.sources]
            known = self._sources.get(node.id)
            shares = skew.splits.get(node.id)
            return models.NodeFigures(
                rows=self._job.figures.refresh().rows_in.get(node.id),
                rows_per_s=self._rate([span.rows for span in ranges]),
                bytes_per_s=self._rate([span.bytes for span in ranges]),
                watermark=None if known is None else known.watermark,
                lag=self._lag(node.id),
                skew=None if shares is None else round(shares.skew, 2),
            )
        if node.kind in ("sink", "dead letters"):
            return self._of_sink(node.id if node.kind == "sink" else DEAD_LETTER, recent)
        stream = self._streams.get(node.id)
        shares = skew.groups.get(node.id)
        size = self._state.get(node.id)
        return models.NodeFigures(
            rows_per_s=self._rate_of_newest(None if shares is None else shares.rows),
            watermark=None if stream is None else stream.watermark,
            state_bytes=None if size is None else size[0],
            state_rows=None if size is None else size[1],
            skew=None if shares is None else round(shares.skew, 2),
        )

    def _of_sink(self, name: str, recent: Sequence[Decision]) -> models.NodeFigures:
        parts = [each.sinks[name] for each in recent if name in each.sinks]
        totals = self._job.figures.refresh().counts.get(name)
        return models.NodeFigures(
            rows=None if totals is None else totals.written,
            rows_per_s=self._rate([part.counts.written for part in parts]),
            bytes_per_s=self._rate([0 if part.wrote is None else part.wrote.bytes for part in parts]),
        )


def _state_sizes(manifests: Manifests) -> Mapping[str, tuple[int, int]]:
    """Return bytes and rows of the state of operators; of a stage with several, each has all of them, for files are of a stage."""
    return {
        operator: (sum(file.bytes for file in manifest.files), sum(file.rows for file in manifest.files))
        for manifest in manifests.values()
        for operator in manifest.operators
    }
