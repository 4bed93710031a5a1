"""Block keys: what two prompts share, as far as the KV cache can tell.

A key is a chain hash over fixed-size blocks of the assembled prompt, begun with a namespace, so equal keys mean equal
prefixes under one model, template, adapter and tenant. Our keys are our own: an engine's block hashes are something
else.
"""

from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

KEY_BYTES = 8
STATE_BYTES = 16

Touch = tuple[int, str]  # where an item begins, counted from the start of the block; the digest of its content


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

    root: bytes  # the state before the first block
    states: tuple[bytes, ...] = ()  # after each block

    @property
    def state(self) -> bytes:
        return self.states[-1] if self.states else self.root

    @property
    def keys(self) -> list[bytes]:
        return [key(state) for state in self.states]


def key(state: bytes) -> bytes:
    """What the index knows a block by: a part of the state is enough to steer by, and half the size."""
    return state[:KEY_BYTES]


def begin(namespace: Namespace) -> Chain:
    """The empty prompt."""
    return Chain(blake2b(msgspec.json.encode(namespace), digest_size=STATE_BYTES).digest())


def touches(media: Sequence[Media], block_tokens: int) -> dict[int, list[Touch]]:
    """By block, every item that lies in it."""
    touching: dict[int, list[Touch]] = {}
    for item in media:
        for block in range(item.offset // block_tokens, (item.offset + item.length - 1) // block_tokens + 1):
            touching.setdefault(block, []).append((item.offset - block * block_tokens, item.digest))
    return touching


def extend(chain: Chain, token_ids: Sequence[int], block_tokens: int, media: Sequence[Media] = ()) -> Chain:
    """Keys of every full block of `token_ids`, computing only those that `chain` lacks.

    The chain must have been made from a prefix of these tokens and media, with the same block size. 100,000 tokens
    take a few milliseconds: call it in a thread for prompts that long.
    """
    done = len(chain.states)
    touching = {block - done: items for block, items in touches(media, block_tokens).items()}
    return append(chain, token_ids[done * block_tokens :], block_tokens, touching)


def append(chain: Chain, token_ids: Sequence[int], block_tokens: int, touching: Mapping[int, Sequence[Touch]]) -> Chain:
    """Go on with these tokens only. `touching`: by block, every item that lies in it, and where it begins."""
    packed = memoryview(array("I", token_ids)).cast("B")
    return Chain(chain.root, (*chain.states, *states_after(chain.state, packed, 4 * block_tokens, touching)))


def states_after(
    state: bytes, packed: memoryview, block_bytes: int, touching: Mapping[int, Sequence[Touch]]
) -> list[bytes]:
    """The state after each full block of these tokens (four bytes each).

    Placeholder ids are the same for all pictures; the digest is what tells them apart.
    """
    states = []
    for number, start in enumerate(range(0, len(packed) - block_bytes + 1, block_bytes)):
        one = blake2b(state, digest_size=STATE_BYTES)
        one.update(packed[start : start + block_bytes])
        if items := touching.get(number):
            one.update(msgspec.json.encode(items))
        state = one.digest()
        states.append(state)
    return states
