"""Block keys: what two prompts share, as far as the KV cache can tell.

A key is a chain hash over fixed-size blocks of the assembled prompt, begun with a namespace, so equal keys mean equal
prefixes under one model, template, adapter and tenant. Our keys are our own: an engine's block hashes are something
else.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

KEY_BYTES = 8
_STATE_BYTES = 16


class Namespace(msgspec.Struct, frozen=True):
    """Everything besides the tokens that the KV cache of a prompt depends on, and whom it may be shared with."""

    model: str
    revision: str = ""
    dtype: str = ""
    kv_dtype: str = ""
    template: str = ""  # digest of the chat template
    tools: str = ""  # digest of the tools as rendered
    lora: str = ""
    salt: str = ""  # the tenant's; empty where sharing is switched on
    kind: Literal["tokens", "embeds"] = "tokens"  # a prompt with embeddings shares nothing with one of tokens


class Media(msgspec.Struct, frozen=True):
    """An image, sound or video in the prompt: its placeholder positions and the digest of its content."""

    offset: int
    length: int
    digest: str


class Chain(msgspec.Struct, frozen=True):
    """Keys so far, and what is needed to go on: give it back with the longer prompt of the next turn."""

    keys: tuple[bytes, ...]
    state: bytes


def begin(namespace: Namespace) -> Chain:
    """The empty prompt."""
    return Chain((), blake2b(msgspec.json.encode(namespace), digest_size=_STATE_BYTES).digest())


def extend(chain: Chain, token_ids: Sequence[int], block_tokens: int, media: Sequence[Media] = ()) -> Chain:
    """Keys of every full block of `token_ids`, computing only those that `chain` lacks.

    The chain must have been made from a prefix of these tokens and media, with the same block size. 100,000 tokens
    take a few milliseconds: call it in a thread for prompts that long.
    """
    size, done = 4 * block_tokens, len(chain.keys)
    packed = memoryview(array("I", token_ids[done * block_tokens :])).cast("B")
    digests = _by_block(media, block_tokens)
    state, keys = chain.state, list(chain.keys)
    for start in range(0, len(packed) - size + 1, size):
        one = blake2b(state, digest_size=_STATE_BYTES)
        one.update(packed[start : start + size])
        if digests and (touching := digests.get(len(keys))):
            one.update(touching)
        state = one.digest()
        keys.append(state[:KEY_BYTES])
    return Chain(tuple(keys), state)


def _by_block(media: Sequence[Media], block_tokens: int) -> dict[int, bytes]:
    """What each block takes in besides its tokens: every item that touches it, and where the item begins in it.

    Placeholder ids are the same for all pictures; the digest is what tells them apart.
    """
    touching: dict[int, list[tuple[int, str]]] = {}
    for item in media:
        for block in range(item.offset // block_tokens, (item.offset + item.length - 1) // block_tokens + 1):
            touching.setdefault(block, []).append((item.offset - block * block_tokens, item.digest))
    return {block: msgspec.json.encode(items) for block, items in touching.items()}
