"""Embeddings in the prompt of the real engine: what it answers, what it caches, what steering knows of that.

The rows are SmolLM2's own embeddings of tokens, where the answer must be that to the tokens; elsewhere they are random
but fixed and stand for pictures that mean nothing.
"""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from redis.asyncio import Redis
from safetensors import safe_open
from tokenizers import Tokenizer

from infra import keys, model_files
from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from infra.prefix_index import PrefixIndex
from infra.redis_client import connect
from schemas.errors import TriptychError
from schemas.jobs import GenerateJob, Head, JsonSchema, Sampling
from schemas.manifest import Encoder, Manifest
from schemas.media import Artifact, Embeds
from schemas.refs import BlobRef
from schemas.signals import Beat
from tests import models
from tests.waiting import until
from topics import safetensors
from topics.steering import namespaces
from topics.steering.placer import IndexPlacer
from topics.steering.policy import parse_policy
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer
from workers.artifact_cache import ArtifactCache
from workers.assembly import Assembly
from workers.engine import Delta, End, Rows, Step, Unrunnable
from workers.engines.vllm import VllmEngine
from workers.job_queue import JobQueue
from workers.presence import Presence

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.services,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
    # vLLM and torch warn about themselves while they start; that is not ours to mend.
    pytest.mark.filterwarnings("default"),
]

ME = Incarnation("w", 1)
BLOCK = 32
WIDTH = 576
PLACEHOLDER = 5  # <file_sep>
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
ANSWER = "The capital of France is Paris."

Matrix = NDArray[np.float32]


def with_vision() -> Manifest:
    whole = models.manifest()
    vision = Encoder("none: the rows come from the test", yields="embeddings", placeholder="<file_sep>")
    return msgspec.structs.replace(
        whole,
        id=f"{whole.id}-{uuid4().hex[:8]}",
        encoders={"vision": vision},
        limits=msgspec.structs.replace(whole.limits, context_tokens=1024),
    )


class World:
    """One worker: engine, assembly, presence in the index; and the placer of a gateway."""

    def __init__(self, engine: VllmEngine, redis: Redis, manifest: Manifest, path: Path) -> None:
        self.engine = engine
        self.manifest = manifest
        self.metrics = Metrics()
        self.blobs = MemoryBlobs()
        clock = SystemClock()
        cache = ArtifactCache(self.blobs, 64 << 20, manifest.id, self.metrics, clock)
        self.assembly = Assembly(engine, cache, MemoryArtifactNotes(clock))
        files = model_files.read(path)
        self.tokenizer = Tokenizer.from_file(str(files.tokenizer_json))
        with safe_open(path / "model.safetensors", "np") as weights:
            self.table: Matrix = weights.get_tensor("model.embed_tokens.weight").astype(np.float32)
        self._redis = redis
        index = PrefixIndex(redis, manifest.id)
        space = namespaces.key_space(manifest, files.chat_template)
        self._presence = Presence(index, space, ME, engine, JobQueue(), self.metrics, clock)
        steerer = Steerer(index, parse_policy("affinity"), random.Random(1))
        releases = Releases(index.release, clock)
        self._placer = IndexPlacer(space, manifest.partitions, steerer, releases, self.metrics, clock)

    async def live(self) -> None:
        await self._redis.set(keys.alive(self.manifest.id, ME.worker), ME.epoch)
        await self._presence.run()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    async def picture(self, rows: Matrix, offset: int = 0, dtype: str = "float32") -> Embeds:
        """Stored, as an encoder stores it."""
        digest = uuid4().hex
        artifact = Artifact("embeddings", "fingerprint", digest, len(rows), rows.shape[1], dtype)
        data = safetensors.pack(artifact, rows.tobytes())
        key = f"artifacts/fingerprint/{digest}.safetensors"
        await self.blobs.put(_ref(key, data), data)
        return Embeds(offset, len(rows), key, digest)

    def job(self, prompt: Sequence[int], *pictures: Embeds, **sampling: object) -> GenerateJob:
        head = Head(uuid4().hex, self.manifest.id, deadline_at=2e9, created_at=0.0, reply_to="")
        how = Sampling(**{"max_tokens": 12, "temperature": 0.0, **sampling})  # type: ignore[arg-type]  # tests' own
        return GenerateJob(head, list(prompt), how, embeds=list(pictures))

    async def run(self, job: GenerateJob, rows: Sequence[Rows] | None = None) -> list[Step]:
        found = await self.assembly.rows(job) if rows is None else rows
        async with aclosing(self.engine.run(job, found)) as steps:
            return [step async for step in steps]

    async def cached(self, job: GenerateJob) -> int:
        return end(await self.run(job)).cached_tokens

    async def predicted(self, job: GenerateJob) -> int:
        view = PoolView({0: ME}, {ME.worker: Beat(ME.worker, ME.epoch, at=0.0)})
        placed = await self._placer.place(job, view, {})
        assert placed.worker == ME.worker and placed.job.placement is not None, "decided on the index"
        return placed.predicted_tokens


def _ref(key: str, data: bytes) -> BlobRef:
    return BlobRef(key, hashlib.sha256(data).hexdigest(), len(data))


def noise(seed: int, rows: int, width: int = WIDTH) -> Matrix:
    return (np.random.default_rng(seed).standard_normal((rows, width)) * 0.1).astype(np.float32)


def tokens(seed: int, count: int) -> list[int]:
    return [int(one) for one in np.random.default_rng(seed).integers(1_000, 40_000, count)]


def text(steps: list[Step], index: int = 0) -> str:
    return "".join(step.text for step in steps if isinstance(step, Delta) and step.index == index)


def end(steps: list[Step]) -> End:
    assert isinstance(steps[-1], End)
    return steps[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(model_dir: Path, redis_url: str) -> AsyncIterator[World]:
    manifest, redis, path = with_vision(), connect(redis_url), model_dir / models.MODEL
    engine = VllmEngine(manifest, path)
    await engine.start(lambda phase: None)
    one = World(engine, redis, manifest, path)
    living = asyncio.create_task(one.live())
    yield one
    living.cancel()
    await asyncio.wait([living])
    await engine.close()
    await redis.aclose()


async def question(world: World, first: int = 5, last: int = 13) -> tuple[list[int], Embeds]:
    """The question about France, some tokens of which are given as the rows that they stand for."""
    ids = world.ids(QUESTION)
    picture = await world.picture(world.table[ids[first:last]], first)
    return [*ids[:first], *[PLACEHOLDER] * (last - first), *ids[last:]], picture


async def test_rows_that_are_a_tokens_own_give_the_answer_to_the_tokens(world: World) -> None:
    assert world.engine.embeds is not None and world.engine.embeds.width == WIDTH
    assert world.engine.embeds.placeholders == {PLACEHOLDER}
    plain = await world.run(world.job(world.ids(QUESTION)))
    prompt, picture = await question(world)
    mixed = await world.run(world.job(prompt, picture))
    assert text(mixed) == text(plain) == ANSWER
    assert end(mixed).prompt_tokens == len(prompt) == end(plain).prompt_tokens
    swapped = await world.picture(world.table[world.ids(" capital Germany of is") * 2], 5)
    assert text(await world.run(world.job(prompt, msgspec.structs.replace(swapped, length=8)))) != ANSWER


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
async def test_rows_of_other_dtypes_are_taken(world: World, dtype: str) -> None:
    """SmolLM2's table is float16, so that one is exact."""
    import torch

    prompt, _ = await question(world)
    rows = torch.from_numpy(world.table[world.ids(QUESTION)[5:13]]).to(getattr(torch, dtype))
    raw = memoryview(rows.view(torch.uint8).numpy().tobytes())
    one = Embeds(5, 8, "none", "d")
    steps = await world.run(world.job(prompt, one), [Rows(5, 8, WIDTH, dtype, raw, "d")])
    assert text(steps) == ANSWER


async def test_many_choices_json_log_probabilities_and_stop_strings_work_with_rows(world: World) -> None:
    prompt, picture = await question(world)
    many = await world.run(world.job(prompt, picture, n=2, temperature=1.0, seed=3, max_tokens=6, logprobs=2))
    assert len({text(many, 0), text(many, 1)}) == 2 and end(many).completion_tokens == 12
    found = [one for step in many if isinstance(step, Delta) and step.index == 1 for one in step.logprobs or []]
    assert b"".join(one.raw for one in found).decode() == text(many, 1)
    schema = JsonSchema(json.dumps({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}},
                                    "required": ["city"], "additionalProperties": False}))  # fmt: skip
    strict = await world.run(world.job(prompt, picture, constraint=schema, max_tokens=30))
    assert json.loads(text(strict)) == {"city": "Paris"}
    assert text(await world.run(world.job(prompt, picture, stop=["Paris"]))) == "The capital of France is "


async def test_a_second_turn_about_a_picture_is_steered_home_and_hits(world: World) -> None:
    picture = await world.picture(noise(1, 100), 40)
    prompt = [*tokens(1, 40), *[PLACEHOLDER] * 100, *tokens(2, 30)]
    first = world.job(prompt, picture)
    assert (await world.predicted(first), await world.cached(first)) == (0, 0)
    answered = await world.run(world.job(prompt, picture, max_tokens=60, ignore_eos=True))
    answer = [one for step in answered if isinstance(step, Delta) for one in step.token_ids]
    whole = len(prompt) // BLOCK * BLOCK
    second = world.job([*prompt, *answer, *tokens(3, 20)], picture)
    await until(lambda: _is(world, second, whole))
    assert await world.cached(second) == whole
    third = world.job([*second.prompt_ids, *tokens(4, 40)], picture)
    longer = len(second.prompt_ids) // BLOCK * BLOCK
    await until(lambda: _is(world, third, longer))
    assert await world.cached(third) == longer


async def _is(world: World, job: GenerateJob, predicted: int) -> bool:
    return await world.predicted(job) == predicted


async def test_another_picture_shares_only_what_comes_before_it(world: World) -> None:
    """Blocks of text in front of the first picture are shared among prompts with pictures, as vLLM keys them."""
    one, other = await world.picture(noise(2, 70), 70), await world.picture(noise(3, 70), 70)
    prompt = [*tokens(5, 70), *[PLACEHOLDER] * 70, *tokens(6, 20)]
    assert await world.cached(world.job(prompt, one)) == 0
    before = 70 // BLOCK * BLOCK
    await until(lambda: _is(world, world.job(prompt, one), len(prompt) // BLOCK * BLOCK))
    assert await world.predicted(world.job(prompt, other)) == before
    assert await world.cached(world.job(prompt, other)) == before
    moved = world.job([*prompt[:70], *tokens(7, 3), *prompt[70:]], msgspec.structs.replace(one, offset=73))
    assert (await world.predicted(moved), await world.cached(moved)) == (before, before)


async def test_two_pictures_and_one_of_equal_rows_throughout_are_keyed_right(world: World) -> None:
    """All blocks of a uniform picture have the same content: only what is before them tells them apart."""
    uniform = await world.picture(np.repeat(noise(4, 1), 96, axis=0), 32)
    busy = await world.picture(noise(5, 40), 140)
    prompt = [*tokens(8, 32), *[PLACEHOLDER] * 96, *tokens(9, 12), *[PLACEHOLDER] * 40, *tokens(10, 20)]
    job = world.job(prompt, busy, uniform)
    assert await world.cached(job) == 0
    whole = len(prompt) // BLOCK * BLOCK
    await until(lambda: _is(world, job, whole))
    assert await world.cached(job) == whole
    longer = await world.picture(np.repeat(noise(4, 1), 128, axis=0), 32)
    again = world.job([*prompt[:32], *[PLACEHOLDER] * 128, *tokens(9, 12)], longer)
    # The engine knows the content; the index counts the same rows out of another file as another picture.
    assert await world.predicted(again) == 32 < await world.cached(again)


async def test_a_prompt_of_tokens_alone_shares_nothing_with_one_that_has_rows(world: World) -> None:
    picture = await world.picture(noise(6, 20), 100)
    prompt = [*tokens(11, 100), *[PLACEHOLDER] * 20, *tokens(12, 20)]
    mixed, plain = world.job(prompt, picture), world.job(prompt)
    assert await world.cached(mixed) == 0
    await until(lambda: _is(world, mixed, len(prompt) // BLOCK * BLOCK))
    assert (await world.predicted(plain), await world.cached(plain)) == (0, 0)
    await until(lambda: _is(world, plain, len(prompt) // BLOCK * BLOCK))
    assert await world.cached(plain) == len(prompt) // BLOCK * BLOCK


async def test_rows_of_zeros_are_not_taken_for_tokens_of_id_zero(world: World) -> None:
    """vLLM shows both as zeros with zeros; it would answer to the one with the cache of the other."""
    busy = await world.picture(noise(10, 8), 70)
    black = await world.picture(np.zeros((BLOCK, WIDTH), dtype=np.float32), BLOCK)
    middle = [*tokens(15, 6), *[PLACEHOLDER] * 8, *tokens(16, 4)]
    zeros = [*tokens(17, BLOCK), *[0] * BLOCK, *middle]
    rows = [*tokens(17, BLOCK), *[PLACEHOLDER] * BLOCK, *middle]
    assert await world.cached(world.job(zeros, busy)) == 0
    assert await world.cached(world.job(rows, black, busy)) == BLOCK


async def test_rows_that_do_not_fit_never_reach_the_engine_which_lives(world: World) -> None:
    prompt = [*tokens(13, 8), *[PLACEHOLDER] * 8, *tokens(14, 4)]
    good = await world.picture(noise(7, 8), 8)
    narrow = await world.picture(noise(8, 8, WIDTH - 1), 8)
    short = msgspec.structs.replace(await world.picture(noise(9, 7), 8), length=8)
    outside = msgspec.structs.replace(good, offset=14)
    over_text = msgspec.structs.replace(good, offset=7)
    gone = msgspec.structs.replace(good, artifact="artifacts/gone")
    for wrong, code in (
        (narrow, "internal"),
        (short, "internal"),
        (outside, "invalid_request"),
        (over_text, "invalid_request"),
        (gone, "artifact_missing"),
    ):
        with pytest.raises(TriptychError) as fault:
            await world.run(world.job(prompt, wrong))
        assert fault.value.code == code
    raw = memoryview(noise(8, 8, WIDTH - 1).tobytes())
    with pytest.raises(Unrunnable):
        await world.run(world.job(prompt, narrow), [Rows(8, 8, WIDTH - 1, "float32", raw, "d")])
    nothing = await world.picture(np.full((8, WIDTH), np.nan, dtype=np.float32), 8)
    with pytest.raises(ValueError, match="finite"):
        await world.run(world.job(prompt, nothing))
    with pytest.raises(ValueError, match="0 of 1"):
        await world.run(world.job(prompt, good), [])
    assert end(await world.run(world.job(prompt, good))).completion_tokens > 0


async def test_what_was_fetched_is_counted_and_nothing_was_lost_or_misread(world: World) -> None:
    page = world.metrics.render().decode()
    assert f'triptych_artifact_fetch_seconds_count{{model="{world.manifest.id}"}}' in page
    assert f'triptych_artifact_cache_hits_total{{model="{world.manifest.id}"}}' in page
    assert "triptych_feed_gaps_total{" not in page
