"""Schemathesis walks the whole OpenAPI: requests that fit the description and requests that do not, and what the answers look like.

No answer is a failure of the server, and each is one that the description knows: its status, its type and its shape. Most requests are
about the job that is there, since Schemathesis cannot guess its id.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.observed import Observed
from support.examples import examples
from support.rest_job import ID, TOKEN, observed

ALLOWED = {"Authorization": f"Bearer {TOKEN}"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SHORT, LONG = 4, 150


def described(app: Any) -> dict[str, Any]:
    """Return the operations of an application by method and path."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=ALLOWED)
    return {f"{each.ok().method} {each.ok().path}": each.ok() for each in schema.get_all_operations()}


def walk(job: Observed, operation: Any, count: int) -> dict[int, int]:
    """Send requests for one operation, and return how often which status came. Raises what Schemathesis finds."""
    seen: dict[int, int] = {}
    fitting = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(examples(count), suppress_health_check=list(HealthCheck), database=None)
    @given(case=fitting | fitting | wrong, here=st.integers(0, 3))
    def ask(case: Any, here: int) -> None:
        if here and "jid" in case.path_parameters:
            case.path_parameters["jid"] = ID
        answer = case.call(headers=ALLOWED)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
        case.validate_response(answer, checks=CHECKS)
        while (trigger := job.requests.take()) is not None:
            trigger.complete()

    ask()
    return seen


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return observed(tmp_path_factory.mktemp("ledger"))[0]


def test_no_operation_fails_or_answers_what_is_not_described(job: Observed) -> None:
    seen = {
        name: walk(job, operation, SHORT)
        for name, operation in described(make_app(job, Admission.of_token(TOKEN))).items()
    }
    assert len(seen) >= 19
    assert not [name for name, statuses in seen.items() if not statuses]


@pytest.mark.torture
def test_no_operation_fails_however_long_it_is_asked(job: Observed) -> None:
    for operation in described(make_app(job, Admission.of_token(TOKEN))).values():
        walk(job, operation, LONG)


def test_a_server_that_fails_and_an_answer_of_another_shape_are_seen(job: Observed) -> None:
    guard = make_app(job, Admission.of_token(TOKEN))
    assert isinstance(guard.app, FastAPI)

    @guard.app.get("/fails")
    def fails() -> int:
        raise RuntimeError("broken")

    @guard.app.get("/another", responses={200: {"model": int}})
    def another() -> Any:
        return {"of": "another shape"}

    operations = described(guard)
    for name, what in (("get /fails", "Server error"), ("get /another", "violates schema")):
        with pytest.raises(FailureGroup) as failed:
            walk(job, operations[name], SHORT)
        assert what in str([each.title for each in failed.value.exceptions])
