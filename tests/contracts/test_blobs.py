"""Blobs, in memory and on an S3 server."""

import asyncio
import hashlib
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra.blobs import S3Blobs
from infra.memory import MemoryBlobs
from infra.ports import Blobs
from infra.settings import Secret, Settings
from schemas.refs import BlobRef, payload_ref
from tests.services import S3


def settings_for(s3: S3, bucket: str) -> Settings:
    return Settings(
        s3_endpoint=s3.endpoint,
        s3_bucket=bucket,
        s3_access_key=Secret(s3.access_key),
        s3_secret_key=Secret(s3.secret_key),
    )


def new_bucket() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.services)])
async def blobs(request: pytest.FixtureRequest) -> AsyncIterator[Blobs]:
    if request.param == "memory":
        yield MemoryBlobs()
        return
    store = S3Blobs(settings_for(request.getfixturevalue("s3"), new_bucket()))
    await store.start()
    yield store
    await store.close()


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3Blobs]:
    """On a real server only."""
    store = S3Blobs(settings_for(s3, new_bucket()))
    await store.start()
    yield store
    await store.close()


def ref_of(data: bytes) -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    return BlobRef(f"media/{digest}", digest, len(data), "image/png")


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 8_192], ids=["empty", "small", "2 MiB"])
async def test_what_is_put_is_what_is_got(blobs: Blobs, data: bytes) -> None:
    await blobs.put(ref_of(data), data)
    assert await blobs.get(ref_of(data)) == data


async def test_putting_twice_is_harmless(blobs: Blobs) -> None:
    for _ in range(2):
        await blobs.put(ref_of(b"same"), b"same")
    assert await blobs.get(ref_of(b"same")) == b"same"


async def test_absent_object_is_a_key_error(blobs: Blobs) -> None:
    with pytest.raises(KeyError):
        await blobs.get(ref_of(b"never stored"))


async def test_bytes_that_do_not_match_their_reference_are_not_stored(blobs: Blobs) -> None:
    with pytest.raises(ValueError, match="do not match"):
        await blobs.put(ref_of(b"promised"), b"sent")
    assert not await blobs.exists(ref_of(b"promised").key)


@pytest.mark.parametrize("change", [{"size_bytes": 6}, {"digest": "0" * 64}], ids=["size", "digest"])
async def test_object_that_differs_from_the_reference_is_refused(blobs: Blobs, change: dict[str, object]) -> None:
    ref = ref_of(b"right")
    await blobs.put(ref, b"right")
    with pytest.raises(ValueError, match=ref.key):
        await blobs.get(msgspec.structs.replace(ref, **change))


async def test_existence_follows_put_and_delete(blobs: Blobs) -> None:
    ref = ref_of(b"here")
    assert not await blobs.exists(ref.key)
    await blobs.put(ref, b"here")
    assert await blobs.exists(ref.key)
    for _ in range(2):
        await blobs.delete(ref.key)
    assert not await blobs.exists(ref.key)


async def test_store_that_is_there_answers_a_ping(blobs: Blobs) -> None:
    await blobs.ping()


@pytest.mark.services
async def test_presigned_urls_let_others_read_and_write_without_keys(store: S3Blobs) -> None:
    data = b"from a client"
    ref = ref_of(data)
    url = await store.presign_put(ref.key, expires_s=60)
    await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(url, data, method="PUT"), timeout=5)
    assert await store.get(ref) == data
    url = await store.presign_get(ref.key, expires_s=60)
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=5) as answer:
        assert answer.read() == data


@pytest.mark.services
async def test_presigned_url_for_reading_one_object_does_not_open_another(store: S3Blobs) -> None:
    for data in (b"mine", b"yours"):
        await store.put(ref_of(data), data)
    url = await store.presign_get(ref_of(b"mine").key, expires_s=60)
    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(
            urllib.request.urlopen, url.replace(ref_of(b"mine").digest, ref_of(b"yours").digest), timeout=5
        )
    caught.value.close()
    assert caught.value.code == 403


@pytest.mark.services
async def test_urls_for_clients_carry_the_public_address(s3: S3) -> None:
    settings = msgspec.structs.replace(settings_for(s3, new_bucket()), s3_public_endpoint="https://media.example.org")
    store = S3Blobs(settings)
    await store.start()
    url = await store.presign_get("media/12345678", expires_s=60)
    assert url.startswith(f"https://media.example.org/{settings.s3_bucket}/media/12345678?")
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in url
    await store.close()


@pytest.mark.services
async def test_bucket_that_exists_already_is_used(s3: S3) -> None:
    settings = settings_for(s3, new_bucket())
    first, second = S3Blobs(settings), S3Blobs(settings)
    await asyncio.gather(first.start(), second.start())
    await first.put(ref_of(b"shared"), b"shared")
    assert await second.get(ref_of(b"shared")) == b"shared"
    await asyncio.gather(first.close(), second.close())


@pytest.mark.services
async def test_many_at_once_share_a_bounded_pool(store: S3Blobs) -> None:
    objects = [bytes([number]) * 10_000 for number in range(200)]
    await asyncio.gather(*(store.put(ref_of(data), data) for data in objects))
    assert await asyncio.gather(*(store.get(ref_of(data)) for data in objects)) == objects


@pytest.mark.services
async def test_wrong_keys_are_a_permission_error_that_does_not_show_them(s3: S3) -> None:
    settings = msgspec.structs.replace(settings_for(s3, new_bucket()), s3_secret_key=Secret("not-the-secret"))
    store = S3Blobs(settings)
    with pytest.raises(PermissionError) as caught:
        await store.start()
    assert "not-the-secret" not in str(caught.value)
    await store.close()


async def test_store_that_is_away_is_a_connection_error(unused_tcp_port: int) -> None:
    settings = Settings(s3_endpoint=f"http://127.0.0.1:{unused_tcp_port}")
    store = S3Blobs(settings)
    with pytest.raises(ConnectionError):
        await store.start()
    await store.close()


async def test_an_object_of_unknown_digest_is_read_up_to_a_bound(blobs: Blobs) -> None:
    ref = payload_ref(b"12345")
    await blobs.put(ref, b"12345")
    assert await blobs.read(ref.key, 5) == b"12345"
    with pytest.raises(ValueError):
        await blobs.read(ref.key, 4)
    with pytest.raises(KeyError):
        await blobs.read("artifacts/none", 4)
