"""The one codec: bytes become types here, once, at the edge. Nothing beyond it handles a bare dict."""

from typing import Any

import msgspec

from schemas.events import EventBatch
from schemas.jobs import DeadLetter, Message
from schemas.signals import Beat, Signal

# Encoders and decoders are built once; msgspec compiles the type at construction.
_encoder = msgspec.msgpack.Encoder()
_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_json_messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_letters = msgspec.msgpack.Decoder(DeadLetter)
_signals: msgspec.msgpack.Decoder[Signal] = msgspec.msgpack.Decoder(Signal)
_beats = msgspec.msgpack.Decoder(Beat)
_batch = msgspec.msgpack.Decoder(EventBatch)
_batches = msgspec.msgpack.Decoder(list[EventBatch])


class Undecodable(Exception):
    """Bytes that are no message of ours; keeps them, so that a dead letter can carry them."""

    def __init__(self, raw: bytes, why: str) -> None:
        super().__init__(why)
        self.raw = raw


def encode(value: msgspec.Struct) -> bytes:
    return _encoder.encode(value)


def decode_message(raw: bytes) -> Message:
    """A record of a work topic; MessagePack, or JSON where it starts with a brace.

    Raises:
        Undecodable: whatever is wrong with the bytes, deep nesting included.
    """
    try:
        return _json_messages.decode(raw) if raw[:1] == b"{" else _messages.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # RecursionError: nesting bombs
        raise Undecodable(raw, str(error)) from error


def decode_letter(raw: bytes) -> DeadLetter:
    return _letters.decode(raw)


def decode_signal(raw: bytes) -> Signal:
    return _signals.decode(raw)


def decode_beat(raw: bytes) -> Beat:
    return _beats.decode(raw)


def decode_batch(raw: bytes) -> EventBatch:
    """One entry of a replay stream."""
    return _batch.decode(raw)


def decode_batches(raw: bytes) -> list[EventBatch]:
    """One publication on a gateway's channel."""
    return _batches.decode(raw)


def to_json(value: Any) -> bytes:
    return msgspec.json.encode(value)
