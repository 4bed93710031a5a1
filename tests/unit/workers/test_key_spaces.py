"""Those that steer and those that report make the same keys of a prompt, and other ones when anything else changes."""

from collections.abc import Sequence

import msgspec
import pytest

from infra.clock import SystemClock
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import EngineConfig, Limits, Manifest, Source
from schemas.signals import Beat
from schemas.steering import Ask, Choice
from tests.dispatching import Released
from topics.steering import namespaces
from topics.steering.namespaces import KeySpace
from topics.steering.placer import IndexPlacer
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer
from workers.block_map import BlockMap
from workers.engine import Stored

BASE = Source("hf", repo="o/m", revision="r")
MANIFEST = Manifest("m", BASE, Limits(context_tokens=2048))
ADAPTED = msgspec.structs.replace(MANIFEST, source=Source("delta", pins={"f": "1a"}, base="m", base_source=BASE))
FLOAT16 = msgspec.structs.replace(MANIFEST, engine=EngineConfig(dtype="float16"))
PROMPT = list(range(128))
VIEW = PoolView({0: Incarnation("w", 1)}, {"w": Beat("w", 1, at=0.0)})

PLAIN = (MANIFEST, "template", "")
CHANGES = {
    "dtype": (FLOAT16, "template", ""),
    "template": (MANIFEST, "another template", ""),
    "adapter": (ADAPTED, "template", ""),
    "tenant": (MANIFEST, "template", "acme"),
}


class Asked(Steerer):
    """Keeps the keys that it is asked with."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    async def place(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        self.keys = list(block_keys)
        return None


def job(tenant: str) -> GenerateJob:
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="gw", tenant=tenant)
    return GenerateJob(head, PROMPT, Sampling(max_tokens=1))


async def steered_by(space: KeySpace, one: GenerateJob) -> list[bytes]:
    """What a gateway looks for."""
    asked = Asked()
    clock = SystemClock()
    await IndexPlacer(space, 1, asked, Releases(Released(), clock), Metrics(), clock).place(one, VIEW, {})
    return asked.keys


def reported_by(space: KeySpace, one: GenerateJob) -> list[bytes]:
    """What a worker tells when its engine has stored the prompt, with the salt that it was given."""
    blocks, size = BlockMap(space.block_tokens, space.plain), 16
    salt = namespaces.salt_of(space.plain, one)
    hashes = list(range(len(PROMPT) // size))
    extras: list[Sequence[object] | None] = [(salt,) if salt and not number else None for number in hashes]
    stored = Stored(hashes, None, PROMPT, size, extras)
    return [key for there, key in blocks.changes(stored) if there]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_gives_other_keys_on_both_sides_and_the_same_on_each(change: str) -> None:
    keys = []
    for manifest, template, tenant in (PLAIN, CHANGES[change]):
        space = namespaces.key_space(manifest, template)
        steered, reported = await steered_by(space, job(tenant)), reported_by(space, job(tenant))
        assert steered == reported
        assert len(steered) == len(PROMPT) // space.block_tokens
        keys.append(steered)
    assert set(keys[0]).isdisjoint(keys[1])


async def test_gateway_and_worker_that_disagree_about_the_template_share_no_key() -> None:
    one, other = (namespaces.key_space(MANIFEST, template) for template in ("old", "new"))
    assert set(await steered_by(one, job(""))).isdisjoint(reported_by(other, job("")))
