"""A collector of OpenTelemetry in this process: takes OTLP over HTTP, and keeps what came as the messages that were sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OtlpReceiver:
    """Takes metrics and traces on a port of the loopback. Use it in a `with` block.

    Args:
        status: what each request is answered with.
    """

    def __init__(self, status: int = 200) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        kinds: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                message = kinds[self.path].FromString(body)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                (receiver.traces if self.path == "/v1/traces" else receiver.metrics).append(message)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """The test's output is for the test."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        """What OTEL_EXPORTER_OTLP_ENDPOINT is to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> Iterator[Any]:
        """Yield all spans that came."""
        for request in list(self.traces):
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans

    def newest_metrics(self) -> dict[str, Any]:
        """Return the metrics of the newest request by name."""
        return {
            metric.name: metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until something holds. Raises AssertionError if it does not in time."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "nothing of that kind came"
            time.sleep(0.02)


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span, a point or a resource."""
    return {each.key: each.value.string_value or each.value.int_value for each in of.attributes}
