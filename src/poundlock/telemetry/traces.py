"""A checkpoint as a trace: its phases are spans, and in its commit the calls of each sink are. Made once it has ended, with the times it had."""

from __future__ import annotations

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from poundlock.metrics.timeline import Timeline

_NS = 1_000_000  # in a millisecond


def trace(tracer: Tracer, timeline: Timeline, *, job: str, job_id: str) -> None:
    """Export a checkpoint that completed or failed."""
    attributes: dict[str, str | int] = {
        "poundlock.job.name": job,
        "poundlock.job.id": job_id,
        "poundlock.checkpoint": timeline.checkpoint,
        "poundlock.checkpoint.state": "COMPLETED" if timeline.failure is None else "FAILED",
    }
    root = tracer.start_span("checkpoint", attributes=attributes, start_time=timeline.started_ms * _NS)
    ended = timeline.ended_ms * _NS
    inside = set_span_in_context(root)
    for number, phase in enumerate(timeline.phases):
        last = number == len(timeline.phases) - 1
        span = tracer.start_span(phase.name, context=inside, start_time=phase.started_ms * _NS)
        if phase.name == "commit":
            _calls(tracer, span, timeline)
        if last and timeline.failure is not None:
            span.set_status(Status(StatusCode.ERROR, timeline.failure))
        span.end(ended if last else phase.started_ms * _NS + round(phase.took_ms * _NS))
    if timeline.failure is not None:
        root.set_status(Status(StatusCode.ERROR, timeline.failure))
    root.end(ended)


def _calls(tracer: Tracer, commit: Span, timeline: Timeline) -> None:
    inside = set_span_in_context(commit)
    for call in timeline.commits:
        span = tracer.start_span(
            f"commit {call.sink}",
            context=inside,
            kind=SpanKind.CLIENT,
            attributes={
                "poundlock.sink": call.sink,
                "poundlock.committables": call.committables,
                "poundlock.retries": call.retries,
            },
            start_time=call.started_ms * _NS,
        )
        span.end(call.started_ms * _NS + round(call.took_ms * _NS))
