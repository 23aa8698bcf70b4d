"""The graph that the dashboard draws: every step once, in its stage, with how rows come to it."""

from __future__ import annotations

import msgspec

from poundlock import DatagenSource, FileSink, Job, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.plan.graph import JobGraph, job_graph


def made() -> JobGraph:
    job = Job("orders", checkpoint_dir="checkpoint", dead_letters="dead")
    rows = DatagenSource("id bigint, customer string, at timestamp")
    timed = job.from_source(rows, name="orders").assign_timestamps_and_watermarks(
        WatermarkStrategy.bounded_out_of_orderness("3 s", timestamp="at"), name="time"
    )
    counted = timed.key_by("customer").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="count")
    counted.sink_to(FileSink("totals", format="json"), name="totals")
    timed.where("id > 90", name="large").sink_to(FileSink("large", format="json"), name="large-out")
    return job_graph(job)


def test_every_step_is_there_once_with_its_kind_and_stage() -> None:
    graph = made()
    assert {node.id: (node.kind, node.stage) for node in graph.nodes} == {
        "orders": ("source", 1),
        "time": ("step", 1),
        "count": ("keyed", 2),
        "totals": ("sink", 2),
        "large": ("spark", 3),
        "large-out": ("sink", 3),
        "dead-letter": ("dead letters", 0),
    }
    assert [(stage.kind, list(stage.nodes)) for stage in graph.stages] == [
        ("source", ["orders", "time"]),
        ("keyed", ["count", "totals"]),
        ("spark", ["large", "large-out"]),
    ]
    assert all(node.what for node in graph.nodes)


def test_edges_say_how_rows_come() -> None:
    assert {(edge.source, edge.target): edge.ship for edge in made().edges} == {
        ("orders", "time"): "forward",
        ("time", "count"): "key groups",
        ("count", "totals"): "forward",
        ("time", "large"): "to Spark",
        ("large", "large-out"): "from Spark",
        ("orders", "dead-letter"): "bad records",
    }


def test_it_is_written_down_and_read_again() -> None:
    graph = made()
    assert msgspec.json.decode(msgspec.json.encode(graph), type=JobGraph) == graph
