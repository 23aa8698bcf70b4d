"""Whatever is written, rolled, compacted, crashed and repeated: each row is in exactly one finished file, and files never change."""

from __future__ import annotations

import tempfile
from collections import Counter
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from support.examples import examples
from support.sinks import JOB, FileSinkHarness, batch, hidden, lines

policies = st.builds(
    RollingPolicy,
    every=st.sampled_from([None, "50 ms", "1 s"]),
    size=st.sampled_from([None, 0, 10, 64, 1000]),
    inactivity=st.sampled_from([None, "30 ms"]),
) | st.builds(
    RollingPolicy,
    every=st.none(),
    size=st.sampled_from([None, 0, 10, 64, 1000]),
    inactivity=st.none(),
    on_checkpoint=st.just(True),
)
compactions = st.none() | st.builds(
    FileCompaction,
    min_size=st.sampled_from([1, 40]),
    every_checkpoints=st.sampled_from([None, 2]),
    max_wait=st.sampled_from([None, "100 ms"]),
)
rows = st.lists(
    st.tuples(st.integers(0, 4), st.binary(max_size=12).map(lambda b: b.replace(b"\n", b""))), min_size=1, max_size=60
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), rows, st.booleans()),
        st.tuples(st.just("checkpoint"), st.integers(0, 80)),
        st.tuples(st.just("roll"), st.integers(0, 80)),
        st.tuples(st.just("crash"), st.integers(0, 2)),
        st.tuples(st.just("end"), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)


@examples(80)
@given(policy=policies, compaction=compactions, steps=steps, max_open=st.sampled_from([1, 3, 256]))
def test_rows_are_kept_exactly_once(
    policy: RollingPolicy, compaction: FileCompaction | None, steps: list[tuple[object, ...]], max_open: int
) -> None:
    # No power failure is played here, and waiting for the disk would be most of the time.
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        sink = FileSink(
            folder,
            row="value",
            rolling=policy,
            compaction=compaction,
            max_open_files=max_open,
            bucket=lambda row: "b" + chr(row[0]),
        )
        # Bound, as the driver does: orphans are found even before the first decision.
        h = FileSinkHarness(sink.bind(job_id=JOB, sink="out"))
        model = Model(h)
        for step in steps:
            model.do(step)
        model.do(("end", 0))
        assert model.visible() == model.decided
        assert h.hidden() == []
        assert h.state["parts"] == []
        assert h.rejects == []


class Model:
    """What must be true, kept beside the sink."""

    def __init__(self, h: FileSinkHarness) -> None:
        self.h = h
        self.running: Counter[bytes] = Counter()
        self.decided: Counter[bytes] = Counter()
        self.seen: dict[str, bytes] = {}

    def do(self, step: tuple[object, ...]) -> None:
        kind, argument = step[0], step[1]
        assert isinstance(argument, int)
        if kind == "write":
            self.write(argument, step[2], bool(step[3]))  # type: ignore[arg-type]
        elif kind == "crash":
            self.crash(argument)
        elif kind == "roll":
            if not self.h.writers:  # rolls come between two checkpoints
                self.decide(Occasion.ROLL, argument)
        else:
            self.decide(Occasion.END if kind == "end" else Occasion.CHECKPOINT, argument)
        self.check()

    def write(self, subtask: int, rows: list[tuple[int, bytes]], columns: bool) -> None:
        values = [b"%d" % bucket + text for bucket, text in rows]
        chunk = batch(value=pa.array(values, pa.binary())) if columns else lines(*values)
        assert self.h.write(chunk, subtask) == len(values)
        self.running.update(values)

    def decide(self, occasion: Occasion, passed: int) -> None:
        self.h.clock.set(self.h.clock.now_ms() + passed)
        before = self.h.sink.next_roll_ms(self.h.state)
        state, now = self.h.state, self.h.clock.now_ms()
        found = self.h.decide(occasion)
        if occasion is Occasion.ROLL:
            # A part may also only move on, to wait for others of its bucket.
            moved = {**self.h.state, "closing": []} != {**state, "closing": []}
            assert (bool(found) or (moved and bool(state))) == (before is not None and before <= now)
            after = self.h.sink.next_roll_ms(self.h.state)
            assert after is None or after > now, "a roll leaves something due: it would be asked for for ever"
        self.decided += self.running
        self.running = Counter()
        self.h.commit(found)
        self.h.commit(found)

    def crash(self, when: int) -> None:
        """Lose the running checkpoint (0), or die after the decision before (1) or within (2) the commits."""
        if when == 0:
            self.h.crash()
        else:
            found = self.h.decide()
            self.decided += self.running
            if when == 2:
                self.h.commit(found[: len(found) // 2])
            self.h.sink.sweep(self.h.state, remove=True)
            self.h.commit(found)
        self.running = Counter()
        self.h.sink.sweep(self.h.state, remove=True)

    def check(self) -> None:
        now = self.h.finished()
        for path, content in self.seen.items():
            assert now[path] == content
        self.seen = now
        assert not self.visible() - self.decided
        for path, content in now.items():
            assert all(path.startswith(f"b{chr(row[0])}/") for row in content.split(b"\n")[:-1])
        named = {s["path"] for part in self.h.state.get("parts", ()) for s in part["segments"]}
        assert named <= {path for path in self.h.paths() if hidden(path)}

    def visible(self) -> Counter[bytes]:
        return Counter(row for content in self.h.finished().values() for row in content.split(b"\n")[:-1])
