"""The producer in front of a broker that misbehaves: a stand-in for the client library does what it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OutOfOrderSequenceNumber, RequestTimedOutError

from infra.faults import Refused, Unavailable
from infra.memory_blobs import MemoryBlobs
from tests.contracts.bus_worlds import job
from topics import kafka
from topics.broker import Broker
from topics.bus import Position
from topics.kafka import KafkaProducer

TOPIC = "generate.m"


class Metadata:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1} if topic == TOPIC else None


class FakeClient:
    """As much of AIOKafkaProducer as ours uses. `outcomes` say how the sends end, one by one; then all succeed."""

    made: list["FakeClient"]
    outcomes: list[Exception | None]
    start_error: KafkaError | None

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.stopped = False
        self.sent = 0
        self.client = self
        self.cluster = Metadata()
        self.made.append(self)

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def stop(self) -> None:
        self.stopped = True

    async def fetch_all_metadata(self) -> Metadata:
        return self.cluster

    async def send(self, topic: str, body: bytes, **_: Any) -> Awaitable[Position]:
        outcome = asyncio.get_running_loop().create_future()
        error = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(error, TimeoutError):
            return outcome  # never told anything
        if error is not None:
            outcome.set_exception(error)
        else:
            self.sent += 1
            outcome.set_result(Position(topic, 0, self.sent - 1))
        return outcome


@pytest.fixture
def broken_broker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[FakeClient]]:
    def with_outcomes(*outcomes: Exception | None, idempotent: bool = True) -> type[FakeClient]:
        class Client(FakeClient):
            made: list[FakeClient] = []  # noqa: RUF012 - one list per test, shared by what is made in it
            start_error = None

        Client.outcomes = list(outcomes)

        async def detect(bootstrap: str) -> Broker:
            return Broker(bootstrap, idempotent)

        monkeypatch.setattr(kafka, "AIOKafkaProducer", Client)
        monkeypatch.setattr(kafka, "detect", detect)
        return Client

    return with_outcomes


async def started(send_limit_s: float = 5.0) -> KafkaProducer:
    producer = KafkaProducer("b:1", MemoryBlobs(), send_limit_s=send_limit_s)
    await producer.start()
    return producer


async def away(producer: KafkaProducer) -> str:
    with pytest.raises(Unavailable) as caught:
        await producer.send(TOPIC, job("r"), partition=0)
    return str(caught.value)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_every_send_waits_for_all_replicas_and_is_idempotent_where_the_broker_can(
    broken_broker: Callable[..., type[FakeClient]], idempotent: bool
) -> None:
    client = broken_broker(idempotent=idempotent)
    await started()
    settings = client.made[0].settings
    assert settings["acks"] == "all" and settings["linger_ms"] == 0
    assert settings["enable_idempotence"] is idempotent


async def test_a_broker_that_does_not_answer_in_time_is_unavailable(
    broken_broker: Callable[..., type[FakeClient]],
) -> None:
    broken_broker(TimeoutError())
    assert "within 0.05 s" in await away(await started(send_limit_s=0.05))


async def test_an_error_that_time_may_heal_keeps_the_client(broken_broker: Callable[..., type[FakeClient]]) -> None:
    client = broken_broker(RequestTimedOutError())
    producer = await started()
    assert "did not take" in await away(producer)
    assert (await producer.send(TOPIC, job("r"), partition=0)).offset == 0
    assert len(client.made) == 1


async def test_a_client_that_its_broker_has_disowned_is_replaced_once(
    broken_broker: Callable[..., type[FakeClient]],
) -> None:
    client = broken_broker(OutOfOrderSequenceNumber())
    producer = await started()
    assert "did not take" in await away(producer)
    await asyncio.gather(*(producer.send(TOPIC, job(f"r{number}"), partition=0) for number in range(5)))
    first, second = client.made
    assert first.stopped and second.sent == 5
    await producer.close()
    assert second.stopped


async def test_a_client_that_cannot_be_replaced_yet_is_tried_again(
    broken_broker: Callable[..., type[FakeClient]],
) -> None:
    client = broken_broker(OutOfOrderSequenceNumber())
    producer = await started()
    await away(producer)
    client.start_error = RequestTimedOutError()
    assert "cannot produce" in await away(producer)
    client.start_error = None
    await producer.send(TOPIC, job("r"), partition=0)
    assert client.made[-1].sent == 1 and client.made[0].stopped


class LostStore(MemoryBlobs):
    async def put(self, ref: object, data: bytes) -> None:
        raise Unavailable("object store: away")


async def test_an_object_store_that_is_away_is_no_fault_of_the_broker(
    broken_broker: Callable[..., type[FakeClient]],
) -> None:
    broken_broker()
    producer = KafkaProducer("b:1", LostStore())
    await producer.start()
    with pytest.raises(Unavailable, match="object store: away"):
        await producer.send(TOPIC, job("big", prompt_tokens=40_000), partition=0)


async def test_what_the_broker_will_never_take_is_refused(broken_broker: Callable[..., type[FakeClient]]) -> None:
    broken_broker(MessageSizeTooLargeError())
    producer = await started()
    with pytest.raises(Refused):
        await producer.send(TOPIC, job("r"), partition=0)
