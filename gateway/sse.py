"""Events of the streams that are no chat: `event` and `data` lines, as OpenAI writes them."""

import msgspec

from schemas import codec


def event_of(message: msgspec.Struct) -> bytes:
    """Its `type` is also the event's name."""
    data = codec.to_json(message)
    name: str = msgspec.json.decode(data, type=_Typed).type
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class _Typed(msgspec.Struct):
    type: str
