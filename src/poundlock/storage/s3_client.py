"""How S3 is reached: where it is, how its buckets are addressed, and what its answers mean to code that knows files.

Credentials come from the usual chain (environment, profile, web identity, instance) on the machine that asks; they are
never part of a storage, a plan or a message.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from poundlock.errors import DefinitionError, required
from poundlock.storage.uploads import UploadGone

# What says where S3 is, without a secret: a cluster's executors get them from the driver.
PASSED_ON = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE",
    "POUNDLOCK_S3_PATH_STYLE",
)  # fmt: skip
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_ATTEMPTS, _CONNECT_S, _READ_S = 5, 10, 60
_CONNECTIONS = 128  # as many as the driver's threads ask at once; each is made when one needs it


class StoreError(OSError):
    """An object store refused, or did not answer. `refused`: asking again will not help; `next`: what to do."""

    def __init__(self, code: int, message: str, place: str, *, next: str = "", refused: bool = False) -> None:
        super().__init__(code, message, place)
        self.next, self.refused = next, refused


class AccessDenied(StoreError, PermissionError):
    """The store does not let this user do it."""


@dataclass(frozen=True)
class S3Address:
    """Where S3 is."""

    endpoint: str | None = None  # URL of the service; None = Amazon's of the region
    region: str | None = None  # its region; None = as the profile says
    path_style: bool = False  # whether buckets are named in the path instead of the host name

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> S3Address:
        """Return what AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION and POUNDLOCK_S3_PATH_STYLE say.

        Raises DefinitionError where POUNDLOCK_S3_PATH_STYLE is neither true nor false, or the endpoint is no URL.
        """
        env = os.environ if environment is None else environment
        endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise DefinitionError(f"AWS_ENDPOINT_URL={endpoint} is no URL", next="write http://host:port")
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None
        style = env.get("POUNDLOCK_S3_PATH_STYLE", "").strip().lower()
        if style and style not in (*_TRUE, *_FALSE):
            raise DefinitionError(f"POUNDLOCK_S3_PATH_STYLE={style} is no answer", next="write true or false")
        # Servers that are not Amazon's mostly have no host name for each bucket.
        return cls(endpoint, region, style in _TRUE if style else endpoint is not None)


_clients: dict[tuple[int, S3Address, float | None], Any] = {}
_making = threading.RLock()  # a writer that is collected while a client is made asks for one too, to drop its upload


def client(address: S3Address, *, quick_s: float | None = None) -> Any:
    """Return a client that the threads of this process share. A forked process gets its own.

    With `quick_s` it gives up a request after so many seconds, without another attempt. Raises DefinitionError without botocore.
    """
    key = (os.getpid(), address, quick_s)
    if key not in _clients:
        with _making:
            if key not in _clients:
                _clients[key] = _client(address, quick_s)
    return _clients[key]


def _client(address: S3Address, quick_s: float | None) -> Any:
    required("botocore", "S3", "s3")
    from botocore.config import Config
    from botocore.session import Session

    settings: dict[str, Any] = {}
    if address.endpoint is not None and "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ:
        # Servers that are not Amazon's do not all know the newer checksums.
        settings |= {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS if quick_s is None else 1},
        connect_timeout=quick_s or _CONNECT_S,
        read_timeout=quick_s or _READ_S,
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": "path" if address.path_style else "virtual"},
        **settings,
    )
    region = address.region or ("us-east-1" if address.endpoint is not None else None)
    return Session().create_client("s3", region_name=region, endpoint_url=address.endpoint, config=config)


_CREDENTIALS = (
    "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE, and that the clock is right"
)
# What asking again does not help with: the codes of such an answer, its number and message, and what to do.
_REFUSALS: tuple[tuple[str, int, str, str], ...] = (
    ("NoSuchBucket", errno.ENODEV, "there is no bucket {bucket!r}",
     "create the bucket, or correct the path or AWS_ENDPOINT_URL"),
    ("AccessDenied 403 Forbidden AllAccessDisabled AccountProblem 401 Unauthorized", errno.EACCES, "access denied",
     "let these credentials list, read, write and delete there, and list and abort uploads"),
    ("InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken TokenRefreshRequired InvalidSecurity AuthFailure "
     "NotSignedUp", errno.EACCES, "the credentials are not accepted ({code})", _CREDENTIALS),
    ("PermanentRedirect 301 AuthorizationHeaderMalformed IllegalLocationConstraintException", errno.EINVAL,
     "the bucket is in another region ({code})", "set AWS_REGION to it"),
    ("InvalidBucketName InvalidURI", errno.EINVAL, "{bucket!r} cannot name a bucket", "write s3://bucket/folder"),
)  # fmt: skip
_REFUSED = {code: (number, text, to_do) for codes, number, text, to_do in _REFUSALS for code in codes.split()}
_OF_FILES: dict[str, tuple[type[OSError], int, str]] = {
    "NoSuchUpload": (UploadGone, errno.ENOENT, "there is no such upload"),
    **dict.fromkeys(("NoSuchKey", "404", "NotFound"), (FileNotFoundError, errno.ENOENT, "there is no such object")),
    **dict.fromkeys(("PreconditionFailed", "412"), (FileExistsError, errno.EEXIST, "the name is taken")),
}
_BUSY = ("ConditionalRequestConflict", "OperationAborted", "409", "SlowDown", "503", "ServiceUnavailable")
_FULL = ("QuotaExceeded", "XMinioStorageFull")


@contextmanager
def asking(bucket: str, place: str) -> Iterator[None]:
    """Turn the client's errors into OSErrors that name the place, an object or folder as a person would write it."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _of_answer(error.response, bucket, place) from error
    except BotoCoreError as error:
        raise _of_no_answer(error, place) from error


def _of_answer(response: Mapping[str, Any], bucket: str, place: str) -> OSError:
    error = response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    if code in _OF_FILES:
        kind, number, message = _OF_FILES[code]
        return kind(number, message, place)
    if code in _REFUSED:
        number, message, to_do = _REFUSED[code]
        refusal = AccessDenied if number == errno.EACCES else StoreError
        return refusal(number, message.format(bucket=bucket, code=code), place, next=to_do, refused=True)
    number = errno.EAGAIN if code in _BUSY else errno.ENOSPC if code in _FULL else errno.EIO
    return StoreError(number, f"the store answered {code}: {message}"[:300], place)


def _of_no_answer(error: Exception, place: str) -> OSError:
    kind = type(error).__name__
    if "Credential" in kind or kind in ("ProfileNotFound", "TokenRetrievalError", "UnauthorizedSSOTokenError"):
        message = (
            "no credentials were found" if kind == "NoCredentialsError" else f"the credentials cannot be used ({kind})"
        )
        return AccessDenied(errno.EACCES, message, place, next=_CREDENTIALS, refused=True)
    if kind == "NoRegionError":
        return StoreError(errno.EINVAL, "no region is set", place, next="set AWS_REGION", refused=True)
    if kind in ("ParamValidationError", "InvalidRegionError", "UnsupportedS3ConfigurationError"):
        return StoreError(errno.EINVAL, str(error).splitlines()[-1].strip()[:300], place, refused=True)
    return StoreError(
        errno.EHOSTUNREACH,
        f"the store does not answer ({kind})",
        place,
        next="look at AWS_ENDPOINT_URL and the network",
    )
