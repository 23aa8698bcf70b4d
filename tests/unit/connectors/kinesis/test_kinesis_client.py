"""What refusals of the service, and of its client, mean."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from poundlock import DefinitionError, TransientError
from poundlock.connectors.kinesis.client import KinesisStream


def test_nobody_says_who_asks() -> None:
    with (
        pytest.raises(DefinitionError, match="stream 's' of Kinesis, reading: no credentials are found"),
        KinesisStream("s").explained("reading"),
    ):
        raise NoCredentialsError


def test_a_service_that_does_not_answer_may_answer_later() -> None:
    with pytest.raises(TransientError, match="Could not connect"), KinesisStream("s").explained("reading"):
        raise EndpointConnectionError(endpoint_url="http://h:1")
