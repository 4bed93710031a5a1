"""The rows of a prompt: fetched once, kept within bounds, and nothing that does not fit gets through."""

import asyncio
import struct
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from infra.clock import SystemClock
from infra.memory import MemoryHub
from infra.memory_notes import MemoryArtifactNotes
from infra.metrics import Metrics
from infra.patience import patiently
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished
from schemas.jobs import GenerateJob
from schemas.media import Artifact, Embeds
from tests.unit.workers.artifacts import PLACEHOLDER, WIDTH, Store, prompt_with, stub
from tests.unit.workers.pool import MODEL, Worker
from tests.waiting import until
from topics import safetensors
from workers import artifact_cache
from workers.artifact_cache import READS_AT_ONCE, ArtifactCache
from workers.assembly import Assembly
from workers.engine import EmbedsShape
from workers.engines.stub import StubEngine


class World:
    """An assembly over a store."""

    def __init__(self, most_bytes: int = 1 << 20, engine: StubEngine | None = None) -> None:
        self.store = Store()
        self.metrics = Metrics()
        self.cache = ArtifactCache(self.store, most_bytes, MODEL, self.metrics, SystemClock())
        self.notes = MemoryArtifactNotes(SystemClock())
        self.assembly = Assembly(engine or stub(), self.cache, self.notes)

    def figure(self, name: str) -> float:
        page = self.metrics.render().decode()
        return float(page.partition(f'{name}{{model="{MODEL}"}} ')[2].partition("\n")[0] or 0)


async def test_a_prompt_of_tokens_alone_asks_for_nothing() -> None:
    world = World()
    assert await world.assembly.rows(prompt_with()) == [] and world.store.reads == []


async def test_rows_come_in_order_of_their_places_each_with_its_numbers() -> None:
    world = World()
    job = prompt_with(await world.store.add("a", 2), await world.store.add("b", 3))
    shuffled = msgspec.structs.replace(job, embeds=job.embeds[::-1])
    first, second = await world.assembly.rows(shuffled)
    assert (first.offset, first.length, first.width, first.dtype, first.digest) == (1, 2, WIDTH, "float32", "a")
    assert struct.unpack("<4f", first.data) == (0, 1, 2, 3)
    assert (second.offset, second.length, second.digest) == (4, 3, "b")


async def test_what_was_fetched_is_kept_and_what_is_under_way_is_waited_for() -> None:
    world = World()
    one = await world.store.add("a", 2)
    world.store.held.clear()
    many = [asyncio.create_task(world.assembly.rows(prompt_with(one, one))) for _ in range(5)]
    await until(lambda: bool(world.store.reads))
    world.store.held.set()
    assert {len(rows) for rows in await asyncio.gather(*many)} == {2}
    await world.assembly.rows(prompt_with(one))
    assert world.store.reads == [one.artifact]
    assert world.figure("triptych_artifact_cache_hits_total") == 10
    assert world.figure("triptych_artifact_fetch_seconds_count") == 1
    assert world.figure("triptych_artifact_fetched_bytes_total") == len(await world.store.read(one.artifact, 1 << 20))


async def test_a_cancelled_fetch_is_taken_over_by_who_waits_for_it() -> None:
    world = World()
    job = prompt_with(await world.store.add("a", 2))
    world.store.held.clear()
    first, second = (asyncio.create_task(world.assembly.rows(job)) for _ in range(2))
    await until(lambda: bool(world.store.reads))
    first.cancel()
    await asyncio.wait([first])
    world.store.held.set()
    assert len(await second) == 1 and len(world.store.reads) == 2


async def test_many_are_fetched_in_parallel_but_not_too_many() -> None:
    world = World()
    items = [await world.store.add(f"a{number}", 1) for number in range(3 * READS_AT_ONCE)]
    world.store.held.clear()
    task = asyncio.create_task(world.assembly.rows(prompt_with(*items)))
    await until(lambda: world.store.at_once == READS_AT_ONCE)
    world.store.held.set()
    assert len(await task) == len(items) and world.store.most_at_once == READS_AT_ONCE


async def test_the_cache_keeps_to_its_bound_and_forgets_what_was_not_used_for_longest() -> None:
    size = len(safetensors.pack(Artifact("embeddings", "fingerprint", "a", 2, WIDTH, "float32"), bytes(16)))
    world = World(most_bytes=2 * size)
    a, b, c = [await world.store.add(name, 2) for name in "abc"]
    for one in (a, b, a, c, a, b):
        await world.assembly.rows(prompt_with(one))
    assert world.store.reads == [a.artifact, b.artifact, c.artifact, b.artifact]


async def test_an_object_larger_than_the_cache_is_refused() -> None:
    world = World(most_bytes=100)
    assert await code_of(world, prompt_with(await world.store.add("a", 50))) == "internal"


async def test_while_the_store_is_away_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_cache, "patiently", partial(patiently, first_s=0.001))
    world = World()
    job = prompt_with(await world.store.add("a", 2))
    world.store.away = 3
    assert len(await world.assembly.rows(job)) == 1 and len(world.store.reads) == 4


async def code_of(world: World, job: GenerateJob) -> str:
    with pytest.raises(TriptychError) as fault:
        await world.assembly.rows(job)
    return fault.value.code


@pytest.mark.parametrize(
    "change",
    [
        lambda one: msgspec.structs.replace(one, offset=-1),
        lambda one: msgspec.structs.replace(one, offset=3),
        lambda one: msgspec.structs.replace(one, length=0),
        lambda one: msgspec.structs.replace(one, length=3),
        lambda one: msgspec.structs.replace(one, offset=0),
    ],
)
async def test_a_span_that_is_not_over_its_placeholders_is_refused_before_anything_is_fetched(
    change: Callable[[Embeds], Embeds],
) -> None:
    world = World()
    job = prompt_with(await world.store.add("a", 2))  # 1 P P 1
    assert await code_of(world, msgspec.structs.replace(job, embeds=[change(job.embeds[0])])) == "invalid_request"
    assert world.store.reads == []


async def test_spans_that_overlap_and_tokens_that_are_no_placeholders_are_refused() -> None:
    world = World()
    one = await world.store.add("a", 2)
    job = msgspec.structs.replace(prompt_with(one), prompt_ids=[1, *[PLACEHOLDER] * 3, 1])
    over = [msgspec.structs.replace(one, offset=1), msgspec.structs.replace(one, offset=2)]
    assert await code_of(world, msgspec.structs.replace(job, embeds=over)) == "invalid_request"
    other = msgspec.structs.replace(job, prompt_ids=[1, 8, 8, 8, 1], embeds=over[:1])
    assert await code_of(world, other) == "invalid_request"


async def test_an_engine_without_embeddings_refuses_and_one_without_a_model_takes_any() -> None:
    deaf, any_rows = stub(), stub()
    deaf.embeds, any_rows.embeds = None, EmbedsShape()
    for engine, refuses in ((deaf, True), (any_rows, False)):
        world = World(engine=engine)
        job = prompt_with(await world.store.add("a", 2, width=77))
        ids = [5 if token == PLACEHOLDER else token for token in job.prompt_ids]
        if refuses:
            assert await code_of(world, job) == "invalid_request"
        else:
            assert len(await world.assembly.rows(msgspec.structs.replace(job, prompt_ids=ids))) == 1


async def test_an_artifact_that_does_not_fit_is_our_fault_and_names_nothing_of_ours() -> None:
    world = World()
    text = Artifact("text", "fingerprint", "t", text="a cat")
    wrong = [
        await world.store.add("wide", 2, width=WIDTH + 1),
        msgspec.structs.replace(await world.store.add("short", 1), length=2),
        await world.store.add("text", 2, artifact=text),
        await world.store.add_raw("empty", b"", 2),
        await world.store.add_raw("noise", bytes(range(256)), 2),
    ]
    for one in wrong:
        with pytest.raises(TriptychError) as fault:
            await world.assembly.rows(prompt_with(one))
        assert fault.value.code == "internal" and "artifacts/" not in fault.value.message


async def test_one_that_the_store_lost_is_worth_another_try_and_its_note_goes() -> None:
    world = World()
    kept = await world.store.add("a", 2)
    for key in (kept.artifact, "artifacts/gone"):
        await world.notes.put(key, b"note")
    with pytest.raises(TriptychError) as fault:
        await world.assembly.rows(prompt_with(kept, msgspec.structs.replace(kept, artifact="artifacts/gone")))
    assert fault.value.code == "artifact_missing" and fault.value.fault.retriable
    assert await world.notes.get([kept.artifact, "artifacts/gone"]) == [b"note", None]


class Pool(Worker):
    """A worker over such a store."""

    def __init__(self) -> None:
        self.store = Store()
        super().__init__(MemoryHub(), stub(), blobs=self.store)

    def job(self, request_id: str, *embeds: Embeds, lives_s: float = 60.0) -> GenerateJob:
        return prompt_with(*embeds, request_id=request_id, lives_s=lives_s, now=SystemClock().now())


async def test_a_worker_answers_with_rows_and_ends_what_it_cannot_assemble() -> None:
    pool = Pool()
    good = await pool.store.add("a", 2)
    gone = msgspec.structs.replace(good, artifact="artifacts/gone")
    async with pool.running():
        for name, one in (("good", good), ("gone", gone)):
            pool.consumer.put(pool.job(name, one))
        await until(lambda: pool.ended("good") and pool.ended("gone"))
    end, failed = pool.events("good")[-1], pool.events("gone")
    assert isinstance(end, Finished) and end.usage.prompt == 4
    assert isinstance(failed[0], Failed) and len(failed) == 1 and failed[0].code == "artifact_missing"


async def test_while_rows_are_fetched_a_deadline_passes_and_a_cancel_is_heard() -> None:
    pool = Pool()
    one = await pool.store.add("a", 2)
    pool.store.held.clear()
    async with pool.running():
        pool.consumer.put(pool.job("late", one, lives_s=0.3))
        pool.consumer.put(pool.job("unwanted", one))
        await until(lambda: pool.store.at_once == 1 and pool.engine.load().running == 0)
        await pool.results.cancel(MODEL, "unwanted", "enough")
        await until(lambda: pool.ended("late") and pool.ended("unwanted"))
    late, unwanted = pool.events("late")[-1], pool.events("unwanted")[-1]
    assert isinstance(late, Failed) and late.code == "deadline_exceeded"
    assert isinstance(unwanted, Cancelled)
