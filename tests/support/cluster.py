"""StandaloneCluster: a real Spark master with real workers, each a process of its own, for trials and tests.

They listen on the loopback only, write below one folder, and do not outlive the process that started them (on Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Self

import psutil

from poundlock.errors import TransientError
from poundlock.spark.launch.jars import pyspark_jars
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import Servers, end, free_port, launch

__all__ = ["StandaloneCluster"]

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Of the process that starts the cluster; the tasks get what the job ships, as on machines where nothing is installed.
_NOT_FOR_WORKERS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR")


class StandaloneCluster(Servers):
    """A Spark master with workers to use in a `with` block, or by `start()` and `close()`.

    Args:
        workers: how many.
        cores: of each worker, as Spark counts them.
        memory: that each worker may give to executors.
        home: folder for their data and logs; it stays afterwards. None = a temporary one.
        environment: variables of the workers, and so of the executors.
        master_properties: Spark settings of the master, such as spark.deploy.recoveryMode.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        home: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        master_properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, "poundlock-spark-")
        self._count, self._cores, self._memory = workers, cores, memory
        self._environment, self._properties = dict(environment or {}), dict(master_properties or {})
        self._port = self._web = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._made = 0

    @property
    def master(self) -> str:
        """What to give to --master. Raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the cluster was not started yet")
        return f"spark://127.0.0.1:{self._port}"

    @property
    def master_pid(self) -> int | None:
        """Process id of the master, None while it does not run."""
        return self._master.pid if self._master is not None and self._master.poll() is None else None

    @property
    def worker_pids(self) -> Sequence[int]:
        """Process ids of the workers that run."""
        return [worker.pid for worker in self._workers if worker.poll() is None]

    def executors(self) -> Sequence[psutil.Process]:
        """Return the executors that run, oldest first, those too that have outlived their worker."""
        found = []
        home = f"{self.home.resolve()}/"
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if any(_EXECUTOR in word for word in process.cmdline()) and process.cwd().startswith(home):
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def start(self, timeout: float = 240) -> Self:
        """Start master and workers and wait until all of them are registered.

        Raises:
            DefinitionError: there is no Java.
            TransientError: they did not come up; the text ends with what they said last.
        """
        self.start_master()
        for _ in range(self._count - len(self.worker_pids)):
            self.start_worker()
        self.wait_for_workers(self._count, timeout)
        return self

    def start_master(self) -> None:
        """Start the master, on the port of an earlier start if there was one; returns at once."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self._port:
            self._port = free_port()
            self._web = free_port({self._port})
        options = "".join(f" -D{name}={value}" for name, value in self._properties.items())
        self._master = self._spark_class(
            "master", [_MASTER, "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)],
            SPARK_MASTER_OPTS=options.strip(),
        )  # fmt: skip

    def start_worker(self) -> int:
        """Start one more worker and return its process id; returns at once."""
        self._made += 1
        folder = self.home / f"worker-{self._made}"
        arguments = [_WORKER, "--host", _host(self._made), "--cores", str(self._cores), "--memory", self._memory]
        arguments += ["--webui-port", "0", "--work-dir", str(folder), self.master]
        worker = self._spark_class(folder.name, arguments)
        self._workers.append(worker)
        return worker.pid

    def wait_for_workers(self, count: int, timeout: float = 240) -> None:
        """Wait until the master has so many living workers. Raises TransientError."""
        deadline = time.monotonic() + timeout
        while len(self._alive()) != count:
            if time.monotonic() > deadline or self.master_pid is None:
                raise TransientError(f"the Spark cluster in {self.home} did not come up: {self._last_output()}")
            time.sleep(0.1)

    def kill_master(self) -> None:
        """SIGKILL the master. `start_master()` brings it back on the same port."""
        end(self._master)

    def kill_worker(self, pid: int) -> None:
        """SIGKILL a worker; its executors end when they notice."""
        end(next(worker for worker in self._workers if worker.pid == pid))

    def close(self) -> None:
        """Stop all of it and remove its folder, if that was a temporary one."""
        executors = self.executors()
        for process in [*self._workers, self._master]:
            end(process)
        for executor in executors:
            with contextlib.suppress(psutil.Error):
                for process in [*executor.children(recursive=True), executor]:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    def applications(self) -> Sequence[Mapping[str, Any]]:
        """Return the applications that the master runs, as its page tells them."""
        active: Sequence[Mapping[str, Any]] = self._state().get("activeapps", ())
        return active

    def _alive(self) -> Sequence[Mapping[str, Any]]:
        return [worker for worker in self._state().get("workers", ()) if worker["state"] == "ALIVE"]

    def _state(self) -> Mapping[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=10) as answer:
                state: Mapping[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return {}
        return state

    def _spark_class(self, name: str, arguments: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
        home = pyspark_jars().parent
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS}
        given = {
            "SPARK_HOME": str(home), "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _SMALL_JVM,
        }  # fmt: skip
        return launch(
            ["/bin/bash", str(home / "bin" / "spark-class"), *arguments],
            self.home / f"{name}.log",
            environment={**kept, **given, **environment, **self._environment},
        )

    def _last_output(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-800:] for path in sorted(self.home.glob("*.log")))


def _host(number: int) -> str:
    """Return the address of a worker: one of its own where all of 127/8 is this machine, since Spark takes equal ones for one machine.

    A second attempt of a task that takes long, for one, is only ever run on another machine.
    """
    return f"127.0.0.{1 + number % 250}" if sys.platform == "linux" else "127.0.0.1"
