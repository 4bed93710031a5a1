"""An answer's pieces become parts: first the event, stored, then the job; and the text goes on meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from infra.clock import SystemClock
from infra.memory import MemoryHub, MemoryResults
from infra.ports import Incarnation
from schemas.errors import TriptychError
from schemas.events import Event, Failed, Finished, Part, Token
from schemas.jobs import DecodeJob, GenerateJob
from schemas.media import ImageOptions, Output, SpeechOptions
from tests.unit.workers.pool import MODEL, ListProducer, Worker, job
from tests.unit.workers.test_loop import check_whole
from tests.waiting import until
from topics.bus import Delivery, Position
from workers.engine import Delta, End, Rows, Step
from workers.engines.stub import StubEngine
from workers.outbox import Account, Outbox
from workers.outputs import Piece
from workers.part_sender import PartSender

PICTURE = Output("m/image", ImageOptions(seed=3), 100, 101, 110, 119)
HEADERS = [("x-request-id", b"theirs")]
SENTENCES = Output("m/audio", SpeechOptions(chunked=True))


class Saying(StubEngine):
    """Says what a test lets it say."""

    def __init__(self, *deltas: Delta, pace_s: float = 0.0) -> None:
        super().__init__(slots=4, step_s=0.001)
        self._deltas = deltas
        self._pace_s = pace_s

    async def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        for delta in self._deltas:
            await asyncio.sleep(self._pace_s)
            yield delta
        yield End(3, len(self._deltas))


DRAWS = (
    Delta(0, "Here: ", [1]),
    Delta(0, "", [100, 112]),
    Delta(0, "", [110, 101]),
    Delta(0, "so.", [2], "stop"),
)


def asking(request_id: str, *outputs: Output) -> GenerateJob:
    return msgspec.structs.replace(job(request_id, streamed=True), outputs=list(outputs))


def delivered(one: GenerateJob) -> Delivery:
    return Delivery(Position("generate.m", 0, 0), one, HEADERS)


async def run(worker: Worker, one: GenerateJob) -> list[Event]:
    worker.consumer.put(one)
    await until(lambda: worker.ended(one.head.request_id))
    events = worker.events(one.head.request_id)
    check_whole(events)
    return events


async def test_a_picture_becomes_a_part_and_a_job_of_its_own() -> None:
    async with Worker(MemoryHub(), Saying(*DRAWS)).running() as worker:
        parent = asking("a", PICTURE)
        events = await run(worker, parent)
    (part,) = [event for event in events if isinstance(event, Part)]
    assert (part.index, part.number, part.kind, part.request_id) == (0, 0, "image", "a.1.0.0")
    ((topic, sent),) = worker.producer.sent
    assert topic == "decode.image" and isinstance(sent, DecodeJob)
    assert (sent.decoder, sent.options, sent.codes, sent.text) == ("m/image", PICTURE.options, [2, 0], "")
    head = parent.head
    assert msgspec.structs.replace(sent.head, created_at=head.created_at) == msgspec.structs.replace(
        head, request_id="a.1.0.0", parent="a"
    )
    assert sent.head.created_at >= head.created_at
    assert "".join(event.text for event in events if isinstance(event, Token)) == "Here: so."
    assert isinstance(events[-1], Finished)


async def test_the_job_is_sent_when_the_part_is_stored_and_not_before() -> None:
    results, producer = MemoryResults(MemoryHub()), ListProducer()
    outbox, parent = Outbox(results), asking("a", PICTURE)
    me = Incarnation("w", 1)
    claim = await results.claim(parent.head, me, 3)
    account = Account(parent.head, claim.attempt, claim.last_seq, lambda _: None)
    async with PartSender(delivered(parent), account, outbox, producer, SystemClock()) as parts:
        await parts.ask(Piece(0, 0, PICTURE, codes=[1]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not producer.sent
        flushing = asyncio.create_task(outbox.run())
        await parts.sent()
        flushing.cancel()
    assert len(producer.sent) == 1
    assert producer.headers == [HEADERS]


async def test_an_attempt_that_is_fenced_off_asks_for_nothing() -> None:
    results, producer = MemoryResults(MemoryHub()), ListProducer()
    outbox, parent = Outbox(results), asking("a", PICTURE)
    await results.claim(parent.head, Incarnation("w", 1), 3)
    await results.claim(parent.head, Incarnation("other", 1), 3)
    states: list[str] = []
    account = Account(parent.head, 1, 0, states.append)
    async with PartSender(delivered(parent), account, outbox, producer, SystemClock()) as parts:
        flushing = asyncio.create_task(outbox.run())
        await parts.ask(Piece(0, 0, PICTURE, codes=[1]))
        await parts.sent()
        flushing.cancel()
    assert states == ["fenced"] and not producer.sent


async def test_the_end_comes_after_all_parts() -> None:
    says = [Delta(0, f"Sentence {number}. ", [number]) for number in range(5)]
    async with Worker(MemoryHub(), Saying(*says, Delta(0, "", [9], "stop"))).running() as worker:
        events = await run(worker, asking("a", SENTENCES))
    texts = {sent.head.request_id: sent.text for _, sent in worker.producer.sent if isinstance(sent, DecodeJob)}
    assert texts == {f"a.1.0.{number}": f"Sentence {number}." for number in range(5)}
    assert isinstance(events[-1], Finished)


class _Slow(ListProducer):
    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def send(self, topic: str, message: msgspec.Struct, **rest: object) -> Position:
        await self.go.wait()
        return await super().send(topic, message)


async def test_text_goes_on_while_a_part_is_being_sent_but_the_end_waits_for_it() -> None:
    slow = _Slow()
    async with Worker(MemoryHub(), Saying(*DRAWS), producer=slow).running() as worker:
        worker.consumer.put(asking("a", PICTURE))
        await until(lambda: any(isinstance(one, Token) and one.finish_reason for one in worker.events("a")))
        assert not worker.ended("a")
        slow.go.set()
        await until(lambda: worker.ended("a"))
    assert isinstance(worker.events("a")[-1], Finished)


async def test_a_broker_that_does_not_take_a_part_fails_the_answer() -> None:
    worker = Worker(MemoryHub(), Saying(*DRAWS))
    worker.producer.refuse = TriptychError("overloaded", "the bus is full")
    async with worker.running():
        end = (await run(worker, asking("a", PICTURE)))[-1]
    assert isinstance(end, Failed) and (end.code, end.message) == ("overloaded", "the bus is full")


async def test_a_picture_that_is_cut_off_fails_the_answer_and_none_of_it_is_sent() -> None:
    cut = Delta(0, "", [110], "length")
    async with Worker(MemoryHub(), Saying(*DRAWS[:2], cut)).running() as worker:
        end = (await run(worker, asking("a", PICTURE)))[-1]
    assert isinstance(end, Failed) and end.code == "decoder_failed" and "length limit" in end.message
    assert not worker.producer.sent


async def test_every_choice_has_its_own_parts() -> None:
    says = [msgspec.structs.replace(delta, index=index) for delta in DRAWS for index in (0, 1)]
    async with Worker(MemoryHub(), Saying(*says)).running() as worker:
        events = await run(worker, asking("a", PICTURE))
    assert [event.request_id for event in events if isinstance(event, Part)] == ["a.1.0.0", "a.1.1.0"]


async def test_an_answer_that_is_cancelled_gives_up_what_is_not_sent() -> None:
    slow = _Slow()
    async with Worker(MemoryHub(), Saying(*DRAWS), producer=slow).running() as worker:
        worker.consumer.put(asking("a", PICTURE))
        await until(lambda: any(isinstance(one, Part) for one in worker.events("a")))
        await worker.results.cancel(MODEL, "a", "the client went away")
        await until(lambda: worker.ended("a"), within_s=1.0)
        slow.go.set()
    assert not slow.sent
