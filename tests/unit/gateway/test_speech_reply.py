"""What is written of a spoken answer when its decoder is lost, or when writing itself goes wrong."""

import asyncio
import base64
import hashlib
import json
from typing import cast

import numpy as np
import pytest

from gateway.delivery import Delivery
from gateway.speech_reply import Encoded, Raw, SpokenAnswer, Sse
from infra.ports import Blobs
from infra.sound_file import SoundPieces
from schemas.errors import TriptychError
from schemas.events import Failed, Finished, Made, Restarted, Usage
from schemas.media import PCM16_RATE_HZ
from schemas.refs import BlobRef
from tests.sounds import pcm16
from tests.unit.gateway.client import Client, followed
from tests.unit.workers.media.recordings import tone

ONE, TWO, THREE = (pcm16(one) for one in np.split(tone(1.5, PCM16_RATE_HZ), (9_000, 21_000)))


def finished(seq: int, attempt: int = 1) -> Finished:
    return Finished(attempt, seq, Usage(0, 0))


class Store:
    """Objects by key, of which those named in `late` do not come."""

    def __init__(self) -> None:
        self.late: set[str] = set()
        self._objects: dict[str, bytes] = {}

    def made(self, seq: int, data: bytes, attempt: int = 1) -> Made:
        ref = BlobRef(f"outputs/{seq}", hashlib.sha256(data).hexdigest(), len(data), "audio/pcm")
        self._objects[ref.key] = data
        return Made(attempt, seq, "audio", ref, seq - 1)

    async def get(self, ref: BlobRef) -> bytes:
        if ref.key in self.late:
            await asyncio.Event().wait()
        return self._objects[ref.key]


def answered(client: Client, store: Store, told: Raw | Sse) -> SpokenAnswer:
    delivery = Delivery(cast(Blobs, store), None)
    return SpokenAnswer(client.send, delivery, told, Encoded("mp3", asyncio.Semaphore(1)), lambda: None)


def file_of(*sentences: bytes) -> bytes:
    pieces = SoundPieces("mp3")
    return b"".join([*(pieces.add(one) for one in sentences), pieces.end()])


async def test_a_decoder_that_takes_over_leaves_no_seam_in_the_file() -> None:
    client, store = Client(), Store()
    answer = answered(client, store, Raw("audio/mpeg"))
    taken_over = (Restarted(2, 2), store.made(3, TWO, attempt=2), store.made(4, THREE, attempt=2), finished(5, 2))
    await answer.pass_on(followed(store.made(1, ONE), *taken_over))
    assert client.bytes == file_of(ONE, TWO, THREE)
    assert client.written[-1]["more_body"] is False


async def test_a_sentence_too_short_to_fill_a_frame_is_flushed_at_the_end() -> None:
    client, store = Client(), Store()
    answer = answered(client, store, Sse())
    await answer.pass_on(followed(store.made(1, ONE[:100]), finished(2)))
    events = [json.loads(line[6:]) for line in client.body.splitlines() if line.startswith("data: ")]
    assert b"".join(base64.b64decode(event.pop("audio", "")) for event in events) == file_of(ONE[:100])
    assert [event["type"] for event in events] == ["speech.audio.delta"] * 2 + ["speech.audio.done"]


@pytest.mark.parametrize("told", [Raw("audio/mpeg"), Sse()])
async def test_nothing_follows_a_sentence_that_was_lost_on_its_way_but_the_error(told: Raw | Sse) -> None:
    client, store = Client(), Store()
    answer = answered(client, store, told)
    subscription = followed(store.made(1, ONE), store.made(2, TWO))
    store.late = {"outputs/2"}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await answer.pass_on(subscription)
    written = client.bytes
    assert written
    store.late = set()
    subscription.feed([store.made(3, THREE), finished(4)])
    with pytest.raises(TriptychError, match="lost"):
        await answer.pass_on(subscription)
    assert (client.bytes, answer.last) == (written, None)
    await answer.fail(TriptychError("deadline_exceeded", "too late"))
    sse = isinstance(told, Sse)
    assert client.bytes.startswith(written)
    assert (b"too late" in client.bytes, client.written[-1]["more_body"]) == (sse, not sse)


async def test_a_decoder_that_fails_later_leaves_no_end_of_the_file() -> None:
    client, store = Client(), Store()
    answer = answered(client, store, Raw("audio/mpeg"))
    with pytest.raises(TriptychError, match="gone") as raised:
        await answer.pass_on(followed(store.made(1, ONE), Failed(1, 2, "engine_died", "gone")))
    await answer.fail(raised.value)
    assert client.bytes == SoundPieces("mp3").add(ONE)
    assert client.written[-1]["more_body"] is True
