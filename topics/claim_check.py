"""The claim check: a message over the size limit goes to the object store, and its key onto the topic (promise P6)."""

import msgspec

from infra.faults import Corrupt, Missing, Refused
from infra.hashing import content_ref
from infra.ports import Blobs
from schemas.codec import Undecodable, decode_message, encode
from schemas.jobs import Job, Offloaded
from schemas.refs import BlobRef
from topics.names import MAX_MESSAGE_BYTES

FOLDER = "payloads"
MEDIA_TYPE = "application/msgpack"
# A prompt of a million tokens takes five. Whoever reads a record holds its payload in memory.
MAX_PAYLOAD_BYTES = 16 << 20


async def pack(message: msgspec.Struct, blobs: Blobs) -> bytes:
    """The bytes for the topic, never more than MAX_MESSAGE_BYTES.

    Raises:
        Refused: the message has more than MAX_PAYLOAD_BYTES.
        Unavailable and others: as Blobs.put.
    """
    body = encode(message)
    if len(body) <= MAX_MESSAGE_BYTES:
        return body
    if len(body) > MAX_PAYLOAD_BYTES:
        raise Refused(f"a message of {len(body)} bytes; the most is {MAX_PAYLOAD_BYTES}")
    ref = await content_ref(body, MEDIA_TYPE, FOLDER)
    await blobs.put(ref, body)
    return encode(Offloaded(ref))


def inline(body: bytes) -> Job | None:
    """The job in these very bytes; None when they name an object, or are no message of ours."""
    try:
        message = decode_message(body)
    except Undecodable:
        return None
    return None if isinstance(message, Offloaded) else message


async def unpack(body: bytes, blobs: Blobs) -> Job:
    """The job in these bytes, or in the object they name.

    Raises:
        Undecodable: no message of ours, or its object is gone, is another one, or names yet another.
        Unavailable, Refused: the store cannot say now; try again.
    """
    message = decode_message(body)
    if not isinstance(message, Offloaded):
        return message
    _is_payload(body, message.ref)
    try:
        inner = decode_message(await blobs.get(message.ref))
    except Missing as error:
        raise Undecodable(body, f"the object {message.ref.key} is gone") from error
    except Corrupt as error:
        raise Undecodable(body, f"the object {message.ref.key} is not what was put there: {error}") from error
    if isinstance(inner, Offloaded):
        raise Undecodable(body, f"the object {message.ref.key} holds another reference")
    return inner


def _is_payload(body: bytes, ref: BlobRef) -> None:
    """A record may name payloads only: nobody's media, uploads or answers."""
    if ref.key != f"{FOLDER}/{ref.digest}":
        raise Undecodable(body, f"{ref.key[:100]!r} is no payload")
    if ref.size_bytes > MAX_PAYLOAD_BYTES:
        raise Undecodable(body, f"a payload of {ref.size_bytes} bytes; the most is {MAX_PAYLOAD_BYTES}")
