"""The claim check: a message over the size limit goes to the object store, and its key onto the topic (promise P6)."""

import msgspec

from infra.faults import Corrupt, Missing
from infra.ports import Blobs
from schemas.codec import Undecodable, decode_message, encode
from schemas.jobs import Job, Offloaded
from schemas.refs import payload_ref
from topics.names import MAX_MESSAGE_BYTES


async def pack(message: msgspec.Struct, blobs: Blobs) -> bytes:
    """The bytes for the topic, never more than MAX_MESSAGE_BYTES."""
    body = encode(message)
    if len(body) <= MAX_MESSAGE_BYTES:
        return body
    ref = payload_ref(body)
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
        Anything else of Blobs.get: the store cannot say now; try again.
    """
    message = decode_message(body)
    if not isinstance(message, Offloaded):
        return message
    try:
        inner = decode_message(await blobs.get(message.ref))
    except Missing as error:
        raise Undecodable(body, f"the object {message.ref.key} is gone") from error
    except Corrupt as error:
        raise Undecodable(body, f"the object {message.ref.key} is not what was put there: {error}") from error
    if isinstance(inner, Offloaded):
        raise Undecodable(body, f"the object {message.ref.key} holds another reference")
    return inner
