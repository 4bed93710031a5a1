"""What an error of the object store, or of its client, means to those who asked, in the words of infra/faults.py."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from infra.faults import Missing, PortFault, Refused, Unavailable

# Of the 4xx, those that time heals: the request took too long, or there are too many.
_LATER = (408, 425, 429)
# The same by S3's own words, which come with statuses that say something else.
_LATER_CODES = frozenset(
    {
        "SlowDown",
        "RequestTimeout",  # a body that came too slowly: a 400
        "RequestTimeTooSkewed",  # a clock that is being set: a 403
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "OperationAborted",  # somebody else changes the same thing: a 409
        "ConditionalRequestConflict",
        "IncompleteBody",  # damaged on its way
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "InternalError",
        "ServiceUnavailable",
        "InsufficientStorage",
    }
)
# No answer, or one that broke off or was damaged on its way. An asyncio.TimeoutError is an OSError.
_NO_ANSWER = (
    HTTPClientError,
    BotoConnectionError,
    IncompleteReadError,
    ChecksumError,
    FlexibleChecksumError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)


class _OfTheSource(Exception):
    """Raised by what is being stored, and none of the store's business."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def as_source(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What is read inside `translated`: its errors come out of there as they are."""
    try:
        async for chunk in chunks:
            yield chunk
    except Exception as error:
        raise _OfTheSource(error) from error


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Errors as ports.Blobs names them."""
    try:
        yield
    except _OfTheSource as source:
        raise source.error from None
    except Exception as error:
        fault = fault_of(error, key)
        if fault is None:
            raise
        raise fault from error


def fault_of(error: Exception, key: str) -> PortFault | None:
    """The fault that this error stands for; None when it is a bug."""
    text = f"object store: {error}"
    if isinstance(error, _NO_ANSWER):
        return Unavailable(text)
    if isinstance(error, ClientError):
        status, code = _status_of(error), code_of(error)
        # A bucket that is not there is a wrong setting: no object of it may be taken for gone.
        if status == 404 and code != "NoSuchBucket":
            return Missing(key)
        return Unavailable(text) if status >= 500 or status in _LATER or code in _LATER_CODES else Refused(text)
    return Refused(text) if isinstance(error, BotoCoreError) else None  # what it does not even send: a key that is none


def code_of(error: BaseException | None) -> str:
    """S3's own word for what went wrong."""
    return str(error.response["Error"].get("Code", "")) if isinstance(error, ClientError) else ""


def _status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
