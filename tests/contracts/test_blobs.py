"""Blobs, in memory and on an S3 server."""

import asyncio
import hashlib
import random
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra import blob_stream
from infra.blobs import S3Blobs
from infra.faults import Corrupt, Missing, Refused, Unavailable
from infra.memory_blobs import MemoryBlobs
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
    with pytest.raises(Missing):
        await blobs.get(ref_of(b"never stored"))


async def test_bytes_that_do_not_match_their_reference_are_not_stored(blobs: Blobs) -> None:
    with pytest.raises(ValueError, match="do not match"):
        await blobs.put(ref_of(b"promised"), b"sent")
    assert not await blobs.exists(ref_of(b"promised").key)


@pytest.mark.parametrize("change", [{"size_bytes": 6}, {"digest": "0" * 64}], ids=["size", "digest"])
async def test_object_that_differs_from_the_reference_is_refused(blobs: Blobs, change: dict[str, object]) -> None:
    ref = ref_of(b"right")
    await blobs.put(ref, b"right")
    with pytest.raises(Corrupt, match=ref.key):
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
    with pytest.raises(Refused) as caught:
        await store.start()
    assert "not-the-secret" not in str(caught.value)
    await store.close()


async def test_store_that_is_away_is_a_connection_error(unused_tcp_port: int) -> None:
    settings = Settings(s3_endpoint=f"http://127.0.0.1:{unused_tcp_port}")
    store = S3Blobs(settings)
    with pytest.raises(Unavailable):
        await store.start()
    await store.close()


async def test_an_object_of_unknown_digest_is_read_up_to_a_bound(blobs: Blobs) -> None:
    ref = payload_ref(b"12345")
    await blobs.put(ref, b"12345")
    assert await blobs.read(ref.key, 5) == b"12345"
    with pytest.raises(Corrupt):
        await blobs.read(ref.key, 4)
    with pytest.raises(Missing):
        await blobs.read("artifacts/none", 4)


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


PART = blob_stream.PART_BYTES
SIZES = {
    "empty": 0,
    "one byte": 1,
    "one part": PART,
    "a part and a byte": PART + 1,
    "three parts": PART * 3,
    "odd": 17_000_003,
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
async def test_a_stream_of_unknown_length_ends_under_its_digest(blobs: Blobs, size: int) -> None:
    data = random.Random(size).randbytes(size)
    ref = await blobs.put_stream("media", pieces(data), "image/png")
    assert ref == ref_of(data)
    assert await blobs.get(ref) == data


async def test_an_object_comes_back_piece_by_piece(blobs: Blobs) -> None:
    data = random.Random(1).randbytes(1_000_000)
    ref = await blobs.put_stream("media", pieces(data), "image/png")
    got = [chunk async for chunk in blobs.stream(ref.key)]
    assert b"".join(got) == data
    assert len(got) > 1
    with pytest.raises(Missing):
        await anext(blobs.stream("media/absent"))


@pytest.mark.parametrize("before_fault", [10, PART * 2 + 10], ids=["short", "in its third part"])
async def test_a_stream_that_breaks_off_leaves_nothing_behind(blobs: Blobs, before_fault: int) -> None:
    data = bytes(before_fault)

    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(data):
            yield piece
        raise LookupError("the sender went away")

    with pytest.raises(LookupError):
        await blobs.put_stream("media", broken(), "image/png")
    assert not await blobs.exists(ref_of(data).key)
    if isinstance(blobs, S3Blobs):
        assert await left_behind(blobs) == ([], [])


@pytest.mark.services
async def test_a_long_stream_leaves_nothing_but_its_object(store: S3Blobs) -> None:
    data = bytes(PART * 2 + 1)
    ref = await store.put_stream("media", pieces(data), "video/mp4")
    assert await left_behind(store) == ([ref.key], [])


@pytest.mark.services
async def test_a_stream_that_is_cancelled_leaves_nothing_behind(store: S3Blobs) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(PART * 2 // 100_000 + 1):
            yield bytes(100_000)
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await store.put_stream("media", endless(), "video/mp4")
    assert await left_behind(store) == ([], [])


@pytest.mark.services
@pytest.mark.parametrize("size", [1_000, PART + 1], ids=["short", "long"])
async def test_what_is_there_already_is_not_written_again(store: S3Blobs, size: int) -> None:
    data = bytes(size)
    await store.put_stream("media", pieces(data), "image/png")
    written: list[str] = []
    for verb in ("PutObject", "CopyObject", "CompleteMultipartUpload"):
        store._s3.meta.events.register(f"before-call.s3.{verb}", lambda model, **_: written.append(model.name))
    assert await store.put_stream("media", pieces(data), "image/png") == ref_of(data)
    assert written == []
    await store.put_stream("media", pieces(data + b"!"), "image/png")
    assert written


@pytest.mark.services
async def test_presigned_url_for_a_given_size_takes_no_other(store: S3Blobs) -> None:
    url = await store.presign_put("uploads/of-five-bytes", expires_s=60, size_bytes=5)

    def put(data: bytes) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, method="PUT"), timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert await asyncio.to_thread(put, b"sixsix") == 403
    assert await asyncio.to_thread(put, b"five!") == 200


async def left_behind(store: S3Blobs) -> tuple[list[str], list[str]]:
    """Keys of the objects, and of the unfinished uploads, in the store's bucket."""
    objects = await store._s3.list_objects_v2(Bucket=store._bucket)
    try:
        uploads = await store._s3.list_multipart_uploads(Bucket=store._bucket)
    except store._s3.exceptions.NoSuchUpload:  # what rclone says of a bucket that has never had one
        uploads = {}
    return [one["Key"] for one in objects.get("Contents", [])], [one["Key"] for one in uploads.get("Uploads", [])]
