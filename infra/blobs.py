"""The object store, over the S3 protocol (SigV4, path style)."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aioboto3
from botocore.config import Config

from infra.blob_faults import as_source, code_of, translated
from infra.blob_stream import StreamPut
from infra.clock import Clock, SystemClock
from infra.faults import Corrupt, Missing, Refused
from infra.hashing import checked, fits
from infra.settings import Settings
from infra.sweeper import Stored
from schemas.refs import BlobRef

MAX_CONNECTIONS = 64
CHUNK_BYTES = 256 << 10
# Of a listing. botocore reads a page in one go: of 1,000 objects, the event loop would stand still for 50 ms.
PAGE_OBJECTS = 200
CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 20
ATTEMPTS = 4

_OURS_ALREADY = ("BucketAlreadyExists", "BucketAlreadyOwnedByYou")


class S3Blobs:
    """Blobs in one bucket. One client for the life of the process: `start` before anything else, `close` at the end.

    Every verb raises Unavailable when the store gives no answer in time or answers with a fault of its own.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._bucket = settings.s3_bucket
        self._open = AsyncExitStack()
        self._s3: Any = None
        self._signer: Any = None

    async def start(self) -> None:
        """Open the client and create the bucket if it is missing."""
        endpoint = self._settings.s3_endpoint
        public = self._settings.s3_public_endpoint or endpoint
        self._s3 = await self._client(endpoint)
        # Host names are part of a signature: URLs for clients are signed for the host that clients see.
        self._signer = self._s3 if public == endpoint else await self._client(public)
        try:
            await self.ping()
        except Missing:
            await self._create_bucket()

    async def close(self) -> None:
        await self._open.aclose()

    async def put(self, ref: BlobRef, data: bytes) -> None:
        fits(ref, data)
        with translated(ref.key):
            await self._s3.put_object(Bucket=self._bucket, Key=ref.key, Body=data, ContentType=ref.media_type)

    async def put_stream(self, folder: str, chunks: AsyncIterator[bytes], media_type: str) -> BlobRef:
        with translated(folder):
            return await StreamPut(self._s3, self._bucket, media_type, self._stays).run(folder, as_source(chunks))

    async def get(self, ref: BlobRef) -> bytes:
        with translated(ref.key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=ref.key)
            async with answer["Body"] as body:
                if answer["ContentLength"] != ref.size_bytes:
                    raise Corrupt(f"{ref.key} has {answer['ContentLength']} bytes, not {ref.size_bytes}")
                data: bytes = await body.read()
        return await checked(ref, data)

    async def read(self, key: str, most_bytes: int) -> bytes:
        with translated(key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
            async with answer["Body"] as body:
                if answer["ContentLength"] > most_bytes:
                    raise Corrupt(f"{key} has {answer['ContentLength']} bytes, more than {most_bytes}")
                data: bytes = await body.read()
        return data

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        with translated(key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
            async with answer["Body"]:
                async for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
                    yield chunk

    async def exists(self, key: str) -> bool:
        try:
            with translated(key):
                await self._s3.head_object(Bucket=self._bucket, Key=key)
        except Missing:
            return False
        return True

    async def hold(self, key: str) -> bool:
        try:
            with translated(key):
                head = await self._s3.head_object(Bucket=self._bucket, Key=key)
                if self._ages(head):
                    await self._renew(key, head["ContentType"])
        except Missing:
            return False
        return True

    async def delete(self, key: str) -> None:
        with translated(key):
            await self._s3.delete_object(Bucket=self._bucket, Key=key)

    async def listing(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """Sweepable. A page comes when the next one is here already: some servers find their place in the list by an
        object that must still be there, and begin anew when it has been deleted."""
        with translated(prefix):
            page = await self._page(prefix)
            while page:
                token = page.get("NextContinuationToken")
                following = await self._page(prefix, ContinuationToken=token) if token else {}
                yield [
                    Stored(one["Key"], one["LastModified"].timestamp(), one["Size"]) for one in page.get("Contents", [])
                ]
                page = following

    async def unfinished(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """Sweepable."""
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        try:
            with translated(prefix):
                async for page in pages:
                    yield [
                        Stored(one["Key"], one["Initiated"].timestamp(), 0, one["UploadId"])
                        for one in page.get("Uploads", [])
                    ]
        except Missing:  # what rclone says of a bucket that has never had one
            return

    async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
        """Sweepable."""
        objects = [{"Key": one.key} for one in stored if not one.upload_id]
        with translated(self._bucket):
            for one in stored:
                if one.upload_id:
                    await self._abort(one)
            if not objects:
                return {}
            answer = await self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})
        return {one["Key"]: f"{one['Code']}: {one['Message']}" for one in answer.get("Errors", [])}

    async def presign_get(self, key: str, expires_s: int) -> str:
        return await self._presign("get_object", key, expires_s)

    async def presign_put(self, key: str, expires_s: int, size_bytes: int | None = None) -> str:
        signed = {} if size_bytes is None else {"ContentLength": size_bytes}
        return await self._presign("put_object", key, expires_s, **signed)

    async def ping(self) -> None:
        """Raises Missing when there is no such bucket, Refused when the keys do not open it."""
        with translated(self._bucket):
            await self._s3.head_bucket(Bucket=self._bucket)

    async def _stays(self, key: str) -> bool:
        """Whether it is there, and `hold` would leave it as it is."""
        try:
            with translated(key):
                return not self._ages(await self._s3.head_object(Bucket=self._bucket, Key=key))
        except Missing:
            return False

    def _ages(self, head: dict[str, Any]) -> bool:
        """Whether it is past half of its time."""
        return self._clock.now() - float(head["LastModified"].timestamp()) > self._settings.media_ttl_s / 2

    async def _renew(self, key: str, media_type: str) -> None:
        """Write it anew, within the store, by way of another key: some servers take a copy onto itself for a change of
        its metadata, and leave its age. What breaks off in between stays behind as other staging objects do."""
        aside = {"Bucket": self._bucket, "Key": f"staging/{uuid.uuid4().hex}"}
        there = {"Bucket": self._bucket, "Key": key}
        await self._s3.copy_object(**aside, CopySource=there)
        # rclone gives a copy the age of its source, unless this says otherwise.
        mtime = {"MetadataDirective": "REPLACE", "Metadata": {"mtime": f"{self._clock.now():.3f}"}}
        await self._s3.copy_object(**there, CopySource=aside, ContentType=media_type, **mtime)
        await self._s3.delete_object(**aside)

    async def _page(self, prefix: str, **place: str) -> dict[str, Any]:
        page: dict[str, Any] = await self._s3.list_objects_v2(
            Bucket=self._bucket, Prefix=prefix, MaxKeys=PAGE_OBJECTS, **place
        )
        return page

    async def _abort(self, one: Stored) -> None:
        try:
            with translated(one.key):
                await self._s3.abort_multipart_upload(Bucket=self._bucket, Key=one.key, UploadId=one.upload_id)
        except Missing:  # it has ended meanwhile
            return

    async def _presign(self, verb: str, key: str, expires_s: int, **signed: int) -> str:
        params = {"Bucket": self._bucket, "Key": key, **signed}
        url: str = await self._signer.generate_presigned_url(verb, Params=params, ExpiresIn=expires_s)
        return url

    async def _client(self, endpoint: str) -> Any:
        settings = self._settings
        session = aioboto3.Session(
            aws_access_key_id=settings.s3_access_key.value,
            aws_secret_access_key=settings.s3_secret_key.value,
            region_name=settings.s3_region,
        )
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            # Servers other than AWS answer ranged reads with checksums of the whole object, or refuse the trailer.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=MAX_CONNECTIONS,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        return await self._open.enter_async_context(session.client("s3", endpoint_url=endpoint, config=config))

    async def _create_bucket(self) -> None:
        # us-east-1 is the one region that must not be named here.
        region = self._settings.s3_region
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            with translated(self._bucket):
                await self._s3.create_bucket(Bucket=self._bucket, **where)
        except Refused as error:
            if code_of(error.__cause__) not in _OURS_ALREADY:  # another process was faster
                raise
