"""A walk over all that the OpenAPI description says, with what fits the description and with what does not.

Whatever is sent, the server never fails; without the token it changes nothing; what it answers is as described.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.observed import Observed
from support.examples import examples
from support.rest_job import ID, TOKEN, observed

PATHS = {
    "/overview", "/config", "/jobs", "/jobs/overview", "/jobs/{jid}", "/jobs/{jid}/checkpoints",
    "/jobs/{jid}/checkpoints/details/{number}", "/jobs/{jid}/checkpoints/{trigger_id}", "/jobs/{jid}/exceptions",
    "/jobs/{jid}/metrics", "/jobs/{jid}/skew", "/jobs/{jid}/config", "/jobs/{jid}/stop", "/jobs/{jid}/savepoints",
    "/jobs/{jid}/savepoints/{trigger_id}", "/jobs/{jid}/operators/{operator}/state/{key}", "/metrics/prometheus",
    "/dashboard/jobs", "/jobs/{jid}/graph", "/jobs/{jid}/timeline", "/jobs/{jid}/ledger/{number}", "/jobs/{jid}/watermarks",
    "/jobs/{jid}/state", "/jobs/{jid}/sinks", "/jobs/{jid}/dead-letters", "/jobs/{jid}/series", "/jobs/{jid}/log",
    "/jobs/{jid}/failures", "/jobs/{jid}/user-metrics", "/savepoint-disposal", "/savepoint-disposal/{trigger_id}",
}  # fmt: skip

Operation = tuple[str, str, Mapping[str, Any]]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return observed(tmp_path_factory.mktemp("ledger"))[0]


@pytest.fixture(scope="module")
def client(job: Observed) -> Iterator[TestClient]:
    with TestClient(make_app(job, Admission.of_token(TOKEN)), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    return found


def operations(description: Mapping[str, Any]) -> list[Operation]:
    return [
        (method, path, said)
        for path, methods in sorted(description["paths"].items())
        for method, said in sorted(methods.items())
    ]


def test_every_path_is_described_and_none_answers_only_itself(description: dict[str, Any]) -> None:
    assert set(description["paths"]) == PATHS
    for _, path, said in operations(description):
        assert said["security"], f"{path} says nothing of the token"
        assert {"400", "401", "404", "405", "409"} <= said["responses"].keys()


def resolved(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    found: Mapping[str, Any] = description["components"]["schemas"][name] if name else schema
    return found


def fitting(schema: Mapping[str, Any], description: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema of a request describes; it fails for a kind of schema it does not know."""
    schema = resolved(schema, description)
    if "anyOf" in schema:
        return st.one_of([fitting(each, description) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema["type"] == "object":
        optional = {name: fitting(each, description) for name, each in schema.get("properties", {}).items()}
        return st.fixed_dictionaries({}, optional=optional)
    if schema["type"] == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if schema["type"] == "string" and "pattern" in schema:
        return st.just(ID) | st.from_regex(schema["pattern"], fullmatch=True)
    if schema["type"] == "string" and "maxLength" in schema:
        return st.text(st.characters(codec="utf-8"), max_size=schema["maxLength"])
    return {
        "boolean": st.booleans(),
        "null": st.none(),
        "string": st.text(st.characters(codec="utf-8"), min_size=schema.get("minLength", 0)),
    }[schema["type"]]


@st.composite
def requests(draw: st.DrawFn, description: Mapping[str, Any]) -> dict[str, Any]:
    """Draw a request to some operation, most of the time one that fits."""
    method, path, said = draw(st.sampled_from(operations(description)))
    query = {}
    for parameter in said.get("parameters", ()):
        wild = draw(st.integers(0, 9)) == 0
        value = draw(st.text(min_size=1, max_size=20) if wild else fitting(parameter["schema"], description))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", _quoted(str(value)))
        elif value is not None:
            query[parameter["name"]] = str(value).encode("utf-8", "replace").decode()
    made: dict[str, Any] = {"method": method.upper(), "url": path, "params": query}
    if "requestBody" in said:
        schema = said["requestBody"]["content"]["application/json"]["schema"]
        body = draw(fitting(schema, description) | fitting(schema, description) | anything)
        made["content"] = draw(st.just(json.dumps(body).encode()) | st.binary(max_size=20))
        made["headers"] = {"Content-Type": "application/json"}
    return made


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def changed(job: Observed) -> bool:
    """Return whether anything was asked of the job, and forget it."""
    asked = job.stop.stopping or bool(job.requests._known)
    job.stop._stop.clear()
    job.stop._cancel.clear()
    job.requests._known.clear()
    job.requests._waiting.clear()
    return asked


@settings(examples(200), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_request_makes_the_server_fail_and_none_without_the_token_changes_anything(
    data: st.DataObject, client: TestClient, job: Observed, description: dict[str, Any]
) -> None:
    made = data.draw(requests(description))
    refused = client.request(**{**made, "headers": {**made.get("headers", {}), "Authorization": "Bearer wrong"}})
    assert refused.status_code == 401
    assert not changed(job)
    answer = client.request(**{**made, "headers": {**made.get("headers", {}), "Authorization": f"Bearer {TOKEN}"}})
    assert answer.status_code < 500, answer.text
    disposal = made["url"] == "/savepoint-disposal"  # which is asked of no job
    assert changed(job) == (answer.status_code == 202 and not disposal)
    if answer.headers["content-type"].startswith("application/json"):
        assert isinstance(answer.json(), dict | list)
        assert ("errors" in answer.json()) == (answer.status_code >= 400)


def test_the_walk_sees_a_server_that_fails_and_its_stack_trace_is_in_the_log_alone(
    job: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    guard = make_app(job, Admission.of_token(TOKEN))
    assert isinstance(guard.app, FastAPI)

    @guard.app.get("/fails")
    def fails() -> None:
        raise RuntimeError("broken")

    answer = TestClient(guard, raise_server_exceptions=False).get(
        "/fails", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert answer.status_code == 500
    assert "RuntimeError" in answer.json()["errors"][0]
    assert "broken" not in answer.text
    assert "broken" in caplog.text
    job.requests.trigger("checkpoint")
    assert changed(job)
    assert not changed(job)
