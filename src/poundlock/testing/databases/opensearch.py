"""EmbeddedOpenSearch: a real OpenSearch node of its own, for trials and tests.

It listens on the loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import json
import os
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import ServerProcess, is_free, port_to_use

_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"
_PORTS = range(9201, 9300)
OPENSEARCH = "2.19.1"


class EmbeddedOpenSearch(ServerProcess):
    """An OpenSearch node, a cluster of one, to use in a `with` block, or by `start()` and `stop()`. It has no users and no TLS.

    Args:
        home: folder for its data and log; it stays afterwards and can be used again. None = a temporary one.
        port: TCP port on 127.0.0.1 from 9201 to 9299, which is what its starter takes; None = any free one of them. It stays the
            same over `kill`, `stop` and `start`.
        heap: of its JVM, as Java writes it.
        settings: further settings of the node, name to value.
        java: the Java to run on; None = the one that Spark runs on.
        progress: called with a line at a time while its jars, 53 MB, are fetched, once.
    """

    title = "the OpenSearch node"
    start_s = 420

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        heap: str = "384m",
        settings: Mapping[str, Any] | None = None,
        java: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(home, "poundlock-opensearch-", _free_port() if port is None else port)
        self._heap, self._java, self._progress = heap, java, progress
        self._settings: dict[str, Any] = dict(settings or {})
        self._transport: int | None = None

    @property
    def url(self) -> str:
        """Where it answers. Raises RuntimeError before the first start."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the answer's JSON; None where it has none, or the path is not there.

        Args:
            path: such as "/orders/_search".
            body: a JSON value; None = none.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"} if data else {}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        return json.loads(text) if text else None

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """Return all documents of an index, up to 10,000, by their ids; none where there is no such index."""
        self.ask("POST", f"/{index}/_refresh")
        answer = self.ask("POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return {} if answer is None else {hit["_id"]: hit["_source"] for hit in answer["hits"]["hits"]}

    def _command(self) -> list[str]:
        self._transport = port_to_use(self._transport, {self.port})
        settings = {
            "network.host": "127.0.0.1",
            "transport.port": self._transport,
            "cluster.routing.allocation.disk.threshold_enabled": False,  # how full the disk is, is for others to see to
            **self._settings,
        }
        config = self.home / "node_1" / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "opensearch.yml").write_text("".join(f"{name}: {json.dumps(v)}\n" for name, v in settings.items()))
        jars = jar_set("opensearch", progress=self._progress)
        jvm = [f"-Xms{self._heap}", f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        where = ["-basePath", str(self.home), "-numOfNode", "1", "-clusterName", "poundlock"]
        # It adds the number of the node, which is 1.
        port = ["-baseHttpPort", str(self.port - 1)]
        return [self._java or find_java().path, *jvm, "-cp", os.pathsep.join(jars), _MAIN, *where, *port, "-useLogger"]

    def _answers(self) -> bool:
        try:
            health = self.ask("GET", "/_cluster/health")
        except (OSError, ValueError):
            return False
        return health is not None and health["status"] != "red"


def _free_port() -> int:
    ports = random.SystemRandom().sample(_PORTS, len(_PORTS))
    port = next(filter(is_free, ports), None)
    if port is None:
        raise DefinitionError("no free port between 9201 and 9299 on 127.0.0.1", next="stop something that listens")
    return port
