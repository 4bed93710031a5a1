"""The object store, over the S3 protocol (SigV4, path style)."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import aioboto3
from aiohttp import ClientPayloadError
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from infra.blob_stream import StreamPut
from infra.settings import Settings
from schemas.refs import BlobRef

MAX_CONNECTIONS = 64
CHUNK_BYTES = 256 << 10
CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 20
ATTEMPTS = 4

_OURS_ALREADY = ("BucketAlreadyExists", "BucketAlreadyOwnedByYou")


class S3Blobs:
    """Blobs in one bucket. One client for the life of the process: `start` before anything else, `close` at the end.

    Every verb raises ConnectionError when the store gives no answer in time or answers with a fault of its own.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
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
        except KeyError:
            await self._create_bucket()

    async def close(self) -> None:
        await self._open.aclose()

    async def put(self, ref: BlobRef, data: bytes) -> None:
        ref.check(data)
        with _translated(ref.key):
            await self._s3.put_object(Bucket=self._bucket, Key=ref.key, Body=data, ContentType=ref.media_type)

    async def put_stream(self, folder: str, chunks: AsyncIterator[bytes], media_type: str) -> BlobRef:
        with _translated(folder):
            return await StreamPut(self._s3, self._bucket, media_type).run(folder, chunks)

    async def get(self, ref: BlobRef) -> bytes:
        with _translated(ref.key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=ref.key)
            async with answer["Body"] as body:
                if answer["ContentLength"] != ref.size_bytes:
                    raise ValueError(f"{ref.key} has {answer['ContentLength']} bytes, not {ref.size_bytes}")
                data: bytes = await body.read()
        ref.check(data)
        return data

    async def read(self, key: str, most_bytes: int) -> bytes:
        with _translated(key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
            async with answer["Body"] as body:
                if answer["ContentLength"] > most_bytes:
                    raise ValueError(f"{key} has {answer['ContentLength']} bytes, more than {most_bytes}")
                data: bytes = await body.read()
        return data

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        with _translated(key):
            answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
            async with answer["Body"]:
                async for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
                    yield chunk

    async def exists(self, key: str) -> bool:
        try:
            with _translated(key):
                await self._s3.head_object(Bucket=self._bucket, Key=key)
        except KeyError:
            return False
        return True

    async def delete(self, key: str) -> None:
        with _translated(key):
            await self._s3.delete_object(Bucket=self._bucket, Key=key)

    async def presign_get(self, key: str, expires_s: int) -> str:
        return await self._presign("get_object", key, expires_s)

    async def presign_put(self, key: str, expires_s: int, size_bytes: int | None = None) -> str:
        signed = {} if size_bytes is None else {"ContentLength": size_bytes}
        return await self._presign("put_object", key, expires_s, **signed)

    async def ping(self) -> None:
        """Raises KeyError when there is no such bucket, PermissionError when the keys do not open it."""
        with _translated(self._bucket):
            await self._s3.head_bucket(Bucket=self._bucket)

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
            with _translated(self._bucket):
                await self._s3.create_bucket(Bucket=self._bucket, **where)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _OURS_ALREADY:  # another process was faster
                raise


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Errors as ports.Blobs names them."""
    try:
        yield
    except (HTTPClientError, BotoConnectionError, ClientPayloadError) as error:  # the last: it broke off in a body
        raise ConnectionError(f"object store: {error}") from error
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status == 404:
            raise KeyError(key) from error
        if status == 403:
            raise PermissionError(f"object store: {error}") from error
        if status >= 500:
            raise ConnectionError(f"object store: {error}") from error
        raise
