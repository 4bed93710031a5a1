"""From an LLM worker to decoders: one answer, its parts, and every stream whole; all on one hub in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from infra.memory import MemoryHub, MemorySignals
from infra.memory_blobs import MemoryBlobs
from schemas.events import Cancelled, Event, Failed, Finished, Made, Part, Token
from schemas.jobs import DecodeJob
from schemas.media import ImageOptions, Output, SpeechOptions
from tests.unit.workers.decoders import MODEL, PICTURE, SPEECH, Decoder, check_whole
from tests.unit.workers.pool import ListProducer, Worker
from tests.unit.workers.test_part_sender import Saying, asking
from tests.waiting import until
from topics.bus import Position
from workers.engine import Delta
from workers.engines.sim_decoder import SimPainter, SimSpeaker

DRAWING = Output(PICTURE, ImageOptions(width=16, height=16, steps=3), 100, 101, 110, 119)
SPEAKING = Output(SPEECH, SpeechOptions(chunked=True))


class _Bus(ListProducer):
    """Delivers at once, to the decoder of the topic."""

    def __init__(self, decoders: dict[str, Decoder]) -> None:
        super().__init__()
        self._decoders = decoders

    async def send(self, topic: str, message: msgspec.Struct, **rest: object) -> Position:
        assert isinstance(message, DecodeJob)
        self._decoders[topic].put(message)
        return await super().send(topic, message)


class Pipeline:
    def __init__(self, worker: Worker, hub: MemoryHub) -> None:
        self.worker = worker
        self._hub = hub

    def events(self, request_id: str) -> list[Event]:
        return [event for batch in self._hub.request(MODEL, request_id).stream for event in batch.events]

    def parts(self, request_id: str = "a") -> list[Part]:
        return [event for event in self.events(request_id) if isinstance(event, Part)]

    def ended(self, request_id: str) -> bool:
        events = self.events(request_id)
        return bool(events) and isinstance(events[-1], (Finished, Failed, Cancelled))

    async def all_ended(self) -> None:
        await until(lambda: self.ended("a") and all(self.ended(part.request_id) for part in self.parts()))
        for request_id in ("a", *(part.request_id for part in self.parts())):
            check_whole(self.events(request_id))


@asynccontextmanager
async def pipeline(*deltas: Delta, pace_s: float = 0.0, step_s: float = 0.001) -> AsyncIterator[Pipeline]:
    hub, blobs = MemoryHub(), MemoryBlobs()
    painter = Decoder(painter=SimPainter(step_s=step_s), hub=hub, blobs=blobs, name="painter")
    speaker = Decoder(speaker=SimSpeaker(sentence_s=step_s), hub=hub, blobs=blobs, name="speaker")

    async def listen(decoder: Decoder) -> None:
        async for signal in MemorySignals(hub).listen(MODEL):
            decoder.work.cancel(signal.request_id, signal.reason)

    bus = _Bus({"decode.image": painter, "decode.audio": speaker})
    worker = Worker(hub, Saying(*deltas, pace_s=pace_s), producer=bus)
    listeners = [asyncio.create_task(listen(one)) for one in (painter, speaker)]
    try:
        async with painter.running(), speaker.running(), worker.running():
            yield Pipeline(worker, hub)
    finally:
        for task in listeners:
            task.cancel()


async def test_an_answer_with_a_picture_and_speech_ends_with_all_its_parts() -> None:
    says = (
        Delta(0, "Look here. ", [1]),
        Delta(0, "", [100, 111, 112, 101]),
        Delta(0, "That is ", [2]),
        Delta(0, "all.", [3], "stop"),
    )
    async with pipeline(*says) as one:
        one.worker.consumer.put(asking("a", DRAWING, SPEAKING))
        await one.all_ended()
    assert [part.number for part in one.parts()] == [0, 1, 2]
    texts = [event.text for event in one.events("a") if isinstance(event, Token)]
    assert "".join(texts) == "Look here. That is all."
    made = [event for part in one.parts() for event in one.events(part.request_id) if isinstance(event, Made)]
    assert [event.text for event in made if event.kind == "audio"] == ["Look here.", "That is all."]
    assert [event.ref.media_type for event in made if event.kind == "image"] == ["image/png"]


async def test_speech_is_ready_before_the_answer_has_ended() -> None:
    says = [Delta(0, f"Sentence {number}. ", [number]) for number in range(20)]
    async with pipeline(*says, Delta(0, "", [9], "stop"), pace_s=0.03) as one:
        one.worker.consumer.put(asking("a", SPEAKING))
        await until(lambda: any(isinstance(event, Made) for event in one.events("a.1.0.0")))
        assert not one.ended("a")
        await one.all_ended()
    assert len(one.parts()) == 20


async def test_cancelling_the_request_cancels_parts_that_are_drawn_and_those_that_wait() -> None:
    says = [Delta(0, "", [100, 110 + number, 101]) for number in range(6)]
    async with pipeline(*says, *[Delta(0, "x", [1])] * 1_000, pace_s=0.01, step_s=1.0) as one:
        one.worker.consumer.put(asking("a", DRAWING))
        await until(lambda: len(one.parts()) == 6)
        await one.worker.results.cancel(MODEL, "a", "the client went away")
        async with asyncio.timeout(1.0):
            await one.all_ended()
    ends = [one.events(request_id)[-1] for request_id in ("a", *(part.request_id for part in one.parts()))]
    assert all(isinstance(end, Cancelled) for end in ends)
