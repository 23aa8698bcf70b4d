"""Scripts of SQL over tables of Kafka: run to their end, or in a thread until something has come out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poundlock.config import load_settings
from poundlock.driver.progress import StopRequest
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.running.shown import FinalTable
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.sql_scripts import Answers

QUICK = "SET 'execution.checkpointing.interval' = '0 s';\n"


def kafka_table(
    broker: EmbeddedKafka, name: str, columns: str, topic: str, *, connector: str = "kafka", **options: str
) -> str:
    """Return the statement that declares a table of Kafka; options with __ for . and _ for -."""
    given = {
        "connector": connector,
        "topic": topic,
        "properties.bootstrap.servers": broker.bootstrap_servers,
        **{option.replace("__", ".").replace("_", "-"): value for option, value in options.items()},
    }
    written = ", ".join(f"'{option}' = '{value}'" for option, value in given.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({written});\n"


def bounded(**options: str) -> dict[str, str]:
    """Return the options of a table that is read from its beginning to what is there at the start of the job."""
    return {"scan__startup__mode": "earliest-offset", "scan__bounded__mode": "latest-offset", **options}


@dataclass
class Scripts:
    """Runs scripts whose jobs keep what they keep below one folder."""

    folder: Path

    def runner(self, answers: Answers, stop: StopRequest | None = None) -> ScriptRunner:
        """Return what runs a script."""
        settings = load_settings([f"state_dir={self.folder}/state", "master=local[2]", "driver_memory=1g"])
        stop = StopRequest() if stop is None else stop
        return ScriptRunner("script", answers.take, answers.known, settings=settings, parallelism=2, stop=stop)

    def changes(self, script: str) -> Sequence[tuple[str, tuple[Any, ...]]]:
        """Run a script to its end; return the changes of its queries."""
        answers = Answers()
        self.runner(answers).run(QUICK + script)
        return [(kind, tuple(row)) for kind, row in answers.changes]

    def rows(self, script: str) -> list[tuple[Any, ...]]:
        """Run a script to its end; return the final table of its query, sorted."""
        table = FinalTable()
        table.take(self.changes(script))
        return sorted((tuple(row) for row in table.rows()), key=repr)

    @contextmanager
    def running(self, script: str) -> Iterator[Callable[[Callable[[], bool]], None]]:
        """Run a script in a thread; yield what waits until something holds. At the end the job is stopped, and its failure raised."""
        stop, failures = StopRequest(), list[BaseException]()

        def run() -> None:
            try:
                self.runner(Answers(), stop).run(QUICK + script)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def until(reached: Callable[[], bool], patience_s: float = 300) -> None:
            deadline = time.monotonic() + patience_s
            while not reached():
                if failures:
                    raise failures[0]
                assert thread.is_alive(), "the job has ended"
                assert time.monotonic() < deadline, "in time"
                time.sleep(0.2)

        try:
            yield until
        finally:
            stop.stop()
            thread.join(300)
        assert not thread.is_alive()
        if failures:
            raise failures[0]

    def checkpoints(self) -> list[Path]:
        """Return the folders that jobs keep their decisions in."""
        return sorted((self.folder / "state/checkpoints").iterdir())


def values(records: Sequence[Record]) -> list[Any]:
    """Return the values of records, which are JSON."""
    return [None if record.value is None else json.loads(record.value) for record in records]


def newest(records: Sequence[Record]) -> dict[bytes, Any]:
    """Return the newest value of each key, which is JSON, without those that are gone."""
    table = {bytes(record.key or b""): record.value for record in records}  # type: ignore[arg-type]
    return {key: json.loads(value) for key, value in table.items() if value is not None}
