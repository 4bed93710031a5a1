"""What encoders have made: written once, found by every gateway, encoder and LLM worker.

The object store is the truth. A note in Redis saves asking it; a note is small, or there is none.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from infra.artifact_ports import ArtifactNotes
from infra.faults import Corrupt, Missing
from infra.hashing import sha256_of
from infra.ports import Blobs
from schemas.media import Artifact, Slot
from schemas.refs import BlobRef
from topics import safetensors

log = logging.getLogger(__name__)

# Text and token ids go along in the note up to this; of embeddings it holds the shape only.
NOTE_BYTES = 16 * 1024
MEDIA_TYPE = "application/vnd.safetensors"
# Objects looked at at the same time, of one request.
LOOKS = 16

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Artifact).decode


def _noted(key: str, note: bytes) -> Artifact | None:
    """A note that nobody understands is as good as none: the store is asked, and the note written anew."""
    try:
        return _decode(note)
    except msgspec.MsgspecError as error:
        log.warning("the note about %s cannot be read: %s", key, error)
        return None


class Artifacts:
    """Every verb raises Unavailable when the store, or Redis, gives no answer in time."""

    def __init__(self, blobs: Blobs, notes: ArtifactNotes) -> None:
        self._blobs = blobs
        self._notes = notes

    async def lookup(self, slots: Sequence[Slot]) -> list[Artifact | None]:
        """What there is of these, in their order: all notes in one round trip, the objects of the others at once.

        What has been found stays in the store for longer than any request takes.
        """
        keys = list(dict.fromkeys(slot.artifact for slot in slots))
        notes = await self._notes.get(keys)
        noted = {key: _noted(key, note) for key, note in zip(keys, notes, strict=True) if note is not None}
        found = {key: artifact for key, artifact in noted.items() if artifact is not None}
        limit = asyncio.Semaphore(LOOKS)
        missing = [slot for key, slot in {slot.artifact: slot for slot in slots}.items() if key not in found]
        stored = await asyncio.gather(*(self._look(slot, limit) for slot in missing))
        found |= {slot.artifact: one for slot, one in zip(missing, stored, strict=True) if one is not None}
        return [found.get(slot.artifact) for slot in slots]

    async def store(self, key: str, artifact: Artifact, rows: bytes | memoryview = b"") -> None:
        """Write it, then note it: a note never tells of what is not there."""
        data = safetensors.pack(artifact, rows)
        ref = BlobRef(key, await sha256_of(data), len(data), MEDIA_TYPE)
        await self._blobs.put(ref, data)
        await self._note(key, artifact)

    async def _look(self, slot: Slot, limit: asyncio.Semaphore) -> Artifact | None:
        try:
            async with limit:
                if not await self._blobs.hold(slot.artifact):
                    return None
                artifact = await self._header(slot.artifact)
        except Missing:  # swept away in between
            return None
        except Corrupt as error:
            log.warning("%s is made anew: %s", slot.artifact, error)
            return None
        if artifact.source != slot.source.digest:
            log.warning("%s is made anew: it is of %s", slot.artifact, artifact.source)
            return None
        await self._note(slot.artifact, artifact)
        return artifact

    async def _header(self, key: str) -> Artifact:
        """Reads no more of the object than it must. Raises Missing when absent, Corrupt when it is no artifact."""
        begun = b""
        async with aclosing(self._blobs.stream(key)) as pieces:
            async for piece in pieces:
                begun += piece
                if len(begun) >= 8 and len(begun) >= safetensors.header_bytes(begun):
                    break
        return safetensors.unpack_header(begun)

    async def _note(self, key: str, artifact: Artifact) -> None:
        note = _encode(artifact)
        if len(note) <= NOTE_BYTES:
            await self._notes.put(key, note)
