"""The way to a stream: botocore's client, and what the service's refusals mean.

Credentials come from the usual chain (environment, profile, web identity, instance) on the machine that asks; none is an argument.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError, required

_ATTEMPTS, _CONNECT_S, _READ_S = 5, 10, 60
BUSY = frozenset(
    (
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "ThrottlingException",
        "KMSThrottlingException",
    )
)
EXPIRED = "ExpiredIteratorException"
GONE = "ResourceNotFoundException"
_DENIED = frozenset(
    ("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException")
)


@dataclass(frozen=True)
class KinesisStream:
    """A stream.

    Args:
        name: its name, or its ARN.
        region: of the service; None = AWS_REGION, AWS_DEFAULT_REGION or the profile's.
        endpoint: URL of the service; None = AWS_ENDPOINT_URL_KINESIS, AWS_ENDPOINT_URL or Amazon's of the region.
    """

    name: str
    region: str | None = None
    endpoint: str | None = None

    @property
    def argument(self) -> Mapping[str, str]:
        """How a request names it."""
        return {"StreamARN" if self.name.startswith("arn:") else "StreamName": self.name}

    def client(self, *, seconds: float | None = None) -> Any:
        """Return a client; with `seconds` it gives up a request after so many, without another attempt.

        Raises:
            DefinitionError: botocore is not installed, or no region is known.
        """
        required("botocore", "Kinesis", "kinesis")
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
        from botocore.session import Session

        config = Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS if seconds is None else 1},
            connect_timeout=seconds or _CONNECT_S,
            read_timeout=seconds or _READ_S,
        )
        env = os.environ
        region = self.region or env.get("AWS_REGION") or None  # botocore knows AWS_DEFAULT_REGION and the profile
        try:
            return Session().create_client("kinesis", region_name=region, endpoint_url=self.endpoint, config=config)
        except NoRegionError:
            raise DefinitionError(
                f"no region is known for stream {self.name!r}", next='say region="eu-central-1", or set AWS_REGION'
            ) from None

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn errors of botocore into those of this package.

        Raises:
            DefinitionError: there is no such stream, this user may not use it, or nobody says who it is.
            TransientError: the service does not answer, or is asked too much.
            TerminalError: it refuses what is asked of it, and would again.
        """
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield
        except NoCredentialsError:
            raise DefinitionError(
                f"stream {self.name!r} of Kinesis, {doing}: no credentials are found",
                next="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, where the driver and the tasks run",
            ) from None
        except ClientError as error:
            raise self._explain(error, doing) from error
        except BotoCoreError as error:
            raise TransientError(f"stream {self.name!r} of Kinesis, {doing}: {error}") from error

    def _explain(self, error: Any, doing: str) -> PoundlockError:
        code = code_of(error)
        what = f"stream {self.name!r} of Kinesis, {doing}: {error.response['Error'].get('Message') or code}"
        if code == GONE:
            return DefinitionError(what, next="make it, or mend its name and region")
        if code in _DENIED:
            return DefinitionError(
                what,
                next="check the credentials, and what they allow: kinesis:*Record*, ListShards, DescribeStreamSummary",
            )
        if code in BUSY or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
            return TransientError(what, next="the job tries again; add shards if it stays so")
        return TerminalError(what, next="see docs/kinesis.md")


def code_of(error: Any) -> str:
    """Return the service's name of an error."""
    return str(error.response["Error"].get("Code", ""))
