"""/v1/files as OpenAI's SDK uses it: the routes over a real object store and Redis, and over their twins."""

import asyncio
import base64
import hashlib
import io
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from litestar import Litestar

from gateway import errors, files
from infra import redis_client
from infra.blob_stream import PART_BYTES
from infra.blobs import S3Blobs
from infra.clock import ManualClock, SystemClock
from infra.file_records import MemoryFileRecords, RedisFileRecords
from infra.memory_blobs import MemoryBlobs
from tests.contracts.test_blobs import new_bucket, settings_for
from topics.intake.uploads import UploadLimits, Uploads

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10
MOST_BYTES = PART_BYTES * 3
LIMITS = UploadLimits(most_bytes=MOST_BYTES, ttl_s=86_400, timeout_s=30, concurrency=4)


class Desk:
    """The routes, their parts, and a client for them."""

    def __init__(self, uploads: Uploads) -> None:
        self.uploads = uploads
        app = Litestar(files.routes(files.Files(uploads), MOST_BYTES), exception_handlers={Exception: errors.handle})
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")

    def sdk(self, api_key: str = "sk-one") -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url="http://gateway/v1", api_key=api_key, max_retries=0, http_client=self.http)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.services)])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    clock = SystemClock()
    if request.param == "memory":
        desk = Desk(Uploads(MemoryBlobs(), MemoryFileRecords(clock), clock, LIMITS))
        yield desk
        await desk.http.aclose()
        return
    redis = redis_client.connect(request.getfixturevalue("redis_url"))
    blobs = S3Blobs(settings_for(request.getfixturevalue("s3"), new_bucket()))
    await blobs.start()
    desk = Desk(Uploads(blobs, RedisFileRecords(redis, clock), clock, LIMITS))
    yield desk
    await desk.http.aclose()
    await blobs.close()
    await redis.aclose()


async def refusal(desk: Desk, **fields: object) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await desk.sdk().files.create(**{"file": ("a.png", PNG), "purpose": "vision"} | fields)  # type: ignore[arg-type]  # what is wrong with them is the point
    return caught.value


async def test_a_file_goes_in_and_comes_back(desk: Desk) -> None:
    made = await desk.sdk().files.create(file=("a cat.png", PNG), purpose="vision")
    assert made.id.startswith("file-") and len(made.id) > 30
    assert (made.bytes, made.filename, made.purpose, made.status) == (len(PNG), "a cat.png", "vision", "processed")
    assert made.expires_at is not None and made.expires_at - made.created_at == LIMITS.ttl_s
    assert await desk.sdk().files.retrieve(made.id) == made
    content = await desk.sdk().files.content(made.id)
    assert content.content == PNG
    assert content.response.headers["content-type"] == "image/png"
    assert content.response.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20cat.png"
    blob = await desk.uploads.blob(made.id)
    assert (blob.key, blob.media_type) == (f"media/{hashlib.sha256(PNG).hexdigest()}", "image/png")


async def test_a_large_file_is_stored_as_it_comes(desk: Desk) -> None:
    data = PNG + random.Random(0).randbytes(PART_BYTES * 2)
    made = await desk.sdk().files.create(file=("big.png", io.BytesIO(data)), purpose="user_data")
    assert (await desk.sdk().files.content(made.id)).content == data


async def test_deleted_file_is_gone(desk: Desk) -> None:
    made = await desk.sdk().files.create(file=("a.png", PNG), purpose="vision")
    assert (await desk.sdk().files.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError) as caught:
        await desk.sdk().files.retrieve(made.id)
    assert (caught.value.code, caught.value.param) == ("file_not_found", "file_id")
    assert made.id not in [one.id async for one in desk.sdk().files.list()]


@pytest.mark.parametrize("file_id", ["file-" + "x" * 32, "file-../../x", "media", "file-" + "x" * 3_000])
async def test_unknown_file_is_a_404_that_names_it(desk: Desk, file_id: str) -> None:
    answer = await desk.http.get(f"/v1/files/{file_id.replace('/', '%2F')}/content")
    assert answer.status_code == 404
    answer = await desk.http.delete(f"/v1/files/{file_id.replace('/', '%2F')}")
    assert answer.status_code == 404


async def test_listing_goes_page_by_page_and_shows_no_other_keys_files(desk: Desk) -> None:
    key = f"sk-{random.random()}"
    mine = [(await desk.sdk(key).files.create(file=(f"{n}.png", PNG), purpose="vision")).id for n in range(5)]
    await desk.sdk("sk-other").files.create(file=("theirs.png", PNG), purpose="vision")
    page = await desk.sdk(key).files.list(limit=2)
    assert page.has_next_page()
    assert [one.id async for one in page] == mine[::-1]


@pytest.mark.parametrize(
    "authorization", ["", "Bearer none", "bearer NONE", "none", "Bearer ", "Bearer EMPTY", "Bearer sk-no-key-required"]
)
async def test_who_shows_no_key_of_their_own_is_shown_no_list(desk: Desk, authorization: str) -> None:
    headers = {"authorization": authorization} if authorization else {}
    form = {"headers": headers, "files": {"file": ("a.png", PNG)}, "data": {"purpose": "vision"}}
    made = (await desk.http.post("/v1/files", **form)).json()  # type: ignore[arg-type]  # a dict of several types
    answer = await desk.http.get("/v1/files", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_required")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert made["id"] not in answer.text
    found = await desk.http.get(f"/v1/files/{made['id']}", headers=headers)
    assert (found.status_code, found.json()["filename"]) == (200, "a.png")


async def test_the_sdk_says_what_a_list_needs(desk: Desk) -> None:
    with pytest.raises(openai.AuthenticationError, match="key of your own") as raised:
        await desk.sdk("none").files.list()
    assert raised.value.code == "key_required"


async def test_ids_of_files_cannot_be_guessed(desk: Desk) -> None:
    made = [(await desk.sdk().files.create(file=("a.png", PNG), purpose="vision")).id for _ in range(3)]
    assert all(len(base64.urlsafe_b64decode(one.removeprefix("file-"))) * 8 == 192 for one in made)
    places = zip(*made, strict=True)
    assert sum(len(set(letters)) == 1 for letters in places) < 10  # "file-", and what three throws have in common


async def test_a_file_has_a_name_and_no_path(desk: Desk) -> None:
    made = await desk.sdk().files.create(file=("../../etc/C:\\photos\\a cat.png", PNG), purpose="vision")
    announced_ = await desk.http.post("/v1/files", json={"filename": "/tmp/x/..", "bytes": 9, "purpose": "vision"})
    assert (made.filename, announced_.json()["filename"]) == ("a cat.png", "file")


async def test_life_of_a_file_may_be_shorter_not_longer(desk: Desk) -> None:
    expires = {"anchor": "created_at", "seconds": 7_200}
    made = await desk.sdk().files.create(file=("a.png", PNG), purpose="vision", expires_after=expires)  # type: ignore[arg-type]  # a TypedDict
    assert made.expires_at == made.created_at + 7_200
    error = await refusal(desk, expires_after={"anchor": "created_at", "seconds": LIMITS.ttl_s + 1})
    assert (error.status_code, error.param) == (400, "expires_after")
    error = await refusal(desk, expires_after={"anchor": "created_at", "seconds": 1})
    assert error.status_code == 400


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "media_unreadable"),
        (b"<html></html>", "media_type_unsupported"),
        (PNG + bytes(MOST_BYTES), "media_too_large"),
    ],
    ids=["empty", "html", "too large"],
)
async def test_file_that_nothing_can_use_is_refused(desk: Desk, data: bytes, code: str) -> None:
    error = await refusal(desk, file=("a.png", data))
    assert (error.code, error.param) == (code, "file")
    assert "media/" not in error.message and "staging" not in error.message


async def test_purpose_that_is_not_served_is_refused_by_name(desk: Desk) -> None:
    error = await refusal(desk, purpose="fine-tune")
    assert (error.status_code, error.param) == (400, "purpose")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nvision\r\n--x--\r\n', "file"),
        (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + PNG + b"\r\n--x--\r\n",
            "purpose",
        ),
        (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + bytes(9_999) + b"\r\n--x--\r\n", "purpose"),
        (b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + PNG, None),
        (b"no form at all", None),
        (b"", None),
    ],
    ids=["no file", "no purpose", "long field", "cut off", "not a form", "empty"],
)
async def test_broken_form_is_a_400(desk: Desk, body: bytes, param: str | None) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = await desk.http.post("/v1/files", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_body_of_another_type_is_a_415(desk: Desk) -> None:
    answer = await desk.http.post("/v1/files", content=PNG, headers={"content-type": "image/png"})
    assert answer.status_code == 415


async def test_announced_upload_is_of_no_use_before_it_has_come(desk: Desk) -> None:
    answer = await announced(desk, len(PNG))
    assert answer["status"] == "uploaded"
    content = await desk.http.get(f"/v1/files/{answer['id']}/content")
    assert content.json()["error"]["code"] == "media_unreadable"
    assert "has not been uploaded yet" in content.json()["error"]["message"]
    assert (await desk.http.delete(f"/v1/files/{answer['id']}")).status_code == 200


async def test_announced_upload_may_not_be_larger_than_a_file_may_be(desk: Desk) -> None:
    body = {"filename": "a.png", "bytes": MOST_BYTES + 1, "purpose": "vision"}
    answer = await desk.http.post("/v1/files", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_too_large")


@pytest.mark.services
@pytest.mark.parametrize("desk", ["real"], indirect=True)
async def test_upload_straight_to_the_store_is_looked_at_when_it_is_used(desk: Desk) -> None:
    made = await announced(desk, len(PNG))
    async with httpx.AsyncClient() as client:
        assert (await client.put(made["upload"]["url"], content=PNG + b"!")).status_code == 403
        assert (await client.put(made["upload"]["url"], content=PNG)).status_code == 200
        blob = await desk.uploads.blob(made["id"])
        assert (blob.key, blob.media_type) == (f"media/{hashlib.sha256(PNG).hexdigest()}", "image/png")
        # The URL still works; what it writes now is nobody's file.
        assert (await client.put(made["upload"]["url"], content=bytes(len(PNG)))).status_code == 200
    assert (await desk.http.get(f"/v1/files/{made['id']}")).json()["status"] == "processed"
    assert (await desk.http.get(f"/v1/files/{made['id']}/content")).content == PNG


@pytest.mark.services
@pytest.mark.parametrize("desk", ["real"], indirect=True)
async def test_upload_straight_to_the_store_of_no_media_is_refused_when_it_is_used(desk: Desk) -> None:
    made = await announced(desk, 20)
    async with httpx.AsyncClient() as client:
        assert (await client.put(made["upload"]["url"], content=b"<html>" + bytes(14))).status_code == 200
    answer = await desk.http.get(f"/v1/files/{made['id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_type_unsupported")


async def test_too_many_uploads_at_once_are_told_to_come_back(desk: Desk) -> None:
    async with desk.uploads.receiving(), desk.uploads.receiving(), desk.uploads.receiving(), desk.uploads.receiving():
        error = await refusal(desk)
    assert (error.status_code, error.code, error.response.headers["retry-after"]) == (429, "rate_limited", "1")
    await desk.sdk().files.create(file=("a.png", PNG), purpose="vision")


async def test_upload_that_never_ends_is_cut_off() -> None:
    clock = ManualClock()
    limits = UploadLimits(most_bytes=MOST_BYTES, ttl_s=60, timeout_s=0.2, concurrency=1)
    uploads = Uploads(MemoryBlobs(), MemoryFileRecords(clock), clock, limits)
    desk = Desk(uploads)

    async def slow() -> AsyncIterator[bytes]:

        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + PNG
        await asyncio.Event().wait()

    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = await desk.http.post("/v1/files", content=slow(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "request_timeout")
    await desk.http.aclose()


async def announced(desk: Desk, size_bytes: int) -> Any:
    body = {"filename": "a.png", "bytes": size_bytes, "purpose": "vision"}
    answer = await desk.http.post("/v1/files", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
