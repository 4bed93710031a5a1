"""What an object store says, and which of the four words it becomes: by the literal answers of servers."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from infra import blobs
from infra.blobs import S3Blobs
from infra.faults import Missing, PortFault, Refused, Unavailable
from infra.settings import Settings
from schemas.refs import payload_ref
from tests.fake_s3 import FakeS3, error, response, running

DATA = b"data"
REF = payload_ref(DATA)

ANSWERS: dict[tuple[int, str], type[PortFault]] = {
    (503, "SlowDown"): Unavailable,
    (503, "ServiceUnavailable"): Unavailable,
    (500, "InternalError"): Unavailable,
    (507, "InsufficientStorage"): Unavailable,
    (507, "XMinioStorageFull"): Unavailable,
    (429, "TooManyRequests"): Unavailable,
    (408, "RequestTimeout"): Unavailable,
    (400, "RequestTimeout"): Unavailable,
    (400, "IncompleteBody"): Unavailable,
    (400, "BadDigest"): Unavailable,
    (403, "RequestTimeTooSkewed"): Unavailable,
    (409, "OperationAborted"): Unavailable,
    (403, "AccessDenied"): Refused,
    (403, "InvalidAccessKeyId"): Refused,
    (403, "SignatureDoesNotMatch"): Refused,
    (403, "QuotaExceeded"): Refused,
    (400, "InvalidArgument"): Refused,
    (404, "NoSuchBucket"): Refused,
    (404, "NoSuchKey"): Missing,
}


@pytest.fixture(autouse=True)
def _no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "ATTEMPTS", 1)


@pytest.fixture
async def fake() -> AsyncIterator[FakeS3]:
    async with running() as fake:
        yield fake


@pytest.fixture
async def store(fake: FakeS3) -> AsyncIterator[S3Blobs]:
    store = S3Blobs(Settings(s3_endpoint=fake.endpoint))
    store._s3 = await store._client(fake.endpoint)  # `start` would ask, and be answered like all others
    yield store
    await store.close()


async def test_every_answer_becomes_one_of_the_four_words(fake: FakeS3, store: S3Blobs) -> None:
    came = {}
    for answer in ANSWERS:
        fake.answer = error(*answer)
        with pytest.raises(PortFault) as put:
            await store.put(REF, DATA)
        with pytest.raises(PortFault) as got:
            await store.get(REF)
        came[answer] = (type(put.value), type(got.value))
    assert came == {answer: (fault, fault) for answer, fault in ANSWERS.items()}


async def test_what_is_no_whole_answer_is_none(fake: FakeS3, store: S3Blobs) -> None:
    for answer in (b"", b"HTTP/1.1 200", response(200, b"da", 4), response(200, b"<html>moment, please", 20)):
        fake.answer = answer
        with pytest.raises(Unavailable):
            await anext(store.listing("media/"))
    fake.answer = response(200, b"da", 4)
    with pytest.raises(Unavailable):
        await store.get(REF)


async def test_what_the_source_of_a_stream_raises_is_not_the_store_s(fake: FakeS3, store: S3Blobs) -> None:
    async def broken(by: Exception) -> AsyncIterator[bytes]:
        yield b"begun"
        raise by

    fake.answer = response(200, b"", 0)
    for broken_by in (TimeoutError("of the sender"), OSError("disk"), aiohttp.ClientError("their server")):
        with pytest.raises(type(broken_by)) as caught:
            await store.put_stream("media", broken(broken_by), "image/png")
        assert caught.value is broken_by
