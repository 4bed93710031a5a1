"""Files that came straight to the object store, when they are used for the first time."""

import asyncio
import hashlib

import pytest

from infra.clock import ManualClock
from infra.file_records import MemoryFileRecords
from infra.memory_blobs import MemoryBlobs
from schemas.files import FileRecord, UploadRequest
from schemas.refs import BlobRef
from topics.intake.faults import MediaFault
from topics.intake.uploads import UploadLimits, Uploads, bare_name

PNG = b"\x89PNG\r\n\x1a\n" + bytes(90)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("cat.png", "cat.png"),
        (".profile", ".profile"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("a/b\\c", "c"),
        ("photos/", "photos"),
        ("..", "file"),
        ("a/..", "file"),
        (".", "file"),
        ("///", "file"),
        ("", "file"),
        (" \t ", "file"),
        ("a\r\nset-cookie: b", "aset-cookie: b"),
        ("a\0.png", "a.png"),
        ("gnp.\u202etac", "gnp.tac"),
        ("a\u2028b\ud800c", "abc"),
        ("\u732b \U0001f468\u200d\U0001f469.png", "\u732b \U0001f468\u200d\U0001f469.png"),
        ("a" * 300 + ".png", "a" * 251 + ".png"),
    ],
)
def test_of_a_file_name_the_bare_name_is_kept(given: str, kept: str) -> None:
    assert bare_name(given) == kept


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.blobs = MemoryBlobs()
        self.uploads = Uploads(self.blobs, MemoryFileRecords(self.clock), self.clock, UploadLimits(1_000, 3_600, 5, 8))

    async def announced(self, size_bytes: int) -> FileRecord:
        request = UploadRequest("a.png", size_bytes, "vision")
        record, _ = await self.uploads.announce(request, "me", self.uploads.limits.ttl_s)
        return record

    async def put(self, record: FileRecord, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        await self.blobs.put(BlobRef(record.upload_key, digest, len(data)), data)


async def test_it_moves_to_its_digest_and_is_never_looked_at_again() -> None:
    desk = Desk()
    record = await desk.announced(len(PNG))
    await desk.put(record, PNG)
    ref = await desk.uploads.blob(record.id)
    assert ref.key == f"media/{hashlib.sha256(PNG).hexdigest()}"
    assert not await desk.blobs.exists(record.upload_key)
    await desk.put(record, b"GIF89a, written through the URL that still works")
    assert await desk.uploads.blob(record.id) == ref
    assert (await desk.uploads.get(record.id)).size_bytes == len(PNG)


@pytest.mark.parametrize(
    ("announced", "code"), [(len(PNG) + 1, "media_unreadable"), (len(PNG) - 1, "media_too_large")], ids=["less", "more"]
)
async def test_other_bytes_than_announced_are_refused(announced: int, code: str) -> None:
    desk = Desk()
    record = await desk.announced(announced)
    await desk.put(record, PNG)
    with pytest.raises(MediaFault) as caught:
        await desk.uploads.blob(record.id)
    assert caught.value.code == code
    assert (await desk.uploads.get(record.id)).blob is None


async def test_two_may_use_it_for_the_first_time_at_once() -> None:
    desk = Desk()
    record = await desk.announced(len(PNG))
    await desk.put(record, PNG)
    first, second = await asyncio.gather(desk.uploads.blob(record.id), desk.uploads.blob(record.id))
    assert first == second


async def test_it_does_not_come_back_when_it_is_deleted_meanwhile() -> None:
    desk = Desk()
    record = await desk.announced(len(PNG))
    await desk.put(record, PNG)
    await desk.uploads.delete(record.id)
    assert not await desk.blobs.exists(record.upload_key)
    with pytest.raises(MediaFault, match="no file with this id"):
        await desk.uploads.blob(record.id)


async def test_it_ends_with_its_time() -> None:
    desk = Desk()
    record = await desk.announced(len(PNG))
    desk.clock.advance(3_601)
    with pytest.raises(MediaFault, match="no file with this id"):
        await desk.uploads.get(record.id)
