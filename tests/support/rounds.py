"""Seeded rounds over savepoints: run, crash, save under load, restore an older one in place or as a fork, rescale, upgrade.

What a round does follows from the seed alone; where in the stream it strikes does not. Whatever was done, the finished
output at the end of a stretch of rounds must be what an undisturbed run gives.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poundlock.failpoints import ENVIRONMENT, SavepointFailpoint
from poundlock.testing.job_parts import kill_part
from poundlock.testing.job_process import JobProcess, completed, end_tagged, new_tag

__all__ = ["Config", "Rounds", "visible"]

_QUICK = (
    "restart-strategy.type=none",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
)
_LIFE_S = 240.0
_MUCH_LOAD = 25  # calls of `produce` a round
_TAKING = (SavepointFailpoint.CUT, SavepointFailpoint.FINISHED, SavepointFailpoint.LEFT)
_RESTORING = (
    SavepointFailpoint.RESTORE_BEGUN,
    SavepointFailpoint.RESTORE_COPIED,
    SavepointFailpoint.RESTORE_IDENTIFIED,
)

Config = dict[str, Any]
"""What the job file reads: checkpoint, output, interval, parallelism, filter, project, extra, reversed."""


def visible(folder: Path) -> Counter[bytes]:
    """Return the lines of the finished files below a folder."""
    files = (
        p
        for p in folder.rglob("*")
        if p.is_file() and not any(x.startswith((".", "_")) for x in p.relative_to(folder).parts)
    )
    return Counter(line for path in files for line in path.read_bytes().splitlines())


@dataclass(frozen=True, slots=True)
class Taken:
    """A savepoint, or a checkpoint that was left behind, and the job it was taken of.

    Args:
        path: its folder.
        config: the job's.
        partitions: how many tasks shared its state.
        line: those that were taken before it, on the way to it.
    """

    path: str
    config: Mapping[str, Any]
    partitions: int
    line: tuple[str, ...] = ()


@dataclass
class Rounds:
    """One job through many rounds.

    Args:
        job: the job file; reads the path of its configuration from ROUNDS_CONFIG.
        root: an empty folder for everything.
        environment: variables of every life.
        seed: of all choices.
        produce: puts more records into the topics; called again and again while a job runs.
    """

    job: Path
    root: Path
    environment: Mapping[str, str]
    seed: int
    produce: Callable[[], None]
    done: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.tag = new_tag()
        self.taken: list[Taken] = []
        self.left: str | None = None  # the savepoint with which the job of the current checkpoint folder ended
        self.line: tuple[str, ...] = ()  # what was taken on the way to the output as it is now
        self.partitions = 2  # how many tasks share the state of the newest job
        self.folders = 0
        self.extras = 0
        self.config: Config = {
            "checkpoint": self._folder("checkpoint"), "output": self._folder("out"), "interval": "0 s",
            "parallelism": 2, "filter": False, "project": False, "extra": None, "reversed": False,
        }  # fmt: skip

    def _folder(self, kind: str) -> str:
        self.folders += 1
        return str(self.root / f"{kind}-{self.folders}")

    # --- a round -----------------------------------------------------------------------------------------------------

    def round(self) -> None:
        """Begin in some way, run under load for some checkpoints, and end in some way."""
        arguments = self._begin()
        ending = self.random.choice(
            [self._kill_driver, self._kill_jvm, self._cancel, self._save_and_cancel, self._save_and_stop]
            + [self._save_then_kill] * 2 + [self._killed_in_savepoint] * 2
        )  # fmt: skip
        rescaled = bool(arguments) and self.partitions != self.config["parallelism"]
        if arguments:
            self.partitions = self.config["parallelism"]
            self.done["rescaled"] += rescaled  # no file is rewritten for it: tasks share the key groups in another way
            if self.random.random() < 0.3:
                self._killed_in_restore(arguments)
        wanted = self.random.randint(1, 4)
        self.story.append(f"{' '.join(arguments) or 'go on'} -> {ending.__name__.strip('_')} after {wanted}")
        self.done[ending.__name__.strip("_")] += 1
        point = self.random.choice(_TAKING)
        killing = ending == self._killed_in_savepoint
        life = self._start(arguments, {ENVIRONMENT: f"{point.value}:kill"} if killing else {})
        with self._loaded():
            self._await_checkpoints(life, wanted)
            if killing:
                self._killed_in_savepoint(life, point)
            else:
                ending(life)
        end_tagged(self.tag, patience_s=0 if life.exit_code in (None, -9) else 20)

    def finish(self) -> None:
        """Go on until all is read, then stop and finish all files; the output can be compared after this."""
        life = self._start(self._go_on())
        newest = -1
        # A life that finds nothing left to read takes no checkpoint.
        while life.wait_line(lambda v: v.get("state") == "RUNNING" and v.get("lag") == 0, seconds=_LIFE_S) is None:
            # A slow machine takes its time, for the start above all; a job that takes no checkpoint in as long as any step may last is stuck.
            before, newest = newest, completed(life.lines()[-1].value) if life.lines() else -1
            if life.exit_code is not None or newest == before:
                raise AssertionError(self._told(life, "did not catch up"))
        time.sleep(1)
        before = -1
        while (now := completed(life.lines()[-1].value)) != before:  # the windows' last batch, without data
            before = now
            time.sleep(1.5)
        self._cli(
            "stop", "rounds"
        )  # no drain: it would fire windows for which more rows come in the rounds that follow
        self._await_end(life, 0)
        end_tagged(self.tag)

    def _begin(self) -> list[str]:
        """Choose how to begin; return the arguments of `run`."""
        older = self.taken and self.random.random() < 0.45
        chosen = self.random.choice(self.taken) if older else None
        if chosen is not None and chosen.path not in self.line and (self._emptied(chosen) or self._refused(chosen)):
            chosen = None
        if chosen is None:
            arguments = self._go_on()
        else:
            fork = self.random.random() < 0.5
            output = self._folder("out") if fork else self.config["output"]
            if fork:
                shutil.copytree(self.config["output"], output, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
            extra = self._new_extra() if self.config["extra"] or chosen.config["extra"] else None
            if extra is not None and chosen.config["extra"]:
                shutil.copytree(chosen.config["extra"], extra, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
            self.config = {**self.config, "checkpoint": self._folder("checkpoint"), "output": output, "extra": extra}
            self.left, self.partitions, self.line = None, chosen.partitions, (*chosen.line, chosen.path)
            self.done["fork" if fork else "in place"] += 1
            self.done["of a checkpoint"] += "savepoint-" not in chosen.path
            arguments = ["-s", chosen.path, "--on-newer-output", "retract"]
        self._upgrade()
        if arguments and self.random.random() < 0.5:
            self.config["parallelism"] = self.random.randint(1, 4)
        return arguments

    def _emptied(self, chosen: Taken) -> bool:
        """Return whether a folder has no finished file any more although a savepoint counts on some.

        Nothing is refused then where the folder is not the savepoint's own: a fork may begin in an empty one, and what was
        finished before is where it was. Here it would be missing in the output that is compared.
        """
        sinks = json.loads((Path(chosen.path) / "_metadata.json").read_text())["decision"]["sinks"]
        folders = {"event-files": f"{self.config['output']}/events", "count-files": f"{self.config['output']}/counts"}
        if chosen.config["extra"]:
            folders["extra-files"] = chosen.config["extra"]
        return any(
            bool(sinks.get(name, {}).get("state", {}).get("newest"))
            and not any(path.is_file() and not path.name.startswith(".") for path in Path(folder).rglob("*"))
            for name, folder in folders.items()
        )

    def _refused(self, chosen: Taken) -> bool:
        """Return whether the output as it is now lacks what a savepoint of another line counts on: that one is refused.

        It is not where neither line had finished a file since they parted.
        """
        before, left = self.config, self.left
        self.config = {**before, "checkpoint": self._folder("checkpoint"), "extra": None}
        arguments = ["-s", chosen.path, "--on-newer-output", "retract", "-n"]
        life = self._start(arguments, {ENVIRONMENT: f"{SavepointFailpoint.RESTORE_BEGUN.value}:kill"})
        code = life.wait(_LIFE_S)
        end_tagged(self.tag, patience_s=0)
        self.config, self.left = before, left
        if code == -9:  # it would have begun, and has touched no output yet
            return False
        assert code == 2, self._told(life, f"was to be refused and ended with {code}")
        assert "finished before the savepoint" in self._tail(), self._tail()
        self.story.append(f"{chosen.path} of another line -> refused")
        self.done["refused"] += 1
        return True

    def _go_on(self) -> list[str]:
        return ["-s", self.left] if self.left is not None else []

    def _new_extra(self) -> str:
        self.extras += 1
        return self._folder("extra")

    def _upgrade(self) -> None:
        """Change the job's code in some of the ways that leave its result what it is."""
        if self.random.random() < 0.5:
            return
        self.done["upgraded"] += 1
        self.config["interval"] = self.random.choice(["0 s", "100 ms", "300 ms"])
        for flag in ("filter", "project", "reversed"):
            self.config[flag] = self.random.random() < 0.5
        if self.config["extra"] is None and self.random.random() < 0.5:
            self.config["extra"] = self._new_extra()

    # --- endings -----------------------------------------------------------------------------------------------------

    def _kill_driver(self, life: JobProcess) -> None:
        life.kill()
        end_tagged(self.tag, patience_s=0)
        self._keep_copy()

    def _keep_copy(self) -> None:
        """Let the checkpoint of a job that ended be restored later: a copy of one of those that its folder retains."""
        whole = sorted(Path(self.config["checkpoint"]).glob("retained/chk-*/_metadata.json"))
        if whole:
            copy = Path(self._folder("copy"))
            shutil.copytree(self.random.choice(whole).parent, copy)
            # It may be older than a savepoint of its job, so that nothing is known to be on the way to it.
            self.taken.append(Taken(str(copy), dict(self.config), self.partitions))

    def _kill_jvm(self, life: JobProcess) -> None:
        if not kill_part(life, "jvm"):
            life.kill()
        life.wait(_LIFE_S)  # without a restart strategy the driver fails

    def _cancel(self, life: JobProcess) -> None:
        self._cli("cancel", "rounds")
        life.wait(_LIFE_S)
        self._keep_copy()

    def _save(self) -> str:
        folder = self.root / "savepoints"
        said = self._cli("savepoint", "rounds", str(folder))
        path = said.partition("Savepoint completed. Path: ")[2].splitlines()[0]
        self._keep(path)
        return path

    def _keep(self, path: str) -> None:
        self.taken.append(Taken(path, dict(self.config), self.partitions, self.line))
        self.line = (*self.line, path)

    def _save_then_kill(self, life: JobProcess) -> None:
        self._save()
        self._await_checkpoints(life, self.random.randint(1, 3))
        self._kill_driver(life)

    def _save_and_cancel(self, life: JobProcess) -> None:
        self._note(life, self._cli("cancel", "-s", str(self.root / "savepoints"), "rounds"))
        life.wait(_LIFE_S)

    def _save_and_stop(self, life: JobProcess) -> None:
        self._note(life, self._cli("stop", "-p", str(self.root / "savepoints"), "rounds"))
        self._await_end(life, 0)

    def _note(self, life: JobProcess, said: str) -> None:
        self.left = said.partition("Savepoint completed. Path: ")[2].splitlines()[0]
        self._keep(self.left)

    def _killed_in_savepoint(self, life: JobProcess, point: SavepointFailpoint = SavepointFailpoint.CUT) -> None:
        folder = self.root / f"killed-{len(self.story)}"
        self._cli("cancel", "-s", str(folder), "rounds", check=False)
        assert life.wait(_LIFE_S) == -9, self._told(life, f"was not killed at {point.value}")
        self.done[point.value] += 1
        if point is SavepointFailpoint.LEFT:
            (path,) = folder.iterdir()
            self.left = str(path)
            self._keep(self.left)

    def _killed_in_restore(self, arguments: list[str]) -> None:
        point = self.random.choice(_RESTORING)
        life = self._start(arguments, {ENVIRONMENT: f"{point.value}:kill"})
        assert life.wait(_LIFE_S) == -9, self._told(life, f"was not killed at {point.value}")
        self.done[point.value] += 1
        end_tagged(self.tag, patience_s=0)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _start(self, arguments: list[str], more: Mapping[str, str] | None = None) -> JobProcess:
        config = self.root / "config.json"
        config.write_text(json.dumps(self.config))
        defined = [word for setting in _QUICK for word in ("-D", setting)]
        state = f"state_dir={self.root / 'state'}"
        if "-s" in arguments:
            self.left = None
        life = JobProcess(
            self.job,
            arguments=[*arguments, *defined, "-D", state],
            environment={**self.environment, "ROUNDS_CONFIG": str(config), **(more or {})},
            tag=self.tag,
            log=self.root / "log",
        )
        return life

    def _await_checkpoints(self, life: JobProcess, count: int) -> None:
        after = len(life.lines())
        numbers: set[int] = set()

        def enough(value: Mapping[str, Any]) -> bool:
            if completed(value) >= 0:
                numbers.add(completed(value))
            return len(numbers) > count

        if life.wait_line(enough, seconds=_LIFE_S, after=after) is None:
            raise AssertionError(self._told(life, f"took no {count} checkpoints"))

    def _await_end(self, life: JobProcess, code: int) -> None:
        if (ended := life.wait(_LIFE_S)) != code:
            raise AssertionError(self._told(life, f"ended with {ended}"))

    def _cli(self, *arguments: str, check: bool = True) -> str:
        state = f"state_dir={self.root / 'state'}"
        done = subprocess.run(
            [sys.executable, "-m", "poundlock", *arguments, "-D", state],
            capture_output=True,
            text=True,
            timeout=_LIFE_S,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}\n{self._tail()}")
        return done.stdout

    def _told(self, life: JobProcess, what: str) -> str:
        return f"round {len(self.story)} {what}; exit code {life.exit_code}\n{self._tail()}"

    def _tail(self) -> str:
        log = self.root / "log"
        text = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return f"seed {self.seed}, the rounds were:\n" + "\n".join(self.story) + f"\n{text}"

    def _loaded(self) -> _Load:
        return _Load(self.produce)


class _Load:
    """Calls `produce` again and again while its block runs."""

    def __init__(self, produce: Callable[[], None]) -> None:
        self._produce = produce
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        # On a slow machine a round lasts long and takes few checkpoints: what comes late comes slowly, so that the job can
        # catch up with it, but it comes, for each checkpoint needs some.
        for number in itertools.count():
            if self._end.is_set():
                return
            self._produce()
            self._end.wait(0.6 if number < _MUCH_LOAD else 4.0)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
