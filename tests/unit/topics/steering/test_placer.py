"""Which keys a decision is made by. The decisions themselves: tests/contracts."""

from collections.abc import Sequence

import msgspec
import pytest

from infra.clock import SystemClock
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import Limits, Manifest, Source
from schemas.media import Embeds
from schemas.signals import Beat
from schemas.steering import Ask, Choice
from topics.steering import namespaces, placer
from topics.steering.blocks import Media, begin, extend
from topics.steering.placer import IndexPlacer
from topics.steering.steerer import Steerer

MANIFEST = Manifest("m", Source("hf", repo="o/m", revision="r"), Limits(context_tokens=2048))
SIZE = namespaces.block_tokens(MANIFEST)
VIEW = PoolView({0: Incarnation("w", 1)}, {"w": Beat("w", 1, at=0.0)})
PROMPT = list(range(4 * SIZE))


class Decider(Steerer):
    """Takes the only worker and remembers what it was asked."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    async def place(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        self.keys = list(block_keys)
        return Choice(str(workers[0]), "only one", len(block_keys))


def job(*embeds: Embeds) -> GenerateJob:
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="gw")
    return GenerateJob(head, PROMPT, Sampling(max_tokens=1), embeds=list(embeds))


async def keys_of(one: GenerateJob) -> list[bytes]:
    decider = Decider()
    placed = await IndexPlacer(MANIFEST, decider, SystemClock()).place(one, VIEW, {})
    assert placed.job.embeds == one.embeds and placed.predicted_tokens == len(PROMPT)
    return decider.keys


async def test_tokens_alone_are_in_the_models_plain_namespace() -> None:
    assert await keys_of(job()) == extend(begin(namespaces.plain(MANIFEST)), PROMPT, SIZE).keys


@pytest.mark.parametrize("inline_tokens", [placer.INLINE_TOKENS, 1])
async def test_embeddings_enter_by_their_digests_in_order_of_their_places_in_a_namespace_of_their_own(
    inline_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placer, "INLINE_TOKENS", inline_tokens)
    cat, dog = Embeds(SIZE + 2, 5, "artifacts/a", "cat"), Embeds(SIZE + 9, 40, "artifacts/b", "dog")
    root = begin(namespaces.with_embeds(namespaces.plain(MANIFEST)))
    expected = extend(root, PROMPT, SIZE, [Media(SIZE + 2, 5, "cat"), Media(SIZE + 9, 40, "dog")]).keys
    assert await keys_of(job(dog, cat)) == await keys_of(job(cat, dog)) == expected
    assert expected[0] == extend(root, PROMPT, SIZE).keys[0] != (await keys_of(job()))[0]
    other = await keys_of(job(cat, msgspec.structs.replace(dog, digest="wolf")))
    assert other[:1] == expected[:1] and not set(other[1:]) & set(expected[1:])
