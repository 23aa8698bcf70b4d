"""EmbeddedYarn: a real resource manager and a real node manager, each a process of its own, for trials and tests.

They listen on the loopback only, write below one folder, and do not outlive the process that started them (on Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

import psutil

from poundlock.errors import TransientError
from poundlock.spark.launch.jars import JarPins, Pin, jar_set, pyspark_jars
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import Servers, free_port, launch

__all__ = ["EmbeddedYarn"]

_YARN = "org.apache.hadoop.yarn.server"
_MANAGER, _NODE = f"{_YARN}.resourcemanager.ResourceManager", f"{_YARN}.nodemanager.NodeManager"
_EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"
# The resource manager asks for Bouncy Castle when it starts; all else of YARN is in the jar of the HDFS cluster.
_BESIDES = JarPins(
    what="what YARN for tests needs besides",
    pins=(
        Pin(
            "org.bouncycastle",
            "bcpkix-jdk18on",
            "1.82",
            "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
        ),
        Pin(
            "org.bouncycastle",
            "bcprov-jdk18on",
            "1.82",
            "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
        ),
        Pin(
            "org.bouncycastle",
            "bcutil-jdk18on",
            "1.82",
            "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
        ),
    ),
)
_RM_PORTS = ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
_CAPACITY = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.6",
}


class EmbeddedYarn(Servers):
    """A YARN cluster of one node to use in a `with` block, or by `start()` and `close()`.

    Args:
        filesystem: what containers find under fs.defaultFS, such as `EmbeddedHdfs.uri`.
        home: folder for its data and logs; it stays afterwards. None = a temporary one.
        heap: most memory for each Java heap.
        progress: told a line at a time while the jar is fetched for the first time.
    """

    def __init__(
        self,
        filesystem: str,
        *,
        home: str | os.PathLike[str] | None = None,
        heap: str = "256m",
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._filesystem, self._heap, self._progress = filesystem, heap, progress
        super().__init__(home, "poundlock-yarn-")
        self._ports: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def conf(self) -> Path:
        """What HADOOP_CONF_DIR has to name."""
        return self.home / "conf"

    def start(self, timeout: float = 300) -> Self:
        """Start both and wait until the node is there.

        Raises:
            DefinitionError: no Java, or no jar.
            TransientError: they did not come up; the text ends with what they said last.
        """
        for name in _RM_PORTS:
            self._ports[name] = free_port(self._ports.values())
        self._write_settings()
        java = find_java()
        jars = [
            *jar_set("hdfs-minicluster", progress=self._progress),
            *jar_set("yarn-minicluster", progress=self._progress, pins=_BESIDES),
        ]
        classpath = os.pathsep.join([str(self.conf), *jars, f"{pyspark_jars()}/*"])
        environment = {**os.environ, "JAVA_HOME": java.home, "HADOOP_CONF_DIR": str(self.conf)}
        for name, main in (("manager", _MANAGER), ("node", _NODE)):
            command = [
                java.path, f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", classpath, main,
            ]  # fmt: skip
            self._processes.append(launch(command, self.home / f"{name}.log", environment=environment))
        deadline = time.monotonic() + timeout
        while not any(node["state"] == "RUNNING" for node in self._nodes()):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                raise TransientError(f"YARN in {self.home} did not come up: {self._last_output()}")
            time.sleep(0.2)
        return self

    def applications(self) -> Sequence[Mapping[str, Any]]:
        """Return the applications that the resource manager knows, as its page tells them."""
        apps: Sequence[Mapping[str, Any]] = (self._asked("apps").get("apps") or {}).get("app", ())
        return apps

    def executors(self) -> Sequence[psutil.Process]:
        """Return the JVMs of Spark's executors in its containers, oldest first."""
        return self._containers(_EXECUTOR)

    def drivers(self) -> Sequence[psutil.Process]:
        """Return the JVMs of drivers that were submitted, oldest first; each has its Python below it."""
        return self._containers(_DRIVER)

    def _containers(self, main: str) -> Sequence[psutil.Process]:
        found = []
        for process in self._processes:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        words = child.cmdline()
                        if words and Path(words[0]).name == "java" and any(main in word for word in words):
                            found.append(child)
        return sorted(found, key=lambda process: process.create_time())

    def close(self) -> None:
        """End both with all containers, and remove its folder if that was a temporary one."""
        for process in reversed(self._processes):
            children: list[psutil.Process] = []
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
        self._processes.clear()
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    def _nodes(self) -> Sequence[Mapping[str, Any]]:
        nodes: Sequence[Mapping[str, Any]] = (self._asked("nodes").get("nodes") or {}).get("node", ())
        return nodes

    def _asked(self, what: str) -> Mapping[str, Any]:
        url = f"http://127.0.0.1:{self._ports['webapp.']}/ws/v1/cluster/{what}"
        try:
            asked = urllib.request.Request(url, headers={"Accept": "application/json"})
            with urllib.request.urlopen(asked, timeout=10) as answer:
                said: Mapping[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return {}
        return said

    def _write_settings(self) -> None:
        self.conf.mkdir(parents=True, exist_ok=True)
        node = f"{self.home}/node"
        yarn = {
            "yarn.resourcemanager.hostname": "127.0.0.1", "yarn.resourcemanager.bind-host": "127.0.0.1",
            **{f"yarn.resourcemanager.{name}address": f"127.0.0.1:{port}" for name, port in self._ports.items()},
            "yarn.nodemanager.hostname": "127.0.0.1", "yarn.nodemanager.bind-host": "127.0.0.1",
            "yarn.nodemanager.address": "127.0.0.1:0",
            "yarn.nodemanager.localizer.address": f"127.0.0.1:{free_port(self._ports.values())}",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": f"{node}/local", "yarn.nodemanager.log-dirs": f"{node}/logs",
            "yarn.nodemanager.resource.memory-mb": "8192", "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.vmem-check-enabled": "false", "yarn.nodemanager.pmem-check-enabled": "false",
            # The default takes the node of a full disk for a sick one.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,LANG",
        }  # fmt: skip
        for name, values in (
            ("core-site", {"fs.defaultFS": self._filesystem}),
            ("yarn-site", yarn),
            ("capacity-scheduler", _CAPACITY),
        ):
            properties = "".join(
                f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>\n" for k, v in values.items()
            )
            (self.conf / f"{name}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")

    def _last_output(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-800:] for path in sorted(self.home.glob("*.log")))
