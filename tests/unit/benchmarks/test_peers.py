"""The peers' inputs and the proof of their outputs: what is left out or counted twice is a figure, what is foreign or wrong is an error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import CASES, Bench
from benchmarks.data import WrongOutput
from benchmarks.peers import install
from benchmarks.peers.inputs import PeerInput, visible
from benchmarks.peers.install import PEERS, Peer, installed
from benchmarks.peers.together import main
from poundlock.errors import DefinitionError

pytestmark = pytest.mark.slow

ROWS = 4_000


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> PeerInput:
    return PeerInput(tmp_path_factory.mktemp("peers"), ROWS)


class Recorder:
    """A broker whose topics are a list."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, dict[str, Any]]] = []

    def create_topic(self, name: str, partitions: int) -> None:
        assert partitions == 3

    def producer(self, **settings: Any) -> Recorder:
        return self

    def produce(self, topic: str, value: bytes, **record: Any) -> None:
        self.records.append((value, record))

    def poll(self, seconds: float) -> None:
        pass

    def flush(self, seconds: float) -> int:
        return 0


def rows(given: PeerInput) -> list[tuple[bytes, dict[str, Any]]]:
    broker: Any = Recorder()
    given._topics.clear()
    given.rows_topic(broker)
    given.rows_topic(broker)
    return list(broker.records)


def sums(given: PeerInput) -> dict[tuple[str, int], tuple[int, float]]:
    counted: dict[tuple[str, int], tuple[int, float]] = {}
    for value, _ in rows(given):
        row = json.loads(value)
        where = row["key"], int(row["timestamp"]) // 10 * 10_000
        n, total = counted.get(where, (0, 0.0))
        counted[where] = n + 1, total + row["value"]
    return counted


def line(key: str, start: object, n: int, total: float, **more: object) -> bytes:
    return json.dumps({"key": key, "window_start": start, "n": n, "total": total, **more}).encode()


def test_rows_are_in_the_partition_of_their_key_with_its_key_and_time(given: PeerInput) -> None:
    made = rows(given)
    assert len(made) == ROWS + 3
    for value, record in made:
        row = json.loads(value)
        assert record["key"].decode() == row["key"]
        assert record["partition"] == int(row["key"][5:]) % 3
        assert record["timestamp"] == round(row["timestamp"] * 1000)
    assert [(record["partition"], json.loads(value)["timestamp"]) for value, record in made[-3:]] == [
        (partition, 1545187824.0) for partition in range(3)
    ]


@pytest.mark.parametrize(
    "written",
    [
        lambda ms: ms,
        lambda ms: ms / 1000,
        lambda ms: f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S}",
        lambda ms: datetime.fromtimestamp(ms // 1000, UTC).isoformat(),
    ],
    ids=["milliseconds", "seconds", "without zone", "with zone"],
)
def test_right_sums_are_proven_however_the_window_is_written(given: PeerInput, written: Any) -> None:
    lines = [line(key, written(start), n, total) for (key, start), (n, total) in sums(given).items()]
    assert given.prove_sums([b"\n".join(lines[:100]) + b"\n", b"\n".join(lines[100:])]) == {}


def test_rows_that_were_left_out_or_counted_twice_are_figures(given: PeerInput) -> None:
    windows = sums(given)
    (first, (n, total)), (second, (m, _)) = list(windows.items())[:2]
    lines = [line(*where, *of) for where, of in windows.items() if where != second]
    assert given.prove_sums(lines) == {"rows left out": m}
    figures = given.prove_sums([*lines, line(*first, n, total)])
    assert (figures["rows left out"], figures["rows counted twice"]) == (m, n)
    assert figures["results a window"] == len(windows) / (len(windows) - 1)


def test_a_result_that_is_taken_back_counts_as_none(given: PeerInput) -> None:
    windows = sums(given)
    lines = [line(*where, *of, diff=1) for where, of in windows.items()]
    first, (n, total) = next(iter(windows.items()))
    revised = [line(*first, n + 1, total + 5, diff=1), line(*first, n + 1, total + 5, diff=-1)]
    assert given.prove_sums([*revised, *lines]) == {"results a window": (len(windows) + 2) / len(windows)}


def test_wrong_sums_and_foreign_windows_are_errors(given: PeerInput) -> None:
    lines = [line(*where, n, total + 0.25) for where, (n, total) in sums(given).items()]
    with pytest.raises(WrongOutput, match="sums are wrong"):
        given.prove_sums(lines)
    with pytest.raises(WrongOutput, match="there is no window"):
        given.prove_sums([line("user-00000000", 1_545_100_000_000, 1, 0.0)])


def test_lines_are_looked_for_by_their_uuid(given: PeerInput, tmp_path: Path) -> None:
    lines = [at for file in sorted(given.lines.folder.iterdir()) for at in file.read_bytes().splitlines()]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rows.jsonl").write_bytes(b"\n".join(json.dumps({"line": at.decode()}).encode() for at in lines))
    (tmp_path / ".hidden").write_bytes(lines[0])
    assert given.prove_lines(visible(tmp_path)) == {}
    assert given.prove_lines([b"\n".join(lines[3:]), lines[5], lines[5]]) == {
        "rows left out": 3,
        "rows counted twice": 2,
    }
    with pytest.raises(WrongOutput, match="1 lines came out that were not given"):
        given.prove_lines([b'{"uuid":"00000000-0000-4000-a000-000000000000"}'])


def test_each_peer_has_its_version_pinned_and_a_program_for_each_of_its_jobs() -> None:
    programs = Path(install.__file__).parent
    assert [peer.title for peer in PEERS] == [
        "bytewax==0.21.1",
        "quixstreams==3.28.1",
        "pathway==0.33.0",
        "apache-flink==2.3.0",
    ]
    for case in CASES:
        work, _, engine = case.name.removeprefix("peers_").partition("/")
        if case.name.startswith("peers_") and engine != "poundlock":
            assert (programs / f"{engine}_{work}.py").exists()


def test_what_is_not_installed_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "HOME", tmp_path)
    with Bench(tmp_path / "bench") as bench:
        assert [case.measure(bench) for case in CASES if case.name.startswith("peers_")] == [None] * 11
    (tmp_path / "quix").mkdir()
    quix = PEERS[1]
    (tmp_path / "quix" / "installed.txt").write_text(quix.requirements.read_text())
    assert [installed(peer) for peer in PEERS] == [False, True, False, False]
    (tmp_path / "quix" / "installed.txt").write_text("quixstreams==3.0.0\n")
    assert not installed(quix)


def test_what_fails_names_the_package_and_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "HOME", tmp_path)
    peer = Peer("bytewax", "bytewax", "bytewax", python="3.1")
    with pytest.raises(
        DefinitionError, match=r"could not install bytewax==0.21.1 for Python 3.1: .+\n.*make bench-peers"
    ):
        install.install(peer)
    assert not installed(peer)


def test_processes_run_together_and_are_ended_by_a_file(tmp_path: Path) -> None:
    note = "import pathlib, sys; pathlib.Path(sys.argv[1], sys.argv[2]).touch()"
    assert main(2, "", [sys.executable, "-c", note, str(tmp_path), "{process}"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
    wait = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); open(sys.argv[1], 'w'); time.sleep(60)"
    assert main(1, str(tmp_path / "stop"), [sys.executable, "-c", wait, str(tmp_path / "stop")]) == 0
    assert (
        main(
            2,
            "",
            [sys.executable, "-c", "import sys, time; time.sleep(60 * int(sys.argv[1])); sys.exit(3)", "{process}"],
        )
        == 1
    )
