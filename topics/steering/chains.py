"""Block keys of whole prompts, computed only from where a prompt leaves all that came before it.

The turns of a conversation begin alike, and so do conversations with one system prompt. Every STRIDE_BLOCKS blocks the
states of the chain are remembered by the state before them and their content: what an earlier prompt had in common is
looked up a stride at a time instead of hashed block by block.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from topics.byte_lru import ByteLru
from topics.steering.blocks import STATE_BYTES, Chain, Media, Touch, states_after, touches

STRIDE_BLOCKS = 32
REMEMBERED_BYTES = 8 << 20
# A state is a bytes object in a tuple.
_STRIDE_BYTES = STRIDE_BLOCKS * (STATE_BYTES + 48)


class Chains:
    """For the prompts of one model. Safe to use from several threads."""

    def __init__(self, block_tokens: int, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        self._block_tokens = block_tokens
        self._remembered: ByteLru[bytes, tuple[bytes, ...]] = ByteLru(remembered_bytes)
        self.computed_blocks = 0  # since the beginning; the others were looked up

    def of(self, root: Chain, token_ids: Sequence[int], media: Sequence[Media] = ()) -> Chain:
        """What `blocks.extend` makes of the empty prompt `root`. 100,000 tokens take one to four milliseconds."""
        packed = memoryview(array("I", token_ids)).cast("B")
        block_bytes = 4 * self._block_tokens
        items = touches(media, self._block_tokens)
        state, states = root.root, list[bytes]()
        for first in range(0, len(packed) // block_bytes, STRIDE_BLOCKS):
            content = packed[first * block_bytes : (first + STRIDE_BLOCKS) * block_bytes]
            touching = {at - first: items[at] for at in range(first, first + STRIDE_BLOCKS) if at in items}
            states += self._stride(state, content, touching)
            state = states[-1]
        return Chain(root.root, tuple(states))

    def _stride(self, state: bytes, content: memoryview, touching: dict[int, list[Touch]]) -> Sequence[bytes]:
        """The states after each block of the content; the last stride of a prompt may be a short one."""
        if len(content) < STRIDE_BLOCKS * 4 * self._block_tokens:
            return self._computed(state, content, touching)
        name = blake2b(content, key=state, digest_size=STATE_BYTES)
        if touching:
            name.update(msgspec.json.encode(sorted(touching.items())))
        digest = name.digest()
        found = self._remembered.get(digest)
        if found is None:
            found = tuple(self._computed(state, content, touching))
            self._remembered.put(digest, found, _STRIDE_BYTES)
        return found

    def _computed(self, state: bytes, content: memoryview, touching: dict[int, list[Touch]]) -> list[bytes]:
        states = states_after(state, content, 4 * self._block_tokens, touching)
        self.computed_blocks += len(states)
        return states
