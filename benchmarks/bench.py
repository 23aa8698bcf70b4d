"""What all cases share: folders, inputs, the broker, Flink, and how one measured program is run.

Every engine of a case gets the same rows, two tasks, a heap of 2 GB and the meter over its whole process tree.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.data import Input, check, files, lines_of
from benchmarks.flink.install import Installed, PyFlink, installed, installed_pyflink
from benchmarks.measure import process_cpu_s, run
from benchmarks.peers.inputs import PeerInput
from benchmarks.result import Result
from benchmarks.topics import fill
from poundlock.errors import PoundlockError
from poundlock.spark.launch import class_archive as cds
from poundlock.spark.launch.java import find_java
from poundlock.testing.kafka import EmbeddedKafka

__all__ = ["ROOT", "TOPIC", "Bench", "Case", "measured", "program"]

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "flink_test"


@dataclass
class Bench:
    """Where one run of the benchmarks keeps its things.

    Args:
        home: folder for inputs, outputs and logs.
        quick: small inputs: shows that everything runs, its figures mean little.
        millions: rows of the files and of the topic, in millions; an even number.
        peer_millions: rows that the peers get, in millions.
    """

    home: Path
    quick: bool = False
    millions: int = 10
    peer_millions: int = 1
    _exits: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Bench:
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        shutil.rmtree(self.home / "out", ignore_errors=True)

    @cached_property
    def lines(self) -> Input:
        """What the files and the topic hold: 10 million lines in 40 files; quick: 200 000 in 8."""
        if self.quick:
            return files(self.home / "data", 200_000)
        return files(self.home / "data", 2_000_000, copies=self.millions // 2)

    @cached_property
    def broker(self) -> EmbeddedKafka:
        """A broker, empty at first."""
        home = self.home / "kafka"
        shutil.rmtree(home, ignore_errors=True)
        broker = self._exits.enter_context(EmbeddedKafka(home=home, heap="512m"))
        self._exits.callback(shutil.rmtree, home, ignore_errors=True)
        return broker

    @cached_property
    def topic(self) -> str:
        """A topic of three partitions with the lines."""
        fill(self.broker, TOPIC, lines_of(self.lines))
        return TOPIC

    @cached_property
    def peers(self) -> PeerInput:
        """What the peers read."""
        return PeerInput(self.home / "data", 100_000 if self.quick else self.peer_millions * 1_000_000)

    @cached_property
    def flink(self) -> Installed | None:
        """Flink, where it was installed."""
        return installed()

    @cached_property
    def pyflink(self) -> PyFlink | None:
        """PyFlink, where it was installed."""
        return installed_pyflink()

    def folder(self, name: str) -> Path:
        """Return an empty folder's path for an output."""
        path = self.home / "out" / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def warm(self) -> None:
        """Have what `poundlock warm` makes once per installation; where it cannot be had, the figures are those without."""
        try:
            cds.train(find_java(), [], progress=print)
        except PoundlockError as error:
            print(f"measured without a class archive: {error}", flush=True)

    def environment(self, work: Path, **more: str) -> Mapping[str, str]:
        """Return the environment of a measured program: this package, with bytecode as pip installs it, nothing of the user's."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        mine = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        cache = str(self.home / "bytecode")
        return {
            **mine,
            "PYTHONPATH": path,
            "PYTHONPYCACHEPREFIX": cache,
            "POUNDLOCK_STATE_DIR": str(work / "state"),
            **more,
        }

    def log(self, name: str) -> Path:
        """Return the file for what a program prints."""
        path = self.home / "logs" / f"{name.replace('/', '-')}.log"
        path.parent.mkdir(exist_ok=True)
        return path

    def place(self, kind: str) -> str:
        """Return where a source is, as the programs take it."""
        return str(self.lines.folder) if kind == "files" else f"{self.broker.bootstrap_servers}/{self.topic}"


@dataclass(frozen=True, slots=True)
class Case:
    """One figure: its name and how to get it; None where it cannot be had on this machine."""

    name: str
    measure: Callable[[Bench], Result | None]


def measured(
    bench: Bench,
    name: str,
    kind: str,
    command: Sequence[str],
    work: Path,
    *,
    proof: Callable[[], None] | None = None,
    rewritten: bool = False,
    **env: str,
) -> Result:
    """Run one program, prove its output, return its figures.

    Args:
        bench: see Bench.
        name: "case/engine".
        kind: "files" or "kafka": the source.
        command: the program with its arguments.
        work: its folder, removed at the end.
        proof: raises WrongOutput unless the output is the input; None = look at the files below `work/out`.
        rewritten: the files hold the rows as another text, see `check`.
        env: further environment.
    """
    given = bench.lines
    pid = bench.broker.pid if kind == "kafka" else None
    before = process_cpu_s(pid) if pid else 0.0
    usage = run(command, env=bench.environment(work, **env), log=bench.log(name))
    broker_cpu_s = process_cpu_s(pid) - before if pid else None
    if proof is not None:
        proof()
    else:
        check(work / "out", given, rewritten=rewritten)
    shutil.rmtree(work)
    return Result.of(name, given.rows, usage, broker_cpu_s=broker_cpu_s)


def program(path: str, *arguments: object) -> list[str]:
    """Return the command for a program of this folder."""
    return [sys.executable, str(ROOT / "benchmarks" / path), *map(str, arguments)]
