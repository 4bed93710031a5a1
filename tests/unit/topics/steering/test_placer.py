"""Which keys a decision is made by. The decisions themselves: tests/contracts."""

from collections.abc import Sequence

import msgspec
import pytest

from infra.clock import SystemClock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import Limits, Manifest, Source
from schemas.media import Embeds
from schemas.signals import Beat
from schemas.steering import Alternative, Ask, Choice, Decision
from tests.dispatching import Released
from topics.steering import namespaces, placer
from topics.steering.blocks import Media, begin, extend
from topics.steering.placer import IndexPlacer
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer

MANIFEST = Manifest("m", Source("hf", repo="o/m", revision="r"), Limits(context_tokens=2048))
SIZE = namespaces.block_tokens(MANIFEST)
SPACE = namespaces.key_space(MANIFEST, "template")
VIEW = PoolView({0: Incarnation("w", 1)}, {"w": Beat("w", 1, at=0.0)})
CLOCK = SystemClock()
PROMPT = list(range(4 * SIZE))


class Decider(Steerer):
    """Takes the only worker and remembers what it was asked. `others`: alternatives; `down`: it cannot say."""

    def __init__(self, *others: Alternative, down: bool = False) -> None:
        self.keys: list[bytes] = []
        self._others = others
        self._down = down

    async def place(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        self.keys = list(block_keys)
        if self._down:
            raise Unavailable("nobody there")
        return Choice(str(workers[0]), "only one", len(block_keys), alternatives=self._others)


def job(*embeds: Embeds) -> GenerateJob:
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="gw")
    return GenerateJob(head, PROMPT, Sampling(max_tokens=1), embeds=list(embeds))


async def keys_of(one: GenerateJob) -> list[bytes]:
    decider = Decider()
    placed = await placing(decider).place(one, VIEW, {})
    assert placed.job.embeds == one.embeds and placed.predicted_tokens == len(PROMPT)
    return decider.keys


async def test_tokens_alone_are_in_the_models_plain_namespace() -> None:
    assert await keys_of(job()) == extend(begin(SPACE.plain), PROMPT, SIZE).keys


@pytest.mark.parametrize("inline_tokens", [placer.INLINE_TOKENS, 1])
async def test_embeddings_enter_by_their_digests_in_order_of_their_places_in_a_namespace_of_their_own(
    inline_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placer, "INLINE_TOKENS", inline_tokens)
    cat, dog = Embeds(SIZE + 2, 5, "artifacts/a", "cat"), Embeds(SIZE + 9, 40, "artifacts/b", "dog")
    root = begin(namespaces.with_embeds(SPACE.plain))
    expected = extend(root, PROMPT, SIZE, [Media(SIZE + 2, 5, "cat"), Media(SIZE + 9, 40, "dog")]).keys
    assert await keys_of(job(dog, cat)) == await keys_of(job(cat, dog)) == expected
    assert expected[0] == extend(root, PROMPT, SIZE).keys[0] != (await keys_of(job()))[0]
    other = await keys_of(job(cat, msgspec.structs.replace(dog, digest="wolf")))
    assert other[:1] == expected[:1] and not set(other[1:]) & set(expected[1:])


def placing(decider: Decider, metrics: Metrics | None = None, releases: Releases | None = None) -> IndexPlacer:
    releases = releases or Releases(Released(), CLOCK)
    return IndexPlacer(SPACE, 12, decider, releases, metrics or Metrics(), CLOCK)


async def test_of_a_decision_the_nearest_alternatives_are_told_cheapest_first() -> None:
    others = [Alternative(f"w{number}:1", float(number)) for number in reversed(range(60))]
    placed = await placing(Decider(*others)).place(job(), VIEW, {})
    nearest = {f"w{number}:1": float(number) for number in range(placer.ALTERNATIVES)}
    assert placed.decision == Decision("w", 0, "only one", len(PROMPT), 0, nearest)
    assert list(placed.decision.alternatives) == list(nearest)
    assert placed.telling.decision == placed.decision
    assert placed.job.decision is None  # the gateway knows it without being told


async def test_hops_are_counted_also_over_a_placement_that_reserves_nothing() -> None:
    known, unknown = placing(Decider()), placing(Decider(down=True))
    first = await known.place(job(), VIEW, {})
    second = await unknown.place(first.telling, VIEW, {})
    assert second.job.placement is None
    third = await known.place(second.telling, VIEW, {})
    assert [one.decision.hops for one in (first, second, third)] == [0, 1, 2]
    assert third.job.placement is not None
    assert (third.job.placement.hops, third.job.placement.ticket) == (2, "r#2")
    assert third.telling.decision == third.decision  # not that of the hop before


async def test_decisions_are_counted_by_reason() -> None:
    metrics = Metrics()
    await placing(Decider(), metrics).place(job(), VIEW, {})
    await placing(Decider(down=True), metrics).place(job(), VIEW, {})
    page = metrics.render().decode()
    for reason in ("only one", "least_loaded"):
        assert f'triptych_steering_decisions_total{{model="m",reason="{reason}"}} 1.0' in page
