"""Produces wrong records onto every job topic of live pools, and finds the one outcome of each."""

import asyncio
import contextlib
import io
import time
import uuid
import wave
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from PIL import Image

from infra import keys, manifests
from infra.hashing import content_ref
from schemas.codec import decode_letter
from schemas.refs import BlobRef
from tests.chaos.encoders import tokenizer
from tests.chaos.hostile.records import Forge, Wrong
from tests.chaos.pool_processes import PoolProcesses, running, settings_for
from tests.services import S3
from tests.waiting import until
from topics import names
from topics.fingerprints import fingerprint

MANIFEST = """
id = "{model}"
partitions = 4
handoff = "text"
capabilities = ["chat", "image_in", "audio_in", "image_out", "speech_out"]
[source]
kind = "hf"
repo = "tests/{model}"
[limits]
context_tokens = 4096
[encoders.vision]
engine = "labels-ocr"
yields = "text"
weights = "eye"
[encoders.audio]
engine = "whisper"
yields = "text"
weights = "eye"
[decoders.image]
engine = "digits"
begin = "<b>"
end = "<e>"
first = "<0>"
last = "<9>"
[decoders.audio]
engine = "hibari"
voices = ["heart"]
[weights.eye]
kind = "hf"
repo = "tests/{model}-eye"
"""
WAVE = 1_000
WAVE_LIMIT_S = 120.0


class Report(msgspec.Struct):
    """What became of all records. Anything but zero in the last five is a fault."""

    records: int = 0
    neighbours: int = 0
    seconds: float = 0.0
    dead_letters: dict[str, int] = {}  # by reason
    ended: dict[str, int] = {}  # by the type of the terminal event, or its code
    process_ends: int = 0
    unanswered_neighbours: int = 0
    without_outcome: list[str] = []
    with_two_outcomes: list[str] = []
    uncommitted: int = 0  # partitions whose commit is not at their end

    @property
    def faults(self) -> int:
        lists = len(self.without_outcome) + len(self.with_two_outcomes)
        return self.process_ends + self.unanswered_neighbours + lists + self.uncommitted


class _Sent(msgspec.Struct, frozen=True):
    wrong: Wrong
    place: tuple[str, int, int]  # topic, partition, offset

    def __str__(self) -> str:
        value = self.wrong.value
        return f"{'/'.join(map(str, self.place))} {self.wrong.request_id}: {value[:400] if value else value!r}"


class HostileWorld(PoolProcesses):
    """An LLM worker with the stub engine, and one simulated worker in each media pool."""

    command = ()

    async def start_all(self) -> None:
        await self.launch("llm", "llm", "--model", self.model, "--engine", "stub", "--step-ms", "2")
        for pool in ("vision", "audio"):
            await self.start(f"encode-{pool}", 2, "encode", "--pool", pool)
        for kind in ("image", "audio"):
            await self.start(f"decode-{kind}", 1, "decode", "--kind", kind)

    async def media(self) -> tuple[BlobRef, BlobRef]:
        """A picture and a sound that encoders can read."""
        picture, sound = io.BytesIO(), io.BytesIO()
        Image.new("RGB", (16, 16), "red").save(picture, "PNG")
        with wave.open(sound, "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(bytes(3_200))
        return await self._stored(picture.getvalue(), "image/png"), await self._stored(sound.getvalue(), "audio/wav")

    async def _stored(self, data: bytes, media_type: str) -> BlobRef:
        ref = await content_ref(data, media_type, "media")
        await self.blobs.put(ref, data)
        return ref

    def ended_processes(self) -> int:
        return sum(child.exit_code() is not None for child in self.children.values())


class Hostile:
    def __init__(self, world: HostileWorld, forge: Forge, producer: AIOKafkaProducer) -> None:
        self._world = world
        self._forge = forge
        self._producer = producer
        self._letters: dict[tuple[str, int, int], list[str]] = {}
        self.report = Report(dead_letters=Counter(), ended=Counter())

    async def run(self, count: int, letters: AIOKafkaConsumer) -> Report:
        begun = time.monotonic()
        reading = asyncio.create_task(self._read(letters))
        try:
            for first in range(0, count, WAVE):
                await self._wave(min(WAVE, count - first))
                print(f"{first + WAVE} records, {time.monotonic() - begun:.0f} s", flush=True)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        report = self.report
        report.process_ends = self._world.ended_processes()
        report.uncommitted = await self._uncommitted()
        report.seconds = round(time.monotonic() - begun, 1)
        return report

    async def _wave(self, count: int) -> None:
        wrongs = list(self._forge.records(count, self._world.clock.now()))
        await self._store_payloads()
        sent = [await self._send(one) for one in wrongs]
        outcomes: dict[int, list[str]] = {}

        async def all_have_one() -> bool:
            assert not self._world.ended_processes(), "a worker process has ended"
            outcomes.update(await self._outcomes(sent))
            return all(outcomes.values())

        with contextlib.suppress(TimeoutError):  # those without one are in the report
            await until(all_have_one, WAVE_LIMIT_S, every_s=0.25)
        self._count(sent, outcomes)

    async def _store_payloads(self) -> None:
        """Under their keys, whatever they are: a store does not look."""
        s3, bucket = self._world.blobs._s3, self._world.settings.s3_bucket
        for key, body in self._forge.payloads.items():
            await s3.put_object(Bucket=bucket, Key=key, Body=body)
        self._forge.payloads.clear()

    async def _send(self, one: Wrong) -> _Sent:
        partitions = await self._producer.partitions_for(one.topic)
        partition = zlib.crc32(one.request_id.encode()) % len(partitions)
        headers = [(name, content) for name, content in one.headers]
        stored = await self._producer.send_and_wait(
            one.topic, one.value, key=one.key, partition=partition, headers=headers
        )
        return _Sent(one, (one.topic, partition, stored.offset))

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            letter = decode_letter(record.value)
            self._letters.setdefault((letter.topic, letter.partition, letter.offset), []).append(letter.reason)

    async def _outcomes(self, sent: list[_Sent]) -> dict[int, list[str]]:
        """By number of the record: why it is a dead letter, or that its request has ended. Letters come at least once:
        a partition whose lease was lost for a moment is read again from its commit."""
        model, redis = self._world.model, self._world.redis
        pipeline = redis.pipeline(transaction=False)
        for one in sent:
            for name in _names_of(one.wrong):
                pipeline.hget(keys.request(model, name), "done")
        answers = iter(await pipeline.execute())
        ends = [[next(answers) for _ in _names_of(one.wrong)] for one in sent]
        return {
            number: sorted(set(self._letters.get(one.place, []))) + ["end" for done in ends[number] if done]
            for number, one in enumerate(sent)
        }

    def _count(self, sent: list[_Sent], outcomes: Mapping[int, list[str]]) -> None:
        report = self.report
        for number, one in enumerate(sent):
            found = outcomes.get(number, [])
            report.records += 1
            report.neighbours += one.wrong.neighbour
            if not found:
                report.without_outcome.append(str(one))
                report.unanswered_neighbours += one.wrong.neighbour
            elif len(found) > 1:
                report.with_two_outcomes.append(f"{found} {one}")
            for outcome in found:
                if outcome == "end":
                    report.ended[one.wrong.topic] = report.ended.get(one.wrong.topic, 0) + 1
                else:
                    report.dead_letters[outcome] = report.dead_letters.get(outcome, 0) + 1

    async def _uncommitted(self) -> int:
        model, behind = self._world.model, {}

        async def all_committed() -> bool:
            behind.clear()
            behind.update(await _behind(self._world.settings.kafka, names.generate(model), names.group(model)))
            for pool in ("encode.vision", "encode.audio", "decode.image", "decode.audio"):
                behind.update(await _behind(self._world.settings.kafka, pool, pool))
            return not behind

        try:
            await until(all_committed, 20.0, every_s=0.5)
        except TimeoutError:
            print(f"not committed: {behind}")
        return len(behind)


def _names_of(wrong: Wrong) -> list[str]:
    """Under which its request may have ended: its name may be what was changed."""
    found = {wrong.request_id}
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            name = decode(wrong.value or b"")["head"]["request_id"]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError, IndexError):
            continue
        if isinstance(name, str):
            found.add(name)
    return sorted(found)


async def _behind(bootstrap: str, topic: str, group: str) -> dict[str, tuple[int, int]]:
    """Partitions whose commit is not at their end."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer.topics()
        tps = [TopicPartition(topic, one) for one in range(names.POOL_PARTITIONS)]
        consumer.assign(tps[: len(consumer.partitions_for_topic(topic) or tps)])
        ends = await consumer.end_offsets(list(consumer.assignment()))
        commits = {tp: await consumer.committed(tp) or 0 for tp in ends}
    finally:
        await consumer.stop()
    return {f"{tp.topic}/{tp.partition}": (commits[tp], end) for tp, end in ends.items() if commits[tp] < end}


async def run(kafka: str, redis_url: str, s3: S3, folder: Path, count: int, seed: int) -> Report:
    """Start the pools, send them `count` records, and stop them."""
    async with _world(kafka, redis_url, s3, folder) as world:
        await world.start_all()
        manifest = manifests.find(world.settings, world.model)
        prints = {pool: fingerprint(manifest, pool) for pool in ("vision", "audio")}  # type: ignore[arg-type]  # both kinds
        picture, sound = await world.media()
        producer = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=1 << 20)
        letters = AIOKafkaConsumer(names.DEAD_LETTERS, bootstrap_servers=kafka, auto_offset_reset="latest")
        await producer.start()
        await letters.start()
        await letters.seek_to_end()
        try:
            forge = Forge(world.model, prints, picture, sound, seed)
            return await Hostile(world, forge, producer).run(count, letters)
        finally:
            await letters.stop()
            await producer.stop()


@asynccontextmanager
async def _world(kafka: str, redis_url: str, s3: S3, folder: Path) -> AsyncIterator[HostileWorld]:
    settings = settings_for(f"x-{uuid.uuid4().hex[:8]}", MANIFEST, kafka, redis_url, s3, folder)
    settings = msgspec.structs.replace(settings, dead_letter_burst=1_000_000)  # these topics are meant to be emptied
    tokenizer(folder / "models" / settings.models)
    async with running(lambda: HostileWorld(settings, folder)) as world:
        yield world
