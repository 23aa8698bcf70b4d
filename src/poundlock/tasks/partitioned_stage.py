"""A stage behind `rebalance`, `rescale` or `partition_custom`: a task takes the rows that were placed there and sends them through its steps.

Rows come in the order of source, split and position, so the same ranges give the same output in any attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from poundlock.formats.chunk import Batch, NoOrigin
from poundlock.tasks.exchange.blocks import Delivery
from poundlock.tasks.exchange.received import in_order, inputs_of
from poundlock.tasks.exchange.waiting import receive
from poundlock.tasks.report import Directive, TaskReport
from poundlock.tasks.stage import Parcel, StageBody, StageRun


@dataclass(frozen=True)
class PartitionedStage:
    """What every task of a stage runs whose rows were placed.

    Args:
        body: the steps; each that placed rows is also a step without inputs.
        inputs: by the id of each of those, the columns of its rows; in the order in which they are taken.
    """

    body: StageBody
    inputs: Mapping[str, Sequence[str]]

    def run(
        self, task: int, deliveries: Iterable[Delivery], directive: Directive, *, attempt: str
    ) -> Generator[Parcel, None, TaskReport]:
        """Send what came for one task through the steps, write, prepare; see `KeyedStage.run`."""
        with StageRun(self.body, directive, task, attempt) as run:
            received = receive(deliveries)
            run.received_times = received.reports
            blocks = inputs_of(received.blocks)
            for name, columns in self.inputs.items():
                for source, rows in in_order(blocks.pop((name, 0), ())):
                    run.chain.push(Batch(rows.select(list(columns)), NoOrigin(source)), name)
                    yield from run.full_parcels()
                    if run.sinks.full:
                        break
            yield from run.parcels()
            report = run.finish()
        return report
