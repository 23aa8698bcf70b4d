"""What a chain counted on the way to one of its last steps: every row that enters is written, filtered or rejected."""

from __future__ import annotations

from poundlock.operators.chain import Chain


def account(chain: Chain, sink: str) -> tuple[int, int, int, int]:
    """Return (read, produced, filtered, rejected) of the rows on the way to a terminal step, its own rejects left out."""
    inside, todo = {sink}, [sink]
    while todo:
        before = {edge.step for edge in chain.steps[todo.pop()].inputs} - inside
        inside |= before
        todo += before
    produced = filtered = rejected = 0
    for name in inside - {sink}:
        tally = chain.tallies[name]
        filtered += tally.filtered
        rejected += tally.rejected
        readers = [edge for each in inside for edge in chain.steps[each].inputs if edge.step == name]
        out = sum(rows * sum(edge.tag == tag for edge in readers) for tag, rows in tally.rows_out.items())
        produced += out - tally.rows_in + tally.filtered + tally.rejected
    return chain.tallies[chain.head].rows_in, produced, filtered, rejected
