"""Which namespace the prompts of a served model are in: decided once, for those that steer and those that report.

What differs within one model (adapter, tenant, embeddings) reaches the worker as the engine's cache salt, made from the
namespace: the engine then keeps apart exactly what our keys keep apart, and its cache events say which chain they
belong to. A prompt without a salt is in the model's plain namespace.
"""

import math

import msgspec

from schemas.jobs import GenerateJob
from schemas.manifest import Manifest
from topics.steering.blocks import Chain, Media, Namespace, begin

_SALT = "tri-"


def plain(manifest: Manifest) -> Namespace:
    """Of prompts that are token ids only and shared by all tenants."""
    return Namespace(manifest.id, manifest.source.version or manifest.source.revision)


def with_embeds(namespace: Namespace) -> Namespace:
    """Of prompts that are alike in all else, but in which embeddings stand in place of some tokens."""
    return msgspec.structs.replace(namespace, kind="embeds")


def of(plain: Namespace, job: GenerateJob) -> Namespace:
    """Where the job's prompt is, in a model whose prompts without embeddings are in `plain`."""
    return with_embeds(plain) if job.embeds else plain


def media(job: GenerateJob) -> list[Media]:
    """What block keys take for the job's embeddings, in order."""
    ordered = sorted(job.embeds, key=lambda one: one.offset)
    return [Media(one.offset, one.length, one.digest) for one in ordered]


def block_tokens(manifest: Manifest) -> int:
    """The block size of our keys: what the engines of all builds can report in whole blocks of their own."""
    return math.lcm(manifest.engine.block_tokens, manifest.engine.cpu_block_tokens)


def cache_salt(namespace: Namespace) -> str:
    """What to give the engine with every prompt of this namespace."""
    return _SALT + begin(namespace).root.hex()


def of_salt(salt: str) -> Chain | None:
    """The empty prompt of the namespace that the salt was made from; None when it is not one of ours."""
    if not salt.startswith(_SALT):
        return None
    try:
        return Chain(bytes.fromhex(salt.removeprefix(_SALT)))
    except ValueError:
        return None
