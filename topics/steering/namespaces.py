"""How the prompts of a served model are keyed: decided once, for those that steer and those that report.

What differs within one model (tenant, embeddings) reaches the worker as the engine's cache salt, made from the
namespace: the engine then keeps apart exactly what our keys keep apart, and its cache events say which chain they
belong to. A prompt without a salt is in the model's plain namespace.
"""

import math
from hashlib import blake2b
from pathlib import Path

import msgspec

from infra import model_files, model_paths
from schemas.jobs import GenerateJob
from schemas.manifest import Manifest, Source
from topics.steering.blocks import Chain, Media, Namespace, begin

_SALT = "tri-"
_DIGEST_BYTES = 8


class KeySpace(msgspec.Struct, frozen=True):
    """What block keys of one LLM's prompts are made with. Gateways, encoders and workers must have the same one."""

    model: str  # manifest id of the LLM
    plain: Namespace
    block_tokens: int  # of our blocks


def of_model(llm: Manifest, model_dir: Path) -> KeySpace:
    """By the LLM's own manifest and the files in its folder.

    Raises:
        ModelMissing: the folder does not hold the model.
    """
    return key_space(llm, model_files.chat_template(model_paths.of_llm(llm, model_dir)))


def key_space(llm: Manifest, template: str) -> KeySpace:
    """`template`: the text of its chat template."""
    return KeySpace(llm.id, plain(llm, template), block_tokens(llm))


def plain(llm: Manifest, template: str) -> Namespace:
    """Of prompts that are token ids only and shared by all tenants. `template`: the text of the chat template.

    Weights, an adapter that is laid over them, number formats: whatever the manifest says of these changes the keys.
    """
    engine, source = llm.engine, llm.source
    return Namespace(
        llm.id,
        revision=_digest(source.base_source or source),
        dtype=f"{engine.dtype}/{engine.cpu_dtype}",
        template=_digest(template),
        lora=_digest(msgspec.structs.replace(source, base_source=None)) if source.kind == "delta" else "",
    )


def with_embeds(namespace: Namespace) -> Namespace:
    """Of prompts that are alike in all else, but in which embeddings stand in place of some tokens."""
    return msgspec.structs.replace(namespace, kind="embeds")


def of(plain: Namespace, job: GenerateJob) -> Namespace:
    """Where the job's prompt is, in a model whose prompts are else in `plain`. No tenant shares with another."""
    own = msgspec.structs.replace(plain, salt=job.head.tenant) if job.head.tenant else plain
    return with_embeds(own) if job.embeds else own


def media(job: GenerateJob) -> list[Media]:
    """What block keys take for the job's embeddings, in order."""
    ordered = sorted(job.embeds, key=lambda one: one.offset)
    return [Media(one.offset, one.length, one.digest) for one in ordered]


def block_tokens(manifest: Manifest) -> int:
    """The block size of our keys: what the engines of all builds can report in whole blocks of their own."""
    return math.lcm(manifest.engine.block_tokens, manifest.engine.cpu_block_tokens)


def salt_of(plain: Namespace, job: GenerateJob) -> str | None:
    """What to give the engine with the job's prompt; None for one in the plain namespace."""
    namespace = of(plain, job)
    return None if namespace == plain else cache_salt(namespace)


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


def _digest(of: str | Source) -> str:
    return blake2b(msgspec.json.encode(of, order="deterministic"), digest_size=_DIGEST_BYTES).hexdigest()
